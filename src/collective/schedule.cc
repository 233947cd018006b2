// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/schedule.h"

#include <utility>

namespace crossdevice {

void Schedule::add(ScheduleStep::Kind kind, const Interval& range, std::size_t target,
                   std::vector<std::size_t> sources) {
  if (range.count == 0) return;
  steps.push_back({.kind = kind, .range = range, .target = target, .sources = std::move(sources)});
}

std::string Schedule::to_string() const {
  std::string text;
  for (const ScheduleStep& step : steps) {
    text += '[';
    text += std::to_string(step.range.begin);
    text += ", ";
    text += std::to_string(step.range.end());
    text += ") ";
    switch (step.kind) {
      case ScheduleStep::Kind::REDUCE:
        text += "reduce ";
        break;
      case ScheduleStep::Kind::COPY:
        text += "copy ";
        break;
    }
    text += std::to_string(step.target);
    text += " <-";
    for (const std::size_t source : step.sources) {
      text += ' ';
      text += std::to_string(source);
    }
    text += '\n';
  }
  return text;
}

}  // namespace crossdevice
