// SPDX-License-Identifier: Apache-2.0
// Strategy::reduce and gather: one tensor out of all replicas', along axes too, against the obvious loops.
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/strategy/axes.h"
#include "crossdevice/strategy/reduce_op_argument.h"

#include "support/replicas.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReduceOpArgumentTest, NamesAreTakenInAnyCase) {
  EXPECT_EQ(ReduceOpArgument("sum").op(), ReduceOp::SUM);
  EXPECT_EQ(ReduceOpArgument(std::string("MEAN")).op(), ReduceOp::MEAN);
  EXPECT_EQ(ReduceOpArgument(std::string_view("mAx")).op(), ReduceOp::MAX);
  EXPECT_EQ(ReduceOpArgument(ReduceOp::PROD).op(), ReduceOp::PROD);
  EXPECT_THROW(ReduceOpArgument("average"), ValueError);
}

TEST(AxesTest, NoneOneAndSeveralAreDistinguished) {
  EXPECT_FALSE(Axes(std::nullopt).has_value());
  EXPECT_FALSE(Axes(std::optional<int>()).has_value());
  EXPECT_THAT(Axes(std::optional<int>(3)).view(), ElementsAre(3));
  EXPECT_THAT(Axes(-1).view(), ElementsAre(-1));
  EXPECT_THAT(Axes({0, 2}).view(), ElementsAre(0, 2));
  EXPECT_TRUE(Axes(std::vector<int>()).has_value());
}

/// Replica r holds a (r + 1, 2, 3) block of consecutive numbers.
PerReplica ragged(std::size_t replicas) {
  std::vector<Tensor> components;
  float next = 1;
  for (std::size_t r = 0; r < replicas; ++r) {
    std::vector<float> block((r + 1) * 6);
    for (float& element : block) element = next++;
    components.push_back(tensor_of<float>(block, {r + 1, 2, 3}, cpu(r)));
  }
  return PerReplica(components);
}

class ReduceOf : public ::testing::TestWithParam<std::size_t> {
 protected:
  std::size_t replicas = GetParam();
  MirroredStrategy strategy{on_cpus(replicas)};
};
INSTANTIATE_TEST_SUITE_P(Replicas, ReduceOf, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(ReduceOf, WithoutAxesReplicasAreCombinedElementByElement) {
  std::vector<std::vector<float>> parts;
  float sum = 0;
  for (std::size_t r = 0; r < replicas; ++r) {
    parts.push_back({static_cast<float>(r), 1.0F});
    sum += static_cast<float>(r);
  }
  const PerReplica value = per_replica(parts);
  const auto n = static_cast<float>(replicas);
  const Tensor total = strategy.reduce(ReduceOp::SUM, value, std::nullopt);
  EXPECT_EQ(total.device(), Device("CPU:0"));
  EXPECT_THAT(elements(total), ElementsAre(sum, n));
  EXPECT_THAT(elements(strategy.reduce("mean", value, std::nullopt)), ElementsAre(sum / n, 1.0F));
  EXPECT_THAT(elements(strategy.reduce("MIN", value, std::nullopt)), ElementsAre(0.0F, 1.0F));
  EXPECT_THAT(elements(strategy.reduce("MAX", value, std::nullopt)), ElementsAre(n - 1, 1.0F));
}

TEST_P(ReduceOf, MeanAlongAnAxisIsWeightedByHowMuchEachReplicaHolds) {
  const PerReplica value = ragged(replicas);
  std::vector<double> sums(6, 0.0);
  double rows = 0;
  for (const Tensor& component : value.values()) {
    const std::vector<float> block = elements(component);
    for (std::size_t i = 0; i < block.size(); ++i) sums[i % 6] += static_cast<double>(block[i]);
    rows += static_cast<double>(component.shape()[0]);
  }
  const Tensor total = strategy.reduce(ReduceOp::SUM, value, 0);
  EXPECT_EQ(total.shape(), Shape({2, 3}));
  const Tensor mean = strategy.reduce(ReduceOp::MEAN, value, -3);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(elements(total)[i], static_cast<float>(sums[i]));
    EXPECT_EQ(elements(mean)[i], static_cast<float>(sums[i] / rows));
  }
}

TEST_P(ReduceOf, SeveralAxesInAnyOrderGiveWhatIsLeft) {
  const PerReplica value = ragged(replicas);
  std::vector<double> sums(2, 0.0);
  double all = 0;
  double count = 0;
  float largest = 0;
  for (const Tensor& component : value.values()) {
    const std::vector<float> block = elements(component);
    for (std::size_t i = 0; i < block.size(); ++i) {
      sums[(i / 3) % 2] += static_cast<double>(block[i]);
      all += static_cast<double>(block[i]);
      largest = std::max(largest, block[i]);
    }
    count += static_cast<double>(block.size());
  }
  const Tensor two = strategy.reduce("SUM", value, {2, 0});
  EXPECT_EQ(two.shape(), Shape({2}));
  EXPECT_THAT(elements(two), ElementsAre(static_cast<float>(sums[0]), static_cast<float>(sums[1])));
  const Tensor scalar = strategy.reduce("MEAN", value, {0, 1, 2});
  EXPECT_EQ(scalar.shape(), Shape());
  EXPECT_THAT(elements(scalar), ElementsAre(static_cast<float>(all / count)));
  EXPECT_THAT(elements(strategy.reduce("MAX", value, {0, 1, 2})), ElementsAre(largest));
  EXPECT_THAT(elements(strategy.reduce("MIN", value, {0, 1, 2})), ElementsAre(1.0F));
}

TEST_P(ReduceOf, GatherConcatenatesInReplicaOrder) {
  const Tensor all = strategy.gather(ragged(replicas), 0);
  std::vector<float> expected(static_cast<std::size_t>(all.num_elements()));
  std::iota(expected.begin(), expected.end(), 1.0F);
  EXPECT_EQ(all.shape(), Shape({replicas * (replicas + 1) / 2, 2, 3}));
  EXPECT_EQ(elements(all), expected);
  EXPECT_EQ(all.device(), Device("CPU:0"));
}

class ReduceTwo : public ::testing::Test {
 protected:
  MirroredStrategy strategy{on_cpus(2)};

  template <class T>
  static PerReplica two(const std::vector<T>& a, const std::vector<T>& b) {
    return per_replica<T>({a, b});
  }
};

TEST_F(ReduceTwo, IntegerMeansPromoteAsTheyDoWithoutAxes) {
  const PerReplica narrow = two<std::int16_t>({1, 2}, {4});
  const PerReplica wide = two<std::int32_t>({1, 2}, {4});
  const Tensor of_narrow = strategy.reduce("MEAN", narrow, 0);
  EXPECT_EQ(of_narrow.dtype(), DType::FLOAT32);
  EXPECT_THAT(elements(of_narrow), ElementsAre(7.0F / 3.0F));
  const Tensor of_wide = strategy.reduce("MEAN", wide, 0);
  EXPECT_EQ(of_wide.dtype(), DType::FLOAT64);
  EXPECT_THAT(elements<double>(of_wide), ElementsAre(7.0 / 3.0));
}

TEST_F(ReduceTwo, IntegerSumsWrapLikeTheirType) {
  const Tensor sum = strategy.reduce("SUM", two<std::uint8_t>({200, 100}, {10}), 0);
  EXPECT_EQ(sum.dtype(), DType::UINT8);
  EXPECT_THAT(elements<std::uint8_t>(sum), ElementsAre(310 - 256));
  const Tensor product = strategy.reduce("PROD", two<std::int8_t>({3, -2}, {5}), 0);
  EXPECT_THAT(elements<std::int8_t>(product), ElementsAre(-30));
}

TEST_F(ReduceTwo, SmallFloatsAreRoundedOnce) {
  // 2048 + 1 + 1 in float16 steps is 2048 when rounded after each addition.
  const std::vector<float16> a{float16(2048.0F), float16(1.0F)};
  const Tensor sum = strategy.reduce("SUM", two<float16>(a, {float16(1.0F)}), 0);
  EXPECT_EQ(sum.dtype(), DType::FLOAT16);
  EXPECT_EQ(static_cast<float>(elements<float16>(sum)[0]), 2050.0F);
}

TEST_F(ReduceTwo, ComplexNumbersAndBoolsHaveTheirOps) {
  using C = std::complex<float>;
  const PerReplica complex = two<C>({C(1, 1), C(2, 0)}, {C(0, 3)});
  EXPECT_THAT(elements<C>(strategy.reduce("MEAN", complex, 0)), ElementsAre(C(1, 4.0F / 3.0F)));
  EXPECT_THAT(elements<C>(strategy.reduce("PROD", complex, 0)), ElementsAre(C(-6, 6)));
  EXPECT_THROW((void)strategy.reduce("MAX", complex, 0), ValueError);
  const bool yes[] = {true, true};
  const bool no[] = {false, true};
  const PerReplica bools{Tensor::copy_of(std::span(yes), {2}, cpu(0)),
                         Tensor::copy_of(std::span(no), {2}, cpu(1))};
  EXPECT_FALSE(strategy.reduce("MIN", bools, 0).span<const bool>()[0]);
  EXPECT_TRUE(strategy.reduce("MAX", bools, 0).span<const bool>()[0]);
  EXPECT_THROW((void)strategy.reduce("SUM", bools, 0), ValueError);
}

TEST_F(ReduceTwo, NotANumberPropagates) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* op : {"SUM", "MEAN", "MIN", "MAX", "PROD"}) {
    EXPECT_TRUE(std::isnan(elements(strategy.reduce(op, two<float>({1, nan}, {2}), 0))[0])) << op;
  }
}

TEST_F(ReduceTwo, NothingToCombineIsZeroOneOrAnError) {
  const PerReplica none = two<float>({}, {});
  EXPECT_THAT(elements(strategy.reduce("SUM", none, 0)), ElementsAre(0.0F));
  EXPECT_THAT(elements(strategy.reduce("PROD", none, 0)), ElementsAre(1.0F));
  EXPECT_TRUE(std::isnan(elements(strategy.reduce("MEAN", none, 0))[0]));
  EXPECT_THAT(thrown<ValueError>([&] { (void)strategy.reduce("MIN", none, 0); }),
              HasSubstr("MIN over no elements (shape (0))"));
  // One replica without elements adds nothing to the sum and nothing to the weight.
  EXPECT_THAT(elements(strategy.reduce("MEAN", two<float>({}, {2, 4}), 0)), ElementsAre(3.0F));
}

TEST_F(ReduceTwo, BadAxesAreRefused) {
  const PerReplica value = two<float>({1, 2}, {3, 4});
  EXPECT_THAT(thrown<ValueError>([&] { (void)strategy.reduce("SUM", value, 1); }),
              HasSubstr("axis 1 is out of range for shape (2)"));
  EXPECT_THAT(thrown<ValueError>([&] { (void)strategy.reduce("SUM", value, -2); }),
              HasSubstr("axis -2 is out of range"));
  EXPECT_THAT(thrown<ValueError>([&] {
                (void)strategy.reduce("SUM", value, {0, -1});
              }),
              HasSubstr("axis 0 is named twice"));
  // Along no axis at all nothing is reduced inside a replica.
  EXPECT_THAT(elements(strategy.reduce("MEAN", value, std::vector<int>())),
              ElementsAre(2.0F, 3.0F));
}

TEST_F(ReduceTwo, TheNumberOfComponentsMustBeThatOfTheReplicas) {
  const PerReplica three = per_replica<float>({{1}, {2}, {3}});
  EXPECT_THAT(thrown<ValueError>([&] { (void)strategy.reduce("SUM", three, std::nullopt); }),
              HasSubstr("expected one component per replica (2), got 3 components of float32 (1)"));
  EXPECT_THROW((void)strategy.gather(three, 0), ValueError);
}

TEST_F(ReduceTwo, DTypesThatDifferAreRefusedWithAxesToo) {
  const PerReplica mixed{vector_of<float>({1, 2}, cpu(0)), vector_of<double>({3, 4}, cpu(1))};
  EXPECT_THROW((void)strategy.reduce("SUM", mixed, std::nullopt), ValueError);
  EXPECT_EQ(thrown<ValueError>([&] { (void)strategy.reduce("SUM", mixed, 0); }),
            "reduce: values differ: replica 0 float32, replica 1 float64");
}

TEST_F(ReduceTwo, ValuesThatAreEqualEverywhereHaveAMeanButNoSum) {
  const Tensor five = vector_of<float>({5}, cpu(0));
  const Mirrored mirrored = strategy.extended().broadcast_to(five, cpus(2));
  EXPECT_THAT(elements(strategy.reduce("MEAN", five, std::nullopt)), ElementsAre(5.0F));
  EXPECT_THAT(elements(strategy.reduce("MEAN", mirrored, 0)), ElementsAre(5.0F));
  EXPECT_THAT(elements(strategy.reduce("MAX", mirrored, std::nullopt)), ElementsAre(5.0F));
  EXPECT_THAT(thrown<ValueError>([&] { (void)strategy.reduce("SUM", five, std::nullopt); }),
              HasSubstr("the same on all 2 replicas cannot be reduced with SUM: use MEAN"));
  EXPECT_THROW((void)strategy.reduce("SUM", mirrored, std::nullopt), ValueError);
  EXPECT_THROW((void)strategy.reduce("PROD", mirrored, 0), ValueError);
  const Tensor zero = vector_of<float>({0, 0}, cpu(0));
  EXPECT_THAT(elements(strategy.reduce("SUM", zero, std::nullopt)), ElementsAre(0.0F, 0.0F));
}

TEST_F(ReduceTwo, SparseValuesBecomeDenseAndHaveNoAxes) {
  const PerReplica sparse{slices_of({1}, {0}, {3, 1}, cpu(0)), slices_of({5}, {2}, {3, 1}, cpu(1))};
  EXPECT_THAT(elements(strategy.reduce("SUM", sparse, std::nullopt)),
              ElementsAre(1.0F, 0.0F, 5.0F));
  EXPECT_THROW((void)strategy.reduce("SUM", sparse, 0), ValueError);
  EXPECT_THROW((void)strategy.gather(sparse, 0), UnimplementedError);
}

TEST_F(ReduceTwo, ANestIsReducedLeafByLeaf) {
  const PerReplica a = two<float>({1}, {2});
  const PerReplica b = two<float>({10}, {20});
  const auto [sum, rest] = strategy.reduce("SUM", std::pair(a, std::vector{b, a}), std::nullopt);
  EXPECT_THAT(elements(sum), ElementsAre(3.0F));
  EXPECT_THAT(elements(rest[0]), ElementsAre(30.0F));
  EXPECT_THAT(elements(rest[1]), ElementsAre(3.0F));
}

}  // namespace
}  // namespace crossdevice
