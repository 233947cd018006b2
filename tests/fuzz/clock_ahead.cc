// SPDX-License-Identifier: Apache-2.0
#include "fuzz/clock_ahead.h"

#include <ctime>
#include <system_error>

#include <asio/steady_timer.hpp>
#include <sys/syscall.h>
#include <unistd.h>

namespace crossdevice::fuzz {
namespace {

constexpr long kNanosecondsPerSecond = 1'000'000'000;
thread_local std::chrono::nanoseconds ahead{0};

}  // namespace

ClockAhead::~ClockAhead() { ahead = {}; }

void ClockAhead::pass(asio::io_context& io, std::chrono::nanoseconds time) {
  ahead += time;
  // The kernel, whose clock is as it was, wakes nobody yet: but for a timer that is the first of all, which makes Asio look at the others too.
  asio::steady_timer first(io, asio::steady_timer::time_point{});
  first.async_wait([](std::error_code) {});
  while (io.poll() > 0) {
  }
  io.restart();
}

}  // namespace crossdevice::fuzz

// In place of the C library's, for the C++ library, too, whose clock asks it.

extern "C" [[gnu::visibility("default")]] int clock_gettime(clockid_t clock,
                                                            timespec* time) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (result != 0 || clock != CLOCK_MONOTONIC) return result;
  const long long nanoseconds = time->tv_nsec + crossdevice::fuzz::ahead.count();
  time->tv_sec += static_cast<time_t>(nanoseconds / crossdevice::fuzz::kNanosecondsPerSecond);
  time->tv_nsec = static_cast<long>(nanoseconds % crossdevice::fuzz::kNanosecondsPerSecond);
  return 0;
}
