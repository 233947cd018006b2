// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/two_level.h"

#include <string>
#include <utility>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using Kind = ScheduleStep::Kind;

/// How many participants the groups have.
///
/// Errors   ValueError: see two_level_schedule().
std::size_t require_partition(std::span<const std::vector<std::size_t>> groups) {
  std::size_t num_participants = 0;
  for (const std::vector<std::size_t>& group : groups) {
    if (group.empty()) throw ValueError("a group of a two-level schedule has no members");
    num_participants += group.size();
  }
  if (num_participants == 0) throw ValueError("a two-level schedule needs at least 1 group, got 0");
  std::vector<bool> seen(num_participants, false);
  for (const std::vector<std::size_t>& group : groups) {
    for (const std::size_t member : group) {
      if (member >= num_participants || seen[member]) {
        throw ValueError("the groups of a two-level schedule have each of 0 to " +
                         std::to_string(num_participants - 1) + " as a member once, " +
                         std::to_string(member) + " is another one or a member twice");
      }
      seen[member] = true;
    }
  }
  return num_participants;
}

}  // namespace

Schedule two_level_schedule(std::span<const std::vector<std::size_t>> groups,
                            const Schedule& upper) {
  const std::size_t num_participants = require_partition(groups);
  if (upper.num_participants != groups.size()) {
    throw ValueError("the upper level of " + std::to_string(groups.size()) +
                     " groups has as many participants, not " +
                     std::to_string(upper.num_participants));
  }
  Schedule schedule{
      .num_participants = num_participants, .num_elements = upper.num_elements, .steps = {}};
  const Interval whole{.begin = 0, .count = upper.num_elements};
  for (const std::vector<std::size_t>& group : groups) {
    if (group.size() > 1) schedule.add(Kind::REDUCE, whole, group[0], group);
  }
  for (const ScheduleStep& step : upper.steps) {
    std::vector<std::size_t> sources;
    sources.reserve(step.sources.size());
    for (const std::size_t source : step.sources) sources.push_back(groups[source][0]);
    schedule.add(step.kind, step.range, groups[step.target][0], std::move(sources));
  }
  for (const std::vector<std::size_t>& group : groups) {
    for (const std::size_t member : group) {
      if (member != group[0]) schedule.add(Kind::COPY, whole, member, {group[0]});
    }
  }
  return schedule;
}

}  // namespace crossdevice
