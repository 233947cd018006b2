// SPDX-License-Identifier: Apache-2.0
/// Workers are threads. What processes and failures ask of it is tested with the engines that use it.
#include "crossdevice/comm/shared_memory_group.h"

#include <memory>

#include <gtest/gtest.h>

#include "support/log_keeper.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using testing::LogKeeper;
using testing::no_errors;
using testing::run_clusters;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

TEST(SharedMemoryGroupTest, AStallIsSpokenOf) {
  LogKeeper log;
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    // As the cluster's, so a subgroup's.
    SharedMemoryGroup group(cluster->subgroup({2, 1, 0}));
    if (cluster->rank() == 1) {
      EXPECT_TRUE(log.await("rank 0 still waits in test #7 for rank 1 (", soon()));
      EXPECT_TRUE(log.await("rank 2 still waits in test #7 for rank 1 (", soon()));
    }
    group.announce({.kind = "test"}, 7);
    group.await_announcements(soon());
    group.finish();
    group.await_ends(soon());
  };
  EXPECT_EQ(run_clusters(3, work, {.timeout_seconds = 60, .stall_warning_seconds = 0.02}),
            no_errors(3));
}

}  // namespace
}  // namespace crossdevice
