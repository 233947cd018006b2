// SPDX-License-Identifier: Apache-2.0
// Variables that stay equal: reading, assigning in every context, and what is refused.
#include "crossdevice/strategy/mirrored_variable.h"

#include <complex>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/replicas.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr VariableAggregation kAggregations[] = {
    VariableAggregation::NONE, VariableAggregation::SUM, VariableAggregation::MEAN,
    VariableAggregation::ONLY_FIRST_REPLICA};

class MirroredVariableOf : public ::testing::TestWithParam<std::size_t> {
 protected:
  std::size_t replicas = GetParam();
  MirroredStrategy strategy{on_cpus(replicas)};
  [[nodiscard]] float n() const { return static_cast<float>(replicas); }

  MirroredVariable make(VariableAggregation aggregation,
                        const std::vector<float>& initial = {0, 0}) {
    return {strategy, vector_of(initial, cpu(0)), {.name = "w", .aggregation = aggregation}};
  }
  static float id(const ReplicaContext& context) {
    return static_cast<float>(context.replica_id_in_sync_group());
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, MirroredVariableOf, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(MirroredVariableOf, ComponentsAreCopiesOfTheInitialValueOnEveryDevice) {
  const Tensor initial = vector_of<float>({3, 4}, cpu(0));
  const MirroredVariable variable(strategy, initial);
  expect_mirrored(variable.components(), cpus(replicas), {3, 4});
  expect_mirrored(variable.mirrored(), cpus(replicas), {3, 4});
  write_elements(initial, {99, 4});
  EXPECT_THAT(elements(variable.read()), ElementsAre(3.0F, 4.0F));
  EXPECT_EQ(variable.name(), "Variable");
  EXPECT_EQ(variable.dtype(), DType::FLOAT32);
  EXPECT_EQ(variable.shape(), Shape({2}));
  EXPECT_EQ(variable.synchronization(), VariableSynchronization::ON_WRITE);
}

TEST_P(MirroredVariableOf, ReadIsTheReplicasOwnComponentReadOnly) {
  const MirroredVariable variable = make(VariableAggregation::NONE, {1, 2});
  const std::vector<bool> right = strategy.run([&](ReplicaContext& context) {
    const Tensor read = variable.read();
    return read.device() == context.device() && read.is_read_only() &&
           read.data() == variable.components().on(context.device()).data();
  });
  EXPECT_THAT(right, Each(true));
  EXPECT_EQ(variable.read().device(), cpu(0));
}

TEST_P(MirroredVariableOf, OutsideReplicasEveryComponentGetsTheValue) {
  for (const VariableAggregation aggregation : kAggregations) {
    MirroredVariable variable = make(aggregation);
    variable.assign(vector_of<float>({5, 6}, cpu(9)));
    expect_mirrored(variable.components(), cpus(replicas), {5, 6});
    {
      const StrategyScope scope = strategy.scope();
      variable.assign_add(vector_of<float>({1, 2}, cpu(0)));
    }
    variable.assign_sub(vector_of<float>({3, 3}, cpu(0)));
    expect_mirrored(variable.components(), cpus(replicas), {3, 5});
    variable.assign_add(variable);
    expect_mirrored(variable.components(), cpus(replicas), {6, 10});
    variable.assign(strategy.extended().broadcast_to(vector_of<float>({7, 8}, cpu(0)), variable));
    expect_mirrored(variable.components(), cpus(replicas), {7, 8});
  }
}

TEST_P(MirroredVariableOf, InsideReplicasValuesAreCombinedFirst) {
  const float sum_of_ids = n() * (n() - 1) / 2;
  struct Rule {
    VariableAggregation aggregation;
    float combined;
  };
  for (const Rule& rule : {Rule{VariableAggregation::SUM, sum_of_ids},
                           Rule{VariableAggregation::MEAN, sum_of_ids / n()},
                           Rule{VariableAggregation::ONLY_FIRST_REPLICA, 0.0F}}) {
    MirroredVariable variable = make(rule.aggregation, {100, 100});
    const float c = rule.combined;
    const std::vector<float> seen = strategy.run([&](ReplicaContext& context) {
      const Tensor value = vector_of<float>({id(context), id(context) * 2}, context.device());
      variable.assign_add(value);
      variable.assign_sub(value);
      variable.assign_add(value);
      return elements(variable.read())[1];
    });
    EXPECT_THAT(seen, Each(100 + 2 * c));
    expect_mirrored(variable.components(), cpus(replicas), {100 + c, 100 + 2 * c});
    strategy.run([&](ReplicaContext& context) {
      variable.assign(vector_of<float>({id(context), 1}, context.device()));
    });
    const float one = rule.aggregation == VariableAggregation::SUM ? n() : 1.0F;
    expect_mirrored(variable.components(), cpus(replicas), {c, one});
  }
}

TEST_P(MirroredVariableOf, WithoutAnAggregationReplicasCannotAssign) {
  MirroredVariable variable = make(VariableAggregation::NONE, {1, 2});
  const auto assign = [&](ReplicaContext& context) {
    variable.assign(vector_of<float>({id(context), 0}, context.device()));
  };
  if (replicas == 1) {
    strategy.run(assign);
    EXPECT_THAT(elements(variable.read()), ElementsAre(0.0F, 0.0F));
    return;
  }
  EXPECT_THAT(
      thrown_in_replicas<ValueError>(strategy, assign),
      Each(HasSubstr("You must specify an aggregation to assign variable 'w' inside a replica")));
  expect_mirrored(variable.components(), cpus(replicas), {1, 2});
}

TEST_P(MirroredVariableOf, TheSameNumberOnEveryReplicaHasAMeanButNoSum) {
  MirroredVariable mean(strategy, scalar_of(1.0F, cpu(0)),
                        {.aggregation = VariableAggregation::MEAN});
  MirroredVariable sum(strategy, scalar_of(1.0F, cpu(0)),
                       {.name = "s", .aggregation = VariableAggregation::SUM});
  strategy.run([&](ReplicaContext&) { mean.assign_add(5); });
  expect_mirrored(mean.components(), cpus(replicas), {6});
  strategy.run([&](ReplicaContext&) { sum.assign(0.0); });  // nothing added up is nothing
  expect_mirrored(sum.components(), cpus(replicas), {0});
  const auto texts =
      thrown_in_replicas<ValueError>(strategy, [&](ReplicaContext&) { sum.assign(5); });
  if (replicas > 1) {
    EXPECT_THAT(
        texts,
        Each(HasSubstr(
            "assign to variable 's' with aggregation SUM: the number 5 is the same on all")));
    expect_mirrored(sum.components(), cpus(replicas), {0});
  } else {
    expect_mirrored(sum.components(), cpus(replicas), {5});
  }
  // Numbers that differ are values like any other.
  strategy.run([&](ReplicaContext& context) { sum.assign(id(context) + 1); });
  expect_mirrored(sum.components(), cpus(replicas), {n() * (n() + 1) / 2});
}

TEST_P(MirroredVariableOf, APerReplicaFitsInsideReplicasOnly) {
  MirroredVariable variable(strategy, scalar_of(0.0F, cpu(0)),
                            {.name = "w", .aggregation = VariableAggregation::SUM});
  std::vector<Tensor> components;
  for (std::size_t r = 0; r < replicas; ++r) components.push_back(scalar_of(2.0F, cpu(r)));
  const PerReplica two(components);
  strategy.run([&](ReplicaContext&) { variable.assign(two); });
  expect_mirrored(variable.components(), cpus(replicas), {2 * n()});
  if (replicas == 1) return;
  EXPECT_THAT(thrown<ValueError>([&] { variable.assign(two); }),
              HasSubstr("the components would differ"));
}

TEST_P(MirroredVariableOf, AValueReadFromTheVariableMeansWhatWasThereBefore) {
  MirroredVariable variable = make(VariableAggregation::NONE, {3, 4});
  variable.assign_add(variable.read());
  expect_mirrored(variable.components(), cpus(replicas), {6, 8});
  variable.assign_sub(variable.components().values()[replicas - 1]);
  expect_mirrored(variable.components(), cpus(replicas), {0, 0});
}

class TwoReplicas : public ::testing::Test {
 protected:
  MirroredStrategy strategy{on_cpus(2)};
};

TEST_F(TwoReplicas, WrongValuesAreRefusedAndNothingIsWritten) {
  MirroredVariable variable(strategy, vector_of<float>({1, 2}, cpu(0)));
  EXPECT_EQ(thrown<ValueError>([&] {
              variable.assign(vector_of<float>({1, 2, 3}, cpu(0)));
            }),
            "assigned value: expected float32 (2) on " + cpu(0).short_name() +
                ", got float32 (3) on " + cpu(0).short_name());
  EXPECT_THROW(variable.assign(vector_of<double>({1, 2}, cpu(0))), ValueError);
  EXPECT_THROW(variable.assign(1.0), ValueError);  // a scalar, and the variable is none
  EXPECT_THROW(variable.assign(Tensor()), ValueError);
  EXPECT_THROW(variable.assign(Mirrored(std::vector<Tensor>{vector_of<float>({1, 2}, cpu(0))})),
               ValueError);
  expect_mirrored(variable.components(), cpus(2), {1, 2});
}

TEST_F(TwoReplicas, NumbersAreConvertedExactlyOrRefused) {
  MirroredVariable integer(strategy, scalar_of<std::int8_t>(1, cpu(0)));
  integer.assign(-128);
  EXPECT_THAT(elements<std::int8_t>(integer.read()), ElementsAre(-128));
  integer.assign(5.0);
  EXPECT_THAT(elements<std::int8_t>(integer.read()), ElementsAre(5));
  for (const double bad : {1.5, 128.0, -129.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(integer.assign(bad), ValueError) << bad;
  }
  EXPECT_EQ(thrown<ValueError>([&] { integer.assign(128U); }), "128 has no exact form in int8");
  EXPECT_THAT(elements<std::int8_t>(integer.read()), ElementsAre(5));
  MirroredVariable large(strategy, scalar_of<std::uint64_t>(0, cpu(0)));
  large.assign(std::numeric_limits<std::uint64_t>::max());
  EXPECT_THAT(elements<std::uint64_t>(large.read()),
              ElementsAre(std::numeric_limits<std::uint64_t>::max()));
  EXPECT_THROW(large.assign(-1), ValueError);
  MirroredVariable half(strategy, scalar_of(float16(0.0F), cpu(0)));
  half.assign(0.1);
  EXPECT_EQ(elements<float16>(half.read())[0], float16(0.1F));
}

TEST_F(TwoReplicas, AddingAndSubtractingWorkForEveryDTypeThatHasASum) {
  const auto check = [&]<class T>(T a, T b, T sum, T difference) {
    MirroredVariable variable(strategy, scalar_of<T>(a, cpu(0)));
    variable.assign_add(scalar_of<T>(b, cpu(0)));
    EXPECT_EQ(elements<T>(variable.components().values()[1])[0], sum);
    variable.assign(scalar_of<T>(a, cpu(0)));
    variable.assign_sub(scalar_of<T>(b, cpu(0)));
    EXPECT_EQ(elements<T>(variable.components().values()[1])[0], difference);
  };
  check(std::int8_t{100}, std::int8_t{100}, std::int8_t{-56}, std::int8_t{0});  // wraps
  check(std::uint8_t{3}, std::uint8_t{5}, std::uint8_t{8}, std::uint8_t{254});
  check(std::int16_t{7}, std::int16_t{9}, std::int16_t{16}, std::int16_t{-2});
  check(std::uint16_t{7}, std::uint16_t{2}, std::uint16_t{9}, std::uint16_t{5});
  check(std::int32_t{7}, std::int32_t{9}, std::int32_t{16}, std::int32_t{-2});
  check(std::uint32_t{7}, std::uint32_t{2}, std::uint32_t{9}, std::uint32_t{5});
  check(std::int64_t{7}, std::int64_t{9}, std::int64_t{16}, std::int64_t{-2});
  check(std::uint64_t{7}, std::uint64_t{2}, std::uint64_t{9}, std::uint64_t{5});
  check(float16(2048.0F), float16(1.0F), float16(2048.0F), float16(2047.0F));  // rounded to even
  check(bfloat16(1.0F), bfloat16(2.0F), bfloat16(3.0F), bfloat16(-1.0F));
  check(float8_e4m3(1.0F), float8_e4m3(2.0F), float8_e4m3(3.0F), float8_e4m3(-1.0F));
  check(float8_e5m2(1.0F), float8_e5m2(2.0F), float8_e5m2(3.0F), float8_e5m2(-1.0F));
  check(1.5F, 2.0F, 3.5F, -0.5F);
  check(1.5, 2.0, 3.5, -0.5);
  using C = std::complex<double>;
  check(C(1, 2), C(3, 5), C(4, 7), C(-2, -3));
  const bool yes[] = {true};
  MirroredVariable flag(strategy, Tensor::copy_of(std::span(yes), {}, cpu(0)));
  flag.assign(0);
  EXPECT_FALSE(copy_to_device(flag.read(), "CPU:0").span<const bool>()[0]);
  EXPECT_THROW(flag.assign_add(1), ValueError);
}

TEST_F(TwoReplicas, LargeVariablesAreUpdatedToTheLastElement) {
  const std::size_t size = (std::size_t{1} << 18) * 2 + 13;
  MirroredVariable variable(strategy, vector_of(std::vector<float>(size, 1.0F), cpu(0)));
  std::vector<float> value(size);
  for (std::size_t i = 0; i < size; ++i) value[i] = static_cast<float>(i % 1000);
  variable.assign_sub(vector_of(value, cpu(0)));
  for (float& element : value) element = 1 - element;
  expect_mirrored(variable.components(), cpus(2), value);
}

TEST_F(TwoReplicas, DifferentVariablesInOneCallAreNamed) {
  MirroredVariable a(strategy, scalar_of(0.0F, cpu(0)),
                     {.name = "a", .aggregation = VariableAggregation::SUM});
  MirroredVariable b(strategy, scalar_of(0.0F, cpu(0)),
                     {.name = "b", .aggregation = VariableAggregation::SUM});
  const auto texts = thrown_in_replicas<ValueError>(strategy, [&](ReplicaContext& context) {
    MirroredVariable& mine = context.replica_id_in_sync_group() == 0 ? a : b;
    mine.assign_add(scalar_of(1.0F, context.device()));
  });
  EXPECT_THAT(
      texts,
      Each("the replicas made different calls: replica 0 called assign_add #1 (variable 'a'), "
           "replica 1 called assign_add #1 (variable 'b')"));
}

TEST_F(TwoReplicas, BadVariablesCannotBeMade) {
  const Tensor one = scalar_of(1.0F, cpu(0));
  EXPECT_THROW((void)strategy.make_variable(Tensor()), ValueError);
  EXPECT_THAT(thrown<ValueError>([&] {
                (void)strategy.make_variable(
                    one, {.name = "w", .synchronization = VariableSynchronization::NONE});
              }),
              HasSubstr("variable 'w': synchronization NONE is not possible"));
  EXPECT_THAT(thrown<ValueError>([&] {
                const MirroredVariable v(strategy, one,
                                         {.synchronization = VariableSynchronization::ON_READ});
              }),
              HasSubstr("expected synchronization AUTO or ON_WRITE, got ON_READ"));
  EXPECT_THROW((void)strategy.make_variable(scalar_of<std::int32_t>(1, cpu(0)),
                                            {.aggregation = VariableAggregation::MEAN}),
               ValueError);
}

TEST_F(TwoReplicas, MakeVariableGivesTheKindOfTheSynchronization) {
  const Tensor one = scalar_of(1.0F, cpu(0));
  using S = VariableSynchronization;
  EXPECT_EQ(strategy.make_variable(one)->synchronization(), S::ON_WRITE);
  EXPECT_EQ(strategy.make_variable(one, {.synchronization = S::ON_WRITE})->synchronization(),
            S::ON_WRITE);
  EXPECT_EQ(strategy.make_variable(one, {.synchronization = S::ON_READ})->synchronization(),
            S::ON_READ);
}

TEST_F(TwoReplicas, AnotherStrategysContextIsNoPlaceForAVariable) {
  MirroredStrategy other(on_cpus(2));
  MirroredVariable variable(strategy, scalar_of(1.0F, cpu(0)), {.name = "w"});
  const StrategyScope scope = other.scope();
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { variable.assign(2.0); }),
              HasSubstr("Mixing different strategies: variable 'w'"));
  EXPECT_THROW((void)variable.read(), FailedPreconditionError);
  EXPECT_THROW((void)strategy.make_variable(scalar_of(1.0F, cpu(0))), FailedPreconditionError);
}

TEST_F(TwoReplicas, CopiesAreTheSameVariable) {
  MirroredVariable variable(strategy, scalar_of(1.0F, cpu(0)));
  MirroredVariable copy = variable;
  copy.assign(4.0);
  EXPECT_THAT(elements(variable.read()), ElementsAre(4.0F));
}

TEST(MirroredVariableTest, TheDefaultStrategyHasVariablesToo) {
  MirroredVariable variable(get_strategy(), scalar_of(1.0F, cpu(0)));
  variable.assign_add(2.0);
  EXPECT_THAT(elements(variable.read()), ElementsAre(3.0F));
}

}  // namespace
}  // namespace crossdevice
