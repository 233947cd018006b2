// SPDX-License-Identifier: Apache-2.0
/// Tests whose workers are processes: the test program starts itself once per rank, with the name of what the worker is to do.
///
///   int main(int argc, char** argv) { return worker_main(argc, argv, {{"meet", [](Cluster& cluster) { ...; return 0; }}}); }
///   TEST(ClusterTest, WorkersMeet) { EXPECT_EQ(run_workers("meet", 3), all_well(3)); }
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "crossdevice/comm/cluster.h"

namespace crossdevice::testing {

/// What a worker does; its exit status is what it returns.
using Works = std::map<std::string, std::function<int(Cluster&)>>;

/// Does a worker's work in a process that run_workers() started, else runs the tests.
int worker_main(
    int argc, char** argv, const Works& works,
    const std::function<JoinOptions(const std::string& work)>& options = [](const std::string&) {
      return JoinOptions{.timeout_seconds = 60};
    });

/// Starts the workers and returns how they ended: an exit status, or minus the signal. 100 says that an exception left the work. The worker of
/// rank `stopped` stops itself, and is killed when the others have ended.
[[nodiscard]] std::vector<int> run_workers(const std::string& work, int num_workers,
                                           int stopped = -1);

[[nodiscard]] inline std::vector<int> all_well(int num_workers) {
  return std::vector<int>(static_cast<std::size_t>(num_workers));
}

}  // namespace crossdevice::testing
