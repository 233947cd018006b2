// SPDX-License-Identifier: Apache-2.0
// The engines' conformance suite over shared memory, in process and over TCP, and over both levels at once.
#include "collective/engine_conformance.h"

#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/shared_collectives.h"
#include "crossdevice/collective/transport_collectives.h"
#include "crossdevice/collective/two_level_collectives.h"
#include "crossdevice/comm/in_process_transport.h"
#include "crossdevice/comm/tcp_transport.h"

#include "collective/engine_processes.h"
#include "support/worker_processes.h"

namespace crossdevice::testing {
namespace {

constexpr int kRanks = 3;
constexpr int kMachines[] = {0, 1, 0, 1};  // where four workers believe that they are
constexpr int kTwoLevelRanks = 4;

std::unique_ptr<CollectiveEngine> over_shared_memory(const std::shared_ptr<Cluster>& cluster) {
  return std::make_unique<SharedCollectives>(cluster);
}
std::unique_ptr<CollectiveEngine> over_tcp(const std::shared_ptr<Cluster>& cluster) {
  return std::make_unique<TransportCollectives>(cluster, make_tcp_transport(cluster));
}
std::unique_ptr<CollectiveEngine> over_two_levels(const std::shared_ptr<Cluster>& cluster) {
  return std::make_unique<TwoLevelCollectives>(cluster, make_tcp_transport(cluster),
                                               machines_of(*cluster));
}

EngineMaker in_process() {
  const auto transports =
      std::make_shared<std::vector<std::unique_ptr<Transport>>>(make_in_process_transports(kRanks));
  return [transports](const std::shared_ptr<Cluster>& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    return std::make_unique<TransportCollectives>(cluster, std::move((*transports)[rank]));
  };
}
EngineMaker two_levels_in_process() {
  const auto transports = std::make_shared<std::vector<std::unique_ptr<Transport>>>(
      make_in_process_transports(kTwoLevelRanks));
  return [transports](const std::shared_ptr<Cluster>& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    return std::make_unique<TwoLevelCollectives>(cluster, std::move((*transports)[rank]),
                                                 kMachines);
  };
}

INSTANTIATE_TEST_SUITE_P(
    Engines, EngineConformance,
    ::testing::Values(EngineCase{"shared_memory", kRanks, [] { return over_shared_memory; }},
                      EngineCase{"in_process", kRanks, in_process},
                      EngineCase{"tcp", kRanks, [] { return over_tcp; }},
                      EngineCase{"two_levels", kTwoLevelRanks, two_levels_in_process}),
    [](const auto& each) { return each.param.name; });

const std::vector<ProcessCase>& process_cases() {
  static const std::vector<ProcessCase> cases = {
      {.name = "shared_memory", .make = over_shared_memory},
      {.name = "tcp", .make = over_tcp},
      {.name = "two_levels",
       .make = over_two_levels,
       .num_workers = kTwoLevelRanks,
       .machines = Machines::TWO}};
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineProcesses, ::testing::ValuesIn(process_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace crossdevice::testing

int main(int argc, char** argv) {
  using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
  return worker_main(argc, argv, engine_works(process_cases()));
}
