// SPDX-License-Identifier: Apache-2.0
/// Values with one component per device. TF counterparts: DistributedValues, PerReplica, Mirrored.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "crossdevice/core/export.h"
#include "crossdevice/core/inline_vector.h"
#include "crossdevice/core/shape.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/indexed_slices.h"

namespace crossdevice {

class Destinations;

/// One component: dense or sparse.
using Value = std::variant<Tensor, IndexedSlices>;

/// Components in order, all dense or all sparse. A handle: copies share the components' memory.
///
/// Memory   up to 8 dense components allocate nothing.
class CROSSDEVICE_EXPORT DistributedValues {
 public:
  /// The dense components; empty for a sparse value.
  [[nodiscard]] std::span<const Tensor> values() const& { return tensors_.view(); }
  [[nodiscard]] std::vector<Tensor> values() && { return {tensors_.begin(), tensors_.end()}; }
  /// The sparse components; empty for a dense value.
  [[nodiscard]] std::span<const IndexedSlices> slices() const& { return slices_; }
  [[nodiscard]] std::vector<IndexedSlices> slices() && { return std::move(slices_); }

  [[nodiscard]] bool is_sparse() const { return !slices_.empty(); }
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] std::size_t size() const { return is_sparse() ? slices_.size() : tensors_.size(); }
  /// The components' devices, in component order.
  [[nodiscard]] const Devices& devices() const { return devices_; }
  /// Of the first component; of a sparse one its dense_shape.
  ///
  /// Errors   ValueError: no components, or a sparse one without dense_shape.
  [[nodiscard]] Shape shape() const;
  [[nodiscard]] DType dtype() const;
  /// The dense component on `device`.
  ///
  /// Errors   ValueError: there is none; names the devices there are.
  [[nodiscard]] Tensor on(const Device& device) const;
  /// What it is, not its elements: how many components of which dtype and shape, on which devices.
  [[nodiscard]] std::string to_string() const;

 protected:
  DistributedValues() = default;
  explicit DistributedValues(std::span<const Tensor> tensors);
  explicit DistributedValues(std::vector<IndexedSlices> slices);
  ~DistributedValues() = default;
  DistributedValues(const DistributedValues& other)
      : tensors_(other.tensors_), devices_(other.devices_) {
    if (other.is_sparse()) slices_ = other.slices_;  // made at every call, and rarely sparse
  }
  DistributedValues& operator=(const DistributedValues&) = default;
  DistributedValues(DistributedValues&&) = default;
  DistributedValues& operator=(DistributedValues&&) = default;

 private:
  detail::InlineVector<Tensor, 8> tensors_;
  std::vector<IndexedSlices> slices_;
  Devices devices_;
};

/// Unsynchronised components, one per replica.
///
/// A mix of dense tensors and IndexedSlices becomes dense, as TF aggregates it (ValueError if one of the sparse ones has no dense_shape).
class CROSSDEVICE_EXPORT PerReplica : public DistributedValues {
 public:
  /// No components; every op refuses it.
  PerReplica() = default;
  PerReplica(std::initializer_list<Value> components);
  explicit PerReplica(std::span<const Tensor> components) : DistributedValues(components) {}
  explicit PerReplica(const std::vector<Tensor>& components)
      : DistributedValues(std::span<const Tensor>(components)) {}
  explicit PerReplica(std::vector<IndexedSlices> components)
      : DistributedValues(std::move(components)) {}
  // NOLINTBEGIN(google-explicit-constructor): TF wraps a plain tensor, and Mirrored is a value too
  PerReplica(const Tensor& component) : DistributedValues(std::span<const Tensor>(&component, 1)) {}
  PerReplica(const DistributedValues& other) : DistributedValues(other) {}
  // NOLINTEND(google-explicit-constructor)
};

/// The same value on every device.
class CROSSDEVICE_EXPORT Mirrored : public DistributedValues {
 public:
  Mirrored() = default;
  explicit Mirrored(std::span<const Tensor> components) : DistributedValues(components) {}
  explicit Mirrored(const std::vector<Tensor>& components)
      : DistributedValues(std::span<const Tensor>(components)) {}
  explicit Mirrored(std::vector<IndexedSlices> components)
      : DistributedValues(std::move(components)) {}

  /// The single component.
  ///
  /// Errors   ValueError: there are several (take on(device) or values()), or it is sparse.
  [[nodiscard]] Tensor tensor() const;

 private:
  friend class Destinations;  // knows buffers that will hold the same
  explicit Mirrored(const DistributedValues& components) : DistributedValues(components) {}
};

}  // namespace crossdevice
