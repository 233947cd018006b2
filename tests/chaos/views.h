// SPDX-License-Identifier: Apache-2.0
/// What workers say about the clusters that they have made anew, one beside the other.
#pragma once

#include <string>
#include <vector>

#include "chaos/plan.h"
#include "chaos/report.h"

namespace crossdevice::chaos {

/// In which an epoch's members contradict each other, themselves or what they did: members, ranks, and the last operation that had completed on all.
[[nodiscard]] std::vector<std::string> differing_views(const Plan& plan,
                                                       const std::vector<WorkerReport>& reports);
/// Whether an error's text names an epoch that some worker is in.
[[nodiscard]] bool tells_of_epoch(const std::vector<WorkerReport>& reports, const Event& failure);

}  // namespace crossdevice::chaos
