// SPDX-License-Identifier: Apache-2.0
/// Tests of collective/limit.h: a limit must do the work that it claims to time.
#include "collective/limit.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "collective/limit_kernels.h"

namespace crossdevice::bench {
namespace {

class LimitKernelsTest : public ::testing::TestWithParam<Walk> {};
class LimitTest : public ::testing::TestWithParam<Walk> {};

TEST_P(LimitKernelsTest, ScaleMultipliesEveryElementAndNothingElse) {
  for (const std::size_t count : {0U, 1U, 7U, 8U, 63U, 64U, 1021U}) {
    std::vector<float> data(count + 1);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i + 1);
    scale_floats(data.data(), count, 0.5F, GetParam());
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(data[i], static_cast<float>(i + 1) / 2);
    EXPECT_EQ(data[count], static_cast<float>(count + 1));
  }
}

TEST_P(LimitKernelsTest, CopyCopiesEveryByteAtEveryAlignment) {
  for (const std::size_t offset : {0U, 1U, 16U, 63U}) {
    for (const std::size_t size : {0U, 1U, 63U, 64U, 65U, 128U, 1000U, 4096U}) {
      std::vector<unsigned char> source(size + 64);
      std::vector<unsigned char> target(size + 129, 0xA5);
      for (std::size_t i = 0; i < source.size(); ++i)
        source[i] = static_cast<unsigned char>(i * 31 + 7);
      copy_non_temporal(target.data() + offset, source.data() + 1, size, GetParam());
      for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(target[offset + i], source[1 + i]);
      for (std::size_t i = 0; i < offset; ++i) ASSERT_EQ(target[i], 0xA5);
      ASSERT_EQ(target[offset + size], 0xA5);
    }
  }
}

Case make_case(Collective collective, std::vector<Shape> shapes) {
  Case test_case;
  test_case.collective = collective;
  test_case.devices = Devices{"CPU:0", "CPU:1", "CPU:2"};
  test_case.shapes = std::move(shapes);
  return test_case;
}

TEST_P(LimitTest, TheScaleTouchesEveryInput) {
  const Case test_case = make_case(Collective::BATCH_REDUCE, {Shape{300000}, Shape{0}, Shape{7}});
  OwnerThreads owners(3);
  const CaseBuffers buffers(test_case, owners);
  const Limit limit(test_case, buffers, Placement::IN_PLACE, LimitThreads::CALLER);
  EXPECT_EQ(limit.traffic_bytes(), 2 * 3 * 300007 * sizeof(float));
  limit.prepare(owners);
  limit.run(GetParam());
  for (const PerReplica& input : buffers.inputs()) {
    for (const Tensor& tensor : input.values()) {
      for (const float element : tensor.span<float>()) ASSERT_EQ(element, 0.5F);
    }
  }
}

TEST_P(LimitTest, TheCopyFillsEveryOutputOfAnAllReduce) {
  const Case test_case = make_case(Collective::BATCH_REDUCE, {Shape{300000}, Shape{7}});
  OwnerThreads owners(3);
  CaseBuffers buffers(test_case, owners);
  const Limit limit(test_case, buffers, Placement::OUT_OF_PLACE);
  EXPECT_EQ(limit.traffic_bytes(), 2 * 3 * 300007 * sizeof(float));
  buffers.poison_outputs(Placement::OUT_OF_PLACE);
  limit.prepare(owners);
  limit.run(GetParam());
  for (const PerReplica& output : buffers.outputs(Placement::OUT_OF_PLACE)) {
    for (const Tensor& tensor : output.values()) {
      for (const float element : tensor.span<float>()) ASSERT_EQ(element, 1.0F);
    }
  }
}

TEST_P(LimitTest, WhereOnlyTheRootHasOutputsTheCopyStillMovesAllInputs) {
  const Case reduce = make_case(Collective::REDUCE, {Shape{1000}});
  const Case gather = make_case(Collective::GATHER, {Shape{1000}});
  OwnerThreads owners(3);
  for (const Case& test_case : {reduce, gather}) {
    const CaseBuffers buffers(test_case, owners);
    const Limit limit(test_case, buffers, Placement::OUT_OF_PLACE);
    EXPECT_EQ(limit.traffic_bytes(), 2 * 3 * 1000 * sizeof(float));
    limit.prepare(owners);
    limit.run(GetParam());
    for (const float element :
         buffers.outputs(Placement::OUT_OF_PLACE)[0].values()[0].span<float>()) {
      ASSERT_EQ(element, 1.0F);
    }
  }
}

TEST_P(LimitTest, EmptyBuffersAreNoWork) {
  const Case test_case = make_case(Collective::ALL_REDUCE, {Shape{0}});
  OwnerThreads owners(3);
  const CaseBuffers buffers(test_case, owners);
  const Limit limit(test_case, buffers, Placement::IN_PLACE);
  limit.prepare(owners);
  limit.run(GetParam());
  EXPECT_EQ(limit.traffic_bytes(), 0U);
}

constexpr Walk kWalks[] = {Walk::ONE_STREAM, Walk::FOUR_STREAMS};
INSTANTIATE_TEST_SUITE_P(EachWalk, LimitKernelsTest, ::testing::ValuesIn(kWalks));
INSTANTIATE_TEST_SUITE_P(EachWalk, LimitTest, ::testing::ValuesIn(kWalks));

}  // namespace
}  // namespace crossdevice::bench
