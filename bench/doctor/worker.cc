// SPDX-License-Identifier: Apache-2.0
#include "doctor/worker.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/counters.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "doctor/finding.h"
#include "doctor/verified_all_reduce.h"
#include "support/program.h"

namespace crossdevice::doctor {

namespace {

/// Says so where two levels were not taken: sums are right without them, too.
void note_a_missing_level(Finding& finding) {
  const bool taken = counter_value("crossdevice_reductions_total", "algorithm=\"two_level\"") > 0;
  if (taken || finding.status != Status::OK) return;
  finding.status = Status::SHORTFALL;
  finding.text += ", but workers of one machine exchanged messages, too";
  finding.advice = "they could not share memory: the line \"all-reduce, shared memory\" says why";
}

}  // namespace

int run_worker(const std::string& path) {
  constexpr double kSeconds =
      50;  // below the probe's own: the library's text says more than a kill
  const std::shared_ptr<Cluster> cluster = Cluster::join({.timeout_seconds = kSeconds});
  CollectiveAllReduce ops({"CPU:0"}, cluster->num_workers(), {.timeout_seconds = kSeconds},
                          cluster);
  // Among processes of one machine it matters whose memory it is: see kOwnMemory in worker.h.
  const ValueMemory memory = path == kOwnMemory ? ValueMemory::OWN : ValueMemory::POOL;
  const AllReduceOutcome outcome = verify_all_reduce(
      ops, {"CPU:0"}, {.first = cluster->rank(), .total = cluster->num_workers()}, memory);
  // A value that is wrong anywhere is to be seen: the first worker speaks for all.
  const std::vector<std::string> wrong = cluster->all_gather_bytes(outcome.wrong);
  if (cluster->rank() == 0) {
    AllReduceOutcome worst = outcome;
    for (const std::string& each : wrong) {
      if (worst.wrong.empty()) worst.wrong = each;
    }
    Finding finding = all_reduce_finding("all-reduce, " + path,
                                         fmt::format("{} workers", cluster->num_workers()), worst);
    if (path == kTwoLevels) note_a_missing_level(finding);
    fmt::print("{}\n", nlohmann::ordered_json::array({to_json(finding)}).dump());
  }
  cluster->barrier();
  return programs::kExitOk;
}

}  // namespace crossdevice::doctor
