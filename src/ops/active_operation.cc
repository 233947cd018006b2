// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/active_operation.h"

#include <fmt/format.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {

ActiveOperation::ActiveOperation(OperationQueue& queue, const OperationName& name,
                                 const CommunicationOptions& options,
                                 std::optional<std::uint64_t> ticket, PendingBatchState* pending)
    : queue_(queue),
      outer_(!ticket.has_value() && queue.is_held_by_this_thread() ? queue.active() : nullptr),
      in_place_(name.in_place),
      timeout_seconds_(options.timeout_seconds.has_value() ? options.timeout_seconds
                                                           : environment().default_timeout_seconds),
      pending_(pending) {
  if (outer_ != nullptr) {
    in_place_ |= outer_->in_place_;
    outputs_written_ = outer_->outputs_written_;
    record_ = outer_->record_;
    pending_ = outer_->pending_;
    deadline_ = options.deadline();
    if (outer_->deadline_.moment() <= deadline_.moment()) {
      deadline_ = outer_->deadline_;
      timeout_seconds_ = outer_->timeout_seconds_;
    }
    queue_.set_active(this);
    return;
  }
  require_not_forked();
  if (ticket.has_value()) {
    queue_.begin_enqueued_turn(*ticket);
  } else {
    queue_.begin_turn(queue_.draw_blocking_ticket());
  }
  record_ = {name.kind, queue_.next_sequence(), name.num_values, name.size_bytes};
  deadline_ = options.deadline();  // its clock starts here, at the head of the queue
  queue_.set_active(this);
}

ActiveOperation::~ActiveOperation() {
  if (outer_ != nullptr) {
    outer_->outputs_written_ |= outputs_written_;
    queue_.set_active(outer_);
  } else {
    queue_.end_turn();
  }
}

void ActiveOperation::require_time_left() const {
  if (stop_requested()) throw_stopped();
  if (deadline_.has_passed()) throw_deadline_exceeded();
}

void ActiveOperation::throw_deadline_exceeded() const {
  throw DeadlineExceededError(
      fmt::format("{} timed out after {} s: the host devices of this process had not finished{}",
                  to_string(record_), timeout_seconds_.value_or(0),
                  in_place_ && outputs_written_ ? "; buffers reduced in place are unspecified"
                                                : "; its inputs are intact"),
      {.operation = record_, .culprits = {}, .inputs_intact = !(in_place_ && outputs_written_)});
}

void ActiveOperation::throw_stopped() const {
  throw CancelledError(
      fmt::format("{} was cancelled while it ran", to_string(record_)),
      {.operation = record_, .culprits = {}, .inputs_intact = !(in_place_ && outputs_written_)});
}

}  // namespace crossdevice::detail
