// SPDX-License-Identifier: Apache-2.0
// Serves the queue of a stream on the host.
#include "device/detail/stream_state.h"

#include <utility>

#include "crossdevice/core/error.h"
#include "crossdevice/core/service_thread.h"
#include "crossdevice/device/shutdown.h"

#include "device/detail/spin_wait.h"

namespace crossdevice::detail {
namespace {

// Which stream this thread serves; null on threads that are not ours.
thread_local const StreamState* current_stream = nullptr;

}  // namespace

StreamState::StreamState(std::string name) : errors_(std::move(name)) {}

void StreamState::enqueue(std::function<void()> task) {
  require_not_forked();
  bool wake = false;
  {
    const std::scoped_lock lock(mutex_);
    if (is_closed_.load(std::memory_order_relaxed)) {
      throw FailedPreconditionError("stream \"" + errors_.stream_name() +
                                    "\": it was stopped and takes no more tasks");
    }
    queue_.push_back(std::move(task));
    if (!thread_.joinable()) {
      try {
        thread_ = start_service_thread(errors_.stream_name(),
                                       [state = shared_from_this()] { state->serve(); });
      } catch (...) {
        queue_.pop_back();
        throw;
      }
    }
    num_enqueued_.fetch_add(1, std::memory_order_release);
    wake = std::exchange(is_idle_, false);
  }
  if (wake) task_came_.notify_one();
}

void StreamState::wait_until(std::uint64_t position, const Deadline& deadline, const char* what) {
  if (has_reached(position)) return;
  require_not_forked();
  if (is_current()) {
    throw FailedPreconditionError("stream \"" + errors_.stream_name() +
                                  "\": its own thread cannot wait for " + what);
  }
  if (!deadline.has_passed() && spin_until([&] { return has_reached(position); })) return;

  const auto reached = [&] { return num_finished_.load(std::memory_order_seq_cst) >= position; };
  std::unique_lock lock(mutex_);
  num_waiters_.fetch_add(1, std::memory_order_seq_cst);
  bool in_time = true;
  if (deadline.is_never()) {
    task_finished_.wait(lock, reached);
  } else {
    in_time = task_finished_.wait_until(lock, deadline.moment(), reached);
  }
  num_waiters_.fetch_sub(1, std::memory_order_seq_cst);
  if (!in_time) {
    const std::uint64_t finished = num_finished_.load(std::memory_order_relaxed);
    throw DeadlineExceededError("stream \"" + errors_.stream_name() +
                                "\": the deadline passed while waiting for " + what + ": " +
                                std::to_string(finished) + " of " + std::to_string(position) +
                                " tasks have finished");
  }
}

void StreamState::close() {
  {
    const std::scoped_lock lock(mutex_);
    is_closed_.store(true, std::memory_order_release);
  }
  task_came_.notify_one();
}

void StreamState::stop() {
  require_not_forked();
  if (is_current()) {
    throw FailedPreconditionError("stream \"" + errors_.stream_name() +
                                  "\": its own thread cannot stop it");
  }
  close();
  const std::scoped_lock lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void StreamState::release() noexcept {
  close();
  {
    const std::scoped_lock lock(join_mutex_);
    if (thread_.joinable()) {
      // On its own thread the stream goes on until its queue is empty; the thread holds a reference until then.
      is_current() ? thread_.detach() : thread_.join();
    }
  }
  errors_.warn_of_last();
}

bool StreamState::is_current() const { return current_stream == this; }

void StreamState::serve() {
  current_stream = this;
  std::vector<std::function<void()>>
      tasks;  // trades places with queue_, so neither is ever allocated anew
  std::uint64_t num_taken = 0;
  const auto has_news = [&] {
    return position() != num_taken || is_closed_.load(std::memory_order_acquire);
  };
  for (;;) {
    if (!spin_until(has_news)) {
      std::unique_lock lock(mutex_);
      // Ends with the next task or with close(): whoever drops a stream closes it.
      while (!has_news()) {
        is_idle_ = true;
        task_came_.wait(lock);
      }
      is_idle_ = false;
    }
    {
      const std::scoped_lock lock(mutex_);
      tasks.swap(queue_);
    }
    if (tasks.empty()) return;  // closed, and nothing can come any more
    num_taken += tasks.size();
    for (std::function<void()>& task : tasks) run(task);
    tasks.clear();
  }
}

void StreamState::run(std::function<void()>& task) {
  std::exception_ptr error;
  try {
    task();
  } catch (...) {
    error = std::current_exception();
  }
  task =
      nullptr;  // before it counts as finished: whoever waits may then free what the task referred to
  if (error != nullptr) errors_.keep(std::move(error));
  finish_one();
}

void StreamState::finish_one() {
  num_finished_.fetch_add(1, std::memory_order_seq_cst);
  if (num_waiters_.load(std::memory_order_seq_cst) == 0) return;
  const std::scoped_lock lock(
      mutex_);  // a waiter that has counted itself sleeps, or looks again, when this is held
  task_finished_.notify_all();
}

}  // namespace crossdevice::detail
