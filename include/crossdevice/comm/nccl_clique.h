// SPDX-License-Identifier: Apache-2.0
/// NCCL communicators of this process's GPUs, what breaks them, and the one way to launch on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/nccl_api.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/gpu_device.h"

namespace crossdevice::detail {

enum class NcclCliqueState : std::uint8_t {
  WHOLE,
  BROKEN,            ///< its communicators are being aborted
  ABORTED,           ///< and have been
  ABORT_INCOMPLETE,  ///< NCCL did not come back from it: its GPUs may be blocked until the process ends
};

/// Whether the job's news of a worker's end may still come.
enum class NcclNews : std::uint8_t { MAY_COME, COMES_NO_MORE };

/// Knows more about a clique of several workers that stands still than the watchdog of one of them: who has not come.
class CROSSDEVICE_EXPORT StallWitness {
 public:
  StallWitness() = default;
  StallWitness(const StallWitness&) = delete;
  StallWitness& operator=(const StallWitness&) = delete;
  virtual ~StallWitness() = default;
  /// An operation of this worker's has not come to its end in time: "all_reduce #12 (1 value, 64 MiB) timed out after 5 s". False: nothing more is known of it.
  /// True: the witness is about to break the clique, on every worker that waits, with who is missing; to be asked again until it does, but not for long. Quick,
  /// on the watchdog's thread.
  [[nodiscard]] virtual bool ask_who_is_missing(const OperationRecord& late, bool inputs_intact,
                                                const std::string& text) = 0;
};

/// One communicator for each of some distinct GPUs.
///
/// Order    all that is launched on it goes through Launch; every worker of a clique over several launches the same, in the same order.
/// Errors   the first failure breaks it for good: all communicators are aborted on a thread of their own, and a new clique is made on request. NCCL's
///          errors carry NCCL's text.
/// Threads  any. Nothing here holds a lock of launches while it waits for a GPU.
class CROSSDEVICE_EXPORT NcclClique {
  struct Passkey {};

 public:
  struct State;
  class Launch;

  /// The one of `devices`, in this order, that this process keeps. After a failure the next call makes a new one, as soon as the old one has been
  /// aborted; who holds the old one hears of the failure there.
  ///
  /// `timeout_seconds`: for making it, which takes NCCL some seconds; nothing: CROSSDEVICE_DEFAULT_TIMEOUT, or else 300 s.
  /// Errors   UnavailableError: why NCCL cannot: no library, too old, two devices on one GPU, NCCL refuses; others may reduce on these GPUs.
  ///          FailedPreconditionError: an abort on these GPUs has not come back, and nobody is to use them until the process ends.
  ///          DeadlineExceededError: it took NCCL too long; what it goes on doing is undone when it comes back. ValueError: no devices, a host device.
  [[nodiscard]] static std::shared_ptr<NcclClique> of(
      const Devices& devices, std::optional<double> timeout_seconds = std::nullopt);

  /// One of the GPUs of all members: `local` are this worker's, whose ranks follow those of the workers before. Belongs to the caller, and is not kept.
  /// Where a member dies, or gives the job up, it breaks; when it breaks by itself, the cluster's members are told (abort_collective_ops).
  ///
  /// Ranks    collective. Nobody enters NCCL alone: before, all say that they can, and with which version. All have as long as the one whose time is over first.
  /// Errors   as of(), on all workers, with the ranks that could not: FailedPreconditionError before UnavailableError, and that before DeadlineExceededError, since
  ///          who was late may have waited for one that could not. Else as Cluster::all_gather_bytes().
  [[nodiscard]] static std::shared_ptr<NcclClique> among(
      const std::shared_ptr<Cluster>& cluster, const Devices& local,
      const Deadline& deadline = meeting_deadline());

  /// Communicators that somebody else has made, one for each of `devices`, all ranks of one clique; of(devices) gives it from now on. They are never
  /// destroyed or aborted here; when it breaks they are revoked where NCCL can (2.28.7), and the owner aborts them.
  ///
  /// Errors   as of(). ValueError: another number of communicators than devices, a null one, one of a clique of another size, one of another GPU than its
  ///          device, other ranks than 0 to that number. FailedPreconditionError: there is a whole one of `devices`. What NCCL says of one of them.
  [[nodiscard]] static std::shared_ptr<NcclClique> adopt(const Devices& devices,
                                                         std::vector<NcclComm> communicators);

  /// Their owner takes them back: no launch and no revoking is under way when this returns, and none begins. What holds the clique finds it broken.
  ///
  /// Errors   ValueError: there are no adopted ones of `devices`. FailedPreconditionError: NCCL has not come back from revoking them.
  static void end_adoption(const Devices& devices);

  /// Where it is whole, finalizes and destroys what it made; waits some seconds at most, and leaves the rest to a thread of its own.
  ~NcclClique();
  NcclClique(const NcclClique&) = delete;
  NcclClique& operator=(const NcclClique&) = delete;

  [[nodiscard]] NcclApi& api() const;
  /// This worker's.
  [[nodiscard]] const Devices& devices() const;
  [[nodiscard]] int size() const;
  /// Of all workers.
  [[nodiscard]] int num_ranks() const;
  /// Of device `i` among them.
  [[nodiscard]] int rank(int i) const;
  /// The least that a GPU of any worker has, as 10 * major + minor: what all can.
  [[nodiscard]] int compute_capability() const;
  /// Whether its communicators are somebody else's.
  [[nodiscard]] bool is_adopted() const;
  [[nodiscard]] GpuDevice& device(int i) const;
  /// To be used inside a Launch.
  [[nodiscard]] NcclComm communicator(int i) const;

  /// Errors   the error that broke it, once; FailedPreconditionError, with its text, from then on.
  void require_usable() const;
  /// The first one counts, the others do nothing. Returns at once, throws nothing. `is_known_everywhere`: the other workers, if any, hear of it by themselves.
  void break_with(std::exception_ptr why, bool is_known_everywhere = false);
  [[nodiscard]] NcclCliqueState state() const;
  /// What broke it; null while it is whole.
  [[nodiscard]] std::exception_ptr first_error() const;
  /// Until an abort that is under way has come to its end; false: the deadline has passed.
  [[nodiscard]] bool await_end_of_abort(const Deadline& deadline) const;
  /// Null, or what NCCL says has gone wrong with a communicator since (ncclCommGetAsyncError). Does not block. Where NCCL says that something is wrong with other
  /// workers, it does not name them, and the job's news, which breaks the clique, does: MAY_COME says nothing of that for half a second.
  [[nodiscard]] std::exception_ptr find_async_error(NcclNews news = NcclNews::MAY_COME) const;
  /// Who is asked first where a deadline has passed; null: nobody.
  void set_witness(std::shared_ptr<StallWitness> witness);
  [[nodiscard]] std::shared_ptr<StallWitness> witness() const;

  NcclClique(Passkey key, std::shared_ptr<State> state);

 private:
  static std::shared_ptr<NcclClique> make(const Devices& devices, const Deadline& deadline);
  std::shared_ptr<State> state_;
  std::shared_ptr<Cluster> cluster_;  // null: of this process alone
  std::shared_ptr<void> listening_;   // to the cluster; ends before the rest
};

/// For NcclClique::among() inside a construction that has until `deadline`: NCCL takes some seconds, and what it has begun cannot be kept for the next try, so
/// it has as much as a construction of its own from here on, however little of this one's time is left.
[[nodiscard]] CROSSDEVICE_EXPORT Deadline nccl_meeting_deadline(const Deadline& deadline);

/// A group of NCCL calls on a clique's communicators. Holds the GPUs' launch locks, so that on every GPU all launches come in one order.
///
/// Errors   (of the constructor) as require_usable().
/// Threads  one; no other wait or lock inside.
class CROSSDEVICE_EXPORT NcclClique::Launch {
 public:
  /// What it is a part of, what it carries, and by when it must have come back.
  struct Plan {
    OperationRecord operation{};
    /// That each GPU gives, or gets where it gives nothing; 0: not known.
    std::size_t size_bytes = 0;
    std::optional<DType> dtype{};  ///< of all of that; nothing: several, or not known
    /// The operation's, which messages name; nothing or 0: none.
    std::optional<double> timeout_seconds{};
    /// The moment when that is over: one for all launches of an operation. never(): so long from now on.
    Deadline deadline = Deadline::never();
  };

  explicit Launch(NcclClique& clique);
  /// By the plan's deadline the calls inside, and end(), have to come back: NCCL makes connections there, and waits for other workers. When it has passed the
  /// clique breaks with DeadlineExceededError, which names the operation, and the abort lets the caller go on. Costs a watched operation. For the GPUs' launch
  /// locks, before that, a second longer, so that a launch that holds one and is stuck has said why.
  ///
  /// Errors   DeadlineExceededError: another launch holds a GPU's lock, or the deadline has passed already; neither breaks the clique.
  Launch(NcclClique& clique, Plan plan);
  /// Without end(): gives up what was called. Where NCCL has launched it anyhow, on some GPUs perhaps and on others not, the clique breaks.
  ~Launch();
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  /// Throws what a call inside the group came to.
  ///
  /// Errors   InternalError, UnavailableError: NCCL's text, after `what`, the name of the call. Where the clique was broken meanwhile: what broke it.
  void require(NcclStatus status, std::string_view what);
  /// As if require() had seen a call that succeeded: for calls that it does not see.
  void assume_calls() { has_calls_ = true; }
  /// Launches.
  ///
  /// Errors   as require(); the clique is broken then.
  void end();

 private:
  void open();
  void lock();
  void lock(GpuDevice& gpu, const Deadline& deadline) const;
  void unlock();
  void begin_watch();
  void end_watch();
  NcclStatus end_group();

  const std::shared_ptr<State> state_;
  Plan plan_{};  // without a timeout without a deadline, and the other way round
  std::uint64_t watched_ =
      0;  // its number among those of the clique that are watched; 0: it is not
  bool has_calls_ = false;
  bool is_open_ = false;
};

}  // namespace crossdevice::detail
