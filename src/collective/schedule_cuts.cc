// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/schedule_cuts.h"

#include <algorithm>

namespace crossdevice::detail {

ScheduleCuts::ScheduleCuts(const Schedule& schedule) {
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
