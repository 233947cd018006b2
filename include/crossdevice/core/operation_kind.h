// SPDX-License-Identifier: Apache-2.0
/// The kinds of operations that ops objects and communicators carry out, and what is counted of each.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>

#include "crossdevice/core/counter.h"

namespace crossdevice::detail {

struct OperationKind {
  constexpr OperationKind(const char* called, const char* labels) noexcept
      : name(called),
        operations("crossdevice_operations_total", labels,
                   "Operations that have ended, well or not."),
        bytes("crossdevice_operation_bytes_total", labels,
              "Bytes of one replica's values in them."),
        nanoseconds("crossdevice_operation_seconds_total", labels,
                    "How long they took; of small ones a sample is timed.",
                    Counter::Unit::NANOSECONDS),
        failures("crossdevice_operation_failures_total", labels, "Operations that threw.") {}

  std::string_view name;  // ends with a zero
  Counter operations;
  Counter bytes;
  Counter nanoseconds;
  Counter failures;

  /// Whether an operation of so many bytes, the thread's next, is to be timed.
  [[nodiscard]] bool is_timed(std::size_t size_bytes) const noexcept {
    if (!is_counted()) return false;
    if (size_bytes >= kAlwaysTimedBytes) return true;
    const std::uint64_t before = ThreadCounters().own(operations);
    return before < kTimedInterval || before % kTimedInterval == 0;
  }
  void count(std::size_t size_bytes) const noexcept {
    if (!is_counted()) return;
    ThreadCounters counters;
    counters.add(operations);
    counters.add(bytes, size_bytes);
  }
  /// The same for one that was timed, and so is counted: where only one in so many is, it stands for the others.
  void count(std::size_t size_bytes, std::uint64_t taken_ns) const noexcept {
    ThreadCounters counters;
    const bool is_sample =
        size_bytes < kAlwaysTimedBytes && counters.own(operations) >= kTimedInterval;
    counters.add(operations);
    counters.add(bytes, size_bytes);
    counters.add(nanoseconds, is_sample ? taken_ns * kTimedInterval : taken_ns);
  }
  void count_failure(const std::exception_ptr& error) const noexcept;

 private:
  // Reading the clock twice costs a small operation a tenth of its time.
  static constexpr std::size_t kAlwaysTimedBytes = std::size_t{16} << 10;
  static constexpr std::uint64_t kTimedInterval = 16;
};

/// How long an operation takes from start() to count(), where it is to be timed.
class OperationTime {
 public:
  // No constructor: assigning what it has made costs the smallest call a tenth of its time, as a wide load waits for the narrow stores before it.
  void start(const OperationKind& kind, std::size_t size_bytes) noexcept {
    is_taken_ = kind.is_timed(size_bytes);
    if (is_taken_) start_ = Clock::now();
  }
  /// It has ended, well or not.
  void count(const OperationKind& kind, std::size_t size_bytes) const noexcept {
    if (!is_taken_) {
      kind.count(size_bytes);
      return;
    }
    const auto taken = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_);
    kind.count(size_bytes, static_cast<std::uint64_t>(taken.count()));
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool is_taken_ = false;
  Clock::time_point start_;
};

/// `body()`, counted as an operation of that kind when it has ended, well or not.
template <class Body>
void run_counted(const OperationKind& kind, std::size_t size_bytes, Body body) {
  OperationTime time;
  time.start(kind, size_bytes);
  try {
    body();
  } catch (...) {
    kind.count_failure(std::current_exception());
    time.count(kind, size_bytes);
    throw;
  }
  time.count(kind, size_bytes);
}

/// Of an operation on GPUs that had been counted when it was enqueued. `error` says which kind it was, if it is an OpError.
void count_late_failure(const std::exception_ptr& error) noexcept;

// Of both: who makes one in the course of another does it below these calls, so that it is counted once.
extern const OperationKind kReduce;
extern const OperationKind kBroadcast;
extern const OperationKind kGather;
// Of ops objects.
extern const OperationKind kBatchReduce;
// Of communicators.
extern const OperationKind kAllReduce;
extern const OperationKind kReduceScatter;
extern const OperationKind kAllGather;
extern const OperationKind kBarrier;

}  // namespace crossdevice::detail
