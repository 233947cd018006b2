// SPDX-License-Identifier: Apache-2.0
/// One operation while it runs: its turn, its record, its deadline, and whom to tell of progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/operation_kind.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/communication_options.h"

#include "ops/detail/operation_queue.h"
#include "ops/detail/pending_batch_state.h"

namespace crossdevice::detail {

/// What an operation is called, before it has a number.
struct OperationName {
  const OperationKind& kind;
  std::size_t num_values;
  std::size_t size_bytes;
  bool in_place;
  Devices devices;  // that it reads
};

/// Holds the turn of its queue from construction to destruction. A nested one (made by a hook that calls its own object) shares the outer
/// one's turn, record and deadline; where its options have a timeout of their own, its deadline is the earlier of the two.
class ActiveOperation {
 public:
  ActiveOperation(OperationQueue& queue, const OperationName& name,
                  const CommunicationOptions& options)
      : ActiveOperation(queue, name, options, nullptr) {}
  /// For an asynchronous operation, whose turn the calling thread holds already; null: a blocking one.
  ActiveOperation(OperationQueue& queue, const OperationName& name,
                  const CommunicationOptions& options, PendingBatchState* pending);
  ~ActiveOperation();
  ActiveOperation(const ActiveOperation&) = delete;
  ActiveOperation& operator=(const ActiveOperation&) = delete;

  /// Runs what the operation does, and counts how it fails, which it says as named() does.
  template <class Body>
  auto run(Body body) {
    try {
      return body();
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      set_failed(error);
      std::rethrow_exception(named(error));
    }
  }
  /// As this operation's; see error_of().
  [[nodiscard]] std::exception_ptr named(const std::exception_ptr& error) const noexcept;
  /// For those who keep the error instead of throwing it.
  void set_failed(const std::exception_ptr& error) {
    if (outer_ != nullptr) return;
    has_failed_ = true;
    kind_.count_failure(error);
  }
  /// Counts it as one that has ended; the destructor does where nobody else has. For those who tell others of the end before.
  void count();

  [[nodiscard]] const OperationKind& kind() const { return kind_; }
  [[nodiscard]] const OperationRecord& record() const { return record_; }
  [[nodiscard]] const Deadline& deadline() const { return deadline_; }
  [[nodiscard]] std::optional<double> timeout_seconds() const { return timeout_seconds_; }
  /// Hears how it ends on GPUs, after the call.
  [[nodiscard]] std::shared_ptr<FailureListener> listener() const {
    if (pending_ != nullptr) return pending_->gpu_completion();
    return queue_.shared_from_this();
  }
  [[nodiscard]] bool stop_requested() const {
    return pending_ != nullptr && pending_->work->stop_requested();
  }
  /// As OperationQueue's.
  [[nodiscard]] const WaitInterrupter* job() const { return queue_.job(); }
  /// Operations of this object that were cancelled before they began, so far.
  [[nodiscard]] std::uint64_t num_skipped() const { return queue_.num_skipped(); }
  /// Which value of an asynchronous operation a pair is, for complete_item(). Hooks may reorder a batch, cut it into parts and make
  /// pairs of their own, so its position in the span at hand does not tell.
  [[nodiscard]] std::size_t item_of(const ValueDestinationPair& pair) const {
    return pending_ != nullptr ? pending_->item_of(pair) : PendingBatchState::kNoItem;
  }
  /// Value `item` of an asynchronous operation has its result: it lies in the buffers that were made for it. Does nothing for kNoItem.
  void complete_item(std::size_t item) {
    if (pending_ != nullptr && item != PendingBatchState::kNoItem) pending_->complete_item(item);
  }
  /// The same for a value whose result was made by the operation.
  void complete_item(std::size_t item, const Mirrored& result) {
    if (pending_ == nullptr || item == PendingBatchState::kNoItem) return;
    pending_->set_result(item, result);
    pending_->complete_item(item);
  }
  /// Null: it is no pack of a GradientBucketer.
  [[nodiscard]] const StreamedPack* streamed_pack() const {
    if (pending_ == nullptr || !pending_->streamed_pack.has_value()) return nullptr;
    return &*pending_->streamed_pack;
  }
  /// Whether results go where inputs lie.
  [[nodiscard]] bool is_in_place() const { return in_place_; }
  [[nodiscard]] bool reports_progress() const { return pending_ != nullptr; }
  /// Whether buffers of the caller may have been written when the operation fails.
  void set_written() { outputs_written_ = true; }
  /// A part of what it does has come to its end, and buffers of the caller have been written in it: a hook may hand others on after it.
  void set_part_written() { has_written_part_ = true; }

  /// Errors   DeadlineExceededError, CancelledError.
  void require_time_left() const;
  [[noreturn]] void throw_deadline_exceeded() const;
  [[noreturn]] void throw_stopped() const;

 private:
  OperationQueue& queue_;
  ActiveOperation* outer_;  // null unless nested
  const OperationKind& kind_;
  bool is_counted_ = false;
  bool has_failed_ = false;
  OperationTime time_;  // not of a nested one
  bool in_place_;
  bool outputs_written_ = false;
  bool has_written_part_ = false;
  OperationRecord record_;
  std::optional<TraceSpan> span_;  // while it has its turn; none of a nested one
  Deadline deadline_ = Deadline::never();
  std::optional<double> timeout_seconds_;
  PendingBatchState* pending_;
};

}  // namespace crossdevice::detail
