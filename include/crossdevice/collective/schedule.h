// SPDX-License-Identifier: Apache-2.0
/// Schedules: who reduces or sends which elements to whom, as plain data that can be printed and tested without devices.
///
/// Makers: ring.h, halving_doubling.h, shuffle.h, two_level.h, hierarchical_copy.h. Counted by schedule_traffic.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "crossdevice/collective/split.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// One step of a schedule over n participants. Each participant holds one row of elements, named by its number: at first its input, in
/// the end the result. A step is about the elements of `range` alone; it is never empty. (An executor that works out of place keeps the
/// inputs as they were and writes rows elsewhere.)
struct ScheduleStep {
  enum class Kind : std::uint8_t {
    REDUCE,  ///< `target`'s elements = sources[0]'s op sources[1]'s op ..., in order; `target` may be among them
    COPY,  ///< `target`'s elements = sources[0]'s
  };
  Kind kind = Kind::REDUCE;
  Interval range;
  std::size_t target = 0;
  std::vector<std::size_t> sources;
  friend bool operator==(const ScheduleStep&, const ScheduleStep&) = default;
};

/// Steps in an order in which they can run one after the other: each reads what its sources hold after the steps before it, and depends
/// on nothing behind it. Makers leave out steps without elements.
///
/// Over a transport, every participant executes exactly the steps that name it, in this order: its part as a source is to send its elements
/// of the range to the target, its part as the target to receive from the sources other than itself and to combine.
///
/// Why nobody waits for ever: suppose that somebody does. Of all steps that are not finished, take the first. Every participant that it
/// names has finished the steps before it that name that participant, so each is at this step, or will come to it without waiting
/// for anybody. So they meet and the step finishes: a contradiction. This holds even if a send blocks until its receiver has taken it.
/// Why everybody reads the right elements: a source sends before it begins a step that comes later, and so before it can overwrite
/// what it sends; and it has finished the steps that come earlier.
///
/// A participant may start to send ahead of a step's turn, as soon as the steps before it that write these elements of its own have
/// finished; its sends keep their order. Then two that exchange parts do so in one round: see num_rounds().
struct Schedule {
  std::size_t num_participants = 0;
  std::size_t num_elements = 0;
  std::vector<ScheduleStep> steps;

  /// Appends a step, unless `range` is empty.
  CROSSDEVICE_EXPORT void add(ScheduleStep::Kind kind, const Interval& range, std::size_t target,
                              std::vector<std::size_t> sources);
  /// One line per step, each ended by a newline: "[0, 8) reduce 0 <- 0 1", "[4, 8) copy 2 <- 0".
  [[nodiscard]] CROSSDEVICE_EXPORT std::string to_string() const;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

}  // namespace crossdevice
