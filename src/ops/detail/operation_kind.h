// SPDX-License-Identifier: Apache-2.0
/// The kinds of operations that ops objects carry out, and what is counted of each.
#pragma once

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

/// Of an operation on GPUs that had been counted when it was enqueued. `error` says which kind it was, if it is an OpError.
void count_late_failure(const std::exception_ptr& error) noexcept;

extern const OperationKind kReduce;
extern const OperationKind kBatchReduce;
extern const OperationKind kBroadcast;
extern const OperationKind kGather;

}  // namespace crossdevice::detail
