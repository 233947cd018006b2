// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/operation_queue.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "crossdevice/core/error.h"
#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {

Stream& OperationQueue::progress() {
  if (!waits_for_workers_) return progress_stream();
  if (!lease_.has_value()) lease_.emplace();
  return lease_->stream();
}

void OperationQueue::begin_blocking_turn() {
  begin_turn(carries_out_operations() ? draw_ticket_behind_nobody() : draw_ticket());
}

/// For the thread that carries asynchronous operations out.
OperationQueue::Ticket OperationQueue::draw_ticket_behind_nobody() {
  const std::lock_guard lock(enqueue_mutex_);  // who enqueues later gets a later ticket
  if (num_enqueued_ > 0 || is_carried_out_.load(std::memory_order_relaxed)) {
    throw FailedPreconditionError(
        "a blocking form was called from a hook of an asynchronous operation, on another object "
        "whose asynchronous operations stand behind that one, or are under way and may wait for "
        "it: it would wait for itself");
  }
  return draw_ticket();
}

bool OperationQueue::await_enqueued_turn(Ticket ticket) {
  {
    const std::lock_guard lock(enqueue_mutex_);
    --num_enqueued_;
  }
  return await_turn(ticket) == ticket;
}

void OperationQueue::begin_turn(Ticket ticket) {
  // Mostly it has come.
  if (serving_.load(std::memory_order_acquire) != ticket) (void)await_turn(ticket);
  take_turn();
}

/// Returns whose turn it is then: a later one's where `ticket` was passed over.
OperationQueue::Ticket OperationQueue::await_turn(Ticket ticket) {
  constexpr int kSpins = 2000;  // some microseconds: most operations that overlap are short
  int spins = 0;
  for (;;) {
    const Ticket serving = serving_.load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(serving - ticket) >= 0) return serving;
    if (++spins > kSpins) serving_.wait(serving, std::memory_order_acquire);
  }
}

void OperationQueue::end_turn() {
  active_ = nullptr;
  holder_.store(std::thread::id(), std::memory_order_relaxed);
  is_carried_out_.store(false, std::memory_order_relaxed);
  serving_.fetch_add(1, std::memory_order_seq_cst);
  serving_.notify_all();
  if (num_abandoned_.load(std::memory_order_seq_cst) != 0) {
    const std::lock_guard lock(enqueue_mutex_);
    skip_abandoned();
  }
}

void OperationQueue::abandon(Ticket ticket) {
  const std::lock_guard lock(enqueue_mutex_);
  abandoned_.push_back(ticket);
  num_abandoned_.store(abandoned_.size(), std::memory_order_seq_cst);
  skip_abandoned();
}

/// With the mutex held. Who passes over a ticket has its turn for so long.
void OperationQueue::skip_abandoned() {
  for (;;) {
    const auto next =
        std::find(abandoned_.begin(), abandoned_.end(), serving_.load(std::memory_order_seq_cst));
    if (next == abandoned_.end()) return;
    abandoned_.erase(next);
    num_abandoned_.store(abandoned_.size(), std::memory_order_seq_cst);
    skip_operation();
    serving_.fetch_add(1, std::memory_order_seq_cst);
    serving_.notify_all();
  }
}

void OperationQueue::keep_error(std::exception_ptr error) {
  const std::lock_guard lock(error_mutex_);
  if (error_ == nullptr) error_ = std::move(error);
  has_error_.store(true, std::memory_order_release);
}

void OperationQueue::forget_error(const std::exception_ptr& error) {
  const std::lock_guard lock(error_mutex_);
  if (error_ != error) return;
  error_ = nullptr;
  has_error_.store(false, std::memory_order_release);
}

void OperationQueue::rethrow_slow() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(error_mutex_);
    error = std::exchange(error_, nullptr);
    has_error_.store(false, std::memory_order_release);
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void OperationQueue::drain() {
  if (is_held_by_this_thread() || is_forked_child()) return;
  const Ticket ticket = draw_ticket();
  begin_turn(ticket);
  end_turn();
}

}  // namespace crossdevice::detail
