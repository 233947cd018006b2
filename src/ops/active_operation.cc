// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/active_operation.h"

#include <fmt/format.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/full_name.h"
#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {
namespace {

/// The call's own, or else its object's, or else the environment's. A nested call has its outer one's.
std::optional<double> timeout_of(const OperationQueue& queue, const CommunicationOptions& options,
                                 bool is_nested) {
  if (options.timeout_seconds.has_value() || is_nested) return options.timeout_seconds;
  if (queue.timeout_seconds().has_value()) return queue.timeout_seconds();
  return environment().default_timeout_seconds;
}

}  // namespace

ActiveOperation::ActiveOperation(OperationQueue& queue, const OperationName& name,
                                 const CommunicationOptions& options, PendingBatchState* pending)
    : queue_(queue),
      outer_(pending == nullptr && queue.is_held_by_this_thread() ? queue.active() : nullptr),
      kind_(name.kind),
      in_place_(name.in_place),
      timeout_seconds_(timeout_of(queue, options, outer_ != nullptr)),
      pending_(pending) {
  if (outer_ != nullptr) {
    in_place_ |= outer_->in_place_;
    outputs_written_ = outer_->outputs_written_;
    has_written_part_ = outer_->has_written_part_;
    record_ = outer_->record_;
    pending_ = outer_->pending_;
    deadline_ = Deadline::after_timeout_seconds(timeout_seconds_);
    if (outer_->deadline_.moment() <= deadline_.moment()) {
      deadline_ = outer_->deadline_;
      timeout_seconds_ = outer_->timeout_seconds_;
    }
    queue_.set_active(this);
    return;
  }
  require_not_forked();
  // Were it found to be wrong below, nobody would end the turn.
  const bool is_wrong = timeout_seconds_.has_value() && !(*timeout_seconds_ >= 0);
  if (is_wrong) (void)Deadline::after_timeout_seconds(timeout_seconds_);
  if (pending == nullptr) queue_.begin_blocking_turn();
  record_ = {name.kind.name, queue_.next_sequence(), name.num_values, name.size_bytes};
  // Its clock starts here, at the head of the queue.
  if (timeout_seconds_.has_value()) deadline_ = Deadline::after_timeout_seconds(timeout_seconds_);
  span_.emplace(name.kind.name.data(), "operation", [this, &name] {
    return TraceArguments{.sequence = record_.sequence,
                          .num_bytes = record_.size_bytes,
                          .tracks = &name.devices.trace_tracks()};
  });
  queue_.set_active(this);
  time_.start(kind_, name.size_bytes);
}

void ActiveOperation::count() {
  if (is_counted_) return;
  is_counted_ = true;
  // All that it does on GPUs is enqueued.
  if (has_failed_) {
    queue_.completed().give_up(record_.sequence);
  } else {
    queue_.completed().end(record_.sequence);
  }
  span_.reset();
  time_.count(kind_, record_.size_bytes);
}

std::exception_ptr ActiveOperation::named(const std::exception_ptr& error) const noexcept {
  return error_of(
      error, record_, timeout_seconds_,
      {.may_be_written = in_place_, .has_part_written = in_place_ && has_written_part_});
}

ActiveOperation::~ActiveOperation() {
  if (outer_ != nullptr) {
    outer_->outputs_written_ |= outputs_written_;
    outer_->has_written_part_ |= has_written_part_;
    queue_.set_active(outer_);
  } else {
    count();
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
