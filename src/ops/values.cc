// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/values.h"

#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

/// Interns the devices of a range without allocating for up to 8 of them.
template <class Range, class GetDevice>
Devices devices_of(const Range& range, GetDevice device_of) {
  if (std::size(range) == 1) return device_of(range[0]);
  detail::InlineVector<Device, 8> devices;
  for (const auto& item : range) devices.push_back(device_of(item));
  return Devices(devices.view());
}

void require_tensor(const Tensor& tensor, std::size_t replica, const char* what) {
  if (!tensor) throw ValueError(fmt::format("replica {}: {} is no tensor", replica, what));
}

}  // namespace

DistributedValues::DistributedValues(std::span<const Tensor> tensors)
    : tensors_(detail::InlineVector<Tensor, 8>::copy_of(tensors)) {
  for (std::size_t i = 0; i < tensors.size(); ++i) require_tensor(tensors[i], i, "the component");
  devices_ = devices_of(tensors, [](const Tensor& t) -> const Device& { return t.device(); });
}

DistributedValues::DistributedValues(std::vector<IndexedSlices> slices)
    : slices_(std::move(slices)) {
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    require_tensor(slices_[i].values, i, "values");
    require_tensor(slices_[i].indices, i, "indices");
  }
  devices_ =
      devices_of(slices_, [](const IndexedSlices& s) -> const Device& { return s.device(); });
}

Shape DistributedValues::shape() const {
  if (empty()) throw ValueError("a value without components has no shape");
  if (!is_sparse()) return tensors_[0].shape();
  if (!slices_[0].dense_shape) throw ValueError("a sparse value without dense_shape has no shape");
  return *slices_[0].dense_shape;
}

DType DistributedValues::dtype() const {
  if (empty()) throw ValueError("a value without components has no dtype");
  return is_sparse() ? slices_[0].dtype() : tensors_[0].dtype();
}

Tensor DistributedValues::on(const Device& device) const {
  if (is_sparse()) throw ValueError("a sparse value has slices(), no tensor on a device");
  for (const Tensor& tensor : tensors_) {
    if (tensor.device() == device) return tensor;
  }
  throw ValueError(fmt::format("no component on {}: the value lies on {}", device.short_name(),
                               devices_.to_string()));
}

std::string DistributedValues::to_string() const {
  if (empty()) return "no components";
  if (is_sparse()) {
    return fmt::format("{} sparse components of {} on {}", size(),
                       crossdevice::to_string(slices_[0].dtype()), devices_.to_string());
  }
  return fmt::format("{} components of {} {} on {}", size(),
                     crossdevice::to_string(tensors_[0].dtype()), tensors_[0].shape().to_string(),
                     devices_.to_string());
}

PerReplica::PerReplica(std::initializer_list<Value> components) {
  bool any_dense = components.size() == 0;
  for (const Value& component : components) any_dense |= std::holds_alternative<Tensor>(component);
  if (!any_dense) {
    std::vector<IndexedSlices> slices;
    for (const Value& component : components) slices.push_back(std::get<IndexedSlices>(component));
    *this = PerReplica(std::move(slices));
    return;
  }
  detail::InlineVector<Tensor, 8> tensors;
  for (const Value& component : components) {
    if (const auto* slices = std::get_if<IndexedSlices>(&component)) {
      if (!slices->dense_shape) {
        throw ValueError(
            fmt::format("replica {}: IndexedSlices without dense_shape cannot be combined with the "
                        "dense tensors of other replicas",
                        tensors.size()));
      }
      tensors.push_back(to_dense(*slices));
    } else {
      tensors.push_back(std::get<Tensor>(component));
    }
  }
  *this = PerReplica(tensors.view());
}

Tensor Mirrored::tensor() const {
  if (is_sparse()) throw ValueError("a sparse Mirrored has slices(), no tensor");
  if (size() != 1) {
    throw ValueError(fmt::format(
        "tensor() needs a single component, this Mirrored has {} on {}: use on(device) or values()",
        size(), devices().to_string()));
  }
  return values()[0];
}

}  // namespace crossdevice
