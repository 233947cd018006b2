// SPDX-License-Identifier: Apache-2.0
/// How a waiter passes the time until it looks again: on its core, then giving way, then asleep. Where others want the core (more members than cores, on
/// machines that seem to be several, too) it gives way at once, and sleeps when somebody took it for long.
#pragma once

#include <chrono>
#include <cstdint>

namespace crossdevice::detail {

/// Threads  one at a time.
class SpinPatience {
 public:
  using Clock = std::chrono::steady_clock;

  /// `may_spin`: whether a waiter may keep its core for a moment at all.
  explicit SpinPatience(bool may_spin) : may_spin_(may_spin), has_core_(may_spin) {}

  /// Something has moved, or a wait begins.
  void reset() {
    is_waiting_ = is_crowded_out_ = false;
    num_slow_yields_ = 0;
  }
  /// Whether to sleep now; passes some time if not.
  [[nodiscard]] bool is_exhausted();
  /// Whether the core is the thread's alone, as far as yields have shown. Then it keeps it for a moment before it yields.
  [[nodiscard]] bool has_core() const { return has_core_; }

 private:
  void note_quick_yield();

  bool may_spin_;
  bool has_core_;
  bool is_waiting_ = false;
  bool is_crowded_out_ = false;
  int num_quick_yields_ = 0;       // in a row, without a sleep between them
  std::int64_t num_switches_ = 0;  // of the thread, after the first of these
  int num_slow_yields_ = 0;        // in this wait
  Clock::time_point idle_since_{};
};

}  // namespace crossdevice::detail
