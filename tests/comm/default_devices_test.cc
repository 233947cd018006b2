// SPDX-License-Identifier: Apache-2.0
// A machine's GPUs, emulated, among its workers, which are processes.
#include "crossdevice/comm/default_devices.h"

#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/strategy/multi_worker_mirrored_strategy.h"

#include "support/emulated_gpus.h"
#include "support/thrown.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using testing::all_well;
using ::testing::AllOf;
using testing::emulated_cuda;
using ::testing::HasSubstr;
using testing::install_emulated_gpus;
using testing::Machines;
using testing::run_workers;
using testing::shared;
using testing::thrown;

/// Each process has an emulated NCCL of its own, which never meets another's.
const CommunicationOptions kOnHosts{.implementation = CommunicationImplementation::RING};

std::size_t place(const Cluster& cluster) { return static_cast<std::size_t>(cluster.rank()); }

void share_five(Cluster& cluster) {
  install_emulated_gpus(5);
  const std::vector<std::vector<Devices>> expected{
      {},
      {{"GPU:0", "GPU:1", "GPU:2", "GPU:3", "GPU:4"}},
      {{"GPU:0", "GPU:2", "GPU:4"}, {"GPU:1", "GPU:3"}},
      {{"GPU:0", "GPU:3"}, {"GPU:1", "GPU:4"}, {"GPU:2"}},
      {},
      {{"GPU:0"}, {"GPU:1"}, {"GPU:2"}, {"GPU:3"}, {"GPU:4"}}};
  const auto n = static_cast<std::size_t>(cluster.num_workers());
  EXPECT_EQ(default_devices(cluster), expected[n][place(cluster)]);
  EXPECT_EQ(default_devices(cluster, meeting_deadline(10)), expected[n][place(cluster)]);
  EXPECT_EQ(default_devices(), expected[1][0]);
}

void share_one(Cluster& cluster) {
  install_emulated_gpus(1);
  EXPECT_EQ(default_devices(cluster), cluster.rank() == 0 ? Devices{"GPU:0"} : Devices{"CPU:0"});
}

void share_logical(Cluster& cluster) {
  set_logical_gpu_devices(2);
  install_emulated_gpus(3);
  EXPECT_EQ(default_devices(cluster), cluster.rank() == 0
                                          ? (Devices{"GPU:0", "GPU:1", "GPU:4", "GPU:5"})
                                          : (Devices{"GPU:2", "GPU:3"}));
}

/// Two machines of two workers: each shares its own.
void share_by_machine(Cluster& cluster) {
  install_emulated_gpus(4);
  EXPECT_EQ(default_devices(cluster),
            cluster.rank() % 2 == 0 ? (Devices{"GPU:0", "GPU:2"}) : (Devices{"GPU:1", "GPU:3"}));
  // The GPUs of another machine are others, whatever their names are.
  const Devices apart{cluster.rank() % 2 == 0 ? "GPU:0" : "GPU:1"};
  const CollectiveAllReduce ops(apart, 4, kOnHosts, shared(cluster));
}

void narrowed(Cluster& cluster) {
  install_emulated_gpus(2);
  emulated_cuda().set_first_gpu(2 * cluster.rank());
  EXPECT_EQ(default_devices(cluster), (Devices{"GPU:0", "GPU:1"}));
  MultiWorkerMirroredStrategy strategy(
      {.communication_options = kOnHosts, .cluster = shared(cluster)});
  EXPECT_EQ(strategy.num_replicas_in_sync(), 6U);
}

void strategies_share(Cluster& cluster) {
  install_emulated_gpus(4);
  MultiWorkerMirroredStrategy strategy(
      {.communication_options = kOnHosts, .cluster = shared(cluster)});
  EXPECT_EQ(strategy.extended().worker_devices(),
            cluster.rank() == 0 ? (Devices{"GPU:0", "GPU:2"}) : (Devices{"GPU:1", "GPU:3"}));
  // One worker names them, the other does not.
  MultiWorkerMirroredStrategy named(
      {.communication_options = kOnHosts,
       .devices = cluster.rank() == 0 ? Devices{"GPU:2", "GPU:0"} : Devices{},
       .cluster = shared(cluster)});
  EXPECT_EQ(named.num_replicas_in_sync(), 4U);
}

/// Rank 0 sees GPUs 0 and 1, rank 1 sees 1 and 2, rank 2 sees 2 and 3.
void overlap(Cluster& cluster) {
  install_emulated_gpus(2);
  emulated_cuda().set_first_gpu(cluster.rank());
  EXPECT_EQ(default_devices(cluster), (Devices{"GPU:0", "GPU:1"}));
  const int n = cluster.num_workers();
  const auto names_both = AllOf(HasSubstr("one GPU is in two workers: GPU:1 of rank 0"),
                                HasSubstr("and GPU:0 of rank 1"),
                                HasSubstr("are GPU 02020202020202020202020202020202"));
  EXPECT_THAT(thrown<ValueError>([&] {
                CollectiveAllReduce({"GPU:0", "GPU:1"}, 2 * n, {}, shared(cluster));
              }),
              names_both);
  EXPECT_THAT(
      thrown<ValueError>([&] { MultiWorkerMirroredStrategy({.cluster = shared(cluster)}); }),
      names_both);
  // Nothing is broken: with devices apart it works.
  if (n == 2) const CollectiveAllReduce ops({"GPU:0"}, n, kOnHosts, shared(cluster));
  EXPECT_THAT(thrown<ValueError>([&] {
                CollectiveAllReduce({cluster.rank() == 1 ? "GPU:0" : "GPU:1"}, n, {},
                                    shared(cluster));
              }),
              AllOf(HasSubstr("GPU:1 of rank 0"), HasSubstr("GPU:0 of rank 1")));
}

void without_gpus(Cluster& cluster) {
  EXPECT_EQ(default_devices(), Devices{"CPU:0"});
  EXPECT_EQ(default_devices(cluster), Devices{"CPU:0"});
}

TEST(DefaultDevicesTest, EveryWorkerTakesTheGpusOfItsLocalRank) {
  for (const int n : {1, 2, 3, 5}) EXPECT_EQ(run_workers("share_five", n), all_well(n));
}

TEST(DefaultDevicesTest, WhoHasNoneLeftTakesTheHost) {
  EXPECT_EQ(run_workers("share_one", 2), all_well(2));
  EXPECT_EQ(run_workers("without_gpus", 2), all_well(2));
}

TEST(DefaultDevicesTest, LogicalDevicesOfAGpuStayTogether) {
  EXPECT_EQ(run_workers("share_logical", 2), all_well(2));
}

TEST(DefaultDevicesTest, EveryMachineSharesItsOwn) {
  EXPECT_EQ(run_workers("share_by_machine", 4, -1, Machines::TWO), all_well(4));
}

TEST(DefaultDevicesTest, WhatALauncherHasSharedOutStaysSo) {
  EXPECT_EQ(run_workers("narrowed", 3), all_well(3));
}

TEST(DefaultDevicesTest, StrategiesTakeTheirShare) {
  EXPECT_EQ(run_workers("strategies_share", 2), all_well(2));
}

TEST(DefaultDevicesTest, OneGpuInTwoWorkersIsAnErrorOnEveryRank) {
  EXPECT_EQ(run_workers("overlap", 2), all_well(2));
  EXPECT_EQ(run_workers("overlap", 3), all_well(3));
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  using namespace crossdevice;  // NOLINT(google-build-using-namespace): the works above
  return crossdevice::testing::worker_main(argc, argv,
                                           {{"share_five", share_five},
                                            {"share_one", share_one},
                                            {"share_logical", share_logical},
                                            {"share_by_machine", share_by_machine},
                                            {"narrowed", narrowed},
                                            {"strategies_share", strategies_share},
                                            {"overlap", overlap},
                                            {"without_gpus", without_gpus}});
}
