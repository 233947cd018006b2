// SPDX-License-Identifier: Apache-2.0
/// Where the ranges of a schedule begin and end.
#pragma once

#include <cstddef>
#include <vector>

#include "crossdevice/collective/schedule.h"

namespace crossdevice::detail {

/// Users can make schedules too, and whoever follows one takes its numbers for indices.
///
/// Errors   ValueError: no participants, or a step that has no elements or some behind the end, a target or a source that is no participant, no source or
///          one twice; a copy from several, or to itself.
void require_sound(const Schedule& schedule);

/// The elements of a schedule as the shortest row of parts such that each step takes each part whole or not at all.
///
/// Errors   as require_sound().
class ScheduleCuts {
 public:
  explicit ScheduleCuts(const Schedule& schedule);

  [[nodiscard]] std::size_t num_parts() const { return cuts_.size() - 1; }
  [[nodiscard]] Interval part(std::size_t part) const {
    return {.begin = cuts_[part], .count = cuts_[part + 1] - cuts_[part]};
  }
  /// The parts [first, last) of a step's range.
  [[nodiscard]] std::size_t first_part(const Interval& range) const {
    return index_of(range.begin);
  }
  [[nodiscard]] std::size_t last_part(const Interval& range) const { return index_of(range.end()); }

 private:
  [[nodiscard]] std::size_t index_of(std::size_t cut) const;
  std::vector<std::size_t> cuts_;  // ascending, at least one; parts lie between them
};

}  // namespace crossdevice::detail
