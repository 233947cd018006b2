// SPDX-License-Identifier: Apache-2.0
/// One operation while it runs: its turn, its record, its deadline, and whom to tell of progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/communication_options.h"

#include "ops/detail/operation_queue.h"
#include "ops/detail/pending_batch_state.h"

namespace crossdevice::detail {

/// What an operation is called, before it has a number.
struct OperationName {
  const char* kind;
  std::size_t num_values;
  std::size_t size_bytes;
  bool in_place;
};

/// Holds the turn of its queue from construction to destruction. A nested one (made by a hook that calls its own object) shares the outer
/// one's turn, deadline and record.
class ActiveOperation {
 public:
  ActiveOperation(OperationQueue& queue, const OperationName& name,
                  const CommunicationOptions& options)
      : ActiveOperation(queue, name, options, std::nullopt, nullptr) {}
  /// For an asynchronous operation that drew its ticket when it was enqueued.
  ActiveOperation(OperationQueue& queue, const OperationName& name,
                  const CommunicationOptions& options, std::optional<std::uint64_t> ticket,
                  PendingBatchState* pending);
  ~ActiveOperation();
  ActiveOperation(const ActiveOperation&) = delete;
  ActiveOperation& operator=(const ActiveOperation&) = delete;

  [[nodiscard]] const OperationRecord& record() const { return record_; }
  [[nodiscard]] const Deadline& deadline() const { return deadline_; }
  [[nodiscard]] bool stop_requested() const {
    return pending_ != nullptr && pending_->work->stop_requested();
  }
  /// Value `item` of an asynchronous operation has its result: it lies in the buffers that were made for it.
  void complete_item(std::size_t item) {
    if (pending_ != nullptr) pending_->complete_item(item);
  }
  /// The same for a value whose result was made by the operation.
  void complete_item(std::size_t item, const Mirrored& result) {
    if (pending_ == nullptr) return;
    pending_->set_result(item, result);
    pending_->complete_item(item);
  }
  [[nodiscard]] bool reports_progress() const { return pending_ != nullptr; }
  /// Whether buffers of the caller may have been written when the operation fails.
  void set_written() { outputs_written_ = true; }

  /// Errors   DeadlineExceededError, CancelledError.
  void require_time_left() const;
  [[noreturn]] void throw_deadline_exceeded() const;
  [[noreturn]] void throw_stopped() const;

 private:
  OperationQueue& queue_;
  bool nested_;
  bool in_place_;
  bool outputs_written_ = false;
  OperationRecord record_;
  Deadline deadline_ = Deadline::never();
  std::optional<double> timeout_seconds_;
  PendingBatchState* pending_;
};

}  // namespace crossdevice::detail
