// SPDX-License-Identifier: Apache-2.0
#include "doctor/worker.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/default_devices.h"
#include "crossdevice/core/counters.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "doctor/finding.h"
#include "doctor/refusal.h"
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

Device device_of_worker(const std::string& path, Cluster& cluster) {
  return path == kNcclWorkers ? default_devices(cluster)[0] : Device("CPU:0");
}

Finding reduce_among_workers(const std::string& path, const std::shared_ptr<Cluster>& cluster,
                             const Device& device) {
  CommunicationOptions options{.timeout_seconds = kWorkerSeconds};
  if (path == kNcclWorkers) options.implementation = CommunicationImplementation::NCCL;
  // With it come NCCL's communicators.
  const auto ops = make_unless_refused([&] {
    return std::make_unique<CollectiveAllReduce>(device, cluster->num_workers(), options, cluster);
  });
  // Among processes of one machine it matters whose memory it is: see kOwnMemory in worker.h.
  const ValueMemory memory = path == kOwnMemory ? ValueMemory::OWN : ValueMemory::POOL;
  AllReduceOutcome outcome = verify_all_reduce(
      *ops, device, {.first = cluster->rank(), .total = cluster->num_workers()}, memory);
  // A value that is wrong anywhere is to be seen: the first worker speaks for all.
  for (const std::string& wrong : cluster->all_gather_bytes(outcome.wrong)) {
    if (outcome.wrong.empty()) outcome.wrong = wrong;
  }
  const char* const devices = device.is_host() ? "" : " with a GPU each";
  Finding finding = all_reduce_finding(
      "all-reduce, " + path, fmt::format("{} workers{}", cluster->num_workers(), devices), outcome);
  if (path == kTwoLevels) note_a_missing_level(finding);
  return finding;
}

int run_worker(const std::string& path) {
  const std::shared_ptr<Cluster> cluster = Cluster::join({.timeout_seconds = kWorkerSeconds});
  const Finding finding = reduce_among_workers(path, cluster, device_of_worker(path, *cluster));
  if (cluster->rank() == 0) {
    fmt::print("{}\n", nlohmann::ordered_json::array({to_json(finding)}).dump());
  }
  cluster->barrier();
  return programs::kExitOk;
}

}  // namespace crossdevice::doctor
