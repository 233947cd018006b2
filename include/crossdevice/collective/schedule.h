// SPDX-License-Identifier: Apache-2.0
/// Schedules: who reduces or sends what to whom, as plain data that can be printed and tested without devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// One step of a schedule over n participants. Buffers are named by the participant that holds them.
struct ScheduleStep {
  enum class Kind : std::uint8_t {
    REDUCE,  ///< `target`'s partial = sources[0] op sources[1] op ..., in order
    COPY,    ///< `target`'s result = the result of sources[0]
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
  /// One line per step: "reduce 0 <- 0 1", "copy 2 <- 0".
  [[nodiscard]] CROSSDEVICE_EXPORT std::string to_string() const;
};

}  // namespace crossdevice
