// SPDX-License-Identifier: Apache-2.0
/// The workers of a job that have met: who they are, who is still there, and small things said to all of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

namespace detail {
struct ClusterInside;
}

struct CROSSDEVICE_EXPORT JoinOptions {
  /// How long to wait for all workers; nothing: CROSSDEVICE_DEFAULT_TIMEOUT, or else 300 s.
  std::optional<double> timeout_seconds = std::nullopt;
  /// How long a worker that says nothing counts as alive. One whose process ends is noticed at once.
  double heartbeat_timeout_seconds = 10;
  /// After how long a wait is spoken of on the log: who waits for whom.
  double stall_warning_seconds = 30;
  /// The file with the job's secret, which every worker proves to hold, here and where tensors travel; empty: CROSSDEVICE_SECRET_FILE, and where that is not set
  /// either there is none. Read by join(), and not kept.
  std::string_view secret_file{};
};

/// Who is to take part in a cluster that is made anew.
enum class Survivors : std::uint8_t {
  ALL,   ///< every member
  ONLY,  ///< the members that still come
};

struct CROSSDEVICE_EXPORT RebuildOptions {
  /// How long to wait for the members; nothing: CROSSDEVICE_DEFAULT_TIMEOUT, or else 300 s.
  std::optional<double> timeout_seconds = std::nullopt;
  /// Survivors::ONLY: how long those who have come, once they are enough, wait for members that seem to live.
  double patience_seconds = 10;
  /// Survivors::ONLY: how many members are enough; 0: more than half of them. With fewer, two halves of a network that is cut may both go on, each without
  /// knowing of the other: set it only where that cannot be, or does no harm.
  int min_workers = 0;
};

/// An operation by its cluster's epoch and its number there; see Cluster::set_completed(). 0, 0: none.
struct CROSSDEVICE_EXPORT CompletedOperation {
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  friend bool operator==(const CompletedOperation&, const CompletedOperation&) = default;
};
/// "#1204 of epoch 1"; "none".
CROSSDEVICE_EXPORT std::ostream& operator<<(std::ostream& out, const CompletedOperation& operation);

class Cluster;

/// Hears why a round has failed.
using RoundFailure = std::function<void(const std::exception_ptr& error)>;

/// Hears how a round has ended, on the control plane's thread: must be quick, and must neither wait nor call the cluster, but for post(). Where two rounds have several
/// workers in common, these hear of their ends in one order, and of what is posted, too: the chief's.
struct CROSSDEVICE_EXPORT RoundListener {
  /// Where the chief says so, before the failure is thrown, and before anything is heard that the chief says later.
  RoundFailure on_failure{};
  /// Before the call returns, which it does then.
  std::function<void()> on_completion{};
};

/// What rebuild() has made.
struct CROSSDEVICE_EXPORT Rebuilt {
  std::shared_ptr<Cluster> cluster{};
  /// The last operation that completed on all of its members: of the epoch before or, where none did since, of an earlier one.
  CompletedOperation last_completed{};
  /// Members of the old cluster that are not in the new one, with their old ranks.
  std::vector<RankInfo> left_out{};
  /// The new cluster's.
  std::uint64_t epoch = 0;
};

/// What a cluster's owner hears while nobody waits: a member is gone, or somebody has given the job up; after that perhaps also that a new epoch has begun
/// without this worker. Called on threads of the library: must be quick, and must neither wait nor end the listening.
struct CROSSDEVICE_EXPORT ClusterListener {
  std::function<void(const RankInfo& member, const std::string& why)> on_lost{};
  std::function<void(const RankInfo& origin, const std::string& text)> on_abort{};
  /// A member of this very cluster, perhaps this worker itself, has called post().
  std::function<void(int from, std::string_view bytes)> on_post{};
};

/// How long, in seconds, what a cluster's members construct together (groups, transports, engines) waits for the others where nobody says how long.
inline constexpr double kMeetingSeconds = 300;

/// For all of such a construction, from now on: `timeout_seconds`; nothing or 0: CROSSDEVICE_DEFAULT_TIMEOUT, or else kMeetingSeconds.
[[nodiscard]] CROSSDEVICE_EXPORT Deadline
meeting_deadline(std::optional<double> timeout_seconds = std::nullopt);

/// Workers 0 to num_workers() - 1. Every worker holds one connection, to rank 0, for the life of the object; what is said here is small and
/// takes some 100 us. Tensors go through the floors above.
///
/// Ranks    barrier(), broadcast_bytes(), all_gather_bytes() and subgroup() are collective: all members make the same calls in the same order.
/// Errors   (of those) DeadlineExceededError, UnavailableError (a member is gone), AbortedError (somebody called abort_collective_ops), InternalError (the
///          members make different calls): each names the ranks to blame, on every rank that waits. Afterwards the object is broken: every later call says
///          so. ValueError: a negative or NaN timeout, more than 1 MiB.
/// Time     no timeout: CROSSDEVICE_DEFAULT_TIMEOUT; where that is not set, a call waits as long as all members live.
/// Threads  calls on one object are serialised: one that still waits for another thread's at its deadline throws DeadlineExceededError, and nothing is broken or
///          counted by it. subgroup() waits for nobody. The destructor says goodbye and waits some seconds at most; rank 0 stays that long for the others.
class CROSSDEVICE_EXPORT Cluster {
  struct State;
  struct Passkey {};

 public:
  /// Meets the others; who they are is what the launcher says (see cluster_resolver.h). A process that nobody launched is a cluster of its own.
  ///
  /// Errors   ValueError: the launcher's variables; a secret's file that cannot be read, is too short, or is not this user's alone. DeadlineExceededError: names who did not come, and where they should be as far as the launcher
  ///          says. FailedPreconditionError: rank 0 refuses this worker (its rank is another process's; another library version, number of workers or secret); where
  ///          versions or numbers differ, on every worker that comes. UnavailableError: rank 0 cannot listen at its address.
  ///          ResourceExhaustedError: this worker lacks memory, descriptors or threads, or rank 0 descriptors for those who come.
  [[nodiscard]] static std::shared_ptr<Cluster> join(const JoinOptions& options = {});
  [[nodiscard]] static std::shared_ptr<Cluster> join(const ClusterResolver& resolver,
                                                     const JoinOptions& options = {});
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int num_workers() const;
  /// This worker's place among the members on its machine (CROSSDEVICE_HOST_ID says who shares one).
  [[nodiscard]] int local_rank() const;
  [[nodiscard]] int num_local_workers() const;
  /// Ranks on the machine of `rank`, ascending.
  [[nodiscard]] std::vector<int> ranks_beside(int rank) const;
  /// Host and process of a member.
  ///
  /// Errors   ValueError: no such rank.
  [[nodiscard]] RankInfo worker(int rank) const;
  /// Equal on all members, different for every cluster and subgroup that ever was.
  [[nodiscard]] std::uint64_t id() const;

  /// After how long a wait is spoken of on the log, here and in the floors above: JoinOptions.
  [[nodiscard]] std::chrono::nanoseconds stall_warning() const;

  /// 1 for a cluster that has joined; rebuild() counts up.
  [[nodiscard]] std::uint64_t epoch() const;

  void barrier(std::optional<double> timeout_seconds = std::nullopt);
  void barrier(const Deadline& deadline);
  /// The bytes of `root`, on every member; what the others pass is not looked at.
  [[nodiscard]] std::string broadcast_bytes(std::string_view bytes, int root = 0,
                                            std::optional<double> timeout_seconds = std::nullopt);
  [[nodiscard]] std::string broadcast_bytes(std::string_view bytes, int root,
                                            const Deadline& deadline);
  /// Everybody's bytes, by rank; lengths may differ.
  [[nodiscard]] std::vector<std::string> all_gather_bytes(
      std::string_view bytes, std::optional<double> timeout_seconds = std::nullopt);
  [[nodiscard]] std::vector<std::string> all_gather_bytes(std::string_view bytes,
                                                          const Deadline& deadline,
                                                          const RoundListener& on_end = {});

  /// Some of the members as a cluster of their own: `ranks` (of this cluster) in their new order. Null on a worker that is not among them, which need not make the
  /// call: only they take part in it. MPI counterpart: MPI_Comm_create_group, with MPI_COMM_NULL.
  ///
  /// Errors   ValueError: no ranks, one twice, or one that is not there.
  [[nodiscard]] std::shared_ptr<Cluster> subgroup(std::span<const int> ranks);
  [[nodiscard]] std::shared_ptr<Cluster> subgroup(std::initializer_list<int> ranks) {
    return subgroup(std::span<const int>(ranks.begin(), ranks.size()));
  }

  /// All members as a cluster of their own, whose rounds nobody else's come between. MPI counterpart: MPI_Comm_dup.
  [[nodiscard]] std::shared_ptr<Cluster> duplicate();

  /// After a failure: the members meet again, without those that are gone, and make a cluster of their own. No process is started anew. Ranks keep their
  /// order; rank 0, which the others connect to, is the lowest that came. This object, its subgroups and what was made from them are
  /// over: everything that waits in them, on any worker that can be reached, gets AbortedError, which names the new epoch; and before, on a member that
  /// those who have come miss for a second, which may wait for one of them in an operation without a deadline: that names who called rebuild.
  ///
  /// Ranks    collective, with equal `survivors` and options, among those that come. Members need not agree about who is gone: at most one cluster is made
  ///          from one epoch (see succession.h in the sources), and who is not in it gets AbortedError that names its epoch, here or from whatever it
  ///          does with its old objects. It changes nothing in the new cluster.
  /// Errors   DeadlineExceededError: names who did not come. UnavailableError: names who is gone for good, where the rest is too few. AbortedError: the
  ///          others have gone on without this worker. InternalError: the members call it differently. ResourceExhaustedError: this worker lacks
  ///          memory, descriptors or threads for it; the others go on without it. FailedPreconditionError: this is a subgroup; or has been rebuilt already. ValueError: a
  ///          negative or NaN time, min_workers outside [0, num_workers()].
  /// Time     when everybody comes that is not known to be gone, some milliseconds after the last one; a chief that is silent costs a second.
  [[nodiscard]] Rebuilt rebuild(Survivors survivors, const RebuildOptions& options = {});
  /// The number of the last operation that completed on this worker, for rebuild(). Ops objects report their own numbers, by which errors call them, on GPUs a moment
  /// (0.1 s) after these have come to their end; with several on one cluster the last report counts. A Communicator reports nothing. Programs that make none of
  /// their calls through ops objects may count what they like. Costs one store.
  void set_completed(std::uint64_t sequence);

  /// Ends what every worker of the job waits for, here and in the floors above, with AbortedError and this text; also what they begin later. TF
  /// counterpart: abort_collective_ops.
  void abort_collective_ops(const std::string& text);

  /// Ends the round that a thread of this worker is in, if any, for all members that are in it: with DeadlineExceededError, `text` and who has not come. Does
  /// not wait for that, which takes some tenths of a second: the missing are asked what they do.
  void give_up_round(const std::string& text);

  /// Says something short (4 KiB at most) to the members of this cluster that listen to it, this one among them, or to one of them. Waits for nothing; who has
  /// gone, or begins to listen later, does not hear it.
  ///
  /// Errors   ValueError: no such rank, or longer.
  void post(std::string_view bytes, std::optional<int> to = std::nullopt);
  /// Whether both were joined together, or made from what was: the chief ends their rounds in one order.
  [[nodiscard]] bool has_same_chief(const Cluster& other) const;

  /// `listener` hears of everything from now on, and at once of what has happened, with this cluster's ranks; of posts only from now on. Until the handle dies;
  /// then it no longer runs.
  [[nodiscard]] std::shared_ptr<void> listen(ClusterListener listener);
  /// What this worker does now ("all_reduce #12"), for the others' messages.
  void set_operation(std::string operation);
  /// The same for the operations of the floors above, each entered and left; they count for more. Allocate nothing; any thread.
  void enter_operation(std::string_view kind, std::uint64_t sequence);
  void leave_operation();

  Cluster(Passkey key, std::shared_ptr<State> state);

 private:
  friend struct detail::ClusterInside;
  std::vector<std::string> exchange(const std::string& kind, std::string bytes,
                                    const Deadline& deadline, const RoundListener& on_end = {});
  std::shared_ptr<State> state_;
};

}  // namespace crossdevice
