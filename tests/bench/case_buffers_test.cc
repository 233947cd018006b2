// SPDX-License-Identifier: Apache-2.0
/// Tests of collective/case_buffers.h: results made by hand are accepted, each kind of mistake is counted.
#include "collective/case_buffers.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace crossdevice::bench {
namespace {

Case make_case(Collective collective, std::vector<Shape> shapes) {
  Case test_case;
  test_case.collective = collective;
  test_case.devices = Devices{"CPU:0", "CPU:1", "CPU:2"};
  test_case.root = 1;
  test_case.shapes = std::move(shapes);
  return test_case;
}

/// Writes into every output what the operation must produce.
void compute(const Case& test_case, CaseBuffers& buffers, Placement placement) {
  for (std::size_t t = 0; t < test_case.shapes.size(); ++t) {
    std::vector<std::vector<float>> inputs;
    for (const Tensor& input : buffers.inputs()[t].values()) {
      const auto span = input.span<float>();
      inputs.emplace_back(span.begin(), span.end());
    }
    std::vector<float> result;
    if (test_case.collective == Collective::BROADCAST) {
      result = inputs[test_case.root];
    } else if (test_case.collective == Collective::GATHER) {
      for (const auto& input : inputs) result.insert(result.end(), input.begin(), input.end());
    } else {
      result = inputs[0];
      for (std::size_t i = 0; i < result.size(); ++i) result[i] += inputs[1][i] + inputs[2][i];
    }
    for (const Tensor& output : buffers.outputs(placement)[t].values()) {
      std::copy(result.begin(), result.end(), output.span<float>().begin());
    }
  }
}

class CaseBuffersTest : public testing::TestWithParam<Collective> {
 protected:
  [[nodiscard]] static std::vector<Shape> shapes() {
    if (GetParam() == Collective::BATCH_REDUCE)
      return {Shape{5, 7}, Shape{0}, Shape{}, Shape{2000}};
    return {Shape{1500}};
  }
};

TEST_P(CaseBuffersTest, RightResultsHaveNoWrongElements) {
  const Case test_case = make_case(GetParam(), shapes());
  OwnerThreads owners(3);
  CaseBuffers buffers(test_case, owners);
  for (const Placement placement : kBothPlacements) {
    if (placement == Placement::IN_PLACE && !test_case.can_run_in_place()) continue;
    buffers.rewrite_inputs();
    buffers.poison_outputs(placement);
    compute(test_case, buffers, placement);
    EXPECT_EQ(buffers.count_wrong(placement), 0U);
  }
}

TEST_P(CaseBuffersTest, AnOperationThatDoesNothingIsWrongInEveryOutput) {
  const Case test_case = make_case(GetParam(), shapes());
  OwnerThreads owners(3);
  CaseBuffers buffers(test_case, owners);
  buffers.rewrite_inputs();
  buffers.poison_outputs(Placement::OUT_OF_PLACE);
  std::size_t elements = 0;
  for (const PerReplica& output : buffers.outputs(Placement::OUT_OF_PLACE)) {
    for (const Tensor& tensor : output.values()) elements += tensor.num_elements();
  }
  EXPECT_EQ(buffers.count_wrong(Placement::OUT_OF_PLACE), elements);
}

TEST_P(CaseBuffersTest, WritesBehindAnOutputAndIntoAnInputAreFound) {
  const Case test_case = make_case(GetParam(), shapes());
  OwnerThreads owners(3);
  CaseBuffers buffers(test_case, owners);
  buffers.rewrite_inputs();
  buffers.poison_outputs(Placement::OUT_OF_PLACE);
  compute(test_case, buffers, Placement::OUT_OF_PLACE);
  const Tensor output = buffers.outputs(Placement::OUT_OF_PLACE)[0].values().back();
  static_cast<std::byte*>(output.data())[output.size_bytes()] = std::byte{0};
  EXPECT_EQ(buffers.count_wrong(Placement::OUT_OF_PLACE), 1U);
  buffers.inputs()[0].values()[2].span<float>()[3] += 1;
  EXPECT_EQ(buffers.count_wrong(Placement::OUT_OF_PLACE), 2U);
}

TEST(CaseBuffersOfWorkersTest, EveryWorkerHasItsOwnShareOfThePattern) {
  Case whole = make_case(Collective::ALL_REDUCE, {Shape{1500}});
  whole.devices = Devices{"CPU:0", "CPU:1", "CPU:2", "CPU:3"};
  OwnerThreads owners(4);
  CaseBuffers all(whole, owners);
  all.rewrite_inputs();
  for (const MemoryKind memory : {MemoryKind::POOL, MemoryKind::FOREIGN}) {
    for (std::size_t worker = 0; worker < 2; ++worker) {
      Case share = whole;
      share.devices = Devices{"CPU:0", "CPU:1"};
      share.num_workers = 2;
      share.worker = worker;
      share.memory = memory;
      EXPECT_EQ(share.num_replicas(), 4U);
      OwnerThreads two(2);
      CaseBuffers buffers(share, two);
      buffers.rewrite_inputs();
      buffers.poison_outputs(Placement::OUT_OF_PLACE);
      std::vector<float> sum(1500);
      for (std::size_t r = 0; r < 4; ++r) {
        const auto input = all.inputs()[0].values()[r].span<float>();
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += input[i];
      }
      for (std::size_t r = 0; r < 2; ++r) {
        const auto mine = buffers.inputs()[0].values()[r].span<float>();
        const auto expected = all.inputs()[0].values()[2 * worker + r].span<float>();
        EXPECT_TRUE(std::equal(mine.begin(), mine.end(), expected.begin()));
        const auto output = buffers.outputs(Placement::OUT_OF_PLACE)[0].values()[r].span<float>();
        std::copy(sum.begin(), sum.end(), output.begin());
      }
      EXPECT_EQ(buffers.count_wrong(Placement::OUT_OF_PLACE), 0U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllCollectives, CaseBuffersTest, testing::ValuesIn(kAllCollectives),
                         [](const auto& parameter) {
                           return std::string(to_string(parameter.param));
                         });

TEST(CaseTest, SizesAreThoseOfTheTable) {
  EXPECT_EQ(make_case(Collective::ALL_REDUCE, {Shape{100}}).size_bytes(), 400U);
  EXPECT_EQ(make_case(Collective::BATCH_REDUCE, {Shape{100}, Shape{2, 3}}).size_bytes(), 424U);
  EXPECT_EQ(make_case(Collective::GATHER, {Shape{100}}).size_bytes(), 1200U);
  EXPECT_EQ(make_case(Collective::GATHER, {Shape{100}}).memory_bytes(), 2400U);
  EXPECT_EQ(make_case(Collective::REDUCE, {Shape{100}}).memory_bytes(), 2400U);
}

TEST(CaseTest, AMeanOfIntegersIsNotInPlace) {
  Case test_case = make_case(Collective::ALL_REDUCE, {Shape{100}});
  test_case.dtype = DType::INT16;
  test_case.op = ReduceOp::MEAN;
  EXPECT_FALSE(test_case.can_run_in_place());
  EXPECT_EQ(test_case.size_bytes(), 200U);
  EXPECT_EQ(test_case.output_bytes(), 400U);
  test_case.op = ReduceOp::SUM;
  EXPECT_TRUE(test_case.can_run_in_place());
}

}  // namespace
}  // namespace crossdevice::bench
