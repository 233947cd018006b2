// SPDX-License-Identifier: Apache-2.0
/// After an operation among workers has failed: they tell each other what they were doing, so that all report the same, and blame the right one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "crossdevice/comm/call_difference.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/comm/transport.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"

namespace crossdevice::detail {

/// A worker that waits knows only whom it waits for, and that one may be waiting itself. So everybody who is in the operation when it fails, which the
/// transport's stop() tells everybody who waits, comes to one meeting on the control plane, and says in which operation it is. Who does not come within kGrace is
/// who was waited for; where all come, those are who are in an earlier operation than others, or else who came late: see inquest.cc.
///
/// Ranks    collective to construct; then each member holds it at most once.
class Inquest {
 public:
  static constexpr std::chrono::milliseconds kGrace{400};
  /// Where calls differ: who does not come has not said how its own does.
  static constexpr std::chrono::milliseconds kGraceOfDifference{2000};
  /// Where the operation has a deadline, so long after that at most: the caller has been promised an end. But kLeast, which who comes needs.
  static constexpr std::chrono::milliseconds kAfterDeadline{150};
  static constexpr std::chrono::milliseconds kLeast{50};

  explicit Inquest(const std::shared_ptr<Cluster>& cluster);

  /// This member enters an operation. Parts of a larger call have one sequence, unless it is 0, and one deadline: what was waited counts from the first.
  void begin(const GroupOperation& operation, const Deadline& deadline);

  /// What the others are told where their operations differ. To be said anew of each operation that fails.
  void set_details(CallDetails details) { details_ = std::move(details); }
  /// That operation has failed. Throws
  ///   InternalError         if members' operations with the same number differ; says in which each is, by rank
  ///   DeadlineExceededError if `failure` is one; names who did not come to the meeting, or is in an earlier operation, or came late to this one, or
  ///                         between whom messages are missing, or else whom `failure` names, at once where that has been late itself; with the operation that
  ///                         each is in, as far as it is known
  ///   UnavailableError, AbortedError  where a member is gone, or somebody has given up: what the control plane says; where a member has told that the
  ///                         chief is gone, which answers here, that member
  /// and otherwise what the lowest rank with the most telling failure says. `name` is the operation's: "reduce #12". `traffic`: what
  /// had moved when it failed.
  [[noreturn]] void hold(const std::string& name, const OpError& failure, bool inputs_intact,
                         std::span<const PeerTraffic> traffic = {});

 private:
  [[nodiscard]] Deadline end_of_meeting(StatusCode failure) const;
  std::shared_ptr<Cluster> meeting_;
  // Of the operation under way.
  std::uint64_t number_ = 0;
  GroupOperation operation_;
  GroupOperation previous_;
  CallDetails details_;
  std::chrono::steady_clock::time_point deadline_;
  std::chrono::steady_clock::time_point begun_at_;  // that deadline
};

}  // namespace crossdevice::detail
