// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/pending_batch.h"

#include <exception>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

#include "ops/detail/pending_batch_state.h"

namespace crossdevice {

CompletionRange::Iterator::Iterator(const CompletionRange* range) : range_(range) { load(); }

void CompletionRange::Iterator::load() { at_end_ = !range_->wait_for(position_, current_); }

CompletionRange::Iterator& CompletionRange::Iterator::operator++() {
  ++position_;
  load();
  return *this;
}

PendingBatch::PendingBatch(std::shared_ptr<detail::PendingBatchState> state)
    : Work(state->work), batch_(std::move(state)) {}

namespace {

/// Whoever holds the turn of an operation's object, or carries operations out, would wait here for itself.
void require_end(const detail::PendingBatchState& batch) {
  if (batch.work->is_done()) return;
  if (!batch.queue->is_held_by_this_thread() && !detail::carries_out_operations()) return;
  throw FailedPreconditionError(
      "an asynchronous operation was waited for inside a hook that has to end before it: it would "
      "wait for itself");
}

/// What the watchdog has found, which nobody else is to throw then.
void throw_found(const detail::PendingBatchState& batch) {
  if (batch.gpu == nullptr) return;
  const std::exception_ptr error = batch.gpu->error();
  if (error == nullptr) return;
  batch.queue->forget_error(error);
  std::rethrow_exception(error);
}

}  // namespace

void PendingBatch::wait() { wait(Deadline::never()); }

void PendingBatch::wait(const Deadline& deadline) {
  wait_until_enqueued(deadline);
  if (batch_->gpu == nullptr) return;
  try {
    batch_->gpu->wait(deadline);
  } catch (...) {
    throw_found(*batch_);
    throw;
  }
  // A deadline that passed, or an abort that was found, while the end came: it is the operation's, and thrown every time.
  throw_found(*batch_);
}

void PendingBatch::wait_until_enqueued() { wait_until_enqueued(Deadline::never()); }

void PendingBatch::wait_until_enqueued(const Deadline& deadline) {
  require_end(*batch_);
  batch_->work->wait_until_done(deadline);
  if (const std::exception_ptr error = batch_->work->error()) {
    batch_->queue->forget_error(error);
    std::rethrow_exception(error);
  }
  throw_found(*batch_);
}

std::size_t PendingBatch::size() const { return batch_->results.size(); }

Mirrored PendingBatch::value(std::size_t index) {
  if (index >= size()) {
    throw ValueError(fmt::format("value {} of a batch of {}", index, size()));
  }
  require_end(*batch_);
  if (!batch_->work->wait_for_item(index, Deadline::never())) {
    wait();  // throws what the operation failed with
    throw InternalError("an operation ended without error and without this value");
  }
  return batch_->results[index];
}

std::optional<std::size_t> PendingBatch::completed(std::size_t position) const {
  require_end(*batch_);
  return batch_->work->wait_for_completed(position, Deadline::never());
}

PendingBatch::InCompletionOrder PendingBatch::in_completion_order() const {
  require_end(*batch_);
  return InCompletionOrder(batch_->work);
}

bool PendingBatch::InCompletionOrder::wait_for(std::size_t position, std::size_t& index) const {
  const std::optional<std::size_t> item = work_->wait_for_completed(position, Deadline::never());
  if (item.has_value()) index = *item;
  return item.has_value();
}

}  // namespace crossdevice
