// SPDX-License-Identifier: Apache-2.0
/// Where a result goes: the devices of a string, tensor, variable or distributed value. TF counterpart: `destinations`.
#pragma once

#include <string>
#include <string_view>

#include "crossdevice/core/export.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/values.h"
#include "crossdevice/ops/variable.h"

namespace crossdevice {

/// Devices in order, and, for the in-place forms, the buffers there. Values given as destinations are never read, variables never assigned.
///
/// Memory   allocates nothing for devices that were named before. Borrows the `into` buffers: lives for one call.
/// Errors   ValueError: an empty string, a value without components.
class CROSSDEVICE_EXPORT Destinations {
 public:
  // NOLINTBEGIN(google-explicit-constructor): TF takes any of them
  Destinations(const char* device) : devices_(Device(device)) {}
  Destinations(std::string_view device) : devices_(Device(device)) {}
  Destinations(const std::string& device) : devices_(Device(device)) {}
  Destinations(const Device& device) : devices_(device) {}
  Destinations(const Devices& devices);
  Destinations(const Tensor& tensor);
  Destinations(const IndexedSlices& slices);
  Destinations(const Variable& variable);
  Destinations(const DistributedValues& values);
  // NOLINTEND(google-explicit-constructor)

  /// The devices of `outputs`, with `outputs` as the buffers to fill. `outputs` must outlive the call.
  [[nodiscard]] static Destinations into(const DistributedValues& outputs);

  [[nodiscard]] const Devices& devices() const { return devices_; }
  /// The buffers to fill, or nullptr: then results are new buffers on devices(). A hook that returns other buffers than these is right too;
  /// its result is copied into them.
  [[nodiscard]] const DistributedValues* outputs() const { return outputs_; }
  /// One tensor per device for a hook's result: outputs(), or new ones from the devices' pools.
  [[nodiscard]] Mirrored make_result(DType dtype, const Shape& shape) const {
    return outputs_ != nullptr ? Mirrored(*outputs_) : make_new(dtype, shape);
  }
  /// The same, on each GPU in the order of the stream that the component of `value` there has.
  [[nodiscard]] Mirrored make_result(DType dtype, const Shape& shape,
                                     const DistributedValues& value) const {
    return outputs_ != nullptr ? Mirrored(*outputs_) : make_new(dtype, shape, value);
  }

 private:
  [[nodiscard]] Mirrored make_new(DType dtype, const Shape& shape) const;
  [[nodiscard]] Mirrored make_new(DType dtype, const Shape& shape,
                                  const DistributedValues& value) const;

  Devices devices_;
  const DistributedValues* outputs_ = nullptr;
};

/// One element of a batch.
struct CROSSDEVICE_EXPORT ValueDestinationPair {
  PerReplica value;
  Destinations destinations;
};

}  // namespace crossdevice
