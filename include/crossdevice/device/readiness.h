// SPDX-License-Identifier: Apache-2.0
/// Whether asynchronous operations still write a block of memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "crossdevice/core/export.h"

namespace crossdevice {
class Stream;
}

namespace crossdevice::detail {

/// A count of operations in flight. Whoever enqueues one calls add() before the enqueueing returns; whoever ends it, by success,
/// failure or cancellation, calls remove() exactly once. Every operation ends (completion, deadline, abort), so wait() does.
///
/// Errors   wait(): FailedPreconditionError when it would have to wait in a child of fork(), where nobody works, or on a progress stream's
///          thread, which would wait for itself.
/// Ordering: remove() releases, ready() and wait() acquire, so the operation's writes are visible after them.
class CROSSDEVICE_EXPORT Readiness {
 public:
  /// `stream`: on which the operation runs; null: nobody asks.
  void add(Stream* stream = nullptr) {
    stream_.store(stream, std::memory_order_relaxed);
    in_flight_.fetch_add(1, std::memory_order_release);
  }
  void remove() {
    if (in_flight_.fetch_sub(1, std::memory_order_release) == 1) in_flight_.notify_all();
  }
  [[nodiscard]] bool is_ready() const { return in_flight_.load(std::memory_order_acquire) == 0; }
  void wait() const {
    if (!is_ready()) wait_slow();
  }
  /// That of the last operation that was enqueued; null where all have ended.
  [[nodiscard]] Stream* stream() const {
    return is_ready() ? nullptr : stream_.load(std::memory_order_relaxed);
  }

 private:
  void wait_slow() const;
  std::atomic<std::uint32_t> in_flight_{0};
  std::atomic<Stream*> stream_{nullptr};  // of a progress thread: never destroyed
};

}  // namespace crossdevice::detail
