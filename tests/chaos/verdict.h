// SPDX-License-Identifier: Apache-2.0
/// Whether what the workers of a run have told is what the library promises.
#pragma once

#include <string>
#include <vector>

#include "chaos/plan.h"
#include "chaos/report.h"

namespace crossdevice::chaos {

/// What is wrong, one line each; empty: nothing. `reports` by rank; `leftovers` are what the conductor found when all had ended: files, processes.
///
/// Calls    end by completion or by an error within their deadline and `late_seconds`; results are exact, and memory is as the error says (WRONG).
/// Errors   are of the kinds that the fault may cause, blame nobody else, and tell what they should: blame.h. Who gives up is heard within Times::death or
///          `late_seconds`, with what it says.
/// Deaths   are told in what the others call: by an UnavailableError that names who was killed, within Times::death or `late_seconds`, whichever is more; across
///          machines within a heartbeat and `late_seconds`.
/// Rebuilds take no longer than Times::patience, a heartbeat and `late_seconds` after everybody had come who comes, or the last one was killed, or a link was as it
///          should be again; after a death no heartbeat need be missed; and where somebody falls silent in the middle of it the others meet twice.
/// After    the others have a cluster without those that are lost, make all its calls, and leave nothing; who is late is not in it and hears of its epoch. Nothing
///          fails in what was made after the fault was over, or without those to whom it happens; and leaving never does. All
///          members of an epoch agree about it, and about what had completed before (views.h). No more than half of all make no cluster, unless the others are
///          dead.
[[nodiscard]] std::vector<std::string> violations(const Plan& plan,
                                                  const std::vector<WorkerReport>& reports,
                                                  const std::vector<std::string>& leftovers,
                                                  double late_seconds = 1);

/// A call, or what comes before or after calls, that failed on a worker because another one of its cluster was killed.
struct News {
  int rank = 0;
  std::string step{};
  double seconds = 0;  ///< after the death, or after the step had begun if that was later
};
[[nodiscard]] std::vector<News> news_of_deaths(const Plan& plan,
                                               const std::vector<WorkerReport>& reports);

}  // namespace crossdevice::chaos
