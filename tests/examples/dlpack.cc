// SPDX-License-Identifier: Apache-2.0
// Tensors of other libraries, and for them, through DLPack: no copy, and whoever owns the memory hears when it is no longer used.
#include <array>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <crossdevice/crossdevice.h>
#include <crossdevice/device/interop_dlpack.h>

namespace cd = crossdevice;
using cd::ReduceOp;

namespace {

/// What another library would hand over: its memory, a description of it, and what to call in the end.
struct Foreign {
  std::vector<float> values;
  std::array<std::int64_t, 1> shape{};
  DLManagedTensor managed{};
  bool is_returned = false;

  explicit Foreign(float value) : values(1000, value) {
    shape[0] = static_cast<std::int64_t>(values.size());
    managed.dl_tensor.data = values.data();
    managed.dl_tensor.device = {kDLCPU, 0};
    managed.dl_tensor.ndim = 1;
    managed.dl_tensor.dtype = {kDLFloat, 32, 1};
    managed.dl_tensor.shape = shape.data();
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      static_cast<Foreign*>(self->manager_ctx)->is_returned = true;
    };
  }
};

}  // namespace

int main() {
  Foreign one(1);
  Foreign two(2);
  bool is_right = true;
  {
    // DLPack knows one CPU: both are on CPU:0, so the sum goes to one place, the first one's memory.
    const cd::Tensor first = cd::from_dlpack(&one.managed);
    const cd::Tensor second = cd::from_dlpack(&two.managed);
    cd::ReductionToOneDevice ops;
    ops.reduce_into(ReduceOp::SUM, cd::PerReplica{first, second}, cd::PerReplica{first});
    is_right = one.values[0] == 3 && one.values[999] == 3 && two.values[999] == 2 &&
               !one.is_returned && !two.is_returned;
  }
  is_right = is_right && one.is_returned && two.is_returned;

  // The other way: a tensor of the library's pool for somebody else, who calls the deleter.
  DLManagedTensor* lent = nullptr;
  {
    const std::array<float, 3> values{1, 2, 3};
    lent = cd::to_dlpack(cd::Tensor::copy_of(std::span(values), {3}, "CPU:0"));
  }  // the tensor is gone, its memory is not
  is_right = is_right && static_cast<const float*>(lent->dl_tensor.data)[2] == 3;
  lent->deleter(lent);
  std::printf("%s\n", is_right ? "right" : "WRONG");
  return is_right ? 0 : 1;
}
