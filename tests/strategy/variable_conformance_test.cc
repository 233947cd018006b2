// SPDX-License-Identifier: Apache-2.0
// TensorFlow's own tests of distributed variables (catalogue 8.9), in one process, on host devices. Names are the catalogue's ids, numbers are its rows'.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/strategy/mirrored_variable.h"
#include "crossdevice/strategy/sync_on_read_variable.h"

#include "support/replicas.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Aggregation = VariableAggregation;

constexpr Aggregation kAggregations[] = {Aggregation::NONE, Aggregation::SUM, Aggregation::MEAN,
                                         Aggregation::ONLY_FIRST_REPLICA};

Tensor scalar(float value) { return scalar_of(value, cpu(0)); }

/// assign, assign_add and assign_sub by the same name.
using Update = void (DistributedVariable::*)(const VariableValue&);
constexpr Update kAssign = &DistributedVariable::assign;
constexpr Update kAdd = &DistributedVariable::assign_add;
constexpr Update kSub = &DistributedVariable::assign_sub;

struct UpdateRow {
  Update update;
  float value;
};

class VariableConformance : public ::testing::TestWithParam<std::size_t> {
 protected:
  std::size_t replicas = GetParam();
  MirroredStrategy strategy{on_cpus(replicas)};
  [[nodiscard]] float n() const { return static_cast<float>(replicas); }
  static float id(const ReplicaContext& context) {
    return static_cast<float>(context.replica_id_in_sync_group());
  }
  MirroredVariable on_write(Aggregation aggregation, float initial = 0) {
    return {strategy, scalar(initial), {.aggregation = aggregation}};
  }
  SyncOnReadVariable on_read(Aggregation aggregation, float initial = 0) {
    return {strategy, scalar(initial), {.aggregation = aggregation}};
  }
  void expect_all(const Variable& variable, float value) {
    expect_mirrored(variable.components(), cpus(replicas), {value});
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, VariableConformance, ::testing::Values(1, 2, 3, 4));

TEST_P(VariableConformance, VA1_OnWriteAssignInBothContexts) {
  for (const Aggregation aggregation : kAggregations) {
    for (const UpdateRow& row : {UpdateRow{kAssign, 1}, UpdateRow{kAdd, 1}, UpdateRow{kSub, -1}}) {
      MirroredVariable outside = on_write(aggregation);
      (outside.*row.update)(row.value);
      expect_all(outside, 1);
      // The row skips SUM; NONE is an error inside replicas here (tests/conformance.md).
      const bool one = replicas == 1;
      if (!one && (aggregation == Aggregation::SUM || aggregation == Aggregation::NONE)) continue;
      MirroredVariable inside = on_write(aggregation);
      strategy.run([&](ReplicaContext&) { (inside.*row.update)(row.value); });
      expect_all(inside, 1);
    }
  }
}

TEST_P(VariableConformance, VA2_AssignAnotherVariable) {
  for (const UpdateRow& row : {UpdateRow{kAssign, 2}, UpdateRow{kAdd, 2}, UpdateRow{kSub, -2}}) {
    const MirroredVariable value = on_write(Aggregation::MEAN, row.value);
    MirroredVariable outside = on_write(Aggregation::MEAN);
    (outside.*row.update)(value);
    expect_all(outside, 2);
    MirroredVariable inside = on_write(Aggregation::MEAN);
    strategy.run([&](ReplicaContext&) { (inside.*row.update)(value); });
    expect_all(inside, 2);
  }
}

TEST(VariableConformanceOfTwo, VA3_AssignPerReplicaValues) {
  MirroredStrategy strategy(on_cpus(2));
  struct Row {
    Aggregation aggregation;
    float expected;
  };
  for (const Row& row : {Row{Aggregation::SUM, 4}, Row{Aggregation::MEAN, 2},
                         Row{Aggregation::ONLY_FIRST_REPLICA, 2}}) {
    for (const UpdateRow& update :
         {UpdateRow{kAssign, 2}, UpdateRow{kAdd, 2}, UpdateRow{kSub, -2}}) {
      MirroredVariable variable(strategy, scalar(0), {.aggregation = row.aggregation});
      const PerReplica value{scalar_of(update.value, cpu(0)), scalar_of(update.value, cpu(1))};
      strategy.run([&](ReplicaContext&) { (variable.*update.update)(value); });
      expect_mirrored(variable.components(), cpus(2), {row.expected});
      EXPECT_THROW((variable.*update.update)(value), ValueError);
    }
  }
}

TEST_P(VariableConformance, VA4_ValueInReplicaContext) {
  MirroredVariable variable = on_write(Aggregation::MEAN, 1);
  const std::vector<float> seen = strategy.run([&](ReplicaContext& context) {
    variable.assign_add(scalar_of(1.0F, context.device()));
    return elements(variable.read())[0];
  });
  EXPECT_THAT(seen, Each(2));
}

TEST_P(VariableConformance, VA5_ReadInEveryContextAndAssignOutOfScope) {
  MirroredVariable variable = on_write(Aggregation::NONE, 1);
  EXPECT_THAT(strategy.run([&](ReplicaContext&) { return elements(variable.read())[0]; }), Each(1));
  {
    const StrategyScope scope = strategy.scope();
    EXPECT_THAT(elements(variable.read()), ElementsAre(1));
  }
  variable.assign(3);
  EXPECT_THAT(elements(variable.read()), ElementsAre(3));
  expect_all(variable, 3);
}

TEST_P(VariableConformance, VA6_ARandomInitialValueIsTheSameOnEveryReplica) {
  std::mt19937 random(7);
  const auto draw = [&] { return static_cast<float>(random()); };
  const float first = draw();
  const MirroredVariable written = on_write(Aggregation::NONE, first);
  expect_all(written, first);
  const float second = draw();
  const SyncOnReadVariable read = on_read(Aggregation::NONE, second);
  expect_all(read, second);
}

TEST_P(VariableConformance, VA7_OnlyTheFirstReplicasValueCounts) {
  MirroredVariable variable = on_write(Aggregation::ONLY_FIRST_REPLICA, 4);
  strategy.run([&](ReplicaContext& context) { variable.assign(id(context)); });
  expect_all(variable, 0);
}

TEST_P(VariableConformance, VA12_OnReadAssignVariablesAndConversion) {
  for (const Aggregation aggregation : kAggregations) {
    for (const UpdateRow& row : {UpdateRow{kAssign, 1}, UpdateRow{kAdd, 1}, UpdateRow{kSub, -1}}) {
      SyncOnReadVariable inside = on_read(aggregation);
      strategy.run([&](ReplicaContext&) { (inside.*row.update)(row.value); });
      expect_all(inside, 1);
      if (aggregation != Aggregation::MEAN && aggregation != Aggregation::ONLY_FIRST_REPLICA)
        continue;
      SyncOnReadVariable outside = on_read(aggregation);
      (outside.*row.update)(row.value);
      expect_all(outside, 1);
      const SyncOnReadVariable value = on_read(aggregation, row.value);
      SyncOnReadVariable from_variable = on_read(aggregation);
      (from_variable.*row.update)(value);
      expect_all(from_variable, 1);
    }
  }
  SyncOnReadVariable converted = on_read(Aggregation::MEAN);
  converted.assign(2);  // an integer, to float32
  expect_all(converted, 2);
}

TEST_P(VariableConformance, VA13_OnReadSumFromOutside) {
  SyncOnReadVariable variable = on_read(Aggregation::SUM);
  variable.assign(n());
  expect_all(variable, 1);
  EXPECT_THROW(variable.assign_add(1.0), ValueError);
  EXPECT_THROW(variable.assign_sub(1.0), ValueError);
  expect_all(variable, 1);
}

TEST_P(VariableConformance, VA14_AllReduceOfAMirroredVariable) {
  const MirroredVariable variable = on_write(Aggregation::MEAN, 2);
  const std::vector<float> results = strategy.run([&](ReplicaContext& context) {
    return elements(context.all_reduce("SUM", variable))[0] + id(context);
  });
  for (std::size_t r = 0; r < replicas; ++r) EXPECT_EQ(results[r], 2 * n() + static_cast<float>(r));
}

TEST_P(VariableConformance, VA15_OnReadComponentsAreCombinedWhenRead) {
  struct Row {
    Aggregation aggregation;
    float expected;
  };
  for (const Row& row :
       {Row{Aggregation::SUM, n() * (n() - 1) / 2}, Row{Aggregation::MEAN, (n() - 1) / 2},
        Row{Aggregation::ONLY_FIRST_REPLICA, 0}}) {
    SyncOnReadVariable variable = on_read(row.aggregation);
    strategy.run([&](ReplicaContext& context) { variable.assign(id(context)); });
    const std::vector<float> own =
        strategy.run([&](ReplicaContext&) { return elements(variable.read())[0]; });
    for (std::size_t r = 0; r < replicas; ++r) EXPECT_EQ(own[r], static_cast<float>(r));
    EXPECT_THAT(elements(variable.read()), ElementsAre(row.expected));
  }
}

TEST_P(VariableConformance, VA16_OnReadWithoutAggregationCannotBeReadAcrossReplicas) {
  const SyncOnReadVariable variable = on_read(Aggregation::NONE, 1);
  EXPECT_THROW((void)variable.read(), ValueError);
}

TEST(VariableConformanceOfTwo, VA19_ExtendedUpdate) {
  MirroredStrategy strategy(on_cpus(2));
  const PerReplica value{scalar_of(1.0F, cpu(0)), scalar_of(2.0F, cpu(1))};
  MirroredVariable variable(strategy, scalar(0));
  const auto expect_components = [&](float first, float second) {
    EXPECT_THAT(elements(variable.components().values()[0]), ElementsAre(first));
    EXPECT_THAT(elements(variable.components().values()[1]), ElementsAre(second));
  };
  StrategyExtended& extended = strategy.extended();
  extended.update(
      variable, [](VariableComponent& v, const Tensor& x) { v.assign(x); }, value);
  expect_components(1, 2);
  extended.update(
      variable, [](VariableComponent& v, const Tensor& x) { v.assign_add(x); }, value);
  expect_components(2, 4);
  extended.update(
      variable, [](VariableComponent& v, const Tensor& x) { v.assign_sub(x); }, value);
  expect_components(1, 2);
  extended.update(variable, [](VariableComponent& v) {
    v.assign_add(scalar_of(2 * elements(v.tensor())[0], v.device()));
  });
  expect_components(3, 6);
}

TEST(VariableConformanceOfTwo, VA22_MirroredVariableUpdates) {
  MirroredStrategy strategy(on_cpus(2));
  const auto id = [](ReplicaContext& c) {
    return static_cast<float>(c.replica_id_in_sync_group());
  };
  const auto expect_value = [](const MirroredVariable& variable, float value) {
    expect_mirrored(variable.components(), cpus(2), {value});
  };
  MirroredVariable none(strategy, scalar(1));
  EXPECT_THAT(thrown_in_replicas<ValueError>(strategy, [&](ReplicaContext&) { none.assign(5); }),
              Each(HasSubstr("You must specify an aggregation")));
  MirroredVariable sum(strategy, scalar(1), {.aggregation = Aggregation::SUM});
  EXPECT_THAT(thrown_in_replicas<ValueError>(strategy, [&](ReplicaContext&) { sum.assign(5); }),
              Each(HasSubstr("is the same on all 2 replicas")));

  MirroredVariable assigned(strategy, scalar(1), {.aggregation = Aggregation::MEAN});
  assigned.assign(6);
  expect_value(assigned, 6);
  strategy.run([&](ReplicaContext& c) { assigned.assign(scalar_of(id(c), c.device())); });
  expect_value(assigned, 0.5F);
  strategy.run([&](ReplicaContext&) { assigned.assign(5); });
  expect_value(assigned, 5);

  MirroredVariable added(strategy, scalar(1), {.aggregation = Aggregation::MEAN});
  added.assign_add(6);
  expect_value(added, 7);
  added.assign_add(2);
  expect_value(added, 9);
  MirroredVariable added_in(strategy, scalar(1), {.aggregation = Aggregation::MEAN});
  strategy.run([&](ReplicaContext& c) { added_in.assign_add(scalar_of(id(c), c.device())); });
  expect_value(added_in, 1.5F);
  MirroredVariable added_number(strategy, scalar(1), {.aggregation = Aggregation::MEAN});
  strategy.run([&](ReplicaContext&) { added_number.assign_add(5); });
  expect_value(added_number, 6);

  MirroredVariable subtracted(strategy, scalar(5), {.aggregation = Aggregation::MEAN});
  subtracted.assign_sub(2);
  expect_value(subtracted, 3);
  MirroredVariable subtracted_in(strategy, scalar(5), {.aggregation = Aggregation::MEAN});
  strategy.run([&](ReplicaContext& c) { subtracted_in.assign_sub(scalar_of(id(c), c.device())); });
  expect_value(subtracted_in, 4.5F);
  MirroredVariable subtracted_number(strategy, scalar(5), {.aggregation = Aggregation::MEAN});
  strategy.run([&](ReplicaContext&) { subtracted_number.assign_sub(1); });
  expect_value(subtracted_number, 4);
}

TEST(VariableConformanceOfTwo, VA23_SyncOnReadAssign) {
  MirroredStrategy strategy(on_cpus(2));
  SyncOnReadVariable sum(strategy, scalar(1), {.aggregation = Aggregation::SUM});
  EXPECT_THAT(elements(sum.read()), ElementsAre(2));
  sum.assign(6);
  EXPECT_THAT(elements(sum.read()), ElementsAre(6));
  SyncOnReadVariable mean(strategy, scalar(1), {.aggregation = Aggregation::MEAN});
  EXPECT_THAT(elements(mean.read()), ElementsAre(1));
  mean.assign(6);
  EXPECT_THAT(elements(mean.read()), ElementsAre(6));
}

TEST_P(VariableConformance, VA24_ReducingAVariableToItselfGivesTensors) {
  MirroredVariable variable = on_write(Aggregation::MEAN, 1);
  const Mirrored sum = strategy.extended().reduce_to("SUM", variable, variable);
  expect_mirrored(sum, cpus(replicas), {n()});
  variable.assign(10);
  expect_mirrored(sum, cpus(replicas), {n()});
}

}  // namespace
}  // namespace crossdevice
