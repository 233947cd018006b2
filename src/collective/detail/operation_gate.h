// SPDX-License-Identifier: Apache-2.0
/// Whether the chunks of an operation may go on: its deadline, its observer, and what a chunk before found.
#pragma once

#include <atomic>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/core/deadline.h"

namespace crossdevice::detail {

/// Why the operation has to end now; COMPLETED: it need not.
[[nodiscard]] inline DirectReduceOutcome reason_to_end(const Deadline& deadline,
                                                       const OperationObserver* observer) {
  if (observer != nullptr && observer->stop_requested()) return DirectReduceOutcome::STOPPED;
  if (deadline.has_passed()) return DirectReduceOutcome::DEADLINE_PASSED;
  return DirectReduceOutcome::COMPLETED;
}

/// Asked before each chunk, by any thread. Relaxed order is enough: it says whether to work, not what others have written.
class OperationGate {
 public:
  OperationGate(const Deadline& deadline, const OperationObserver* observer)
      : deadline_(deadline), observer_(observer) {}

  /// Never true again once it was false; the first reason stands.
  [[nodiscard]] bool may_continue() {
    DirectReduceOutcome outcome = outcome_.load(std::memory_order_relaxed);
    if (outcome != DirectReduceOutcome::COMPLETED) return false;
    const DirectReduceOutcome reason = reason_to_end(deadline_, observer_);
    if (reason == DirectReduceOutcome::COMPLETED) return true;
    outcome_.compare_exchange_strong(outcome, reason, std::memory_order_relaxed);
    return false;
  }
  /// No further chunk begins.
  void stop() {
    DirectReduceOutcome outcome = DirectReduceOutcome::COMPLETED;
    outcome_.compare_exchange_strong(outcome, DirectReduceOutcome::STOPPED,
                                     std::memory_order_relaxed);
  }
  /// COMPLETED unless a chunk was left out.
  [[nodiscard]] DirectReduceOutcome outcome() const {
    return outcome_.load(std::memory_order_relaxed);
  }

 private:
  const Deadline& deadline_;
  const OperationObserver* observer_;
  std::atomic<DirectReduceOutcome> outcome_ = DirectReduceOutcome::COMPLETED;
};

}  // namespace crossdevice::detail
