// SPDX-License-Identifier: Apache-2.0
// Which devices and ops a MirroredStrategy gets.
#include "crossdevice/strategy/mirrored_strategy.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/ops/hierarchical_copy_all_reduce.h"

#include "support/allocation_counter.h"
#include "support/replicas.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

TEST(MirroredStrategyTest, ByDefaultItTakesEveryGpuOrTheFirstHostDevice) {
  const MirroredStrategy strategy;
  if (num_gpus() > 0) {
    EXPECT_EQ(strategy.num_replicas_in_sync(), static_cast<std::size_t>(num_gpus()));
  } else {
    EXPECT_EQ(strategy.extended().worker_devices(), Devices{"CPU:0"});
  }
}

TEST(MirroredStrategyTest, OneReplicaWorksLikeSeveral) {
  MirroredStrategy strategy({.devices = {"CPU:3"}});
  const PerReplica sums = strategy.run([](ReplicaContext& context) {
    const Tensor value = vector_of<float>({1, 2}, context.device());
    context.all_reduce_into("SUM", value);
    return context.all_reduce("MEAN", value);
  });
  expect_mirrored(sums, {"CPU:3"}, {1, 2});
}

TEST(MirroredStrategyTest, AbsentAndRepeatedDevicesAreRefused) {
  EXPECT_THAT(thrown<ValueError>([] {
                const MirroredStrategy s({.devices = {"CPU:0", "CPU:64"}});
              }),
              HasSubstr("CPU:64"));
  EXPECT_THAT(thrown<ValueError>([] {
                const MirroredStrategy s({.devices = {"CPU:0", "GPU:99"}});
              }),
              HasSubstr("GPU:99: this host has"));
  EXPECT_THAT(thrown<ValueError>([] {
                const MirroredStrategy s({.devices = {"CPU:1", "/cpu:1"}});
              }),
              HasSubstr("expected distinct devices, got [CPU:1, CPU:1]"));
}

TEST(MirroredStrategyTest, BadOptionsAreRefused) {
  for (const CommunicationOptions& bad :
       {CommunicationOptions{.bytes_per_pack = -1}, CommunicationOptions{.timeout_seconds = -1.0},
        CommunicationOptions{.timeout_seconds = std::numeric_limits<double>::quiet_NaN()}}) {
    EXPECT_THROW(MirroredStrategy({.devices = cpus(2), .communication_options = bad}), ValueError);
  }
}

TEST(MirroredStrategyTest, TheChosenOpsAreUsedForEveryDType) {
  const auto ops = std::make_shared<HierarchicalCopyAllReduce>(1);
  MirroredStrategy strategy(on_cpus(2, ops));
  EXPECT_EQ(&strategy.extended().cross_device_ops(), ops.get());
  const PerReplica integers = strategy.run([](ReplicaContext& context) {
    return context.all_reduce("SUM", vector_of<std::int32_t>({2}, context.device()));
  });
  EXPECT_EQ(elements<std::int32_t>(integers.values()[1]), std::vector<std::int32_t>{4});
}

TEST(MirroredStrategyTest, StrategiesOneAfterAnotherAndSideBySideDoNotMeet) {
  MirroredStrategy two(on_cpus(2));
  for (std::size_t n = 1; n <= 4; ++n) {
    MirroredStrategy several(on_cpus(n));
    const auto sum = [](ReplicaContext& context) {
      return elements(context.all_reduce("SUM", scalar_of(1.0F, context.device())))[0];
    };
    EXPECT_EQ(several.run(sum), std::vector<float>(n, static_cast<float>(n)));
    EXPECT_EQ(two.run(sum), std::vector<float>(2, 2.0F));
  }
}

TEST(MirroredStrategyTest, ManyReplicasOnFewCores) {
  MirroredStrategy strategy(on_cpus(64));
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ(strategy.run([](ReplicaContext& context) {
      return elements(context.all_reduce("SUM", scalar_of(1.0F, context.device())))[0];
    }),
              std::vector<float>(64, 64.0F));
  }
}

TEST(MirroredStrategyTest, AStepInPlaceAllocatesNothingOnceItHasRun) {
  if (!can_count_allocations()) GTEST_SKIP() << "the sanitizer has a heap of its own";
  MirroredStrategy strategy(on_cpus(2));
  const PerReplica value = per_replica<float>({{1, 2, 3}, {4, 5, 6}});
  std::vector<std::size_t> allocations(2);
  strategy.run([&](ReplicaContext& context) {
    const std::size_t id = context.replica_id_in_sync_group();
    const std::span<const Tensor> own = value.values().subspan(id, 1);
    for (int step = 0; step < 10; ++step) context.all_reduce_into("MEAN", own);
    context.merge_call([](Strategy&) {});
    const std::size_t before = num_allocations_of_this_thread();
    for (int step = 0; step < 100; ++step) context.all_reduce_into("MEAN", own);
    allocations[id] = num_allocations_of_this_thread() - before;
    context.merge_call([](Strategy&) {});
  });
  EXPECT_EQ(allocations, std::vector<std::size_t>(2, 0));
}

}  // namespace
}  // namespace crossdevice
