// SPDX-License-Identifier: Apache-2.0
/// After an operation among workers has failed: they tell each other what they were doing, so that all report the same, and blame the right one.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/core/error.h"

namespace crossdevice::detail {

/// A worker that waits knows only whom it waits for, and that one may be waiting itself. So everybody who is in the operation when it fails, which the
/// transport's stop() tells everybody who waits, comes to one meeting on the control plane. Who does not come within kGrace is who was waited for; where all
/// come, those are who were in the operation for less than half of the time that others were.
///
/// Ranks    collective to construct; then each member holds it at most once.
class Inquest {
 public:
  static constexpr std::chrono::milliseconds kGrace{400};

  explicit Inquest(const std::shared_ptr<Cluster>& cluster);

  /// This member enters an operation.
  void begin() { begun_at_ = std::chrono::steady_clock::now(); }

  /// That operation has failed. Throws
  ///   InternalError         if members are in different operations; says in which, by rank
  ///   DeadlineExceededError if `failure` is one; names who did not come to the meeting, or came late to the operation, or else whom `failure` names
  ///   UnavailableError, AbortedError  where a member is gone, or somebody has given up: what the control plane says
  /// and otherwise what the lowest rank with the most telling failure says. `name` is the operation's: "reduce #12".
  [[noreturn]] void hold(const std::string& name, const GroupOperation& operation,
                         const OpError& failure, bool inputs_intact);

 private:
  std::shared_ptr<Cluster> meeting_;
  std::chrono::steady_clock::time_point begun_at_;
};

}  // namespace crossdevice::detail
