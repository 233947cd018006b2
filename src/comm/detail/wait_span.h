// SPDX-License-Identifier: Apache-2.0
/// A wait for other workers: a bar of the timeline, and counted where it took longer than looking for a moment.
#pragma once

#include <chrono>
#include <cstdint>

#include "crossdevice/core/counter.h"
#include "crossdevice/core/trace.h"

namespace crossdevice::detail {

struct WaitKind {
  constexpr explicit WaitKind(const char* labels) noexcept
      : waits("crossdevice_waits_total", labels,
              "Waits for other workers that took longer than spinning."),
        nanoseconds("crossdevice_wait_seconds_total", labels, "How long these took.",
                    Counter::Unit::NANOSECONDS) {}
  Counter waits;
  Counter nanoseconds;
};

class WaitSpan {
 public:
  using Clock = std::chrono::steady_clock;

  /// `num_bytes()`: of what is waited for; called only if somebody wants the bar.
  template <class NumBytes>
  WaitSpan(const WaitKind& kind, const NumBytes& num_bytes) noexcept
      : kind_(kind),
        span_("wait", "comm", [&num_bytes] { return TraceArguments{.num_bytes = num_bytes()}; }) {}
  ~WaitSpan() {
    if (!is_long_ || !is_counted()) return;
    const auto taken = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_);
    ThreadCounters counters;
    counters.add(kind_.waits);
    counters.add(kind_.nanoseconds, static_cast<std::uint64_t>(taken.count()));
  }
  WaitSpan(const WaitSpan&) = delete;
  WaitSpan& operator=(const WaitSpan&) = delete;

  /// It counts: spinning was not enough.
  void set_long(Clock::time_point begin) noexcept {
    begin_ = begin;
    is_long_ = true;
  }

 private:
  const WaitKind& kind_;
  bool is_long_ = false;
  Clock::time_point begin_;
  TraceSpan span_;
};

inline constinit const WaitKind kSharedMemoryWait("for=\"shared_memory\"");
inline constinit const WaitKind kMessagesWait("for=\"messages\"");

}  // namespace crossdevice::detail
