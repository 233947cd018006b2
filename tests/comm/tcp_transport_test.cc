// SPDX-License-Identifier: Apache-2.0
// The conformance suite with threads over loopback; and workers that are processes, for what threads cannot do.
#include "crossdevice/comm/tcp_transport.h"

#include <csignal>
#include <iostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "comm/transport_conformance.h"
#include "support/threaded_clusters.h"
#include "support/worker_processes.h"

namespace crossdevice::testing {
namespace {

Transports make_tcp_transports(int num_ranks) {
  // Kept until the next ones are made: a transport that ends shall not take its worker with it.
  static std::unique_ptr<ThreadedClusters> clusters;
  clusters = std::make_unique<ThreadedClusters>(num_ranks);
  Transports transports(static_cast<std::size_t>(num_ranks));
  clusters->for_each_worker([&](int rank) {
    transports[static_cast<std::size_t>(rank)] = make_tcp_transport(clusters->of(rank));
  });
  return transports;
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportConformance,
                         ::testing::Values(TransportCase{"tcp", make_tcp_transports}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace crossdevice::testing

int main(int argc, char** argv) { return crossdevice::testing::worker_main(argc, argv, {}); }
