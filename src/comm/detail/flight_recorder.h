// SPDX-License-Identifier: Apache-2.0
/// Keeps the flight record.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "crossdevice/comm/flight_record.h"

namespace crossdevice::detail {

/// FlightEntry's members of these names.
struct FlightPlan {
  OperationRecord operation{};
  std::string_view detail{};
  std::size_t size_bytes = 0;
  std::optional<DType> dtype{};
  Devices devices{};
  std::optional<double> timeout_seconds{};
  std::int64_t enqueued_ns = 0;  ///< 0: now
};

/// The moment that the record calls now: nanoseconds since 1970.
[[nodiscard]] std::int64_t flight_clock_ns();

/// Returns its number, which is not 0; those below do nothing with 0.
///
/// Cost     in steady state no allocation, as long as texts are not longer than before.
std::uint64_t record_enqueued(const FlightPlan& plan);
void record_started(std::uint64_t number);
void record_completed(std::uint64_t number);
void record_failed(std::uint64_t number, const std::string& error);

/// Writes it to the file that CROSSDEVICE_FLIGHT_RECORD names; what goes wrong is said on the log.
void dump_flight_record() noexcept;
/// The same, to this file: whole or not at all.
void dump_flight_record(const std::string& path);

}  // namespace crossdevice::detail
