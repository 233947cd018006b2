// SPDX-License-Identifier: Apache-2.0
/// What shutdown() stops.
#pragma once

namespace crossdevice::detail {

/// Adds the end of a thread that the library holds for itself, for the life of the process. shutdown() calls the functions in
/// reverse order, each time it is called; from then on this calls `stop` at once, so that what is made late starts out
/// stopped. `stop` returns when the thread has ended, and does nothing the second time.
///
/// Errors   FailedPreconditionError: in a child of fork(), where the list's lock may be held for ever.
/// Threads  any.
void stop_at_shutdown(void (*stop)());

}  // namespace crossdevice::detail
