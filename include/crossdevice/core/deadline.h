// SPDX-License-Identifier: Apache-2.0
/// A moment by which a wait must end. "No limit" is explicit: Deadline::never().
#pragma once

#include <chrono>
#include <optional>

#include "crossdevice/core/export.h"

namespace crossdevice {

class CROSSDEVICE_EXPORT Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] static Deadline never() { return Deadline(); }
  /// `timeout` from now: never() where the clock cannot count that far, a moment that has passed
  /// where it is negative.
  ///
  /// Errors   ValueError: NaN.
  [[nodiscard]] static Deadline after(std::chrono::duration<double> timeout);
  /// TF's timeout_seconds: nothing or 0 means no limit.
  ///
  /// Errors   ValueError: negative or NaN.
  [[nodiscard]] static Deadline after_timeout_seconds(std::optional<double> timeout_seconds);

  [[nodiscard]] bool is_never() const { return !moment_.has_value(); }
  [[nodiscard]] bool has_passed() const { return moment_.has_value() && Clock::now() >= *moment_; }
  /// The moment, or the clock's last one for never(): what a condition variable's wait_until takes.
  [[nodiscard]] Clock::time_point moment() const {
    return moment_.value_or(Clock::time_point::max());
  }
  /// So much later; never() stays.
  [[nodiscard]] Deadline later(std::chrono::duration<double> by) const {
    Deadline result = *this;
    if (moment_.has_value()) *result.moment_ += std::chrono::duration_cast<Clock::duration>(by);
    return result;
  }
  /// The one that passes first.
  [[nodiscard]] static Deadline earlier(const Deadline& a, const Deadline& b) {
    return a.moment() <= b.moment() ? a : b;
  }

 private:
  std::optional<Clock::time_point> moment_;
};

}  // namespace crossdevice
