// SPDX-License-Identifier: Apache-2.0
// Tells a child of fork() that the library's threads, locks and memory are its parent's.
#include <mutex>
#include <string>

#include <pthread.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/shutdown.h"

#include "device/detail/first_use.h"

namespace crossdevice::detail {

constinit std::atomic<ForkState> fork_state{ForkState::UNUSED};

namespace {

// Runs in the child before fork() returns there, so it may do no more than a signal handler may: one store.
void mark_child() { fork_state.store(ForkState::CHILD, std::memory_order_relaxed); }

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (const int code = pthread_atfork(nullptr, nullptr, &mark_child); code != 0) {
      throw ResourceExhaustedError("pthread_atfork failed with code " + std::to_string(code));
    }
  });
}

}  // namespace

void require_not_forked_slow() {
  if (fork_state.load(std::memory_order_relaxed) == ForkState::CHILD) {
    throw FailedPreconditionError(
        "this process is a child of fork() of one that used crossdevice: the library's threads did "
        "not come along; fork before the first use, or start a program with exec");
  }
  install_handler();
  // Only from UNUSED: a thread that forked meanwhile has a child that must keep its mark.
  ForkState expected = ForkState::UNUSED;
  if (fork_state.compare_exchange_strong(expected, ForkState::USED, std::memory_order_relaxed)) {
    begin_first_use();
  }
}

}  // namespace crossdevice::detail
