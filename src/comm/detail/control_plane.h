// SPDX-License-Identifier: Apache-2.0
/// A worker's place in its cluster: the connection to the chief, and on the chief the chief itself. One thread serves both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/deadline.h"

#include "comm/detail/control_message.h"
#include "comm/detail/control_options.h"

namespace crossdevice::detail {

/// What the control plane hears of the other members while nobody waits. Called on its thread: must be quick and must not wait.
struct MembershipListener {
  std::function<void(const RankInfo& member, const std::string& why)> on_lost;
  std::function<void(const RankInfo& origin, const std::string& text)> on_abort;
  /// What members of a group have posted, those that listen themselves too; nothing of what was posted before.
  std::function<void(std::uint64_t group, int from, std::string_view bytes)> on_post{};
};

/// Order    a cluster's rounds are independent of each other but for their group's failures.
/// Errors   of everything that waits: DeadlineExceededError, UnavailableError (a member has gone), AbortedError, InternalError (members make different
///          calls); they name the culprits.
/// Threads  any.
class ControlPlane {
  class State;
  struct Passkey {};  // makes the constructor join()'s alone

 public:
  /// What a member may contribute to one round.
  static constexpr std::size_t kMaxPartBytes = std::size_t{1} << 20;

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

  /// Contributes bytes to a round and returns everybody's, in the order of `members` (empty: all workers). `on_end`: see Cluster::all_gather_bytes().
  ///
  /// Errors   see above; ValueError: more than kMaxPartBytes. ResourceExhaustedError on all: more than the 64 MiB that a round may carry by all together.
  [[nodiscard]] std::vector<std::string> exchange(const RoundId& id,
                                                  const std::vector<int>& members,
                                                  const std::string& kind, std::string bytes,
                                                  const Deadline& deadline,
                                                  const RoundListener& on_end = {});
  /// Ends a round that this worker is in, if it is, as if its deadline came in a moment: with `text` and who has not come, on all that are in it.
  void give_up(const RoundId& id, const std::string& text);
  /// Says that to those ranks, who hear it by on_post, in one order with the ends of rounds; at most Post::kMaxBytes. Waits for nothing; what is posted to
  /// who has gone, or when the cluster has ended, is lost.
  void post(std::uint64_t group, std::vector<int> to, std::string bytes);
  /// Ends every round of every group on all workers with AbortedError.
  void stop_all(const std::string& text);
  /// Ends every round, here, and tells the listeners here, as if `origin` had called stop_all(); the others hear nothing, and the chief is not needed.
  void stop_here(int origin, const std::string& text);
  /// Another cluster has taken this one's place. Whoever is a member of that one ends this one for all that hear it, as stop_all() and stop_here(); whoever is not ends it
  /// here, whatever has ended it before: `text` says which epoch has begun.
  void supersede(const std::string& text, bool is_left_out);
  /// What this worker does now, for the others' messages; travels with the next heartbeat or round.
  void set_operation(std::string operation);
  /// The same for operations of the library, which count while any is under way. Allocates nothing.
  void enter_operation(std::string_view kind, std::uint64_t sequence);
  void leave_operation();
  /// The same for operations that somebody else takes down: `read` says what OperationsUnderWay::read() would. Called on any thread until the returned handle dies; must be
  /// quick, and must not wait or call the plane.
  [[nodiscard]] std::shared_ptr<void> add_operations(std::function<std::string()> read);
  /// What those ranks do now, in their order; of who does not say so by then, or within Membership's patience for a question, what it said last; empty: nothing was ever
  /// heard of it.
  [[nodiscard]] std::vector<std::string> ask(const std::vector<int>& ranks,
                                             const Deadline& deadline);
  /// `listener` hears of everything from now on, and at once of what has happened. Until the returned handle dies; then it no longer runs.
  [[nodiscard]] std::shared_ptr<void> listen(MembershipListener listener);

  ControlPlane(Passkey key, std::shared_ptr<State> state);

 private:
  std::unique_ptr<std::shared_ptr<State>>
      state_;  // can be let go of, which a shared pointer cannot
};

}  // namespace crossdevice::detail
