// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/destinations.h"

#include "crossdevice/core/error.h"
#include "crossdevice/core/inline_vector.h"

namespace crossdevice {
namespace {

const Devices& require_some(const Devices& devices, const char* what) {
  if (devices.empty()) {
    throw ValueError(std::string("destinations can not be empty: ") + what + " names no device");
  }
  return devices;
}

}  // namespace

Destinations::Destinations(const Devices& devices)
    : devices_(require_some(devices, "an empty list")) {}

Destinations::Destinations(const Tensor& tensor) {
  if (!tensor) throw ValueError("destinations can not be empty: the tensor is none");
  devices_ = tensor.device();
}

Destinations::Destinations(const IndexedSlices& slices) : Destinations(slices.values) {}

Destinations::Destinations(const Variable& variable) : devices_(variable.devices()) {}

Destinations::Destinations(const DistributedValues& values)
    : devices_(require_some(values.devices(), "a value without components")) {}

Destinations Destinations::into(const DistributedValues& outputs) {
  Destinations destinations(outputs);
  destinations.outputs_ = &outputs;
  return destinations;
}

Mirrored Destinations::make_result(DType dtype, const Shape& shape) const {
  if (outputs_ != nullptr) return Mirrored(outputs_->values());
  detail::InlineVector<Tensor, 8> tensors;
  for (const Device& device : devices_) tensors.push_back(Tensor::empty(dtype, shape, device));
  return Mirrored(tensors.view());
}

}  // namespace crossdevice
