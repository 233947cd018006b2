// SPDX-License-Identifier: Apache-2.0
/// A typed block of memory on a device: owned (from the device's pool) or a view of the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/shape.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/readiness.h"
#include "crossdevice/device/stream.h"

namespace crossdevice {

class Tensor;

enum class Access : std::uint8_t { READ_WRITE, READ_ONLY };

namespace detail {
/// What all tensors over one block of memory share. Types derived from it own the block and give it back in their
/// destructors, when the last tensor over it dies.
struct TensorMemory {
  Readiness readiness;
};

/// What handles of one tensor share; never changes.
struct TensorState {
  DType dtype;
  Access access;
  Shape shape;
  Device device;
  void* data;
  std::size_t size_bytes;
  std::optional<StreamView> stream;
  std::shared_ptr<TensorMemory> memory;
};

/// The door for memory that comes from elsewhere and for other views of a tensor's memory: checks nothing.
[[nodiscard]] Tensor make_tensor(TensorState state);
/// The same memory with a readiness of its own: for the operation itself, which must not wait for its own mark. Keeps `tensor` alive.
[[nodiscard]] Tensor with_own_readiness(const Tensor& tensor);
}  // namespace detail

/// A handle: copying it shares the memory, never copies it. Dense and row-major.
///
/// Order    on a GPU a tensor's memory follows a stream: the caller's where one was given, which must outlive the tensor, else the library's own there.
///          It is allocated, cleared, filled and given back in that order; whoever uses it on another stream makes the two wait for each other.
/// Memory   empty(), zeros() and copy_of() take from the device's pool and give back when the last handle dies. A view needs the caller's memory to
///          outlive it. Memory that is const gives a read-only tensor, which in-place forms refuse.
/// Errors   ValueError: the device is not present; the span's size is not the shape's; the pointer is null (with elements) or not
///          aligned for the element type (complex numbers: for their parts); the bytes do not fit in 64 bits; for a GPU, the pointer lies on another
///          one or in host memory that CUDA does not know. FailedPreconditionError: a GPU, after shutdown().
/// Threads  handles may be copied and read concurrently; the elements are the caller's to guard.
class CROSSDEVICE_EXPORT Tensor {
 public:
  /// No tensor; only assignment and operator bool make sense.
  Tensor() = default;

  /// Uninitialised, from the pool.
  [[nodiscard]] static Tensor empty(DType dtype, const Shape& shape, const Device& device);
  /// Uninitialised, from a GPU's pool, in the order of the caller's stream.
  ///
  /// Errors   also ValueError: a host device.
  [[nodiscard]] static Tensor empty(DType dtype, const Shape& shape, const Device& device,
                                    StreamView stream);
  [[nodiscard]] static Tensor zeros(DType dtype, const Shape& shape, const Device& device);
  /// A copy of host elements, complete on return.
  template <class T, std::size_t N>
  requires Element<std::remove_const_t<T>>
  [[nodiscard]] static Tensor copy_of(std::span<T, N> elements, const Shape& shape,
                                      const Device& device) {
    return copy_from(elements.data(), elements.size(), dtype_of<std::remove_const_t<T>>, shape,
                     device);
  }

  [[nodiscard]] static Tensor view(void* data, DType dtype, const Shape& shape,
                                   const Device& device);
  [[nodiscard]] static Tensor view(const void* data, DType dtype, const Shape& shape,
                                   const Device& device);
  [[nodiscard]] static Tensor view(void* data, DType dtype, const Shape& shape,
                                   const Device& device, StreamView stream);
  [[nodiscard]] static Tensor view(const void* data, DType dtype, const Shape& shape,
                                   const Device& device, StreamView stream);
  /// A vector of the span's elements; static extents too.
  template <class T, std::size_t N>
  requires Element<std::remove_const_t<T>>
  [[nodiscard]] static Tensor view(std::span<T, N> elements, const Device& device) {
    return view(elements, Shape({elements.size()}), device);
  }
  template <class T, std::size_t N>
  requires Element<std::remove_const_t<T>>
  [[nodiscard]] static Tensor view(std::span<T, N> elements, const Shape& shape,
                                   const Device& device) {
    require_size(elements.size(), shape);
    return view(elements.data(), shape, device);
  }
  template <class T>
  requires Element<std::remove_const_t<T>>
  [[nodiscard]] static Tensor view(T* data, const Shape& shape, const Device& device) {
    using Void = std::conditional_t<std::is_const_v<T>, const void, void>;
    return view(static_cast<Void*>(data), dtype_of<std::remove_const_t<T>>, shape, device);
  }

  explicit operator bool() const { return state_ != nullptr; }
  [[nodiscard]] DType dtype() const { return state_->dtype; }
  [[nodiscard]] const Shape& shape() const { return state_->shape; }
  [[nodiscard]] const Device& device() const { return state_->device; }
  [[nodiscard]] std::size_t num_elements() const {
    return static_cast<std::size_t>(state_->shape.num_elements());
  }
  [[nodiscard]] std::size_t size_bytes() const { return state_->size_bytes; }
  [[nodiscard]] bool is_read_only() const { return state_->access == Access::READ_ONLY; }
  [[nodiscard]] std::optional<StreamView> stream() const { return state_->stream; }
  /// The address, at once: does not wait. Writing through it is only allowed where !is_read_only().
  [[nodiscard]] void* data() const { return state_->data; }

  /// The elements of a host tensor; waits until asynchronous operations on this tensor have ended (by success or failure).
  /// `span<const float>()` works for read-only tensors too.
  ///
  /// Errors   ValueError: T is not the dtype, the device is no host, or T is not const and the tensor is read-only.
  template <class T>
  requires Element<std::remove_const_t<T>>
  [[nodiscard]] std::span<T> span() const {
    require_span(dtype_of<std::remove_const_t<T>>, std::is_const_v<T>);
    state_->memory->readiness.wait();
    return {static_cast<T*>(state_->data), num_elements()};
  }

  /// The same memory, other dimensions.
  ///
  /// Errors   ValueError: the number of elements differs.
  [[nodiscard]] Tensor reshape(const Shape& shape) const;
  /// The same memory, refused as a result.
  [[nodiscard]] Tensor as_read_only() const;
  /// Whether both are the same handle's memory, dtype and shape (TF's identity of objects).
  [[nodiscard]] bool is_same(const Tensor& other) const { return state_ == other.state_; }
  /// Which asynchronous operations are under way on this memory; lives as long as a handle on it.
  [[nodiscard]] detail::Readiness& readiness() const { return state_->memory->readiness; }
  [[nodiscard]] const detail::TensorState& state() const { return *state_; }
  /// "float32 (3, 4) on CPU:0".
  [[nodiscard]] std::string to_string() const;

 private:
  friend Tensor detail::make_tensor(detail::TensorState state);
  static void require_size(std::size_t num_elements, const Shape& shape);
  void require_span(DType dtype, bool read_only) const;
  static Tensor copy_from(const void* elements, std::size_t count, DType dtype, const Shape& shape,
                          const Device& device);
  explicit Tensor(std::shared_ptr<const detail::TensorState> state) : state_(std::move(state)) {}
  std::shared_ptr<const detail::TensorState> state_;
};

CROSSDEVICE_EXPORT std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// Whether the bytes of both overlap, in part or whole.
[[nodiscard]] CROSSDEVICE_EXPORT bool overlaps(const Tensor& a, const Tensor& b);

}  // namespace crossdevice
