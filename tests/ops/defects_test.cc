// SPDX-License-Identifier: Apache-2.0
// TensorFlow's known defects (section 9 of the semantics), each with the better behaviour. The number in a name is the defect's.
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/values.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Defects, D1_HierarchicalCopyTakesOddNumbersOfDevices) {
  HierarchicalCopyAllReduce ops(1);
  for (const std::size_t n : {1u, 3u, 5u, 7u}) {
    std::vector<std::vector<float>> components;
    float sum = 0;
    for (std::size_t d = 0; d < n; ++d) {
      components.push_back({static_cast<float>(1 << d)});
      sum += components.back()[0];
    }
    const PerReplica value = per_replica(components);
    expect_mirrored(ops.reduce(ReduceOp::SUM, value, value), cpus(n), {sum});
    expect_mirrored(ops.reduce(ReduceOp::MEAN, value, value), cpus(n),
                    {sum / static_cast<float>(n)});
  }
}

TEST(Defects, D5_ValuesOfOneBatchMayNameTheirDevicesInDifferentOrders) {
  HierarchicalCopyAllReduce ops(1);
  const PerReplica forwards{vector_of<float>({1}, cpu(0)), vector_of<float>({2}, cpu(1))};
  const PerReplica backwards{vector_of<float>({3}, cpu(1)), vector_of<float>({4}, cpu(0))};
  const auto sums = ops.batch_reduce(ReduceOp::SUM, {{forwards, forwards}, {backwards, backwards}});
  expect_mirrored(sums[0], cpus(2), {3});
  expect_mirrored(sums[1], Devices({cpu(1), cpu(0)}), {7});
}

TEST(Defects, D7_AnEmptyBatchIsAnEmptyResult) {
  ReductionToOneDevice to_one;
  HierarchicalCopyAllReduce hierarchical(1);
  EXPECT_TRUE(to_one.batch_reduce(ReduceOp::SUM, {}).empty());
  EXPECT_TRUE(hierarchical.batch_reduce(ReduceOp::SUM, {}).empty());
  to_one.batch_reduce_into(ReduceOp::SUM, std::span<const PerReplica>());
}

TEST(Defects, D8_ResultsNeverShareMemoryWithValues) {
  HierarchicalCopyAllReduce ops(1);
  const PerReplica value = per_replica({{5.0f}});
  const auto batch = ops.batch_reduce(ReduceOp::SUM, {{value, value}});
  const Mirrored single = ops.reduce(ReduceOp::SUM, value, value);
  EXPECT_NE(batch[0].tensor().data(), value.values()[0].data());
  EXPECT_NE(single.tensor().data(), value.values()[0].data());
  expect_mirrored(batch[0], cpus(1), {5});
}

TEST(Defects, D9_MeanOfIntegersPromotesForOneReplicaToo) {
  ReductionToOneDevice ops;
  for (const std::size_t n : {1u, 2u}) {
    const PerReplica wide =
        per_replica(std::vector<std::vector<std::int32_t>>(n, std::vector<std::int32_t>{7}));
    const Mirrored mean = ops.reduce(ReduceOp::MEAN, wide, wide);
    EXPECT_EQ(mean.dtype(), DType::FLOAT64);
    EXPECT_EQ(elements<double>(mean.values()[0]), std::vector<double>{7.0});
    const PerReplica narrow =
        per_replica(std::vector<std::vector<std::int8_t>>(n, std::vector<std::int8_t>{100}));
    const Mirrored small = ops.reduce(ReduceOp::MEAN, narrow, narrow);
    EXPECT_EQ(small.dtype(), DType::FLOAT32);
    EXPECT_EQ(elements(small.values()[0]), std::vector<float>{100.0f}) << "the sum must not wrap";
  }
}

TEST(Defects, D10_AnOpThatIsNoneIsRefusedByEveryone) {
  const PerReplica value = per_replica({{1.0f}});
  const auto none = static_cast<ReduceOp>(99);
  ReductionToOneDevice to_one;
  NcclAllReduce nccl(1);
  EXPECT_THROW((void)to_one.reduce(none, value, value), ValueError);
  EXPECT_THROW((void)nccl.reduce(none, value, value), ValueError);
  EXPECT_THROW((void)nccl.batch_reduce(none, {{value, value}}), ValueError);
}

TEST(Defects, D12_BatchesMixDTypesWhateverThePacking) {
  const PerReplica floats = per_replica({{1.0f, 2.0f}, {3.0f, 4.0f}});
  const PerReplica complexes = per_replica<std::complex<float>>({{{1, 2}}, {{3, -4}}});
  const PerReplica halves = per_replica<float16>({{float16(0.5f)}, {float16(0.25f)}});
  for (const int packs : {0, 1, 3}) {
    for (const int bytes : {0, 1, 100}) {
      NcclAllReduce ops(packs);
      const auto sums = ops.batch_reduce(
          ReduceOp::SUM, {{floats, floats}, {complexes, complexes}, {halves, halves}},
          {.bytes_per_pack = bytes});
      expect_mirrored(sums[0], cpus(2), {4, 6});
      EXPECT_EQ(elements<std::complex<float>>(sums[1].values()[1])[0], std::complex<float>(4, -2));
      EXPECT_EQ(static_cast<float>(elements<float16>(sums[2].values()[0])[0]), 0.75f);
    }
  }
}

TEST(Defects, D15_SparseShapesThatDisagreeAreRefusedAndMixedComponentsBecomeDense) {
  ReductionToOneDevice ops;
  const IndexedSlices five = slices_of({1, 2}, {0, 4}, {5, 1}, cpu(0));
  const IndexedSlices six = slices_of({3}, {5}, {6, 1}, cpu(1));
  EXPECT_THAT(
      [&] {
        (void)ops.reduce(ReduceOp::SUM, PerReplica{five, six}, "CPU:0");
      },
      ThrowsMessage<ValueError>(HasSubstr("replica 1 has (6, 1)")));
  const PerReplica mixed{five, tensor_of<float>({1, 1, 1, 1, 1}, {5, 1}, cpu(1))};
  const Mirrored sum = ops.reduce(ReduceOp::SUM, mixed, mixed);
  expect_mirrored(sum, cpus(2), {2, 1, 1, 1, 3});
  const IndexedSlices unknown = slices_of({1}, {0}, std::nullopt, cpu(0));
  EXPECT_THROW((PerReplica{unknown, vector_of<float>({1}, cpu(1))}), ValueError);
}

TEST(Defects, D26_EveryOpHonoursTheDeadline) {
  const PerReplica value = per_replica({{1.0f}, {2.0f}});
  const CommunicationOptions at_once{.timeout_seconds = 1e-9};
  ReductionToOneDevice to_one;
  HierarchicalCopyAllReduce hierarchical(1);
  NcclAllReduce nccl(1);
  for (CrossDeviceOps* ops :
       std::initializer_list<CrossDeviceOps*>{&to_one, &hierarchical, &nccl}) {
    try {
      ops->reduce_into(ReduceOp::SUM, value, value, at_once);
      FAIL() << "no deadline";
    } catch (const DeadlineExceededError& error) {
      EXPECT_THAT(error.what(), HasSubstr("reduce #1 (1 value, 4 bytes) timed out after 1e-09 s"));
      EXPECT_TRUE(error.inputs_intact());
      EXPECT_EQ(error.operation().sequence, 1u);
    }
    EXPECT_THROW((void)ops->gather(value, value, 0, at_once), DeadlineExceededError);
    EXPECT_THROW((void)ops->batch_reduce(ReduceOp::SUM, {{value, value}}, at_once),
                 DeadlineExceededError);
    PendingBatch pending = ops->reduce_into_async(ReduceOp::SUM, value, value, at_once);
    EXPECT_THROW(pending.wait(), DeadlineExceededError);
  }
  EXPECT_EQ(elements(value.values()[0]), std::vector<float>{1.0f});
}

TEST(Defects, D31_ATimeoutEndsItsOwnCallAndNoOther) {
  const PerReplica value = per_replica({{1.0f}, {2.0f}});
  ReductionToOneDevice ops;
  EXPECT_THROW((void)ops.reduce(ReduceOp::SUM, value, value, {.timeout_seconds = 1e-9}),
               DeadlineExceededError);
  expect_mirrored(ops.reduce(ReduceOp::SUM, value, value, {.timeout_seconds = 60}), cpus(2), {3});
  expect_mirrored(ops.reduce(ReduceOp::SUM, value, value, {.timeout_seconds = 0}), cpus(2), {3});
}

TEST(Defects, D42_ComponentsFollowTheDestinationsOrder) {
  HierarchicalCopyAllReduce ops(1);
  const PerReplica value = per_replica({{1.0f}, {2.0f}});
  const Devices backwards({cpu(1), cpu(0)});
  EXPECT_EQ(ops.reduce(ReduceOp::SUM, value, backwards).devices(), backwards);
  EXPECT_EQ(ops.batch_reduce(ReduceOp::SUM, {{value, backwards}})[0].devices(), backwards);
}

TEST(Defects, D43_TheReduceToDeviceIsChecked) {
  EXPECT_THROW(ReductionToOneDevice({.reduce_to_device = "GPU:9"}), ValueError);
  EXPECT_THROW(ReductionToOneDevice({.reduce_to_device = "rubbish"}), ValueError);
}

TEST(Defects, D44_AnEmptyDeviceStringIsRefused) {
  EXPECT_THROW(Device(""), ValueError);
  EXPECT_THROW(Device("/"), ValueError);
  EXPECT_THROW(Device("CPU:-1"), ValueError);
}

TEST(Defects, D50_DeterministicBitsDoNotDependOnTheOpOrItsPacking) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<std::vector<float>> components(5, std::vector<float>(777));
  for (auto& component : components) {
    for (float& x : component) x = uniform(random);
  }
  const PerReplica value = per_replica(components);
  ReductionToOneDevice to_one;
  const std::vector<float> expected =
      elements(to_one.reduce(ReduceOp::SUM, value, "CPU:0").tensor());
  for (const int packs : {0, 1, 4}) {
    HierarchicalCopyAllReduce hierarchical(packs);
    NcclAllReduce nccl(packs);
    for (CrossDeviceOps* ops : std::initializer_list<CrossDeviceOps*>{&hierarchical, &nccl}) {
      const auto sums = ops->batch_reduce(ReduceOp::SUM, {{value, value}, {value, value}},
                                          {.bytes_per_pack = 64 * packs, .deterministic = true});
      for (const Mirrored& sum : sums) expect_mirrored(sum, cpus(5), expected);
    }
  }
}

}  // namespace
}  // namespace crossdevice
