// SPDX-License-Identifier: Apache-2.0
// TensorFlow's own tests of the helpers beside the ops (catalogue 8.4 and 8.7): sparse sums, options, regroup. Names are the catalogue's ids.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/communication_options.h"
#include "crossdevice/ops/reduction_to_one_device.h"
#include "crossdevice/ops/regroup.h"

#include "support/values.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;

const std::vector<float> kT0{1, 2, 0, 0, 3, 4};
const std::vector<float> kT1{0, 0, 5, 6, 7, 8};

TEST(HelpersConformance, U1_AggregateTensors) {
  const PerReplica value{tensor_of(kT0, {3, 2}, "CPU:0"), tensor_of(kT1, {3, 2}, "CPU:1")};
  ReductionToOneDevice ops;
  EXPECT_EQ(elements(ops.reduce(ReduceOp::SUM, value, "CPU:0").tensor()),
            (std::vector<float>{1, 2, 5, 6, 10, 12}));
}

TEST(HelpersConformance, U2_AggregateIndexedSlices) {
  const PerReplica value{slices_of({1, 2, 3, 4}, {0, 2}, {3, 2}, cpu(0)),
                         slices_of({5, 6, 7, 8}, {1, 2}, {3, 2}, cpu(1))};
  ReductionToOneDevice ops;
  const Mirrored sum = ops.reduce(ReduceOp::SUM, value, "CPU:0");
  ASSERT_TRUE(sum.is_sparse());
  EXPECT_EQ(elements(to_dense(sum.slices()[0])), (std::vector<float>{1, 2, 5, 6, 10, 12}));
}

TEST(HelpersConformance, U3_Divide) {
  ReductionToOneDevice ops;
  const PerReplica dense{tensor_of(kT0, {3, 2}, "CPU:0"),
                         tensor_of(std::vector<float>(6, 0.0f), {3, 2}, "CPU:1")};
  EXPECT_EQ(elements(ops.reduce(ReduceOp::MEAN, dense, "CPU:0").tensor()),
            (std::vector<float>{0.5f, 1, 0, 0, 1.5f, 2}));
  const IndexedSlices no_rows{
      tensor_of<float>({}, {0, 2}, cpu(1)), vector_of<std::int64_t>({}, cpu(1)), {3, 2}};
  const PerReplica sparse{slices_of({1, 2, 3, 4}, {0, 2}, {3, 2}, cpu(0)), no_rows};
  const Mirrored mean = ops.reduce(ReduceOp::MEAN, sparse, "CPU:0");
  EXPECT_EQ(elements(to_dense(mean.slices()[0])), (std::vector<float>{0.5f, 1, 0, 0, 1.5f, 2}));
}

TEST(HelpersConformance, U4_IsIndexedSlices) {
  EXPECT_FALSE(per_replica({{1.0f}}).is_sparse());
  EXPECT_TRUE((PerReplica{slices_of({1}, {0}, {2, 1}, cpu(0))}).is_sparse());
}

TEST(HelpersConformance, U5_CopyTensorAndIndexedSlices) {
  const Tensor copied = copy_to_device(tensor_of(kT0, {3, 2}, "CPU:0"), "CPU:1");
  EXPECT_EQ(copied.device(), Device("CPU:1"));
  EXPECT_EQ(elements(copied), kT0);
  const IndexedSlices slices =
      copy_to_device(slices_of({1, 2}, {4}, std::nullopt, cpu(0)), "CPU:1");
  EXPECT_EQ(slices.device(), Device("CPU:1"));
  expect_slices(slices, {1, 2}, {4});
  EXPECT_FALSE(slices.dense_shape.has_value()) << "a missing shape stays missing";
}

TEST(HelpersConformance, O1_CreateOptions) {
  const CommunicationOptions options{.bytes_per_pack = 1};
  EXPECT_EQ(options.bytes_per_pack, Int64(1));
  EXPECT_NO_THROW(options.validate());
  EXPECT_THROW((CommunicationOptions{.bytes_per_pack = -1}.validate()), ValueError);
}

TEST(CommunicationOptionsTest, MergeTakesEveryFieldThatIsNotAtItsDefault) {
  const CommunicationOptions base{.bytes_per_pack = 5,
                                  .timeout_seconds = 7,
                                  .implementation = CommunicationImplementation::RING};
  EXPECT_EQ(base.merge({}), base);
  const CommunicationOptions other{.bytes_per_pack = 9,
                                   .timeout_seconds = 0,
                                   .implementation = CommunicationImplementation::NCCL,
                                   .deterministic = true,
                                   .grouping_independent = true};
  EXPECT_EQ(base.merge(other), other) << "a timeout of 0 overrides";
  EXPECT_EQ(base.bytes_per_pack, Int64(5)) << "merge leaves its object alone";
}

TEST(CommunicationOptionsTest, ImplementationsHaveNamesInAnyCase) {
  EXPECT_EQ(communication_implementation_from_string("ring"), CommunicationImplementation::RING);
  EXPECT_EQ(communication_implementation_from_string("Nccl"), CommunicationImplementation::NCCL);
  EXPECT_EQ(communication_implementation_from_string("AUTO"), CommunicationImplementation::AUTO);
  EXPECT_THROW((void)communication_implementation_from_string("rings"), ValueError);
}

std::vector<float> parts(const DistributedValues& value) {
  std::vector<float> all;
  for (const Tensor& tensor : value.values()) all.push_back(elements(tensor)[0]);
  return all;
}

/// R-1's structure, with a number for each of TF's strings: (x, [y, {c, e}, z], w).
using Inner = std::tuple<Tensor, std::map<std::string, Tensor>, Tensor>;
using Nested = std::tuple<Tensor, Inner, std::vector<Tensor>>;
Nested nested(float base, std::size_t replica) {
  const Device device = cpu(replica);
  const auto leaf = [&](float offset) { return scalar_of(base + offset, device); };
  return {leaf(1), {leaf(2), {{"c", leaf(3)}, {"e", leaf(4)}}, leaf(5)}, {leaf(6), leaf(7)}};
}

TEST(RegroupConformance, R1_Nested) {
  const std::vector<Nested> replicas{nested(10, 0), nested(20, 1)};
  const auto group = regroup(replicas);
  EXPECT_THAT(parts(std::get<0>(group)), ElementsAre(11, 21));
  const auto& inner = std::get<1>(group);
  EXPECT_THAT(parts(std::get<0>(inner)), ElementsAre(12, 22));
  EXPECT_THAT(parts(std::get<1>(inner).at("c")), ElementsAre(13, 23));
  EXPECT_THAT(parts(std::get<1>(inner).at("e")), ElementsAre(14, 24));
  EXPECT_THAT(parts(std::get<2>(inner)), ElementsAre(15, 25));
  EXPECT_THAT(parts(std::get<2>(group)[0]), ElementsAre(16, 26));
  EXPECT_THAT(parts(std::get<2>(group)[1]), ElementsAre(17, 27));
  for (std::size_t r = 0; r < 2; ++r) {
    const Nested back = select_replica<Nested>(r, group);
    EXPECT_TRUE(std::get<0>(back).is_same(std::get<0>(replicas[r])));
    EXPECT_TRUE(std::get<1>(std::get<1>(back))
                    .at("e")
                    .is_same(std::get<1>(std::get<1>(replicas[r])).at("e")));
    EXPECT_TRUE(std::get<2>(back)[1].is_same(std::get<2>(replicas[r])[1]));
  }
}

TEST(RegroupConformance, R2_MapsKeepTheirKeys) {
  using Map = std::map<std::string, Tensor>;
  const std::vector<Map> replicas{{{"a", scalar_of(1.0f, cpu(0))}},
                                  {{"a", scalar_of(2.0f, cpu(1))}}};
  const auto group = regroup(replicas);
  EXPECT_THAT(parts(group.at("a")), ElementsAre(1, 2));
  const std::vector<Map> different{{{"a", scalar_of(1.0f, cpu(0))}},
                                   {{"b", scalar_of(2.0f, cpu(1))}}};
  EXPECT_THROW((void)regroup(different), ValueError);
}

TEST(RegroupConformance, R3_WrapClass) {
  const std::vector<Nested> replicas{nested(10, 0), nested(20, 1)};
  const auto group = regroup_mirrored(std::span<const Nested>(replicas));
  static_assert(std::is_same_v<std::remove_cvref_t<decltype(std::get<0>(group))>, Mirrored>);
  EXPECT_THAT(parts(std::get<0>(group)), ElementsAre(11, 21));
  const Nested back = select_replica_mirrored<Nested>(1, group);
  EXPECT_TRUE(std::get<0>(back).is_same(std::get<0>(replicas[1])));
}

TEST(RegroupConformance, R4_AListOfTwoTuples) {
  using Pair = std::pair<Tensor, Tensor>;
  const std::vector<Pair> replicas{{scalar_of(1.0f, cpu(0)), scalar_of(2.0f, cpu(0))},
                                   {scalar_of(3.0f, cpu(1)), scalar_of(4.0f, cpu(1))}};
  const auto group = regroup(replicas);
  EXPECT_THAT(parts(group.first), ElementsAre(1, 3));
  EXPECT_THAT(parts(group.second), ElementsAre(2, 4));
}

TEST(RegroupConformance, R6_LeavesThatAreNoTensors) {
  using Pair = std::pair<std::string, int>;
  const std::vector<Pair> replicas{{"a", 7}, {"b", 7}};
  const auto group = regroup(replicas);
  EXPECT_THAT(group.first, ElementsAre("a", "b"));
  EXPECT_THAT(group.second, ElementsAre(7, 7));
  EXPECT_EQ((select_replica<Pair>(1, group)), (Pair{"b", 7}));
}

TEST(RegroupConformance, R7_OneDevice) {
  const std::vector<Tensor> replicas{scalar_of(5.0f, cpu(0))};
  const PerReplica group = regroup(replicas);
  EXPECT_THAT(parts(group), ElementsAre(5))
      << "one replica is wrapped too: one type for any number";
  EXPECT_TRUE(select_replica<Tensor>(0, group).is_same(replicas[0]));
}

TEST(RegroupTest, RefusesStructuresThatDiffer) {
  const std::vector<std::vector<Tensor>> replicas{{scalar_of(1.0f, cpu(0))}, {}};
  EXPECT_THAT([&] { (void)regroup(replicas); },
              ::testing::ThrowsMessage<ValueError>(
                  ::testing::HasSubstr("replica 0 has 1 elements, replica 1 has 0")));
  EXPECT_THROW((void)regroup(std::vector<Tensor>{}), ValueError);
}

}  // namespace
}  // namespace crossdevice
