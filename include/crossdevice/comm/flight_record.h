// SPDX-License-Identifier: Apache-2.0
/// The last operations on GPUs: what was enqueued, what has started, what has ended, what has failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"
#include "crossdevice/device/device.h"

namespace crossdevice {

enum class FlightState : std::uint8_t { ENQUEUED, STARTED, COMPLETED, FAILED };
[[nodiscard]] CROSSDEVICE_EXPORT std::string_view to_string(FlightState state);

/// Times are the system clock's, in nanoseconds since 1970; 0: has not come. A start and an end are when they were noticed, some milliseconds late.
struct CROSSDEVICE_EXPORT FlightEntry {
  std::uint64_t number = 0;  ///< counts the process's operations on GPUs, from 1
  OperationRecord operation{};
  std::string detail{};
  /// Of one replica's values; of the group of them that was enqueued together, where an operation takes several, and of a launch that has failed those that it
  /// carried. 0: there were none, or they are not known.
  std::size_t size_bytes = 0;
  std::optional<DType> dtype{};  ///< of these; nothing: several, or not known
  Devices devices{};
  std::optional<double> timeout_seconds{};
  FlightState state = FlightState::ENQUEUED;
  std::int64_t enqueued_ns = 0;
  std::int64_t started_ns = 0;
  std::int64_t ended_ns = 0;
  std::string error{};  ///< of a failed one
};

/// How many operations are remembered.
inline constexpr std::size_t kFlightRecordSize = 1000;

/// The last kFlightRecordSize operations, oldest first. Captured ones are not among them.
///
/// Threads  any.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<FlightEntry> flight_record();
/// The same as JSON: {"pid": 4711, "written_ns": ..., "operations": [{"number": 1, "operation": "all_reduce #1 (1 value, 4 KiB)", "kind": "all_reduce",
/// "sequence": 1, "detail": "", "size_bytes": 4096, "dtype": "float32", "devices": ["GPU:0"], "timeout_seconds": null, "state": "completed",
/// "enqueued_ns": ..., "started_ns": ..., "ended_ns": ..., "error": ""}]}. "dtype" is "mixed" for several, null where it is not known. On a failure it is written to
/// the file that CROSSDEVICE_FLIGHT_RECORD names; without that nowhere, as the library makes no files unasked.
[[nodiscard]] CROSSDEVICE_EXPORT std::string flight_record_json();

}  // namespace crossdevice
