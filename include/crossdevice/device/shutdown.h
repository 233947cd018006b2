// SPDX-License-Identifier: Apache-2.0
/// The end of the library's threads, and its guard against use after fork().
#pragma once

#include <atomic>
#include <cstdint>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// Stops and joins the threads the library has started for itself: progress_stream() and its like of objects among workers, the HostThreadPool and what watches GPUs. Queued work
/// runs to its end first. Later calls on host devices still work, on the calling thread alone; asynchronous forms throw
/// FailedPreconditionError, and so do calls on GPUs, whose memory is left to the end of the process. A Stream that the program made is the program's to end. Calling it is optional and may be
/// repeated; in a child of fork() it does nothing.
///
/// Errors   FailedPreconditionError: called by one of those threads, which cannot wait for itself.
/// Threads  any; each caller returns when the threads have ended.
CROSSDEVICE_EXPORT void shutdown();

namespace detail {

enum class ForkState : std::uint8_t {
  UNUSED,  // nobody has asked yet: fork() as you like
  USED,    // the library may hold threads, locks and shared memory
  CHILD,   // of a process that used it
};

/// Relaxed throughout: fork() itself orders the parent's past before the child, whose handler is the only one to write CHILD.
CROSSDEVICE_EXPORT extern std::atomic<ForkState> fork_state;
CROSSDEVICE_EXPORT void require_not_forked_slow();

/// For every entry that needs the library's threads, locks or memory. The first call installs the fork handler.
///
/// Errors   FailedPreconditionError: this process is a child of fork() of one that used the library; the threads did not come along.
/// Cost     one load.
inline void require_not_forked() {
  if (fork_state.load(std::memory_order_relaxed) != ForkState::USED) require_not_forked_slow();
}

/// Whether this process is such a child: the question for destructors, which must not touch what they inherited.
[[nodiscard]] inline bool is_forked_child() noexcept {
  return fork_state.load(std::memory_order_relaxed) == ForkState::CHILD;
}

/// Adds the end of a thread that the library holds for itself, for the life of the process. shutdown() calls the functions in
/// reverse order, each time it is called; from then on this calls `stop` at once, so that what is made late starts out
/// stopped. `stop` returns when the thread has ended, and does nothing the second time.
///
/// Errors   FailedPreconditionError: in a child of fork(), where the list's lock may be held for ever.
/// Threads  any.
void stop_at_shutdown(void (*stop)());

}  // namespace detail
}  // namespace crossdevice
