// SPDX-License-Identifier: Apache-2.0
/// What all who judge a run have before them, and what they find.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "chaos/plan.h"
#include "chaos/report.h"
#include "chaos/steps.h"

namespace crossdevice::chaos {

/// Refers to the plan and the reports, of which there is one for each rank.
class Hearing {
 protected:
  Hearing(const Plan& plan, const std::vector<WorkerReport>& reports)
      : plan_(plan), reports_(reports) {
    steps_.reserve(reports.size());
    for (const WorkerReport& report : reports) steps_.push_back(steps_of(report));
  }

  /// Something is wrong with what this worker did or heard.
  template <class... Args>
  void complain(int rank, fmt::format_string<Args...> text, Args&&... args) {
    found_.push_back(fmt::format("rank {}: ", rank) +
                     fmt::format(text, std::forward<Args>(args)...));
  }
  [[nodiscard]] const std::vector<Step>& steps(int rank) const {
    return steps_[static_cast<std::size_t>(rank)];
  }

  const Plan& plan_;
  const std::vector<WorkerReport>& reports_;
  std::vector<std::vector<Step>> steps_;
  std::vector<std::string> found_;
};

}  // namespace crossdevice::chaos
