// SPDX-License-Identifier: Apache-2.0
/// Runs a schedule on sets of contributions instead of numbers: does everybody get what it should?
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/collective/schedule.h"

namespace crossdevice::testing {

/// Up to 64 participants, a bit each.
using ParticipantSet = std::uint64_t;

[[nodiscard]] inline ParticipantSet only(std::size_t participant) {
  return ParticipantSet{1} << participant;
}
[[nodiscard]] inline ParticipantSet everybody_of(std::size_t n) {
  return n == 64 ? ~ParticipantSet{0} : only(n) - 1;
}

/// What is to become of some elements: the sum of `contributions` (one: a plain value), which `holders` have in the end.
struct ScheduleGoal {
  Interval range;
  ParticipantSet contributions = 0;
  ParticipantSet holders = 0;
};

/// "", or which step is none.
[[nodiscard]] inline std::string verify_steps(const Schedule& schedule) {
  const std::size_t n = schedule.num_participants;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const ScheduleStep& step = schedule.steps[i];
    const std::string where = "step " + std::to_string(i) + ": ";
    if (step.range.count == 0) return where + "no elements";
    if (step.range.end() > schedule.num_elements) return where + "elements beyond the end";
    if (step.target >= n) return where + "no such target";
    if (step.sources.empty()) return where + "no sources";
    for (const std::size_t source : step.sources) {
      if (source >= n) return where + "no such source";
    }
    if (step.kind == ScheduleStep::Kind::COPY &&
        (step.sources.size() != 1 || step.sources[0] == step.target)) {
      return where + "a copy has one source, which is another participant";
    }
  }
  return "";
}

/// "" if, for every element,
///   - every step names participants and elements that there are; a reduction has sources, a copy one, and not itself
///   - no contribution is combined twice: the sources of a reduction have no contributor in common
///   - a copy moves nothing but what the goal says
///   - in the end every holder has what the goal says
///   - no step touches what no goal speaks of
/// and otherwise what is wrong, with the step. Goals are disjoint.
[[nodiscard]] inline std::string verify_goals(const Schedule& schedule,
                                              std::span<const ScheduleGoal> goals) {
  const std::size_t n = schedule.num_participants;
  std::string wrong = verify_steps(schedule);
  if (!wrong.empty()) return wrong;

  std::set<std::size_t> cuts{0, schedule.num_elements};
  const auto cut_at = [&cuts](const Interval& range) { cuts.insert({range.begin, range.end()}); };
  for (const ScheduleStep& step : schedule.steps) cut_at(step.range);
  for (const ScheduleGoal& goal : goals) cut_at(goal.range);
  std::map<std::size_t, std::size_t> parts;  // by where they begin; the last one begins at the end
  for (const std::size_t cut : cuts) parts.emplace(cut, parts.size());
  std::vector<const ScheduleGoal*> goal_of(parts.size() - 1);
  for (const ScheduleGoal& goal : goals) {
    const std::size_t last = parts.at(goal.range.end());
    for (std::size_t part = parts.at(goal.range.begin); part < last; ++part) goal_of[part] = &goal;
  }

  // Per part and participant: whose contributions it holds.
  std::vector<ParticipantSet> held(goal_of.size() * n);
  for (std::size_t i = 0; i < held.size(); ++i) held[i] = only(i % n);
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const ScheduleStep& step = schedule.steps[i];
    const std::string where = "step " + std::to_string(i) + ": ";
    const std::size_t last = parts.at(step.range.end());
    for (std::size_t part = parts.at(step.range.begin); part < last; ++part) {
      if (goal_of[part] == nullptr) return where + "elements that nobody is to have";
      ParticipantSet sum = 0;
      for (const std::size_t source : step.sources) {
        const ParticipantSet contribution = held[part * n + source];
        if ((sum & contribution) != 0) return where + "a contribution is combined twice";
        sum |= contribution;
      }
      if (step.kind == ScheduleStep::Kind::COPY && sum != goal_of[part]->contributions) {
        return where + "what is copied is not complete";
      }
      held[part * n + step.target] = sum;
    }
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    const ScheduleGoal* const goal = goal_of[i / n];
    if (goal == nullptr || (goal->holders & only(i % n)) == 0) continue;
    if (held[i] != goal->contributions) {
      return "participant " + std::to_string(i % n) + " lacks contributions in part " +
             std::to_string(i / n);
    }
  }
  return "";
}

/// In the end everybody has everybody's contribution to all elements.
[[nodiscard]] inline std::string verify_all_reduce(const Schedule& schedule) {
  const ParticipantSet all = everybody_of(schedule.num_participants);
  return verify_goals(schedule, std::vector<ScheduleGoal>{{{0, schedule.num_elements}, all, all}});
}
/// Everybody has the root's elements.
[[nodiscard]] inline std::string verify_broadcast(const Schedule& schedule, std::size_t root) {
  return verify_goals(
      schedule,
      std::vector<ScheduleGoal>{
          {{0, schedule.num_elements}, only(root), everybody_of(schedule.num_participants)}});
}
/// The root has everybody's contribution.
[[nodiscard]] inline std::string verify_reduce(const Schedule& schedule, std::size_t root) {
  return verify_goals(schedule, std::vector<ScheduleGoal>{{{0, schedule.num_elements},
                                                           everybody_of(schedule.num_participants),
                                                           only(root)}});
}
/// The root has parts[p] of each participant p.
[[nodiscard]] inline std::string verify_gather(const Schedule& schedule,
                                               std::span<const Interval> parts, std::size_t root) {
  std::vector<ScheduleGoal> goals;
  for (std::size_t p = 0; p < parts.size(); ++p) goals.push_back({parts[p], only(p), only(root)});
  return verify_goals(schedule, goals);
}
/// Participant p has everybody's contribution to parts[p].
[[nodiscard]] inline std::string verify_reduce_scatter(const Schedule& schedule,
                                                       std::span<const Interval> parts) {
  std::vector<ScheduleGoal> goals;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    goals.push_back({parts[p], everybody_of(parts.size()), only(p)});
  }
  return verify_goals(schedule, goals);
}
/// Everybody has parts[p] of each participant p.
[[nodiscard]] inline std::string verify_all_gather(const Schedule& schedule,
                                                   std::span<const Interval> parts) {
  std::vector<ScheduleGoal> goals;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    goals.push_back({parts[p], only(p), everybody_of(parts.size())});
  }
  return verify_goals(schedule, goals);
}

/// Numbers of elements that are awkward for n participants, and a big one.
[[nodiscard]] inline std::vector<std::size_t> awkward_sizes(std::size_t n) {
  std::vector<std::size_t> sizes{0, 1, 2, n - 1, n, n + 1, 2 * n + 1, 97, 1'000'003};
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

}  // namespace crossdevice::testing
