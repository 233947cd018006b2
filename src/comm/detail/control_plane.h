// SPDX-License-Identifier: Apache-2.0
/// A worker's place in its cluster: the connection to the chief, and on the chief the chief itself. One thread serves both.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "crossdevice/core/deadline.h"

#include "comm/detail/control_message.h"

namespace crossdevice::detail {

struct ControlPlaneOptions {
  int rank = 0;
  int num_workers = 1;
  /// "host:port" or "[address]:port" of the chief, which listens there; unused for a single worker.
  std::string chief_address;
  std::string secret;
  std::string host;
  std::string host_id;
  /// How long a silent member counts as alive.
  std::chrono::duration<double> heartbeat_timeout{10};
  /// After how long a wait is spoken of on the log.
  std::chrono::duration<double> stall_warning{30};
};

/// What the control plane hears of the other members while nobody waits. Called on its thread: must be quick and must not wait.
struct MembershipListener {
  std::function<void(const RankInfo& member, const std::string& why)> on_lost;
  std::function<void(const RankInfo& origin, const std::string& text)> on_abort;
};

/// Order    a cluster's rounds are independent of each other but for their group's failures.
/// Errors   of everything that waits: DeadlineExceededError, UnavailableError (a member has gone), AbortedError, InternalError (members make different
///          calls); they name the culprits.
/// Threads  any.
class ControlPlane {
 public:
  /// Returns when all workers have come.
  ///
  /// Errors   DeadlineExceededError: names who did not come. UnavailableError: the address cannot be listened on. FailedPreconditionError: the chief refuses
  ///          this worker (its rank is taken, versions or numbers of workers differ, no common secret); says why. ValueError: an address that cannot be
  ///          parsed, or no secret although the chief is on another machine.
  [[nodiscard]] static std::shared_ptr<ControlPlane> join(const ControlPlaneOptions& options,
                                                          const Deadline& deadline);
  /// Says goodbye. Waits, at most some seconds, until it is said; the chief waits for the others to leave as long.
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  [[nodiscard]] const std::vector<MemberInfo>& members() const;
  [[nodiscard]] std::uint64_t cluster_id() const;

  /// Contributes bytes to a round and returns everybody's, in the order of `members` (empty: all workers).
  ///
  /// Errors   see above; ValueError: more than 1 MiB.
  [[nodiscard]] std::vector<std::string> exchange(const RoundId& id,
                                                  const std::vector<int>& members,
                                                  const std::string& kind, std::string bytes,
                                                  const Deadline& deadline);
  /// Ends every round of every group on all workers with AbortedError.
  void abort(const std::string& text);
  /// What this worker does now, for the others' messages; travels with the next heartbeat or round.
  void set_operation(std::string operation);
  /// `listener` hears of everything from now on, and at once of what has happened. Until the returned handle dies; then it no longer runs.
  [[nodiscard]] std::shared_ptr<void> listen(MembershipListener listener);

 private:
  class State;
  explicit ControlPlane(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace crossdevice::detail
