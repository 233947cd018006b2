// SPDX-License-Identifier: Apache-2.0
// NCCL communicators of your own: the library reduces with them. And the other way round: the library's, lent to you.
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include <dlfcn.h>

#include <crossdevice/comm/interop_nccl.h>
#include <crossdevice/crossdevice.h>

namespace cd = crossdevice;
using cd::ReduceOp;

namespace {

constexpr int kSkipped = 77;

/// Of the copy of NCCL that the library has loaded: communicators belong to the copy that made them.
template <class F>
F* function_of(const char* name) {
  void* const handle = ::dlopen(cd::nccl_library_path().c_str(), RTLD_NOW | RTLD_NOLOAD);
  return handle == nullptr ? nullptr : reinterpret_cast<F*>(::dlsym(handle, name));
}

bool sums_are_right(const cd::Devices& devices) {
  std::vector<cd::Tensor> components;
  components.reserve(devices.size());
  const std::vector<float> ones(1000, 1.0F);
  for (const cd::Device& device : devices) {
    components.push_back(cd::Tensor::copy_of(std::span(ones), {1000}, device));
  }
  cd::NcclAllReduce ops;
  const cd::PerReplica value(components);
  ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 60});
  const cd::Tensor here = cd::copy_to_device(value.values().back(), "CPU:0");
  ops.check();
  return here.span<const float>()[999] == static_cast<float>(devices.size());
}

}  // namespace

int main() {
  const int count = cd::num_gpus();
  if (count == 0 || cd::nccl_library_path().empty()) {
    std::printf("SKIPPED: %s\n", count == 0 ? "no GPU" : "no NCCL");
    return kSkipped;
  }
  std::vector<cd::Device> list;
  for (int i = 0; i < count; ++i) list.emplace_back("GPU:" + std::to_string(i));
  const cd::Devices devices(list);

  auto* const init_all = function_of<decltype(ncclCommInitAll)>("ncclCommInitAll");
  auto* const destroy = function_of<decltype(ncclCommDestroy)>("ncclCommDestroy");
  if (init_all == nullptr || destroy == nullptr) return 1;
  std::vector<ncclComm_t> mine(list.size());
  if (init_all(mine.data(), count, nullptr) != ncclSuccess) return 1;

  cd::adopt_nccl_communicators(devices, mine);
  bool is_right = sums_are_right(devices);  // over the communicators of your own
  cd::end_nccl_adoption(devices);
  for (ncclComm_t each : mine) is_right = destroy(each) == ncclSuccess && is_right;

  is_right = sums_are_right(devices) && is_right;  // over the library's
  const cd::LentNcclCommunicators lent(devices);
  is_right = is_right && lent.size() == count && lent[0] != nullptr;
  std::printf("%s\n", is_right ? "right" : "WRONG");
  return is_right ? 0 : 1;
}
