// SPDX-License-Identifier: Apache-2.0
/// The handle that asynchronous forms return: a Work with one result per value.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>

#include "crossdevice/core/export.h"
#include "crossdevice/device/work.h"
#include "crossdevice/ops/values.h"

namespace crossdevice {

namespace detail {
struct PendingBatchState;
}

/// Indices in the order in which they complete; advancing blocks until the next one has. Ends early when the work fails: wait() then
/// says why. For one pass, in a range-for.
class CROSSDEVICE_EXPORT CompletionRange {
 public:
  class CROSSDEVICE_EXPORT Iterator {
   public:
    using value_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    [[nodiscard]] std::size_t operator*() const { return current_; }
    Iterator& operator++();
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return it.at_end_; }

   private:
    friend class CompletionRange;
    explicit Iterator(const CompletionRange* range);
    void load();
    const CompletionRange* range_;
    std::size_t position_ = 0;
    std::size_t current_ = 0;
    bool at_end_ = false;
  };

  virtual ~CompletionRange() = default;

  [[nodiscard]] Iterator begin() const { return Iterator(this); }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

 protected:
  CompletionRange() = default;
  CompletionRange(const CompletionRange&) = default;
  CompletionRange& operator=(const CompletionRange&) = default;
  /// Waits for the position-th completion and writes its index; false when there is none and never will be.
  virtual bool wait_for(std::size_t position, std::size_t& index) const = 0;
};

/// Memory   keeps handles on the operation's tensors until it dies; a view's memory must outlive it.
/// Order    on GPUs an operation, and each of its values, counts as complete, for all but wait(), when it is enqueued: is_done() is true, value() returns, and the
///          result may be used in the order of its stream.
/// Errors   FailedPreconditionError: waiting inside a hook that has to end before the operation can.
class CROSSDEVICE_EXPORT PendingBatch : public Work {
 public:
  explicit PendingBatch(std::shared_ptr<detail::PendingBatchState> state);

  /// Blocks until the operation has ended, on GPUs too (what is captured into a graph counts as ended); throws what it failed with, every time. What has gone wrong
  /// on GPUs, if only after the operation was enqueued, is thrown as well, and then neither by the object's next call nor by its check().
  ///
  /// Errors   also DeadlineExceededError: `deadline` passed first, and the operation goes on. Without one, who waits for a stream that the program itself holds back waits
  ///          as long: the operation's own deadline runs from the moment at which it comes to the head of its stream.
  void wait();
  void wait(const Deadline& deadline);
  /// The same without the wait for GPUs: for programs that go on in the order of the streams. Throws what has gone wrong there only if it is known already; else
  /// wait(), the object's next call or its check() does.
  void wait_until_enqueued();
  void wait_until_enqueued(const Deadline& deadline);
  /// Number of values.
  [[nodiscard]] std::size_t size() const;
  /// The result of value `index`; waits for it alone.
  ///
  /// Errors   what the operation failed with, if it failed before this value was complete; ValueError: no such index.
  [[nodiscard]] Mirrored value(std::size_t index);

  /// The position-th value to complete; blocks until there is one. Nothing when the work failed before.
  [[nodiscard]] std::optional<std::size_t> completed(std::size_t position) const;

  class CROSSDEVICE_EXPORT InCompletionOrder : public CompletionRange {
   public:
    explicit InCompletionOrder(std::shared_ptr<detail::WorkState> work) : work_(std::move(work)) {}

   private:
    bool wait_for(std::size_t position, std::size_t& index) const override;
    std::shared_ptr<detail::WorkState> work_;
  };
  [[nodiscard]] InCompletionOrder in_completion_order() const;

 private:
  std::shared_ptr<detail::PendingBatchState> batch_;
};

}  // namespace crossdevice
