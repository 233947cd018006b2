// SPDX-License-Identifier: Apache-2.0
/// All that is counted, to be read: as values, and as text for Prometheus.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/core/export.h"

namespace crossdevice {

enum class CounterKind : std::uint8_t {
  COUNTER,  // only grows
  GAUGE,    // is what it is now
};
[[nodiscard]] CROSSDEVICE_EXPORT std::string_view to_string(CounterKind kind);

/// One value at the moment at which it was read.
struct CROSSDEVICE_EXPORT CounterSample {
  std::string name{};    ///< "crossdevice_operations_total"
  std::string labels{};  ///< `kind="reduce"`; may be empty
  std::string help{};
  CounterKind kind = CounterKind::COUNTER;
  double value = 0;
};

/// Everything that this process counts, ordered by name and labels:
///
///   crossdevice_operations_total{kind}, _operation_bytes_total{kind}, _operation_seconds_total{kind}   calls of ops, and of Communicator, that have
///       ended, well or not; one replica's bytes, or this worker's input; how long they took: of calls of less than 16 KiB, after a thread's first 16, one in
///       16 is timed and counts 16 times
///   crossdevice_operation_failures_total{kind}, crossdevice_timeouts_total    of these, the ones that threw, and that threw DeadlineExceededError
///   crossdevice_reductions_total{algorithm}, _reduction_bytes_total{algorithm}    how it was done; a batch may be several
///   crossdevice_waits_total{for}, crossdevice_wait_seconds_total{for}    times that this process waited for other workers longer than spinning takes
///   crossdevice_pool_*{device}    memory_pool.h's statistics of every pool that is in use
///   crossdevice_trace_dropped_total    where a timeline is written: bars that there was no room for (trace.h)
///
/// With CROSSDEVICE_COUNTERS=0 nothing is counted: what has values then is not counted but read, the pools and the timeline's.
///
/// Operations on GPUs are counted when they are enqueued, and so is their time; a failure that is found later counts as one. What is refused - for its arguments,
/// or on a communicator that is broken - is no operation.
///
/// Threads  any; while others count, values read together may not belong together.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<CounterSample> counters();

/// The sum of all samples with this name, and, where it is not empty, exactly these labels; 0 where there are none.
[[nodiscard]] CROSSDEVICE_EXPORT double counter_value(std::string_view name,
                                                      std::string_view labels = {});

/// The same in Prometheus' text exposition format (version 0.0.4), for an HTTP handler or a file of the node exporter.
[[nodiscard]] CROSSDEVICE_EXPORT std::string counters_text();

/// Adds what is read rather than counted: `source` appends its samples whenever somebody reads. For the life of the process.
///
/// Threads  any; `source` must not read counters itself.
CROSSDEVICE_EXPORT void add_counter_source(void (*source)(std::vector<CounterSample>& samples));

}  // namespace crossdevice
