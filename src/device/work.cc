// SPDX-License-Identifier: Apache-2.0
// The state of asynchronous work, and the handle on it.
#include "crossdevice/device/work.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/shutdown.h"

#include "device/detail/spin_wait.h"

namespace crossdevice {
namespace detail {
namespace {

enum class Phase : std::uint8_t { QUEUED, RUNNING, DONE };

std::exception_ptr cancelled() {
  return std::make_exception_ptr(CancelledError("the work was cancelled before it started"));
}

}  // namespace

struct WorkState::Data {
  explicit Data(std::size_t count) : order(count), is_complete(count, 0) {}

  // Changed under the mutex and read without it by those that spin: a store here releases what was written before it, the
  // elements of `order` that it speaks of included.
  std::atomic<Phase> phase{Phase::QUEUED};
  std::atomic<std::size_t> num_complete{0};
  std::atomic<bool> stop_requested{false};  // a wish that orders nothing

  mutable std::mutex mutex;  // guards what follows; and every change above but stop_requested
  mutable std::condition_variable done;       // one for each kind of wait, so that an item
  mutable std::condition_variable completed;  // does not wake who waits for the end
  std::vector<std::size_t>
      order;  // of completion; the first num_complete are valid and never change again
  std::vector<std::uint8_t> is_complete;  // by item
  std::exception_ptr error;               // never changes again once done
  std::function<void()> on_cancel;        // constant once others know of the work

  [[nodiscard]] bool is_done() const {
    return phase.load(std::memory_order_acquire) == Phase::DONE;
  }

  // With the mutex held.
  void complete(std::size_t item) {
    const std::size_t position = num_complete.load(std::memory_order_relaxed);
    order[position] = item;
    is_complete[item] = 1;
    num_complete.store(position + 1, std::memory_order_release);
  }
  void end(std::exception_ptr how) {
    error = std::move(how);
    phase.store(Phase::DONE, std::memory_order_release);
    done.notify_all();
    completed.notify_all();
  }

  void require_item(std::size_t item) const {
    if (item < order.size()) return;
    throw ValueError("expected an item below " + std::to_string(order.size()) + ", got " +
                     std::to_string(item));
  }

  // Spins on `ready` first, without the mutex; then sleeps on `changed`, which is a bar of the timeline.
  template <class Ready>
  void wait(const Ready& ready, std::condition_variable& changed, const Deadline& deadline) const {
    if (ready()) return;
    require_not_forked();
    if (!deadline.has_passed() && spin_until(ready)) return;
    const TraceSpan span("wait", "wait");
    std::unique_lock lock(mutex);
    if (deadline.is_never()) {
      changed.wait(lock, ready);
    } else if (!changed.wait_until(lock, deadline.moment(), ready)) {
      throw DeadlineExceededError(
          "the deadline passed before the work had come that far; it goes on");
    }
  }
};

WorkState::WorkState(std::size_t num_items) : data_(std::make_unique<Data>(num_items)) {}
WorkState::~WorkState() = default;

bool WorkState::start() {
  const std::scoped_lock lock(data_->mutex);
  if (data_->phase.load(std::memory_order_relaxed) != Phase::QUEUED) return false;
  data_->phase.store(Phase::RUNNING, std::memory_order_release);
  return true;
}

void WorkState::complete_item(std::size_t item) {
  data_->require_item(item);
  const std::scoped_lock lock(data_->mutex);
  if (data_->is_done() || data_->is_complete[item] != 0) return;
  data_->complete(item);
  data_->completed.notify_all();
}

void WorkState::finish(std::exception_ptr error) {
  const std::scoped_lock lock(data_->mutex);
  if (data_->is_done()) return;
  if (error == nullptr) {
    for (std::size_t item = 0; item < data_->order.size(); ++item) {
      if (data_->is_complete[item] == 0) data_->complete(item);
    }
  }
  data_->end(std::move(error));
}

bool WorkState::cancel() {
  require_not_forked();
  std::exception_ptr error = cancelled();
  {
    const std::scoped_lock lock(data_->mutex);
    if (data_->phase.load(std::memory_order_relaxed) != Phase::QUEUED) return false;
    data_->end(std::move(error));
  }
  if (data_->on_cancel) data_->on_cancel();
  return true;
}

void WorkState::on_cancel(std::function<void()> react) { data_->on_cancel = std::move(react); }

void WorkState::request_stop() { data_->stop_requested.store(true, std::memory_order_relaxed); }
bool WorkState::stop_requested() const {
  return data_->stop_requested.load(std::memory_order_relaxed);
}

bool WorkState::is_done() const { return data_->is_done(); }

void WorkState::wait_until_done(const Deadline& deadline) const {
  const auto ready = [this] { return data_->is_done(); };
  data_->wait(ready, data_->done, deadline);
}

std::exception_ptr WorkState::error() const { return data_->is_done() ? data_->error : nullptr; }

std::optional<std::size_t> WorkState::wait_for_completed(std::size_t k,
                                                         const Deadline& deadline) const {
  if (k >= data_->order.size()) return std::nullopt;
  const auto ready = [&] {
    return data_->is_done() || data_->num_complete.load(std::memory_order_acquire) > k;
  };
  data_->wait(ready, data_->completed, deadline);
  // Looked at again after the end, behind which nothing completes: what came between two looks is not missed.
  if (data_->num_complete.load(std::memory_order_acquire) <= k) return std::nullopt;
  return data_->order[k];
}

bool WorkState::wait_for_item(std::size_t item, const Deadline& deadline) const {
  data_->require_item(item);
  std::size_t num_seen = 0;  // items of `order` that were looked at already
  bool found = false;
  const auto look = [&] {
    const std::size_t num_complete = data_->num_complete.load(std::memory_order_acquire);
    for (; !found && num_seen < num_complete; ++num_seen) found = data_->order[num_seen] == item;
    return found;
  };
  const auto ready = [&] { return data_->is_done() || look(); };
  data_->wait(ready, data_->completed, deadline);
  return look();
}

std::size_t WorkState::num_items() const { return data_->order.size(); }

}  // namespace detail

namespace {

// Whatever happens, this returns only when nobody works any more. That ends, because work does (see Work). In a child of fork()
// nobody works, and nothing of the parent's is touched.
void get_rid_of(const std::shared_ptr<detail::WorkState>& state) noexcept {
  if (state == nullptr || detail::is_forked_child()) return;
  while (!state->is_done()) {
    try {
      state->request_stop();  // first: it is enough where there is no memory for a CancelledError
      state->cancel();
      state->wait_until_done(Deadline::never());
    } catch (...) {
      std::this_thread::yield();
    }
  }
}

}  // namespace

Work::Work(std::shared_ptr<detail::WorkState> state) : state_(std::move(state)) {
  if (state_ == nullptr) throw ValueError("Work: expected a state, got a null pointer");
}
Work::~Work() { get_rid_of(state_); }
Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    get_rid_of(state_);
    state_ = std::move(other.state_);
  }
  return *this;
}

bool Work::is_done() const { return state_->is_done(); }
void Work::wait() { wait(Deadline::never()); }
void Work::wait(const Deadline& deadline) {
  state_->wait_until_done(deadline);
  if (const std::exception_ptr error = state_->error()) std::rethrow_exception(error);
}
void Work::cancel() {
  if (!state_->cancel()) state_->request_stop();
}

}  // namespace crossdevice
