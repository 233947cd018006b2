// SPDX-License-Identifier: Apache-2.0
/// Schedules as text.
#include "crossdevice/collective/schedule.h"

namespace crossdevice {

std::string Schedule::to_string() const {
  std::string text;
  for (const ScheduleStep& step : steps) {
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
