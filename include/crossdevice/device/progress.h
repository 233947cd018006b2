// SPDX-License-Identifier: Apache-2.0
/// The thread that carries asynchronous operations forward.
#pragma once

#include "crossdevice/core/export.h"
#include "crossdevice/device/stream.h"

namespace crossdevice {

/// The process's one stream for asynchronous forms: their operations run there one after the other, in the order in which they were
/// launched. Its thread starts with the first of them, sleeps when there are none, and ends with shutdown(): then launch()
/// throws FailedPreconditionError.
///
/// Errors   FailedPreconditionError: the first use, in a child of fork().
/// Threads  any.
[[nodiscard]] CROSSDEVICE_EXPORT Stream& progress_stream();

}  // namespace crossdevice
