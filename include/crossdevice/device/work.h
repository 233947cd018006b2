// SPDX-License-Identifier: Apache-2.0
/// A handle on asynchronous work: when it is done, how it ended, and how to be rid of it.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

namespace detail {

/// The shared half: written by the thread that does the work, read by the one that waits.
///
/// States: queued -> running -> done, or queued -> done (cancelled). Items (the values of a batch) complete one by one while it runs;
/// all of them are complete when it is done without error; after an error or a cancellation the others never will be.
/// Threads  any.
class CROSSDEVICE_EXPORT WorkState {
 public:
  explicit WorkState(std::size_t num_items);
  ~WorkState();

  /// queued -> running; false when it was cancelled.
  [[nodiscard]] bool start();
  /// Marks one item complete; once per item.
  void complete_item(std::size_t item);
  /// running -> done. `error` is null for success, which completes what is left of the items, in order.
  void finish(std::exception_ptr error);
  /// queued -> done with CancelledError; false when it runs already or is done.
  bool cancel();
  /// Whether somebody wants it to stop early: a running operation asks between its steps.
  void request_stop();
  [[nodiscard]] bool stop_requested() const;

  [[nodiscard]] bool is_done() const;
  void wait_until_done(const Deadline& deadline) const;          ///< throws DeadlineExceededError only
  [[nodiscard]] std::exception_ptr error() const;                ///< after done
  /// The k-th item to complete; blocks until there is one. Nothing when the work is done and fewer have completed.
  [[nodiscard]] std::optional<std::size_t> wait_for_completed(std::size_t k,
                                                              const Deadline& deadline) const;
  /// Blocks until `item` is complete (true) or never will be (false). Throws DeadlineExceededError only.
  [[nodiscard]] bool wait_for_item(std::size_t item, const Deadline& deadline) const;
  [[nodiscard]] std::size_t num_items() const;

 private:
  struct Data;
  std::unique_ptr<Data> data_;
};

}  // namespace detail

/// Errors   wait(): what went wrong in the work, each time it is called; CancelledError when it was cancelled.
/// Threads  one at a time.
/// Memory   the destructor cancels what has not started and waits until no thread of ours touches the operation's memory any more.
class CROSSDEVICE_EXPORT Work {
 public:
  explicit Work(std::shared_ptr<detail::WorkState> state);
  ~Work();
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept;

  [[nodiscard]] bool is_done() const;
  /// Blocks until the work has ended; rethrows its error.
  void wait();
  /// Errors   also DeadlineExceededError when `deadline` passes first; the work goes on.
  void wait(const Deadline& deadline);
  /// Cancels what has not started, asks what runs to stop; wait() then throws CancelledError unless it had finished.
  void cancel();

 protected:
  [[nodiscard]] const std::shared_ptr<detail::WorkState>& state() const { return state_; }

 private:
  std::shared_ptr<detail::WorkState> state_;
};

}  // namespace crossdevice
