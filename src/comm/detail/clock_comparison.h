// SPDX-License-Identifier: Apache-2.0
/// How a worker's clock stands to its chief's, found by asking: as NTP does it (RFC 5905, section 8).
#pragma once

#include <cstdint>
#include <optional>

#include "crossdevice/core/trace_clock.h"

#include "comm/detail/control_message.h"

namespace crossdevice::detail {

/// A series of questions, one after the other; the answer that took the shortest time counts. Between a question and its answer the asked clock was looked
/// at once, so what that look is worth here is known up to half that time, however unequal the two ways are.
///
/// Threads  one at a time.
class ClockComparison {
 public:
  static constexpr int kQuestions = 8;

  /// Begins a series; nothing while one is under way.
  [[nodiscard]] std::optional<ClockReading> begin(std::int64_t now_ns);
  struct Step {
    std::optional<ClockReading> question{};  ///< the next one
    std::optional<ClockOffset> result{};     ///< of the series, when it has ended
  };
  /// Errors   WireError: no answer to the last question.
  [[nodiscard]] Step hear(const ClockReading& answer, std::int64_t now_ns);
  /// What was asked will not be answered: the connection is gone.
  void cancel() { num_left_ = 0; }

 private:
  ClockReading ask(std::int64_t now_ns);

  int num_left_ = 0;  // answers; 0: no series
  std::int64_t asked_ns_ = 0;
  std::optional<ClockOffset> best_;
};

}  // namespace crossdevice::detail
