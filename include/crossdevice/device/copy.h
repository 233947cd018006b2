// SPDX-License-Identifier: Apache-2.0
/// Copies of tensors between any two devices.
#pragma once

#include "crossdevice/core/export.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/device/wait_limit.h"

namespace crossdevice {

/// Copies the elements of `source` into `destination`.
///
/// Shapes   the same dtype and the same shape.
/// Memory   a copy onto itself does nothing; a partial overlap is refused.
/// Order    complete on return where either end is host memory; between host devices several threads do it where that is faster. From GPU to GPU it is
///          enqueued on the destination's stream, after what the source's stream was given so far, and holds back what that is given later: either
///          may be written, read or dropped at once, in the order of its own stream.
/// Errors   ValueError: dtype or shape differ, the destination is read-only, the two overlap in part. Between host memory and a GPU also
///          DeadlineExceededError: the stream did not get there within CROSSDEVICE_DEFAULT_TIMEOUT (pinned host memory must stay until it does), and
///          FailedPreconditionError: it is being captured.
/// Cost     from pageable host memory, or to it: through pinned memory of the library, one part by the host while the GPU moves another.
CROSSDEVICE_EXPORT void copy(const Tensor& destination, const Tensor& source);
/// The same for a part of an operation: between host memory and a GPU `limit` ends the wait for the stream, and the environment's time does not count.
///
/// Errors   also what the limit's interrupter throws.
CROSSDEVICE_EXPORT void copy(const Tensor& destination, const Tensor& source,
                             const detail::WaitLimit& limit);

/// A fresh tensor on `device` with the same elements; also when the source lies there already.
///
/// Errors   ValueError: the device is not present.
[[nodiscard]] CROSSDEVICE_EXPORT Tensor copy_to_device(const Tensor& source, const Device& device);
[[nodiscard]] CROSSDEVICE_EXPORT Tensor copy_to_device(const Tensor& source, const Device& device,
                                                       const detail::WaitLimit& limit);

}  // namespace crossdevice
