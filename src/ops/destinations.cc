// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/destinations.h"

#include <optional>
#include <string>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/inline_vector.h"
#include "crossdevice/device/gpu_device.h"

namespace crossdevice {
namespace {

const Devices& require_some(const Devices& devices, const char* what) {
  if (devices.empty()) {
    throw ValueError(std::string("destinations can not be empty: ") + what + " names no device");
  }
  return devices;
}

/// What a component on `device` is ordered by, if by a stream of its own.
std::optional<StreamView> stream_on(const Device& device, const DistributedValues& value) {
  if (device.is_host()) return std::nullopt;
  for (const Tensor& component : value.values()) {
    if (component.device() == device) return component.stream();
  }
  return std::nullopt;
}

void require_no_capture(const Device& device, StreamView stream) {
  if (device.is_host() || !detail::is_captured(detail::GpuDevice::of(device), stream.cuda())) {
    return;
  }
  throw FailedPreconditionError(fmt::format(
      "a result in new memory on {}, whose stream is being captured: the memory would belong to "
      "the graph; capture a form with buffers of yours (reduce_into, batch_reduce_into, ...)",
      device.short_name()));
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

Mirrored Destinations::make_new(DType dtype, const Shape& shape) const {
  detail::InlineVector<Tensor, 8> tensors;
  for (const Device& device : devices_) tensors.push_back(Tensor::empty(dtype, shape, device));
  return Mirrored(tensors.view());
}

Mirrored Destinations::make_new(DType dtype, const Shape& shape,
                                const DistributedValues& value) const {
  if (value.devices().all_host()) return make_new(dtype, shape);
  detail::InlineVector<Tensor, 8> tensors;
  for (const Device& device : devices_) {
    const std::optional<StreamView> stream = stream_on(device, value);
    if (stream.has_value()) require_no_capture(device, *stream);
    tensors.push_back(stream.has_value() ? Tensor::empty(dtype, shape, device, *stream)
                                         : Tensor::empty(dtype, shape, device));
  }
  return Mirrored(tensors.view());
}

}  // namespace crossdevice
