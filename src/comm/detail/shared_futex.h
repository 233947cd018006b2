// SPDX-License-Identifier: Apache-2.0
/// Sleeping until a word of shared memory changes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace crossdevice::detail {

/// Until the word is no longer `expected`, somebody wakes, or `time`, of less than a second, has passed; or without a reason. Other processes wait on the
/// word too, so it is no private futex.
inline void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                     std::chrono::nanoseconds time) {
  const timespec limit{.tv_sec = 0, .tv_nsec = time.count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

inline void wake_all(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}

}  // namespace crossdevice::detail
