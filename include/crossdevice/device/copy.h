// SPDX-License-Identifier: Apache-2.0
/// Copies of tensors between any two devices.
#pragma once

#include "crossdevice/core/export.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice {

/// Copies the elements of `source` into `destination`.
///
/// Shapes   the same dtype and the same shape.
/// Memory   a copy onto itself does nothing; a partial overlap is refused.
/// Order    between host devices: complete on return, done by several threads where that is faster.
/// Errors   ValueError: dtype or shape differ, the destination is read-only, the two overlap in part.
CROSSDEVICE_EXPORT void copy(const Tensor& destination, const Tensor& source);

/// A fresh tensor on `device` with the same elements; also when the source lies there already.
///
/// Errors   ValueError: the device is not present.
[[nodiscard]] CROSSDEVICE_EXPORT Tensor copy_to_device(const Tensor& source, const Device& device);

}  // namespace crossdevice
