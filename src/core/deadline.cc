// SPDX-License-Identifier: Apache-2.0
// From timeouts, which are lengths, to deadlines, which are moments.
#include "crossdevice/core/deadline.h"

#include <cmath>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

// 100 years: far inside what the clock counts in 64-bit nanoseconds (292 years), far beyond any
// wait.
constexpr double kForeverSeconds = 100.0 * 365.25 * 24 * 3600;

}  // namespace

Deadline Deadline::after(std::chrono::duration<double> timeout) {
  if (std::isnan(timeout.count())) {
    throw ValueError("timeout: expected a number of seconds, got NaN");
  }
  if (timeout.count() >= kForeverSeconds) return never();
  Deadline deadline;
  deadline.moment_ = Clock::now();
  if (timeout.count() > 0) {
    *deadline.moment_ += std::chrono::duration_cast<Clock::duration>(timeout);
  }
  return deadline;
}

Deadline Deadline::after_timeout_seconds(std::optional<double> timeout_seconds) {
  if (!timeout_seconds.has_value() || *timeout_seconds == 0) return never();
  if (!(*timeout_seconds > 0)) {
    throw ValueError(
        fmt::format("timeout_seconds: expected a number of at least 0, got {}", *timeout_seconds));
  }
  return after(std::chrono::duration<double>(*timeout_seconds));
}

}  // namespace crossdevice
