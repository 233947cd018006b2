// SPDX-License-Identifier: Apache-2.0
/// What a thread has recorded and nobody has written yet.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "crossdevice/core/trace.h"

namespace crossdevice::detail {

/// One producer, one consumer, no lock. Slots [tail, head) are the consumer's, the others the producer's; who moves an index releases the slots that the
/// other then acquires. Full: the newest is dropped and counted.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): the two indices are in cache lines of their own
class TraceRing {
 public:
  static constexpr std::size_t kSize = std::size_t{1} << 14;

  explicit TraceRing(std::uint32_t number)
      : slots_(std::make_unique_for_overwrite<TraceEvent[]>(kSize)), number_(number) {}

  /// Threads  the producer.
  void push(const TraceEvent& event) noexcept {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    if (head - tail_.load(std::memory_order_acquire) == kSize) {
      num_dropped_.store(num_dropped_.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
      return;
    }
    slots_[head % kSize] = event;
    head_.store(head + 1, std::memory_order_release);
  }
  /// Calls `use` for all that is there, oldest first.
  ///
  /// Threads  the consumer.
  template <class Use>
  void drain(const Use& use) {
    std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    for (; tail != head; ++tail) use(slots_[tail % kSize]);
    tail_.store(tail, std::memory_order_release);
  }
  [[nodiscard]] std::uint64_t num_dropped() const noexcept {
    return num_dropped_.load(std::memory_order_relaxed);
  }
  /// Of the threads that record, from 1.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }

  // Of ThreadBlocks.
  std::atomic<bool> is_taken{false};
  TraceRing* next = nullptr;

 private:
  std::unique_ptr<TraceEvent[]> slots_;
  std::uint32_t number_;
  std::atomic<std::uint64_t> num_dropped_{0};
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::atomic<std::uint64_t> tail_{0};
};

/// The newest of all rings; never destroyed.
[[nodiscard]] TraceRing* newest_trace_ring() noexcept;

}  // namespace crossdevice::detail
