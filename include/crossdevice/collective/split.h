// SPDX-License-Identifier: Apache-2.0
/// How schedules cut a row of elements into parts, and a row of participants into groups.
///
/// TF counterparts: _padded_split, _ragged_split (all_reduce.py), group_device_names (cross_device_utils.py).
#pragma once

#include <cstddef>
#include <vector>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// Elements [begin, begin + count).
struct Interval {
  std::size_t begin = 0;
  std::size_t count = 0;
  [[nodiscard]] std::size_t end() const { return begin + count; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// TF's padded split, without the padding: every part has ceil(count / num_parts) elements, the last ones what is left of that, down to
/// nothing: (10, 4) -> 3, 3, 3, 1; (3, 5) -> 1, 1, 1, 0, 0. What TF pads is the difference.
///
/// Errors   ValueError: num_parts is 0.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<Interval> padded_split(const Interval& whole,
                                                                    std::size_t num_parts);

/// TF's ragged split: every part but the last has floor(count / num_parts) elements, the last takes the rest: (10, 4) -> 2, 2, 2, 4.
///
/// Errors   ValueError: num_parts is 0.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<Interval> ragged_split(const Interval& whole,
                                                                    std::size_t num_parts);

/// TF's groups of auxiliary devices: ceil(num_members / group_size) groups of `group_size` members each, dealt out in turns; when the
/// members are used up, the first ones come again: (5, 2) -> {0, 3} {1, 4} {2, 0}.
///
/// Errors   ValueError: group_size is 0 or more than num_members.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<std::vector<std::size_t>> deal_into_groups(
    std::size_t num_members, std::size_t group_size);

}  // namespace crossdevice
