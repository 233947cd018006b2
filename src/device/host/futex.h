// SPDX-License-Identifier: Apache-2.0
/// Sleeping until a word changes, as the kernel offers it: no spinning of its own, no table of waiters in between.
#pragma once

#include <atomic>
#include <cstdint>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace crossdevice::host {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

/// Sleeps while `word` holds `expected` and nobody wakes; may return at any time.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

inline void futex_wake(std::atomic<std::uint32_t>& word, int num_threads) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, num_threads, nullptr, nullptr, 0);
}

}  // namespace crossdevice::host
