// SPDX-License-Identifier: Apache-2.0
/// A number that the library, or a program, counts up. counters.h reads all of them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// A counter of the process, with a name as Prometheus has them: "crossdevice_operations_total". It is among counters() from its first add() on, until
/// the process ends. Two of equal name and labels are one counter. Make them constinit, with static storage duration.
///
/// Memory   the texts are kept as pointers: string literals. There is room for kMaxCounters; what is counted beyond is said once and lost.
/// Threads  any. Each thread adds to memory of its own.
/// Cost     of add(): some nanoseconds, no lock, no atomic read-modify-write; a thread's first one takes 2 KiB, which the next thread gets. With
///          CROSSDEVICE_COUNTERS=0 a load and a branch: nothing is counted then.
class CROSSDEVICE_EXPORT Counter {
 public:
  static constexpr std::size_t kMaxCounters = 255;

  /// What add() is given: one of what value() says, or nanoseconds where that is seconds.
  enum class Unit : std::uint8_t { ONE, NANOSECONDS };

  /// `labels`: `kind="reduce",device="CPU:0"`, or nothing.
  constexpr Counter(const char* name, const char* labels, const char* help,
                    Unit unit = Unit::ONE) noexcept
      : name_(name), labels_(labels), help_(help), unit_(unit) {}
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  void add(std::uint64_t amount = 1) const noexcept;
  /// What all threads have added. Whoever is ordered behind an add() (a join, a wait) sees it.
  [[nodiscard]] std::uint64_t value() const noexcept;

  /// Its place among the cells of a thread.
  [[nodiscard]] std::size_t index() const noexcept {
    const std::uint32_t index = index_.load(std::memory_order_relaxed);
    return index != kUnknown ? index : find_index();
  }

 private:
  static constexpr std::uint32_t kUnknown = ~std::uint32_t{0};
  std::size_t find_index() const noexcept;

  const char* name_;
  const char* labels_;
  const char* help_;
  // Relaxed: whoever does not see it looks it up, and finds the same.
  mutable std::atomic<std::uint32_t> index_{kUnknown};
  Unit unit_;
};

namespace detail {

/// Whether anything is counted, as CROSSDEVICE_COUNTERS says.
enum class CounterState : std::uint8_t { OFF, ON, UNKNOWN };  // UNKNOWN: it has not been looked at
CROSSDEVICE_EXPORT extern std::atomic<CounterState> counter_state;

/// Looks at the environment, once.
[[nodiscard]] CROSSDEVICE_EXPORT bool find_whether_counted() noexcept;

/// Whoever counts asks first: a relaxed load and a branch.
[[nodiscard]] inline bool is_counted() noexcept {
  const CounterState state = counter_state.load(std::memory_order_relaxed);
  return state == CounterState::ON || (state == CounterState::UNKNOWN && find_whether_counted());
}

/// One thread's part of all counters. Only that thread writes, so a load and a store are enough; others read at any time.
using CounterCells = std::array<std::atomic<std::uint64_t>, Counter::kMaxCounters + 1>;

/// This thread's cells, for who adds to several counters; made only where is_counted().
class ThreadCounters {
 public:
  ThreadCounters() noexcept;
  ~ThreadCounters() {
    if (is_borrowed_) [[unlikely]]
      give_back();
  }
  ThreadCounters(const ThreadCounters&) = delete;
  ThreadCounters& operator=(const ThreadCounters&) = delete;

  void add(const Counter& counter, std::uint64_t amount = 1) noexcept {
    std::atomic<std::uint64_t>& cell = (*cells_)[counter.index()];
    cell.store(cell.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  /// What this thread's cells hold; a thread may have taken over what another has counted.
  [[nodiscard]] std::uint64_t own(const Counter& counter) const noexcept {
    return (*cells_)[counter.index()].load(std::memory_order_relaxed);
  }

 private:
  void give_back() noexcept;

  CounterCells* cells_;
  bool is_borrowed_ = false;  // the thread ends, and its own are somebody else's already
};

}  // namespace detail
}  // namespace crossdevice
