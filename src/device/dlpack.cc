// SPDX-License-Identifier: Apache-2.0
/// Checks foreign tensors, takes them over, and lends out ours.
#include "crossdevice/device/dlpack.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/interop_dlpack.h"

#include "device/detail/logical_gpus.h"

namespace crossdevice {
namespace {

constexpr std::uint32_t kMajorVersion = 1;
constexpr std::uint32_t kMinorVersion = 1;

/// A foreign tensor, given back when the last of ours over it dies.
template <class Managed>
struct ForeignMemory : detail::TensorMemory {
  ForeignMemory() = default;
  ~ForeignMemory() {
    if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
  }
  ForeignMemory(const ForeignMemory&) = delete;
  ForeignMemory& operator=(const ForeignMemory&) = delete;

  Managed* managed = nullptr;
};

DType dtype_of_dlpack(const DLDataType& type) {
  if (type.lanes != 1) {
    throw ValueError(fmt::format("from_dlpack: expected 1 lane, got {}", type.lanes));
  }
  const std::optional<DType> dtype = dtype_from_dlpack({.code = type.code, .bits = type.bits});
  if (!dtype.has_value()) {
    throw ValueError(fmt::format("from_dlpack: no element type for DLPack code {} with {} bits",
                                 type.code, type.bits));
  }
  return *dtype;
}

Device device_of_dlpack(const DLDevice& device) {
  switch (static_cast<int>(device.device_type)) {
    case kDLCPU:
    case kDLCUDAHost:
    case kDLCUDAManaged:
      return "CPU:0";
    case kDLCUDA:
      return fmt::format("GPU:{}", detail::first_device_of_gpu(device.device_id));
    default:  // an int from another library, not one of our enumerations
      throw ValueError(fmt::format(
          "from_dlpack: expected host (1, 3, 13) or CUDA (2) memory, got DLPack device type {}",
          static_cast<int>(device.device_type)));
  }
}

Shape shape_of_dlpack(const DLTensor& tensor) {
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr)) {
    throw ValueError(fmt::format("from_dlpack: {} dimensions at {} are no shape", tensor.ndim,
                                 static_cast<const void*>(tensor.shape)));
  }
  return Shape(std::span<const std::int64_t>(tensor.shape, static_cast<std::size_t>(tensor.ndim)));
}

void require_compact(const DLTensor& tensor, const Shape& shape) {
  if (tensor.strides == nullptr || shape.num_elements() == 0) return;
  std::int64_t expected = 1;
  for (std::size_t axis = shape.rank(); axis-- > 0;) {
    if (shape[axis] != 1 && tensor.strides[axis] != expected) {
      throw ValueError(fmt::format(
          "from_dlpack: shape {} has strides ({}), expected compact row-major: {} at axis {}",
          shape.to_string(), fmt::join(std::span(tensor.strides, shape.rank()), ", "), expected,
          axis));
    }
    expected *= shape[axis];
  }
}

/// Throws or takes over, nothing in between.
template <class Managed>
Tensor take_over(Managed* managed, bool read_only, std::optional<StreamView> stream) {
  const DLTensor& foreign = managed->dl_tensor;
  const DType dtype = dtype_of_dlpack(foreign.dtype);
  const Device device = device_of_dlpack(foreign.device);
  const Shape shape = shape_of_dlpack(foreign);
  require_compact(foreign, shape);
  void* data = foreign.data;
  if (data != nullptr) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    if (foreign.byte_offset > std::numeric_limits<std::uintptr_t>::max() - address) {
      throw ValueError(
          fmt::format("from_dlpack: no memory lies {} bytes behind {}", foreign.byte_offset, data));
    }
    data = static_cast<std::byte*>(data) + foreign.byte_offset;
  }

  // A view makes the other checks; then the memory gets its owner.
  if (stream.has_value() && device.is_host()) {
    throw ValueError(fmt::format(
        "from_dlpack: {} is host memory, which follows no stream; expected CUDA memory (2)",
        device.short_name()));
  }
  detail::TensorState state = Tensor::view(data, dtype, shape, device).state();
  state.stream = stream;
  if (read_only) state.access = Access::READ_ONLY;
  auto memory = std::make_shared<ForeignMemory<Managed>>();
  state.memory = memory;
  Tensor tensor = detail::make_tensor(std::move(state));
  memory->managed = managed;
  return tensor;
}

/// What is lent out: the struct, the arrays it points to, and a handle on the memory.
template <class Managed>
struct Loan {
  Managed managed{};
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  Tensor tensor;
};

template <class Managed>
void end_loan(Managed* managed) {
  if (managed != nullptr) delete static_cast<Loan<Managed>*>(managed->manager_ctx);
}

template <class Managed>
std::unique_ptr<Loan<Managed>> lend(const Tensor& tensor) {
  if (!tensor) throw ValueError("to_dlpack: expected a tensor, got none");
  auto loan = std::make_unique<Loan<Managed>>();
  const Shape& shape = tensor.shape();
  loan->tensor = tensor;
  loan->shape.assign(shape.dims().begin(), shape.dims().end());
  loan->strides.assign(shape.rank(), 1);
  for (std::size_t axis = shape.rank(); axis-- > 1;) {
    loan->strides[axis - 1] = loan->strides[axis] * std::max<std::int64_t>(shape[axis], 1);
  }
  const DlpackType type = to_dlpack_type(tensor.dtype());
  DLTensor& lent = loan->managed.dl_tensor;
  lent.data = tensor.num_elements() == 0 ? nullptr : tensor.data();
  lent.device.device_type = tensor.device().is_host() ? kDLCPU : kDLCUDA;
  lent.device.device_id =
      tensor.device().is_host() ? 0 : detail::GpuDevice::of(tensor.device()).ordinal();
  lent.ndim = static_cast<std::int32_t>(shape.rank());
  lent.dtype = {.code = type.code, .bits = type.bits, .lanes = 1};
  lent.shape = loan->shape.data();
  lent.strides = loan->strides.data();
  lent.byte_offset = 0;
  loan->managed.manager_ctx = loan.get();
  loan->managed.deleter = &end_loan<Managed>;
  tensor.readiness().wait();
  return loan;
}

Tensor take_over_unversioned(DLManagedTensor* managed, std::optional<StreamView> stream) {
  if (managed == nullptr) throw ValueError("from_dlpack: expected a DLManagedTensor, got null");
  return take_over(managed, /*read_only=*/false, stream);
}

Tensor take_over_versioned(DLManagedTensorVersioned* managed, std::optional<StreamView> stream) {
  if (managed == nullptr) {
    throw ValueError("from_dlpack: expected a DLManagedTensorVersioned, got null");
  }
  if (const DLPackVersion version = managed->version; version.major != kMajorVersion) {
    if (managed->deleter != nullptr) managed->deleter(managed);
    throw ValueError(fmt::format("from_dlpack: expected DLPack version {}.x, got {}.{}",
                                 kMajorVersion, version.major, version.minor));
  }
  return take_over(managed, (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0, stream);
}

}  // namespace

Tensor from_dlpack(DLManagedTensor* managed) {
  return take_over_unversioned(managed, std::nullopt);
}

Tensor from_dlpack(DLManagedTensor* managed, StreamView stream) {
  return take_over_unversioned(managed, stream);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  return take_over_versioned(managed, std::nullopt);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed, StreamView stream) {
  return take_over_versioned(managed, stream);
}

DLManagedTensor* to_dlpack(const Tensor& tensor) {
  if (tensor && tensor.is_read_only()) {
    throw ValueError(fmt::format(
        "to_dlpack: {} is read-only, which DLManagedTensor cannot say: use to_dlpack_versioned",
        tensor.to_string()));
  }
  return &lend<DLManagedTensor>(tensor).release()->managed;
}

DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor) {
  auto loan = lend<DLManagedTensorVersioned>(tensor);
  loan->managed.version = {.major = kMajorVersion, .minor = kMinorVersion};
  loan->managed.flags = tensor.is_read_only() ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  return &loan.release()->managed;
}

}  // namespace crossdevice
