// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/schedule_cuts.h"

#include <algorithm>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

void require_sound(const Schedule& schedule) {
  const std::size_t n = schedule.num_participants;
  if (n == 0) throw ValueError("a schedule without participants");
  std::vector<std::size_t> named_by(n,
                                    schedule.steps.size());  // the last step that has that source
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const ScheduleStep& step = schedule.steps[i];
    const auto refuse = [i](const char* why) {
      throw ValueError(fmt::format("step {} of a schedule {}", i, why));
    };
    if (step.range.count == 0) refuse("has no elements");
    if (step.range.begin > schedule.num_elements ||
        step.range.count > schedule.num_elements - step.range.begin) {
      refuse("has elements behind the end");
    }
    if (step.target >= n) refuse("has a target that is no participant");
    if (step.sources.empty()) refuse("has no sources");
    for (const std::size_t source : step.sources) {
      if (source >= n) refuse("has a source that is no participant");
      if (named_by[source] == i) refuse("has a source twice");
      named_by[source] = i;
    }
    const bool is_copy = step.kind == ScheduleStep::Kind::COPY;
    if (is_copy && (step.sources.size() != 1 || step.sources[0] == step.target)) {
      refuse("is a copy, which has one source other than its target");
    }
  }
}

ScheduleCuts::ScheduleCuts(const Schedule& schedule) {
  require_sound(schedule);
  cuts_.reserve(2 * schedule.steps.size() + 2);
  cuts_.push_back(0);
  cuts_.push_back(schedule.num_elements);
  for (const ScheduleStep& step : schedule.steps) {
    cuts_.push_back(step.range.begin);
    cuts_.push_back(step.range.end());
  }
  std::ranges::sort(cuts_);
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
}

std::size_t ScheduleCuts::index_of(std::size_t cut) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(cuts_, cut) - cuts_.begin());
}

}  // namespace crossdevice::detail
