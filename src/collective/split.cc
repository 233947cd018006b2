// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/split.h"

#include <algorithm>
#include <string>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

void require_parts(std::size_t num_parts) {
  if (num_parts == 0) throw ValueError("a row of elements is split into at least 1 part, not 0");
}

}  // namespace

std::vector<Interval> padded_split(const Interval& whole, std::size_t num_parts) {
  require_parts(num_parts);
  const std::size_t part = whole.count / num_parts + (whole.count % num_parts == 0 ? 0 : 1);
  std::vector<Interval> parts;
  parts.reserve(num_parts);
  std::size_t used = 0;
  for (std::size_t i = 0; i < num_parts; ++i) {
    const std::size_t count = std::min(part, whole.count - used);
    parts.push_back({.begin = whole.begin + used, .count = count});
    used += count;
  }
  return parts;
}

std::vector<Interval> ragged_split(const Interval& whole, std::size_t num_parts) {
  require_parts(num_parts);
  const std::size_t part = whole.count / num_parts;
  std::vector<Interval> parts;
  parts.reserve(num_parts);
  for (std::size_t i = 0; i < num_parts; ++i) {
    const std::size_t used = i * part;
    parts.push_back(
        {.begin = whole.begin + used, .count = i + 1 == num_parts ? whole.count - used : part});
  }
  return parts;
}

std::vector<std::vector<std::size_t>> deal_into_groups(std::size_t num_members,
                                                       std::size_t group_size) {
  if (group_size == 0 || group_size > num_members) {
    throw ValueError("groups of " + std::to_string(num_members) +
                     " members have 1 to as many members, not " + std::to_string(group_size));
  }
  const std::size_t num_groups = (num_members + group_size - 1) / group_size;
  std::vector<std::vector<std::size_t>> groups(num_groups);
  for (std::size_t i = 0; i < num_groups * group_size; ++i) {
    groups[i % num_groups].push_back(i % num_members);
  }
  return groups;
}

}  // namespace crossdevice
