// SPDX-License-Identifier: Apache-2.0
/// The queue behind a stream on the host, and the thread that serves it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "crossdevice/core/deadline.h"

#include "device/detail/stream_errors.h"

namespace crossdevice::detail {

/// Tasks are numbered from 1 in the order in which they are enqueued, so a position says which tasks lie before a moment, and the moment has
/// come when that many have finished. That is all an event needs.
///
/// Every wait ends: a task ends (each operation has a deadline or an abort of its own), the thread runs all that is queued before it
/// stops, and no task waits for a later one (see Stream::wait).
class StreamState : public std::enable_shared_from_this<StreamState> {
 public:
  explicit StreamState(std::string name);
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  void enqueue(std::function<void()> task);
  /// The moment now: how many tasks were enqueued so far.
  [[nodiscard]] std::uint64_t position() const {
    return num_enqueued_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool has_reached(std::uint64_t position) const {
    return num_finished_.load(std::memory_order_acquire) >= position;
  }
  /// Blocks until then. `what` is waited for, as a message calls it.
  void wait_until(std::uint64_t position, const Deadline& deadline, const char* what);
  [[nodiscard]] StreamErrors& errors() { return errors_; }

  /// Lets the thread run what is queued and end, and waits for that.
  void stop();
  /// The same without the wait where there can be none: on the thread itself.
  void release() noexcept;
  /// Keeps this for ever: in a child of fork() the thread and perhaps a lock stayed with the parent, and even destroying them could
  /// wait without end.
  void abandon() noexcept { self_ = shared_from_this(); }
  [[nodiscard]] bool is_current() const;

 private:
  void close();
  void serve();
  void run(std::function<void()>& task);
  void finish_one();

  StreamErrors errors_;
  std::shared_ptr<StreamState> self_;  // null unless abandoned

  std::mutex mutex_;  // guards what follows, up to waiters_
  std::condition_variable task_came_;
  std::condition_variable task_finished_;
  std::vector<std::function<void()>> queue_;
  bool is_idle_ = false;  // the thread sleeps: a new task has to wake it

  // Written under mutex_, read without it by those that spin. What a task wrote is released by num_finished_.
  std::atomic<std::uint64_t> num_enqueued_{0};
  std::atomic<bool> is_closed_{false};
  // Written by the thread only. Paired with num_waiters_, both sequentially consistent: either the thread sees the waiter
  // and takes the mutex to wake it, or the waiter, which counts itself first, sees the task finished.
  std::atomic<std::uint64_t> num_finished_{0};
  std::atomic<int> num_waiters_{0};

  std::mutex
      join_mutex_;  // held while joining, so that every stop() returns after the thread has ended
  std::thread
      thread_;  // started under mutex_ before is_closed_; touched under join_mutex_ after it
};

}  // namespace crossdevice::detail
