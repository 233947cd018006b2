// SPDX-License-Identifier: Apache-2.0
/// Schedules: who reduces or sends what to whom, as plain data that can be printed and tested without devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// One step of a schedule over n participants. Each participant holds one value, named by its number: at first its input, in
/// the end the result. (An executor that works out of place keeps the inputs as they were and writes values elsewhere.)
struct ScheduleStep {
  enum class Kind : std::uint8_t {
    REDUCE,  ///< `target`'s value = sources[0]'s op sources[1]'s op ..., in order; `target` may be among them
    COPY,  ///< `target`'s value = sources[0]'s
  };
  Kind kind = Kind::REDUCE;
  std::size_t target = 0;
  std::vector<std::size_t> sources;
  friend bool operator==(const ScheduleStep&, const ScheduleStep&) = default;
};

/// Steps in an order that respects their dependencies.
struct Schedule {
  std::size_t num_participants = 0;
  std::vector<ScheduleStep> steps;
  /// One line per step, each ended by a newline: "reduce 0 <- 0 1", "copy 2 <- 0".
  [[nodiscard]] CROSSDEVICE_EXPORT std::string to_string() const;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

}  // namespace crossdevice
