// SPDX-License-Identifier: Apache-2.0
// The engines' conformance suite over UCX, over its shared memory and over its TCP on loopback.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/transport_collectives.h"
#include "crossdevice/comm/ucx_transport.h"

#include "collective/engine_conformance.h"
#include "collective/engine_processes.h"
#include "comm/ucx_choice.h"
#include "support/worker_processes.h"

namespace crossdevice::testing {
namespace {

std::unique_ptr<CollectiveEngine> over_ucx(const std::shared_ptr<Cluster>& cluster) {
  return std::make_unique<TransportCollectives>(cluster, make_ucx_transport(cluster));
}

EngineCase over(const char* name, const char* transports) {
  return {name, 3, [transports]() -> EngineMaker {
            choose_ucx(transports);
            return over_ucx;
          }};
}

std::vector<EngineCase> cases() {
  if (!why_no_ucx().empty()) return {};
  return {over("ucx_shared_memory", kUcxSharedMemory), over("ucx_tcp", kUcxTcp)};
}
INSTANTIATE_TEST_SUITE_P(Engines, EngineConformance, ::testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name; });

/// Over UCX's TCP: what its shared memory does when a process dies is in ucx_transport_test.
const std::vector<ProcessCase>& process_cases() {
  static const std::vector<ProcessCase> none;
  static const std::vector<ProcessCase> cases = {{.name = "ucx_tcp", .make = over_ucx}};
  return why_no_ucx().empty() ? cases : none;
}
INSTANTIATE_TEST_SUITE_P(Engines, EngineProcesses, ::testing::ValuesIn(process_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace crossdevice::testing

int main(int argc, char** argv) {
  using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
  choose_ucx(kUcxTcp);                   // inherited by workers that are processes
  return worker_main(argc, argv, engine_works(process_cases()));
}
