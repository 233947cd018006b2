// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/schedule_traffic.h"

#include <algorithm>

#include "collective/detail/schedule_cuts.h"

namespace crossdevice {

std::vector<RankTraffic> schedule_traffic(const Schedule& schedule) {
  detail::require_sound(schedule);
  std::vector<RankTraffic> traffic(schedule.num_participants);
  for (const ScheduleStep& step : schedule.steps) {
    RankTraffic& target = traffic[step.target];
    ++target.num_steps;
    for (const std::size_t s : step.sources) {
      if (s == step.target) continue;
      RankTraffic& source = traffic[s];
      ++source.num_steps;
      ++source.messages_sent;
      source.elements_sent += step.range.count;
      ++target.messages_received;
      target.elements_received += step.range.count;
    }
  }
  return traffic;
}

std::size_t num_rounds(const Schedule& schedule) {
  const detail::ScheduleCuts cuts(schedule);
  // Of what each participant holds of each part: how many messages it took.
  std::vector<std::size_t> rounds(schedule.num_participants * cuts.num_parts(), 0);
  std::size_t most = 0;
  for (const ScheduleStep& step : schedule.steps) {
    const std::size_t last = cuts.last_part(step.range);
    for (std::size_t part = cuts.first_part(step.range); part < last; ++part) {
      std::size_t taken = 0;
      for (const std::size_t source : step.sources) {
        const std::size_t before = rounds[source * cuts.num_parts() + part];
        taken = std::max(taken, source == step.target ? before : before + 1);
      }
      rounds[step.target * cuts.num_parts() + part] = taken;
      most = std::max(most, taken);
    }
  }
  return most;
}

}  // namespace crossdevice
