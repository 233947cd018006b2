// SPDX-License-Identifier: Apache-2.0
// NCCL that does not come to the end of making communicators among workers: that is an error on all of them, which says who was late; not a reason to reduce in
// another way.
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/gpu_fixture.h"
#include "support/gpu_values.h"
#include "support/log_keeper.h"
#include "support/threaded_cluster.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

// NCCL's own time.
[[maybe_unused]] const bool kInstalled =
    (::setenv("CROSSDEVICE_DEFAULT_TIMEOUT", "2", 1), testing::install_emulated_gpus(), true);

using ::testing::AllOf;
using testing::emulated_cuda;
using testing::FaultKind;
using testing::gpu;
using ::testing::HasSubstr;
using testing::no_errors;
using ::testing::Not;
using testing::run_clusters;
using testing::thrown;
using ClusterPtr = std::shared_ptr<Cluster>;
using Clock = std::chrono::steady_clock;

/// Well below what NCCL has unless the environment says otherwise, for a machine that does other things too.
constexpr std::chrono::seconds kEarly{60};

class NcclMakingDeadline : public testing::EmulatedGpuTest {
 protected:
  void SetUp() override {
    emulated_cuda().calls().clear();
    EmulatedGpuTest::SetUp();
  }
  void TearDown() override {
    emulated_cuda().calls().clear_faults();
    emulated_cuda().calls().release_hangs();
    EmulatedGpuTest::TearDown();
  }
  static void hang(const char* function, std::size_t count = 1, std::size_t skip = 0) {
    emulated_cuda().calls().inject(
        {.function = function, .kind = FaultKind::HANG_CALL, .skip = skip, .count = count});
  }
};

Device gpu_of(const Cluster& cluster) { return gpu(static_cast<std::size_t>(cluster.rank())); }

struct Maker {
  std::string name;
  std::function<void(const ClusterPtr& cluster, double timeout_seconds)> make;
};

void PrintTo(const Maker& maker, std::ostream* out) { *out << maker.name; }

const Maker kMakers[] = {
    {"CollectiveAllReduce",
     [](const ClusterPtr& cluster, double timeout_seconds) {
       const CollectiveAllReduce ops(Devices(gpu_of(*cluster)), cluster->num_workers(),
                                     {.timeout_seconds = timeout_seconds}, cluster);
     }},
    {"Communicator",
     [](const ClusterPtr& cluster, double timeout_seconds) {
       const Communicator world(cluster, gpu_of(*cluster), meeting_deadline(timeout_seconds));
     }},
};

class NcclMadeByWorkers : public NcclMakingDeadline, public ::testing::WithParamInterface<Maker> {
 protected:
  /// What the workers' constructions come to, which end in time, and whether they have fallen back.
  static void expect_lateness(const std::string& text) {
    const testing::LogKeeper log;
    const auto begin = Clock::now();
    const std::vector<std::string> errors = run_clusters(2, [&](const ClusterPtr& cluster) {
      EXPECT_THAT(thrown<DeadlineExceededError>([&] { GetParam().make(cluster, 2); }),
                  HasSubstr(text));
      cluster->barrier(60);  // the cluster is well: a new object may be made
    });
    EXPECT_EQ(errors, no_errors(2));
    EXPECT_LT(Clock::now() - begin, kEarly);
    EXPECT_THAT(log.texts(), Not(HasSubstr("instead")));
  }
};

TEST_P(NcclMadeByWorkers, WhereRanksAreNotMadeAllHearThatTheyWereLate) {
  hang("nccl.comm_init_rank", 2);
  expect_lateness("NCCL did not come to the end of making communicators");
}

/// The other one waits inside NCCL for it, so both are late.
TEST_P(NcclMadeByWorkers, WhereOneRankIsNotMadeAllHearThatTheyWereLate) {
  hang("nccl.comm_init_rank");
  expect_lateness("NCCL did not come to the end of making communicators");
}

TEST_P(NcclMadeByWorkers, WhereThereIsNoIdRank0IsLate) {
  hang("nccl.get_unique_id");
  expect_lateness("rank 0 ");
}

/// The third and fourth groups are the first launches.
TEST_P(NcclMadeByWorkers, WhereTheFirstLaunchHangsItIsNamed) {
  hang("nccl.group_end", 2, 2);
  std::thread releaser([] {
    // NCCL comes back from it when it is revoked, which the emulated hang does not see.
    EXPECT_TRUE(
        emulated_cuda().calls().await_count("nccl.comm_revoke", 2, std::chrono::seconds(30)));
    emulated_cuda().calls().release_hangs();
  });
  expect_lateness("warm-up");
  releaser.join();
}

/// That is a cause, of which all hear, though the other's time is over by then.
TEST_P(NcclMadeByWorkers, WhatNcclRefusesOnOneIsStillAReasonForHosts) {
  emulated_cuda().calls().inject({.function = "nccl.comm_init_rank", .status = 2});
  const testing::LogKeeper log;
  EXPECT_EQ(run_clusters(2,
                         [&](const ClusterPtr& cluster) {
                           GetParam().make(cluster, 2);
                           cluster->barrier(60);
                         }),
            no_errors(2));
  EXPECT_THAT(log.texts(), AllOf(HasSubstr("ncclCommInitRankConfig"), HasSubstr("instead")));
}

INSTANTIATE_TEST_SUITE_P(All, NcclMadeByWorkers, ::testing::ValuesIn(kMakers),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace crossdevice
