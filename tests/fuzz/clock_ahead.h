// SPDX-License-Identifier: Apache-2.0
/// Time that passes without being waited for.
#pragma once

#include <chrono>

#include <asio/io_context.hpp>

namespace crossdevice::fuzz {

/// While it lives, this thread's steady clock is ahead by what has passed. One at a time per thread. Needs clock_ahead.cc in the target.
class ClockAhead {
 public:
  ClockAhead() = default;
  ~ClockAhead();
  ClockAhead(const ClockAhead&) = delete;
  ClockAhead& operator=(const ClockAhead&) = delete;

  /// Lets `time` pass, and the timers of `io` whose time is over end.
  static void pass(asio::io_context& io, std::chrono::nanoseconds time);
};

}  // namespace crossdevice::fuzz
