// SPDX-License-Identifier: Apache-2.0
// Tensors of other libraries: every field hostile but for the pointers, which either are null or point to as many numbers as ndim says. What is taken
// over is given back once, when its last handle dies; what is refused stays the caller's, but for another major version.
#include "crossdevice/device/dlpack.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/device/interop_dlpack.h"
#include "crossdevice/device/stream.h"

#include "fuzz/fuzz_target.h"

namespace crossdevice {
namespace {

constexpr int kMaxDims = 12;

template <class Managed>
Tensor take_over(Managed* managed, bool follows_stream) {
  CUstream_st* const default_stream = nullptr;
  return follows_stream ? from_dlpack(managed, from_cuda(default_stream)) : from_dlpack(managed);
}

/// Who has no tensor at all is refused, whichever overload it takes.
template <class Managed>
void check_nothing(bool follows_stream) {
  try {
    (void)take_over<Managed>(nullptr, follows_stream);
    FUZZ_FAIL("null refused");
  } catch (const ValueError&) {
  }
  try {
    (void)to_dlpack(Tensor());
    FUZZ_FAIL("no tensor refused");
  } catch (const ValueError&) {
  }
}

/// What the struct points to.
struct Foreign {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  alignas(64) std::array<std::byte, 4096> elements{};
  int num_deletions = 0;
};

void fill(fuzz::Input& input, DLTensor& tensor, Foreign& foreign) {
  tensor.ndim = static_cast<std::int32_t>(input.below(kMaxDims + 2)) - 1;
  const auto num_dims = static_cast<std::size_t>(std::max(tensor.ndim, 0));
  foreign.shape.resize(num_dims);
  foreign.strides.resize(num_dims);
  for (std::int64_t& dim : foreign.shape) {
    dim = input.below(4) == 0 ? input.number<std::int64_t>()
                              : static_cast<std::int64_t>(input.below(5));
  }
  const bool is_compact = input.coin();
  std::int64_t stride = 1;
  for (std::size_t axis = num_dims; axis-- > 0;) {
    foreign.strides[axis] = is_compact ? stride : input.number<std::int64_t>();
    if (__builtin_mul_overflow(stride, foreign.shape[axis], &stride)) stride = 1;
  }
  tensor.shape = input.below(8) == 1 ? nullptr : foreign.shape.data();
  tensor.strides = input.coin() ? nullptr : foreign.strides.data();
  tensor.data = input.below(8) == 1 ? nullptr : foreign.elements.data();
  tensor.byte_offset = input.below(4) == 1 ? input.number<std::uint64_t>() : input.below(128);
  tensor.dtype = {
      .code = input.number<std::uint8_t>(),
      .bits = input.number<std::uint8_t>(),
      .lanes = static_cast<std::uint16_t>(input.below(8) == 1 ? input.number<std::uint16_t>() : 1)};
  // A device's name is kept for the life of the process: few of them.
  std::int32_t type = kDLCPU;
  switch (input.below(8)) {
    case 1:
      type = kDLCUDA;
      break;
    case 2:
      type = kDLCUDAHost;
      break;
    case 3:
      type = input.number<std::int32_t>();
      break;
    default:
      break;
  }
  std::memcpy(&tensor.device.device_type, &type, sizeof type);
  tensor.device.device_id = input.number<std::int8_t>();
}

template <class Managed>
void lend_back(const Tensor& tensor, Managed* (*lend)(const Tensor&), bool read_only) {
  Managed* lent = nullptr;
  try {
    lent = lend(tensor);
  } catch (const ValueError&) {
    FUZZ_EXPECT(read_only);
    return;
  }
  const Tensor again = from_dlpack(lent);
  FUZZ_EXPECT(again.shape() == tensor.shape());
  FUZZ_EXPECT(again.dtype() == tensor.dtype());
  FUZZ_EXPECT(again.num_elements() == 0 || again.data() == tensor.data());
}

template <class Managed>
void check(fuzz::Input& input) {
  constexpr bool is_versioned = std::is_same_v<Managed, DLManagedTensorVersioned>;
  Foreign foreign;
  Managed managed{};
  fill(input, managed.dl_tensor, foreign);
  managed.manager_ctx = &foreign;
  const bool has_deleter = input.below(8) != 1;
  if (has_deleter) {
    managed.deleter = [](Managed* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->num_deletions;
    };
  }
  bool is_other_version = false;
  bool read_only = false;
  if constexpr (is_versioned) {
    managed.version = {.major = input.below(8) == 1 ? input.number<std::uint32_t>() : 1,
                       .minor = input.number<std::uint32_t>()};
    managed.flags = input.number<std::uint8_t>();
    is_other_version = managed.version.major != 1;
    read_only = (managed.flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
  }
  const int once = has_deleter ? 1 : 0;
  // Host memory follows no stream; that of a GPU would be waited for.
  const bool follows_stream =
      input.below(4) == 1 && managed.dl_tensor.device.device_type != kDLCUDA;
  check_nothing<Managed>(follows_stream);
  try {
    Tensor tensor = take_over(&managed, follows_stream);
    FUZZ_EXPECT(!is_other_version && !follows_stream && foreign.num_deletions == 0);
    FUZZ_EXPECT(tensor.shape().rank() == foreign.shape.size());
    FUZZ_EXPECT(tensor.is_read_only() == read_only);
    const Tensor handle = tensor;
    tensor = Tensor();
    FUZZ_EXPECT(foreign.num_deletions == 0);
    lend_back(handle, &to_dlpack, read_only);
    lend_back(handle, &to_dlpack_versioned, false);
    FUZZ_EXPECT(foreign.num_deletions == 0);
  } catch (const ValueError&) {
    FUZZ_EXPECT(foreign.num_deletions == (is_other_version ? once : 0));
    return;
  }
  FUZZ_EXPECT(foreign.num_deletions == once);
}

}  // namespace
}  // namespace crossdevice

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::fuzz::Input input(data, size);
  if (input.coin()) {
    crossdevice::check<DLManagedTensorVersioned>(input);
  } else {
    crossdevice::check<DLManagedTensor>(input);
  }
  return 0;
}
