// SPDX-License-Identifier: Apache-2.0
// Variables that are combined when read.
#include "crossdevice/strategy/sync_on_read_variable.h"

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

class SyncOnReadOf : public ::testing::TestWithParam<std::size_t> {
 protected:
  std::size_t replicas = GetParam();
  MirroredStrategy strategy{on_cpus(replicas)};
  [[nodiscard]] float n() const { return static_cast<float>(replicas); }

  template <class T = float>
  SyncOnReadVariable make(VariableAggregation aggregation, T initial = T{}) {
    return {strategy, scalar_of<T>(initial, cpu(0)), {.name = "m", .aggregation = aggregation}};
  }
  /// Component r becomes r + 1.
  void count_up(SyncOnReadVariable& variable) {
    strategy.run(
        [&](ReplicaContext& context) { variable.assign(context.replica_id_in_sync_group() + 1); });
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, SyncOnReadOf, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(SyncOnReadOf, InsideReplicasEachComponentGoesItsOwnWay) {
  for (const VariableAggregation aggregation :
       {VariableAggregation::NONE, VariableAggregation::SUM, VariableAggregation::MEAN,
        VariableAggregation::ONLY_FIRST_REPLICA}) {
    SyncOnReadVariable variable = make(aggregation);
    const std::vector<float> seen = strategy.run([&](ReplicaContext& context) {
      const std::size_t id = context.replica_id_in_sync_group();
      variable.assign(id);
      for (std::size_t i = 0; i < id; ++i) variable.assign_add(10);  // as often as each likes
      variable.assign_sub(scalar_of(1.0F, context.device()));
      return elements(variable.read())[0];
    });
    for (std::size_t r = 0; r < replicas; ++r) EXPECT_EQ(seen[r], static_cast<float>(r) * 11 - 1);
  }
}

TEST_P(SyncOnReadOf, OutsideReplicasReadCombines) {
  SyncOnReadVariable sum = make(VariableAggregation::SUM);
  SyncOnReadVariable mean = make(VariableAggregation::MEAN);
  SyncOnReadVariable first = make(VariableAggregation::ONLY_FIRST_REPLICA);
  SyncOnReadVariable none = make(VariableAggregation::NONE);
  for (SyncOnReadVariable* variable : {&sum, &mean, &first, &none}) count_up(*variable);
  const float total = n() * (n() + 1) / 2;
  EXPECT_THAT(elements(sum.read()), ElementsAre(total));
  EXPECT_THAT(elements(mean.read()), ElementsAre(total / n()));
  EXPECT_THAT(elements(first.read()), ElementsAre(1.0F));
  EXPECT_THAT(thrown<ValueError>([&] { (void)none.read(); }),
              HasSubstr("variable 'm' cannot be read outside replicas: with aggregation NONE"));
  const StrategyScope scope = strategy.scope();
  EXPECT_THAT(elements(sum.read()), ElementsAre(total));
  EXPECT_FALSE(overlaps(first.read(), first.components().values()[0]));
}

TEST_P(SyncOnReadOf, ASumIsAssignedInEqualPartsSoThatItReadsBack) {
  SyncOnReadVariable variable = make(VariableAggregation::SUM);
  variable.assign(n());
  for (const Tensor& component : variable.components().values()) {
    EXPECT_THAT(elements(component), ElementsAre(1.0F));
  }
  EXPECT_THAT(elements(variable.read()), ElementsAre(n()));
}

TEST_P(SyncOnReadOf, IntegersReadBackToTheLastUnit) {
  SyncOnReadVariable variable = make<std::int32_t>(VariableAggregation::SUM);
  for (const std::int32_t value : {0, 1, 7, 100, -7, -100, 2147483647, -2147483647 - 1}) {
    variable.assign(value);
    EXPECT_THAT(elements<std::int32_t>(variable.read()), ElementsAre(value));
    const auto rest = elements<std::int32_t>(variable.components().values()[replicas - 1])[0];
    if (replicas > 1) {
      EXPECT_EQ(rest, value / static_cast<std::int32_t>(replicas));
    }
  }
  SyncOnReadVariable wide = make<std::uint64_t>(VariableAggregation::SUM);
  wide.assign(~std::uint64_t{0});
  EXPECT_THAT(elements<std::uint64_t>(wide.read()), ElementsAre(~std::uint64_t{0}));
}

TEST_P(SyncOnReadOf, OtherAggregationsAreAssignedWhole) {
  for (const VariableAggregation aggregation :
       {VariableAggregation::NONE, VariableAggregation::MEAN,
        VariableAggregation::ONLY_FIRST_REPLICA}) {
    SyncOnReadVariable variable = make(aggregation);
    variable.assign(6);
    variable.assign_add(2);
    variable.assign_sub(scalar_of(1.0F, cpu(0)));
    expect_mirrored(variable.components(), cpus(replicas), {7});
    std::vector<Tensor> parts;
    for (std::size_t r = 0; r < replicas; ++r)
      parts.push_back(scalar_of(static_cast<float>(r), cpu(r)));
    variable.assign(PerReplica(parts));
    for (std::size_t r = 0; r < replicas; ++r) {
      EXPECT_THAT(elements(variable.components().values()[r]), ElementsAre(static_cast<float>(r)));
    }
  }
}

TEST_P(SyncOnReadOf, ASumCannotBeAddedToFromOutside) {
  SyncOnReadVariable variable = make(VariableAggregation::SUM, 1.0F);
  EXPECT_THAT(thrown<ValueError>([&] { variable.assign_add(1); }),
              HasSubstr("assign_add to variable 'm' outside replicas"));
  EXPECT_THAT(thrown<ValueError>([&] { variable.assign_sub(1); }),
              HasSubstr("the value would count once per replica"));
  EXPECT_THAT(elements(variable.read()), ElementsAre(n()));
}

TEST_P(SyncOnReadOf, AsAValueItIsWhatItReadsAs) {
  SyncOnReadVariable source = make(VariableAggregation::SUM);
  count_up(source);
  MirroredVariable target(strategy, scalar_of(0.0F, cpu(0)),
                          {.aggregation = VariableAggregation::MEAN});
  const float total = n() * (n() + 1) / 2;
  target.assign(source);
  expect_mirrored(target.components(), cpus(replicas), {total});
  strategy.run([&](ReplicaContext&) { target.assign(source); });
  expect_mirrored(target.components(), cpus(replicas), {total / n()});
}

TEST_P(SyncOnReadOf, AllReduceTakesTheReplicasComponent) {
  SyncOnReadVariable variable = make(VariableAggregation::MEAN);
  count_up(variable);
  const PerReplica sums =
      strategy.run([&](ReplicaContext& context) { return context.all_reduce("SUM", variable); });
  expect_mirrored(sums, cpus(replicas), {n() * (n() + 1) / 2});
}

TEST(SyncOnReadVariableTest, OnlyItsOwnSynchronizationIsTaken) {
  MirroredStrategy strategy(on_cpus(2));
  EXPECT_THAT(thrown<ValueError>([&] {
                const SyncOnReadVariable v(strategy, scalar_of(1.0F, cpu(0)),
                                           {.synchronization = VariableSynchronization::ON_WRITE});
              }),
              HasSubstr("expected synchronization AUTO or ON_READ, got ON_WRITE"));
}

}  // namespace
}  // namespace crossdevice
