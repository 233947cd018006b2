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
/// Errors   the first one of each worker names the faulty one, or somebody who has failed because of it; the very first one names the faulty one, and of a
///          parted link one names a worker at an end of it. Who gives up is heard within Times::death or `late_seconds`, with what it says.
/// Deaths   are told in what the others call: by an UnavailableError that names who was killed, within Times::death or `late_seconds`, whichever is more; across
///          machines within a heartbeat and `late_seconds`. Where all faults are deaths a rebuild takes no longer than Times::patience and `late_seconds` after the last.
/// After    the others have a cluster without those that are lost, make all its calls, and leave nothing; who is late is not in it and hears of its epoch. All
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
