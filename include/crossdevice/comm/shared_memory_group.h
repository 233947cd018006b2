// SPDX-License-Identifier: Apache-2.0
/// Workers on one machine that see each other's memory: they say in turn what they are about to do and that they have done it, and map the
/// segments of each other's pools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "crossdevice/comm/call_difference.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// Where bytes of a worker lie, for the others.
struct SharedLocation {
  std::uint64_t segment_id = 0;  ///< of the worker's pool; never reused, and in its file's mark
  std::uint64_t segment_size_bytes = 0;
  std::uint64_t offset_bytes = 0;
  std::int32_t segment_fd = -1;  ///< in the worker's process
};

/// Operations run one after the other; each has an announcement, and most have an end.
///
///   announce(operation)          what this worker put into slot() is there for all
///   await_announcements()        all have announced the same; slot_of(rank) and heads() may be read
///   ... read and write the others' memory ...
///   finish(); await_ends()       nobody touches this worker's memory any more
///
/// An operation without finish() is over after await_announcements(): slots are kept until the next but one announcement, so they may still be
/// read, but no memory of others may be touched. It says so with Touches::SLOTS, which saves a fence.
///
/// Why slots are not overwritten while somebody reads them: there are two, used in turns. Who announces operation k has seen all announce k - 1, and
/// whoever has announced k - 1 has done with k - 2, whose slot k uses.
///
/// Errors   UnavailableError (a member is gone), AbortedError, DeadlineExceededError (names who did not come), InternalError (operations differ: says
///          what either is). After an error the group is broken: every later call throws. may_be_written() says whether a worker that is
///          not proven dead may still write into this one's memory.
/// Threads  one at a time. A waiter spins, then yields, then sleeps in the kernel.
/// Cost     announce and await_announcements: one cache line per worker, some 0.2 us between two cores.
class CROSSDEVICE_EXPORT SharedMemoryGroup {
 public:
  /// Collective over `cluster`, whose members must share one machine. `names`: what errors and the log call them, by rank, where that is not what the
  /// cluster does: a subgroup's ranks say nothing to who runs the job.
  ///
  /// Errors   ValueError: they do not. ResourceExhaustedError: a member, which it names, lacks memory or descriptors. FailedPreconditionError: the system does not let one process open another's
  ///          memory; says what refused.
  explicit SharedMemoryGroup(std::shared_ptr<Cluster> cluster,
                             std::size_t slot_bytes = std::size_t{64} << 10,
                             const std::vector<RankInfo>& names = {},
                             const Deadline& deadline = meeting_deadline());
  ~SharedMemoryGroup();
  SharedMemoryGroup(const SharedMemoryGroup&) = delete;
  SharedMemoryGroup& operator=(const SharedMemoryGroup&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int num_workers() const;
  /// What errors call this worker.
  [[nodiscard]] RankInfo info() const;
  [[nodiscard]] std::size_t slot_bytes() const;

  /// What the next announcement says, for this worker to fill.
  [[nodiscard]] std::span<std::byte> slot();
  /// Up to so many bytes may come along with the announcement itself: they lie behind it, so that processors fetch them together.
  static constexpr std::size_t kHeadBytes = 496;
  /// What of a member an operation's other members touch.
  enum class Touches : bool { SLOTS, MEMORY };
  /// `sequence` is what errors call the operation besides.
  ///
  /// Errors   also ValueError: `head` is longer than kHeadBytes.
  void announce(const GroupOperationInfo& operation, std::uint64_t sequence,
                Touches touches = Touches::MEMORY, std::span<const std::byte> head = {});
  /// The same of one that was prepared before.
  void announce(const PreparedOperation& operation, std::uint64_t sequence,
                Touches touches = Touches::MEMORY, std::span<const std::byte> head = {});
  void await_announcements(const Deadline& deadline);
  [[nodiscard]] std::span<const std::byte> slot_of(int rank) const;
  /// Where everybody's head lies, by rank: kHeadBytes bytes, of which those beyond the announced ones are anything; kept as long as the slot.
  [[nodiscard]] std::span<const void* const> heads() const;
  void finish();
  void await_ends(const Deadline& deadline);

  /// The bytes at `location` of `rank`, here; between await_announcements() and finish(). Maps a segment the first time it is named, and keeps it.
  ///
  /// Errors   as await_ends(), where the member has given up and let go of the segment meanwhile; what its descriptor may be instead is not mapped.
  ///          UnavailableError: the member has gone. InternalError: the segment cannot be opened, or has another size.
  [[nodiscard]] std::byte* map(int rank, const SharedLocation& location, std::size_t size_bytes);
  /// `look` is called by who waits, every few milliseconds and on that thread, for what the flags of the group do not say. What it throws ends the wait, and
  /// breaks the group.
  void while_waiting(std::function<void()> look);
  /// Errors   FailedPreconditionError: it is broken.
  void require_whole() const;
  /// Whether await_announcements() has thrown because operations differ. Then explain_difference() can be called once, which each member should, at once.
  [[nodiscard]] bool has_found_difference() const;
  /// How they do, as describe_difference() says it: waits for what the others say, but no longer than a second. `details`: this member's.
  [[nodiscard]] std::string explain_difference(const CallDetails& details);
  /// The operation that was announced last is over for this worker: who misses it from now on says that it is in none.
  void leave_operation();
  /// Breaks the group, so that the others do not wait for what this worker does not do any more. Nothing if it is broken already.
  void give_up(const std::string& text);
  /// The same where this worker has failed for a reason of its own, with `error`. The others get an error that names it: AbortedError, or
  /// DeadlineExceededError where `error` is one, because its time was over while it did its part.
  void fail_alone(const std::exception& error);
  /// Whether an operation failed so that somebody may still write into memory that this worker has announced.
  [[nodiscard]] bool may_be_written() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice
