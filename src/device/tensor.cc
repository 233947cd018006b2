// SPDX-License-Identifier: Apache-2.0
/// Makes tensors, checks what they are made of, and says what they are.
#include "crossdevice/device/tensor.h"

#include <cstdint>
#include <ostream>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/int64.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/memory_pool.h"

#include "device/detail/gpu_copy.h"
#include "device/detail/gpu_memory_pool.h"
#include "device/detail/host_copy.h"
#include "device/detail/recycling_allocator.h"

namespace crossdevice {
namespace {

/// A block of a pool, given back when the last tensor over it dies.
struct PoolMemory : detail::TensorMemory {
  PoolMemory(MemoryPool& from, std::size_t size)
      : pool(from), size_bytes(size), block(from.allocate(size)) {}
  ~PoolMemory() { pool.deallocate(block, size_bytes); }
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

  MemoryPool& pool;
  std::size_t size_bytes;
  void* block;
};

/// The same on a GPU: taken and given back in the order of one stream.
struct GpuPoolMemory : detail::TensorMemory {
  GpuPoolMemory(detail::GpuMemoryPool& from, detail::CudaStream in_order_of, std::size_t size)
      : pool(from),
        stream(in_order_of),
        size_bytes(size),
        block(from.allocate_on(in_order_of, size)) {}
  ~GpuPoolMemory() { pool.deallocate_on(stream, block, size_bytes); }
  GpuPoolMemory(const GpuPoolMemory&) = delete;
  GpuPoolMemory& operator=(const GpuPoolMemory&) = delete;

  detail::GpuMemoryPool& pool;
  detail::CudaStream stream;
  std::size_t size_bytes;
  void* block;
};

std::string describe(DType dtype, const Shape& shape, const Device& device) {
  return fmt::format("{} {} on {}", to_string(dtype), shape.to_string(), device.short_name());
}

std::size_t size_bytes_of(DType dtype, const Shape& shape) {
  return static_cast<std::size_t>(
      checked_multiply(shape.num_elements(), static_cast<std::int64_t>(size_in_bytes(dtype))));
}

/// That of the C++ type: a complex number is as aligned as its parts.
std::size_t alignment_of(DType dtype) {
  return is_complex(dtype) ? size_in_bytes(dtype) / 2 : size_in_bytes(dtype);
}

void require_address(const void* data, DType dtype, const Shape& shape, const Device& device) {
  if (shape.num_elements() == 0) return;
  if (data == nullptr) {
    throw ValueError(fmt::format("{}: the pointer is null, expected the address of {} elements",
                                 describe(dtype, shape, device), shape.num_elements()));
  }
  if (reinterpret_cast<std::uintptr_t>(data) % alignment_of(dtype) != 0) {
    throw ValueError(fmt::format("{}: the pointer {} is not aligned to {} bytes",
                                 describe(dtype, shape, device), data, alignment_of(dtype)));
  }
}

/// Refuses what a kernel on that GPU could not touch, or only by a detour that the caller surely did not mean.
void require_gpu_memory(const void* data, DType dtype, const Shape& shape, const Device& device) {
  detail::GpuDevice& gpu = detail::GpuDevice::of(device);
  if (shape.num_elements() == 0) return;
  detail::CudaPointerAttributes attributes;
  const detail::CudaStatus status = gpu.cuda().get_pointer_attributes(&attributes, data);
  if (status == detail::CudaStatus::INVALID_VALUE) {
    attributes = {};  // what drivers before 11.0 say about memory that they do not know
  } else {
    detail::require_cuda(gpu.cuda(), status, "cudaPointerGetAttributes");
  }
  switch (attributes.kind) {
    case detail::CudaMemoryKind::UNREGISTERED:
      throw ValueError(
          fmt::format("{}: the pointer {} is ordinary host memory, expected memory of CUDA device "
                      "{}, or pinned",
                      describe(dtype, shape, device), data, gpu.ordinal()));
    case detail::CudaMemoryKind::DEVICE:
      if (attributes.device == gpu.ordinal()) return;
      throw ValueError(fmt::format(
          "{}: the pointer {} lies on CUDA device {}, expected memory of CUDA device {}",
          describe(dtype, shape, device), data, attributes.device, gpu.ordinal()));
    case detail::CudaMemoryKind::HOST:
    case detail::CudaMemoryKind::MANAGED:
      return;
  }
}

/// Memory that belongs to another tensor.
struct AliasMemory : detail::TensorMemory {
  explicit AliasMemory(Tensor tensor) : owner(std::move(tensor)) {}
  Tensor owner;
};

Tensor make_view(void* data, Access access, DType dtype, const Shape& shape, const Device& device,
                 std::optional<StreamView> stream) {
  device.require_present();
  const std::size_t size_bytes = size_bytes_of(dtype, shape);
  require_address(data, dtype, shape, device);
  if (!device.is_host()) require_gpu_memory(data, dtype, shape, device);
  auto memory = std::allocate_shared<detail::TensorMemory>(
      detail::RecyclingAllocator<detail::TensorMemory>());
  return detail::make_tensor({.dtype = dtype,
                              .access = access,
                              .shape = shape,
                              .device = device,
                              .data = data,
                              .size_bytes = size_bytes,
                              .stream = stream,
                              .memory = std::move(memory)});
}

Tensor empty_on_gpu(DType dtype, const Shape& shape, const Device& device,
                    std::optional<StreamView> stream) {
  detail::GpuDevice& gpu = detail::GpuDevice::of(device);
  const std::size_t size_bytes = size_bytes_of(dtype, shape);
  auto memory = std::allocate_shared<GpuPoolMemory>(
      detail::RecyclingAllocator<GpuPoolMemory>(), detail::gpu_memory_pool_of(device),
      stream.has_value() ? stream->cuda() : gpu.own_stream(), size_bytes);
  void* block = memory->block;
  return detail::make_tensor({.dtype = dtype,
                              .access = Access::READ_WRITE,
                              .shape = shape,
                              .device = device,
                              .data = block,
                              .size_bytes = size_bytes,
                              .stream = stream,
                              .memory = std::move(memory)});
}

/// The tensor is read-only, so nobody writes through the pointer.
void* without_const(const void* data) { return const_cast<void*>(data); }

}  // namespace

Tensor detail::make_tensor(TensorState state) {
  return Tensor(
      std::allocate_shared<TensorState>(RecyclingAllocator<TensorState>(), std::move(state)));
}

Tensor detail::with_own_readiness(const Tensor& tensor) {
  TensorState state = tensor.state();
  state.memory = std::allocate_shared<AliasMemory>(RecyclingAllocator<AliasMemory>(), tensor);
  return make_tensor(std::move(state));
}

Tensor Tensor::empty(DType dtype, const Shape& shape, const Device& device, StreamView stream) {
  if (device.is_host()) {
    throw ValueError(fmt::format("{}: a stream orders the memory of GPUs, not of host devices",
                                 describe(dtype, shape, device)));
  }
  return empty_on_gpu(dtype, shape, device, stream);
}

Tensor Tensor::empty(DType dtype, const Shape& shape, const Device& device) {
  if (!device.is_host()) return empty_on_gpu(dtype, shape, device, std::nullopt);
  MemoryPool& pool = MemoryPool::of(device);
  const std::size_t size_bytes = size_bytes_of(dtype, shape);
  auto memory =
      std::allocate_shared<PoolMemory>(detail::RecyclingAllocator<PoolMemory>(), pool, size_bytes);
  void* block = memory->block;
  return detail::make_tensor({.dtype = dtype,
                              .access = Access::READ_WRITE,
                              .shape = shape,
                              .device = device,
                              .data = block,
                              .size_bytes = size_bytes,
                              .stream = std::nullopt,
                              .memory = std::move(memory)});
}

Tensor Tensor::zeros(DType dtype, const Shape& shape, const Device& device) {
  Tensor tensor = empty(dtype, shape, device);
  if (device.is_host()) {
    detail::clear_host_memory(tensor.data(), tensor.size_bytes());
  } else {
    detail::clear_gpu_memory(tensor);
  }
  return tensor;
}

Tensor Tensor::copy_from(const void* elements, std::size_t count, DType dtype, const Shape& shape,
                         const Device& device) {
  require_size(count, shape);
  require_address(elements, dtype, shape, device);
  Tensor tensor = empty(dtype, shape, device);
  if (device.is_host()) {
    detail::copy_host_memory(tensor.data(), elements, tensor.size_bytes());
  } else {
    detail::copy_to_gpu(tensor, elements);
  }
  return tensor;
}

Tensor Tensor::view(void* data, DType dtype, const Shape& shape, const Device& device) {
  return make_view(data, Access::READ_WRITE, dtype, shape, device, std::nullopt);
}

Tensor Tensor::view(const void* data, DType dtype, const Shape& shape, const Device& device) {
  return make_view(without_const(data), Access::READ_ONLY, dtype, shape, device, std::nullopt);
}

Tensor Tensor::view(void* data, DType dtype, const Shape& shape, const Device& device,
                    StreamView stream) {
  return make_view(data, Access::READ_WRITE, dtype, shape, device, stream);
}

Tensor Tensor::view(const void* data, DType dtype, const Shape& shape, const Device& device,
                    StreamView stream) {
  return make_view(without_const(data), Access::READ_ONLY, dtype, shape, device, stream);
}

Tensor Tensor::reshape(const Shape& shape) const {
  if (shape.num_elements() != state_->shape.num_elements()) {
    throw ValueError(fmt::format("reshape: {} has {} elements, the shape {} has {}", to_string(),
                                 num_elements(), shape.to_string(), shape.num_elements()));
  }
  detail::TensorState state = *state_;
  state.shape = shape;
  return detail::make_tensor(std::move(state));
}

Tensor Tensor::as_read_only() const {
  if (is_read_only()) return *this;
  detail::TensorState state = *state_;
  state.access = Access::READ_ONLY;
  return detail::make_tensor(std::move(state));
}

std::string Tensor::to_string() const {
  if (state_ == nullptr) return "no tensor";
  return describe(state_->dtype, state_->shape, state_->device);
}

void Tensor::require_size(std::size_t num_elements, const Shape& shape) {
  if (num_elements != static_cast<std::size_t>(shape.num_elements())) {
    throw ValueError(fmt::format("the span has {} elements, the shape {} has {}", num_elements,
                                 shape.to_string(), shape.num_elements()));
  }
}

void Tensor::require_span(DType dtype, bool read_only) const {
  if (dtype != state_->dtype) {
    throw ValueError(fmt::format("span: expected elements of {}, asked for {}", to_string(),
                                 crossdevice::to_string(dtype)));
  }
  if (!state_->device.is_host()) {
    throw ValueError(fmt::format("span: {} does not lie in host memory", to_string()));
  }
  if (!read_only && is_read_only()) {
    throw ValueError(fmt::format("span: {} is read-only, ask for a span of const", to_string()));
  }
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << tensor.to_string();
}

bool overlaps(const Tensor& a, const Tensor& b) {
  if (!a || !b || a.size_bytes() == 0 || b.size_bytes() == 0) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data());
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.data());
  return a_begin < b_begin + b.size_bytes() && b_begin < a_begin + a.size_bytes();
}

}  // namespace crossdevice
