// SPDX-License-Identifier: Apache-2.0
// TensorFlow's known defects (section 9 of the semantics) in its strategy layer, each with the better behaviour. The number in a name is the defect's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/strategy/mirrored_variable.h"

#include "support/replicas.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StrategyDefects, D9_D17_IntegersAreReducedByTheChosenOpsInAnyBatch) {
  MirroredStrategy strategy(on_cpus(2));
  const PerReplica integers = per_replica<std::int32_t>({{1}, {2}});
  const PerReplica floats = per_replica<float>({{1}, {2}});
  const std::vector<Mirrored> sums = strategy.extended().batch_reduce_to(
      "SUM", {{integers, integers}, {floats, floats}, {integers, integers}});
  EXPECT_THAT(elements<std::int32_t>(sums[0].on("CPU:1")), ElementsAre(3));
  EXPECT_THAT(elements<float>(sums[1].on("CPU:1")), ElementsAre(3));
  EXPECT_THAT(elements<std::int32_t>(sums[2].on("CPU:0")), ElementsAre(3));
  MirroredStrategy one(on_cpus(1));
  const Tensor mean = one.reduce("MEAN", per_replica<std::int32_t>({{3}}), std::nullopt);
  EXPECT_EQ(mean.dtype(), DType::FLOAT64);
}

TEST(StrategyDefects, D18_D21_ValuesThatAreEqualEverywhereGetAClearAnswer) {
  MirroredStrategy strategy(on_cpus(2));
  EXPECT_THAT(elements(strategy.reduce("SUM", scalar_of(0.0F, cpu(0)), std::nullopt)),
              ElementsAre(0));
  EXPECT_THAT(thrown<ValueError>(
                  [&] { (void)strategy.reduce("SUM", scalar_of(1.0F, cpu(0)), std::nullopt); }),
              HasSubstr("use MEAN"));
  EXPECT_THAT(elements(strategy.reduce("MEAN", scalar_of(1.0F, cpu(0)), std::nullopt)),
              ElementsAre(1));
}

TEST(StrategyDefects, D19_AllReduceOfAVariableCountsEveryReplica) {
  MirroredStrategy strategy(on_cpus(3));
  const MirroredVariable variable(strategy, scalar_of(2.0F, cpu(0)));
  EXPECT_THAT(
      strategy.run([&](ReplicaContext& c) { return elements(c.all_reduce("SUM", variable))[0]; }),
      Each(6));
}

/// Remembers the options that reach it.
class OptionsOps : public ReductionToOneDevice {
 public:
  std::vector<CommunicationOptions> seen;

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    seen.push_back(options);
    return ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
  }
};

TEST(StrategyDefects, D26_TheStrategysOptionsReachAllReduceInReplicas) {
  const auto ops = std::make_shared<OptionsOps>();
  MirroredStrategy strategy({.devices = cpus(2),
                             .cross_device_ops = ops,
                             .communication_options = {.bytes_per_pack = 4096}});
  strategy.run([](ReplicaContext& c) { (void)c.all_reduce("SUM", scalar_of(1.0F, c.device())); });
  ASSERT_EQ(ops->seen.size(), 1U);
  EXPECT_EQ(ops->seen[0].bytes_per_pack, Int64(4096));
}

TEST(StrategyDefects, D31_OneDeadlineCoversTheWaitAndTheReductionAndEndsThisCallOnly) {
  const auto ops = std::make_shared<OptionsOps>();
  MirroredStrategy strategy(on_cpus(2, ops));
  MirroredStrategy unconcerned(on_cpus(2));
  const auto text = thrown_in_replicas<ValueError>(strategy, [](ReplicaContext& c) {
    (void)c.all_reduce("SUM", scalar_of(1.0F, c.device()), {.timeout_seconds = -1});
  });
  EXPECT_THAT(text, Each(::testing::Ne("")));
  strategy.run([](ReplicaContext& c) {
    (void)c.all_reduce("SUM", scalar_of(1.0F, c.device()), {.timeout_seconds = 50});
  });
  EXPECT_LT(*ops->seen.at(0).timeout_seconds, 50.0);  // what the wait has used up is gone
  MirroredStrategy patient({.devices = cpus(2),
                            .cross_device_ops = ops,
                            .communication_options = {.timeout_seconds = 50}});
  MirroredVariable variable(patient, scalar_of(1.0F, cpu(0)),
                            {.aggregation = VariableAggregation::MEAN});
  patient.run([&](ReplicaContext& c) { variable.assign(scalar_of(1.0F, c.device())); });
  EXPECT_LT(*ops->seen.at(1).timeout_seconds, 50.0);
  EXPECT_THROW(strategy.run([](ReplicaContext& c) {
    if (c.replica_id_in_sync_group() == 0) {
      (void)c.all_reduce("SUM", scalar_of(1.0F, c.device()), {.timeout_seconds = 50});
    } else {
      c.merge_call([](Strategy&) {});  // another call, so that neither waits for ever
    }
  }),
               ValueError);
  EXPECT_THAT(unconcerned.run([](ReplicaContext& c) {
    return elements(c.all_reduce("SUM", scalar_of(1.0F, c.device())))[0];
  }),
              Each(2));
}

TEST(StrategyDefects, D32_StrategiesMadeOneAfterAnotherDoNotMeet) {
  for (const std::size_t n : {3U, 2U, 3U, 1U}) {
    MirroredStrategy strategy(on_cpus(n));
    EXPECT_THAT(strategy.run([](ReplicaContext& c) {
      return elements(c.all_reduce("SUM", scalar_of(1.0F, c.device())))[0];
    }),
                Each(static_cast<float>(n)));
  }
}

TEST(StrategyDefects, D39_ARaggedLastBatchIsReducedAlongItsAxis) {
  MirroredStrategy strategy(on_cpus(2));
  const PerReplica losses = per_replica<float>({{1, 2, 3}, {10}});
  EXPECT_THAT(elements(strategy.reduce("MEAN", losses, 0)), ElementsAre(4));
}

TEST(StrategyDefects, D41_OneDeviceGivesTheSameTypesAsSeveral) {
  MirroredStrategy strategy(on_cpus(1));
  const PerReplica value =
      strategy.run([](ReplicaContext& c) { return scalar_of(1.0F, c.device()); });
  EXPECT_EQ(value.size(), 1U);
  const Mirrored sum = strategy.extended().reduce_to("SUM", value, value);
  EXPECT_EQ(sum.size(), 1U);
}

TEST(StrategyDefects, D45_RepeatedDevicesAreAValueError) {
  EXPECT_THROW(MirroredStrategy({.devices = {"CPU:0", "CPU:0"}}), ValueError);
}

TEST(StrategyDefects, D49_DifferentCallsAreErrorsNotHangs) {
  MirroredStrategy strategy(on_cpus(2));
  EXPECT_THAT(
      thrown_in_replicas<ValueError>(strategy,
                                     [](ReplicaContext& c) {
                                       const std::size_t count = 1 + c.replica_id_in_sync_group();
                                       const std::vector<Tensor> values(
                                           count, scalar_of(1.0F, c.device()));
                                       (void)c.all_reduce("SUM", values);
                                     }),
      Each("the replicas made different calls: replica 0 called all_reduce #1 (SUM, 1 value), "
           "replica 1 called all_reduce #1 (SUM, 2 values)"));
}

TEST(StrategyDefects, D55_VariablesWithoutAggregationCannotDivergeSilently) {
  MirroredStrategy strategy(on_cpus(2));
  MirroredVariable variable(strategy, scalar_of(1.0F, cpu(0)));
  EXPECT_THAT(thrown_in_replicas<ValueError>(
                  strategy,
                  [&](ReplicaContext& c) {
                    variable.assign(static_cast<double>(c.replica_id_in_sync_group()));
                  }),
              Each(HasSubstr("You must specify an aggregation")));
  expect_mirrored(variable.components(), cpus(2), {1});
}

}  // namespace
}  // namespace crossdevice
