// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/clock_comparison.h"

#include "comm/detail/wire.h"

namespace crossdevice::detail {

std::optional<ClockReading> ClockComparison::begin(std::int64_t now_ns) {
  if (num_left_ != 0) return std::nullopt;
  num_left_ = kQuestions;
  best_.reset();
  return ask(now_ns);
}

ClockReading ClockComparison::ask(std::int64_t now_ns) {
  asked_ns_ = now_ns;
  return {.asked_ns = now_ns, .answered_ns = 0, .clock = {}};
}

ClockComparison::Step ClockComparison::hear(const ClockReading& answer, std::int64_t now_ns) {
  if (num_left_ == 0 || answer.asked_ns != asked_ns_ || now_ns < asked_ns_) {
    throw WireError("an answer about clocks to no question");
  }
  const std::int64_t half_ns = (now_ns - asked_ns_ + 1) / 2;
  if (!best_.has_value() || half_ns < best_->within_ns) {
    // Modulo 2^64: whatever the other one says, this is defined.
    const std::int64_t middle_ns = asked_ns_ + half_ns;
    const auto to_add_ns = static_cast<std::int64_t>(
        static_cast<std::uint64_t>(answer.answered_ns) - static_cast<std::uint64_t>(middle_ns));
    best_ = ClockOffset{
        .clock = answer.clock, .at_ns = middle_ns, .to_add_ns = to_add_ns, .within_ns = half_ns};
  }
  if (--num_left_ == 0) return {.question = {}, .result = best_};
  return {.question = ask(now_ns), .result = {}};
}

}  // namespace crossdevice::detail
