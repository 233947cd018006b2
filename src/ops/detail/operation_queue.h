// SPDX-License-Identifier: Apache-2.0
/// The order of the operations of one ops object: one at a time, in the order of their tickets.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/operation_kind.h"
#include "crossdevice/device/progress.h"
#include "crossdevice/device/wait_limit.h"
#include "crossdevice/ops/communication_options.h"
#include "crossdevice/ops/pending_batch.h"

#include "ops/detail/completed_operations.h"

namespace crossdevice::detail {

class ActiveOperation;

/// A ticket lock that knows its holder, plus the errors that nobody has seen yet.
///
/// Why every wait for a turn ends: a turn is held by an operation that runs, and every operation ends (completion, deadline, stop).
/// Asynchronous operations draw their tickets and enter the progress thread's queue under enqueue_mutex(), so that thread meets the tickets of
/// one object in ascending order and never waits for one whose task stands behind the task it runs. An operation that waits for other workers has a
/// progress thread of its object's, where no other object's stands before it. A hook that calls its own object again is
/// recognised by its thread and needs no ticket. A hook on a progress thread that calls a blocking form of another object is refused
/// when asynchronous operations of that object stand behind it, or when one is under way, which may do the same on a progress thread of its own. A
/// ticket of an operation that was cancelled in time is passed over by whoever comes to it first: who ends the turn before it, or who cancels.
class OperationQueue final : public std::enable_shared_from_this<OperationQueue>,
                             public FailureListener {
 public:
  /// As wide as a futex, so that the end of a turn costs nothing where nobody waits. Compared by the sign of the difference, so it may wrap around.
  using Ticket = std::uint32_t;

  /// `timeout_seconds`: of operations that have none of their own.
  explicit OperationQueue(std::optional<double> timeout_seconds)
      : timeout_seconds_(timeout_seconds) {}
  [[nodiscard]] std::optional<double> timeout_seconds() const { return timeout_seconds_; }

  /// Returns when the calling thread has its turn, with a blocking operation; it ends it, whatever happens.
  ///
  /// Errors   FailedPreconditionError: on a progress thread, and operations that were enqueued before would have to come first.
  void begin_blocking_turn();

  /// Before the first operation: they wait for other workers. `job`: whether these are still there; null: nobody says.
  void set_waits_for_workers(std::unique_ptr<const WaitInterrupter> job) {
    waits_for_workers_ = true;
    job_ = std::move(job);
  }
  /// Ends what waits for a stream, not for the workers, who are waited for below; null: nothing does.
  [[nodiscard]] const WaitInterrupter* job() const { return job_.get(); }
  /// Where asynchronous operations are carried out. With enqueue_mutex() held.
  ///
  /// Errors   as progress_stream().
  [[nodiscard]] Stream& progress();
  /// Held while an asynchronous operation draws its ticket and enqueues its task.
  [[nodiscard]] std::mutex& enqueue_mutex() { return enqueue_mutex_; }
  /// The same for an asynchronous operation, with enqueue_mutex() held; then begin_enqueued_turn().
  [[nodiscard]] Ticket draw_enqueued_ticket() {
    // This one, those before it, the one whose turn is awaited, and one whose turn came while it was being cancelled: abandon() does not allocate.
    abandoned_.reserve(num_enqueued_ + 3);
    ++num_enqueued_;
    return draw_ticket();
  }
  /// Returns when the turn of `ticket` has come, which whoever goes on then take()s; false: it was abandoned, and is over.
  [[nodiscard]] bool await_enqueued_turn(Ticket ticket);
  /// The turn has come: the calling thread holds it.
  void take_turn() {
    holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    is_carried_out_.store(carries_out_operations(), std::memory_order_relaxed);
  }
  void begin_enqueued_turn(Ticket ticket) {
    (void)await_enqueued_turn(ticket);
    take_turn();
  }
  /// An asynchronous operation was cancelled before it took its turn, and counts as skipped. Nobody waits for that turn any more, which nobody takes.
  void abandon(Ticket ticket);
  void end_turn();
  /// Whether the calling thread holds the turn (it is inside a hook).
  [[nodiscard]] bool is_held_by_this_thread() const {
    return holder_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

  /// The number of the operation that begins now, from 1. Only for the holder.
  [[nodiscard]] std::uint64_t next_sequence() { return ++sequence_; }
  /// For the holder, instead of an operation that was cancelled before it began: on other workers it may have been carried out, so it has a number too.
  void skip_operation() {
    ++sequence_;
    ++num_skipped_;
  }
  /// How many operations have been skipped. Only for the holder.
  [[nodiscard]] std::uint64_t num_skipped() const { return num_skipped_; }
  /// The number of a GradientBucketer whose first pack leaves now. Those packs leave in one order on all workers, as all calls do, and so the numbers are equal
  /// there; who makes a bucketer and does not use it, or when, does not count. Relaxed: it orders nothing.
  [[nodiscard]] std::uint64_t draw_bucketer() {
    return num_bucketers_.fetch_add(1, std::memory_order_relaxed);
  }
  /// The operation of the holder. Only for the holder.
  [[nodiscard]] ActiveOperation* active() const { return active_; }
  void set_active(ActiveOperation* operation) { active_ = operation; }

  /// Keeps the error of an asynchronous operation until its wait(), the next call or check() throws it; the first one wins.
  void keep_error(std::exception_ptr error);
  /// Which operation has completed last, as the cluster's rebuild() is told it.
  [[nodiscard]] CompletedOperations& completed() { return completed_; }
  void operation_enqueued(std::uint64_t sequence,
                          const std::shared_ptr<NcclClique>& /*clique*/) override {
    completed_.begin_part(sequence);
  }
  void operation_completed(std::uint64_t sequence) override { completed_.end_part(sequence); }
  void operation_failed(std::exception_ptr error) override {
    completed_.stop();
    count_late_failure(error);
    keep_error(std::move(error));
  }
  /// wait() has thrown it: nobody else needs to.
  void forget_error(const std::exception_ptr& error);
  /// Throws the kept error, once.
  void rethrow_kept_error() {
    if (has_error_.load(std::memory_order_acquire)) rethrow_slow();
  }
  /// Blocks until every ticket drawn so far has been served. In a child of fork() nobody serves them, and it returns at once.
  void drain();

 private:
  void rethrow_slow();
  void begin_turn(Ticket ticket);
  [[nodiscard]] Ticket draw_ticket_behind_nobody();
  [[nodiscard]] Ticket await_turn(Ticket ticket);
  void skip_abandoned();
  [[nodiscard]] Ticket draw_ticket() { return next_.fetch_add(1, std::memory_order_relaxed); }

  const std::optional<double> timeout_seconds_;
  bool waits_for_workers_ = false;
  std::unique_ptr<const WaitInterrupter> job_;  // constant behind the first operation
  std::mutex enqueue_mutex_;
  std::optional<ProgressLease> lease_;  // guarded by enqueue_mutex_
  std::size_t num_enqueued_ = 0;        // guarded by enqueue_mutex_: their turns have not begun
  std::vector<Ticket> abandoned_;       // guarded by enqueue_mutex_: their turns have not come
  // Of these. Set before who abandons looks at serving_, read after who ends a turn has changed it: one of them sees the other.
  std::atomic<std::size_t> num_abandoned_{0};
  std::atomic<Ticket> next_{0};
  std::atomic<Ticket> serving_{0};  // released by end_turn, acquired by begin_turn
  std::atomic<std::thread::id>
      holder_{};  // only ever compared with the reader's own id, so relaxed is enough
  std::atomic<bool> is_carried_out_{false};  // the turn's operation, on a progress thread
  std::uint64_t sequence_ = 0;               // guarded by the turn
  std::uint64_t num_skipped_ = 0;            // guarded by the turn
  ActiveOperation* active_ = nullptr;        // guarded by the turn
  std::atomic<std::uint64_t> num_bucketers_{0};
  CompletedOperations completed_;

  std::atomic<bool> has_error_{false};
  std::mutex error_mutex_;  // guards error_
  std::exception_ptr error_;
};

}  // namespace crossdevice::detail
