// SPDX-License-Identifier: Apache-2.0
/// Starts the workers of one run, lets them and their network suffer, and collects what they tell.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "chaos/link_traffic.h"
#include "chaos/plan.h"
#include "chaos/report.h"

namespace crossdevice::chaos {

struct RunResult {
  std::vector<WorkerReport> reports{};
  /// Files and processes that should not be there any more.
  std::vector<std::string> leftovers{};
  /// What the workers wrote on their standard error, and where those were that did not end.
  std::string log{};
  /// Of a link, while it was in trouble (LinkTrouble::counts()); nothing: no link was to be.
  std::optional<LinkCounts> in_trouble{};
  /// The step in which the victim was killed or stopped; empty: in none. Nothing: it was not.
  std::optional<std::string> struck_in{};
  double seconds = 0;
};

/// `worker_arguments` of this program make it the worker of a rank; its report goes to descriptor 3, and it is told to go on on descriptor 4. Workers that have
/// not ended after `limit_seconds` are killed.
///
/// Errors   std::runtime_error: the system refuses something.
/// Threads  the process must have no other.
[[nodiscard]] RunResult conduct(
    const Plan& plan, const std::function<std::vector<std::string>(int rank)>& worker_arguments,
    double limit_seconds);

inline constexpr int kReportDescriptor = 3;
inline constexpr int kGoDescriptor = 4;

}  // namespace crossdevice::chaos
