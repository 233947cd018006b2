// SPDX-License-Identifier: Apache-2.0
/// When communication was under way, as seen from inside the cross-device ops.
#pragma once

#include <chrono>
#include <mutex>
#include <vector>

namespace crossdevice::train {

using Clock = std::chrono::steady_clock;

/// Collects the intervals in which an ops object reduced.
///
/// Threads  any.
class CommunicationLog {
 public:
  struct Interval {
    Clock::time_point begin;
    Clock::time_point end;
  };

  /// Logs the life of this object; one inside another on the same log counts once, as the outer one.
  class Scope {
   public:
    explicit Scope(CommunicationLog& log);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CommunicationLog& log_;
    Clock::time_point begin_;
  };

  /// What was logged since the last call, in order; intervals do not overlap, since calls on one ops object are serialised.
  [[nodiscard]] std::vector<Interval> take();

 private:
  std::mutex mutex_;  // guards both
  std::vector<Interval> intervals_;
  int depth_ = 0;
};

}  // namespace crossdevice::train
