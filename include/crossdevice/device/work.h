// SPDX-License-Identifier: Apache-2.0
/// A handle on asynchronous work: when it is done, how it ended, and how to be rid of it.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

namespace detail {

/// The shared half: written by the threads that do the work, read by the one that waits.
///
/// States: queued -> running -> done, or queued -> done (cancelled, or given up before it began). Items (the values of a batch)
/// complete one by one while it runs. Success completes all of them; with an error, those that are not complete never will be.
/// Order    what was written before complete_item() or finish() is visible to who was told of it.
/// Memory   allocates in the constructor only (and for an error). Whoever calls it holds a reference of its own: a waiter may drop
///          the last other one while finish() returns.
/// Threads  any; items may be completed by several threads at once, the last of them before finish() is called.
class CROSSDEVICE_EXPORT WorkState {
 public:
  explicit WorkState(std::size_t num_items);
  ~WorkState();
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;

  /// queued -> running; false when it was cancelled: then the work must not be done, and finish() not be called.
  [[nodiscard]] bool start();
  /// Marks one item complete, the first time and while it is not done.
  ///
  /// Errors   ValueError: no such item.
  void complete_item(std::size_t item);
  /// -> done. `error` is null for success, which completes what is left of the items, in order. The first end counts.
  void finish(std::exception_ptr error);
  /// queued -> done with CancelledError; false when it runs already or is done.
  ///
  /// Errors   FailedPreconditionError: in a child of fork(), where the lock may be held for ever.
  bool cancel();
  /// What is to be done as soon as it was cancelled, on that thread, before cancel() returns. To be called before anybody else knows of it; must not throw.
  void on_cancel(std::function<void()> react);
  /// Says that somebody wants it to stop early: a running operation asks between its steps.
  void request_stop();
  [[nodiscard]] bool stop_requested() const;

  // Waits spin for a moment, then sleep. They end, because work does: by completion, its own deadline, abort or cancellation.
  // All of them throw DeadlineExceededError when `deadline` passes first, and FailedPreconditionError in a child of
  // fork() when they would have to wait, because nobody does the work there.

  [[nodiscard]] bool is_done() const;
  void wait_until_done(const Deadline& deadline) const;
  /// How it ended, once done; null for success.
  [[nodiscard]] std::exception_ptr error() const;
  /// The k-th item to complete, counted from 0; nothing when there never will be one.
  [[nodiscard]] std::optional<std::size_t> wait_for_completed(std::size_t k,
                                                              const Deadline& deadline) const;
  /// Whether the item is complete; false when the work ended without it.
  ///
  /// Errors   also ValueError: no such item.
  [[nodiscard]] bool wait_for_item(std::size_t item, const Deadline& deadline) const;
  [[nodiscard]] std::size_t num_items() const;

 private:
  struct Data;
  std::unique_ptr<Data> data_;
};

}  // namespace detail

/// What asynchronous forms return.
///
/// Memory   the destructor cancels what has not started, asks what runs to stop, and waits until no thread of ours touches the
///          operation's memory any more. That wait ends as the operation does: by its deadline, an abort, or after its current step.
/// Errors   wait(): what went wrong in the work, each time it is called; CancelledError when it was cancelled.
/// Threads  one at a time.
class CROSSDEVICE_EXPORT Work {
 public:
  explicit Work(std::shared_ptr<detail::WorkState> state);
  ~Work();
  Work(Work&&) noexcept = default;
  /// Gets rid of the work it had as the destructor does.
  Work& operator=(Work&& other) noexcept;

  [[nodiscard]] bool is_done() const;
  /// Blocks until the work has ended; rethrows its error. On GPUs it has ended when it is enqueued: see PendingBatch::wait().
  void wait();
  /// Errors   also DeadlineExceededError when `deadline` passes first; the work goes on.
  void wait(const Deadline& deadline);
  /// Cancels what has not started, asks what runs to stop; wait() then throws CancelledError unless it had finished.
  ///
  /// Errors   FailedPreconditionError: in a child of fork().
  void cancel();

 protected:
  [[nodiscard]] const std::shared_ptr<detail::WorkState>& state() const { return state_; }

 private:
  std::shared_ptr<detail::WorkState> state_;  // null: moved from
};

}  // namespace crossdevice
