// SPDX-License-Identifier: Apache-2.0
/// The end of the library's threads, and its guard against use after fork().
#pragma once

#include "crossdevice/core/export.h"

namespace crossdevice {

/// Stops and joins every thread the library has started. Queued work runs to its end first. Later calls on host devices still work,
/// on the calling thread alone; asynchronous forms throw FailedPreconditionError. Calling it is optional and may be repeated.
CROSSDEVICE_EXPORT void shutdown();

namespace detail {
/// Errors   FailedPreconditionError: this process is a child of fork() of one that used the library; the threads did not come along.
CROSSDEVICE_EXPORT void require_not_forked();
}  // namespace detail

}  // namespace crossdevice
