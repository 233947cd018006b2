// SPDX-License-Identifier: Apache-2.0
// reduce_to, batch_reduce_to, broadcast_to, gather_to and update.
#include "crossdevice/strategy/strategy_extended.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/strategy/mirrored_variable.h"

#include "support/replicas.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Remembers the options and the kinds of calls that reach it.
class RecordingOps : public ReductionToOneDevice {
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

class ExtendedOfTwo : public ::testing::Test {
 protected:
  std::shared_ptr<RecordingOps> ops = std::make_shared<RecordingOps>();
  MirroredStrategy strategy{
      {.devices = cpus(2),
       .cross_device_ops = ops,
       .communication_options = {.bytes_per_pack = 32, .timeout_seconds = 60}}};
  StrategyExtended& extended = strategy.extended();
  PerReplica value = per_replica<float>({{1, 2}, {3, 4}});
};

TEST_F(ExtendedOfTwo, SaysWhereItsReplicasAre) {
  EXPECT_EQ(extended.worker_devices(), cpus(2));
  EXPECT_EQ(extended.parameter_devices(), cpus(2));
  EXPECT_EQ(extended.num_replicas_in_sync(), 2U);
  EXPECT_EQ(&extended.cross_device_ops(), ops.get());
}

TEST_F(ExtendedOfTwo, ReduceToTakesAnyDestination) {
  const MirroredVariable variable(strategy, scalar_of(0.0F, cpu(0)));
  expect_mirrored(extended.reduce_to("SUM", value, value), cpus(2), {4, 6});
  expect_mirrored(extended.reduce_to(ReduceOp::MEAN, value, "CPU:5"), {"CPU:5"}, {2, 3});
  expect_mirrored(extended.reduce_to("mean", value, variable), cpus(2), {2, 3});
  expect_mirrored(extended.reduce_to("max", value, value.values()[1]), {"CPU:1"}, {3, 4});
  EXPECT_THROW((void)extended.reduce_to("SUM", value, ""), ValueError);
  EXPECT_THROW((void)extended.reduce_to("SUM", value, "CPU:99"), ValueError);
}

TEST_F(ExtendedOfTwo, OptionsOfTheCallAreMergedIntoTheStrategys) {
  (void)extended.reduce_to("SUM", value, value,
                           {.implementation = CommunicationImplementation::RING});
  (void)extended.batch_reduce_to("SUM", {{value, value}}, {.bytes_per_pack = 64});
  strategy.run([](ReplicaContext& context) {
    (void)context.all_reduce("SUM", scalar_of(1.0F, context.device()), {.deterministic = true});
    context.all_reduce_into("SUM", scalar_of(1.0F, context.device()));
  });
  ASSERT_EQ(ops->seen.size(), 4U);
  EXPECT_EQ(ops->seen[0],
            (CommunicationOptions{.bytes_per_pack = 32,
                                  .timeout_seconds = 60,
                                  .implementation = CommunicationImplementation::RING}));
  EXPECT_EQ(ops->seen[1], (CommunicationOptions{.bytes_per_pack = 64, .timeout_seconds = 60}));
  EXPECT_TRUE(ops->seen[2].deterministic);
  EXPECT_EQ(ops->seen[2].bytes_per_pack, Int64(32));
  // What waiting for the replicas used up is gone.
  EXPECT_LE(*ops->seen[2].timeout_seconds, 60.0);
  EXPECT_GT(*ops->seen[2].timeout_seconds, 0.0);
  EXPECT_EQ(ops->seen[3].bytes_per_pack, Int64(32));
}

TEST_F(ExtendedOfTwo, BatchesKeepTheirOrderAndMixDTypes) {
  const PerReplica integers = per_replica<std::int32_t>({{1}, {2}});
  const std::vector<Mirrored> sums =
      extended.batch_reduce_to("SUM", {{integers, "CPU:3"}, {value, value}, {integers, integers}});
  ASSERT_EQ(sums.size(), 3U);
  EXPECT_THAT(elements<std::int32_t>(sums[0].tensor()), ElementsAre(3));
  expect_mirrored(sums[1], cpus(2), {4, 6});
  EXPECT_THAT(elements<std::int32_t>(sums[2].on("CPU:1")), ElementsAre(3));
  EXPECT_TRUE(extended.batch_reduce_to("SUM", std::span<const ValueDestinationPair>()).empty());
}

TEST_F(ExtendedOfTwo, AVariableIsReducedAsItsComponents) {
  const MirroredVariable variable(strategy, scalar_of(2.0F, cpu(0)));
  expect_mirrored(extended.reduce_to("SUM", variable, variable), cpus(2), {4});
}

TEST_F(ExtendedOfTwo, BroadcastAndGatherReachTheDestinations) {
  expect_mirrored(extended.broadcast_to(vector_of<float>({7}, cpu(9)), cpus(3)), cpus(3), {7});
  expect_mirrored(extended.gather_to(value, cpus(2), 0), cpus(2), {1, 2, 3, 4});
}

TEST_F(ExtendedOfTwo, UpdateCallsTheFunctionForEachComponentInOrderOnThisThread) {
  const MirroredVariable variable(strategy, vector_of<float>({0, 0}, cpu(0)));
  std::vector<Device> order;
  const auto results = extended.update(
      variable,
      [&](VariableComponent& component, const Tensor& own, const std::vector<Tensor>& list,
          int same) {
        EXPECT_TRUE(in_cross_replica_context());
        EXPECT_EQ(own.device(), component.device());
        EXPECT_TRUE(list[0].is_same(own));
        order.push_back(component.device());
        component.assign(own);
        component.assign_add(own);
        return same + static_cast<int>(order.size());
      },
      value, std::vector{value}, 10);
  EXPECT_THAT(order, ElementsAre(cpu(0), cpu(1)));
  EXPECT_THAT(results, ElementsAre(11, 12));
  EXPECT_THAT(elements(variable.components().values()[0]), ElementsAre(2.0F, 4.0F));
  EXPECT_THAT(elements(variable.components().values()[1]), ElementsAre(6.0F, 8.0F));
}

TEST_F(ExtendedOfTwo, UpdateWrapsTensorsAndKeepsNothingWhenTheFunctionThrows) {
  const MirroredVariable variable(strategy, scalar_of(1.0F, cpu(0)));
  const Mirrored read = extended.update(variable, [](VariableComponent& c) { return c.tensor(); });
  expect_mirrored(read, cpus(2), {1});
  EXPECT_THROW(
      extended.update(variable, [](VariableComponent&) { throw std::runtime_error("no"); }),
      std::runtime_error);
  EXPECT_FALSE(has_strategy());
}

TEST_F(ExtendedOfTwo, UpdateRefusesAnothersVariableAndWrongArguments) {
  MirroredStrategy other(on_cpus(2));
  const MirroredVariable foreign(other, scalar_of(1.0F, cpu(0)), {.name = "foreign"});
  const MirroredVariable own(strategy, scalar_of(1.0F, cpu(0)));
  EXPECT_THAT(thrown<ValueError>([&] { extended.update(foreign, [](VariableComponent&) {}); }),
              HasSubstr("variable 'foreign' on [CPU:0, CPU:1] belongs to another strategy"));
  EXPECT_THROW(
      extended.update(
          own, [](VariableComponent&, const Tensor&) {}, per_replica<float>({{1}, {2}, {3}})),
      ValueError);
}

TEST(StrategyExtendedTest, AVariableOutlivesItsStrategyButForUpdate) {
  auto strategy = std::make_unique<MirroredStrategy>(on_cpus(2));
  MirroredVariable variable(*strategy, scalar_of(1.0F, cpu(0)), {.name = "w"});
  strategy.reset();
  variable.assign(3.0);
  EXPECT_THAT(elements(variable.read()), ElementsAre(3.0F));
  EXPECT_THAT(thrown<FailedPreconditionError>(
                  [&] { variable.extended().update(variable, [](VariableComponent&) {}); }),
              HasSubstr("the strategy of variable 'w' is gone"));
}

}  // namespace
}  // namespace crossdevice
