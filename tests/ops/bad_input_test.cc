// SPDX-License-Identifier: Apache-2.0
// What the ops refuse, with what words, and that nothing was touched.
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"
#include "crossdevice/ops/select_cross_device_ops.h"

namespace crossdevice {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr float kUntouched = 7.0f;

std::shared_ptr<CrossDeviceOps> make_ops(int kind) {
  if (kind == 0) return std::make_shared<ReductionToOneDevice>();
  if (kind == 1) return std::make_shared<HierarchicalCopyAllReduce>(2);
  if (kind == 2) return std::make_shared<MultiWorkerAllReduce>(Device("/job:localhost"), 2);
  return std::make_shared<NcclAllReduce>(2);
}

class BadInput : public ::testing::TestWithParam<int> {
 protected:
  Tensor view(std::vector<float>& data, const char* device) {
    return Tensor::view(std::span(data), device);
  }
  /// The call throws a ValueError with these words, in the single and in the batch form, and writes nothing.
  void expect_refused(ReduceOp op, const PerReplica& value, const Destinations& destinations,
                      const std::string& words, const CommunicationOptions& options = {}) {
    EXPECT_THAT([&] { (void)ops->reduce(op, value, destinations, options); },
                ThrowsMessage<ValueError>(HasSubstr(words)));
    const std::vector<ValueDestinationPair> pairs{{good(), good()}, {value, destinations}};
    EXPECT_THAT([&] { (void)ops->batch_reduce(op, pairs, options); },
                ThrowsMessage<ValueError>(HasSubstr(words)));
    EXPECT_THAT([&] { (void)ops->reduce_async(op, value, destinations, options); },
                ThrowsMessage<ValueError>(HasSubstr(words)));
    EXPECT_THAT([&] { (void)ops->batch_reduce_async(op, pairs, options); },
                ThrowsMessage<ValueError>(HasSubstr(words)));
    expect_untouched();
  }
  void expect_refused_into(ReduceOp op, const PerReplica& value, const PerReplica& outputs,
                           const std::string& words) {
    EXPECT_THAT([&] { ops->reduce_into(op, value, outputs); },
                ThrowsMessage<ValueError>(HasSubstr(words)));
    const std::vector<ValueOutputPair> pairs{{good(), good()}, {value, outputs}};
    EXPECT_THAT([&] { ops->batch_reduce_into(op, pairs); },
                ThrowsMessage<ValueError>(HasSubstr(words)));
    expect_untouched();
  }
  void expect_untouched() {
    for (const auto* data : {&a, &b, &c, &g0, &g1}) {
      for (const float x : *data) ASSERT_EQ(x, kUntouched);
    }
  }
  PerReplica good() { return {view(g0, "CPU:0"), view(g1, "CPU:1")}; }

  std::shared_ptr<CrossDeviceOps> ops = make_ops(GetParam());
  std::vector<float> a = std::vector<float>(12, kUntouched);
  std::vector<float> b = std::vector<float>(12, kUntouched);
  std::vector<float> c = std::vector<float>(11, kUntouched);
  std::vector<float> g0 = std::vector<float>(4, kUntouched);
  std::vector<float> g1 = std::vector<float>(4, kUntouched);
  const PerReplica good_ = good();  // outlives the calls that write to it
};

TEST_P(BadInput, ShapesThatDiffer) {
  expect_refused(ReduceOp::SUM, {view(a, "CPU:0"), view(c, "CPU:1")}, "CPU:0",
                 "replica 0 float32 (12), replica 1 float32 (11)");
  expect_refused(ReduceOp::SUM, {view(a, "CPU:0"), Tensor::view(std::span(b), {3, 4}, "CPU:1")},
                 "CPU:0", "replica 0 float32 (12), replica 1 float32 (3, 4)");
}

TEST_P(BadInput, DTypesThatDiffer) {
  std::vector<std::int32_t> integers(12);
  expect_refused(ReduceOp::SUM, {view(a, "CPU:0"), Tensor::view(std::span(integers), "CPU:1")},
                 "CPU:0", "replica 0 float32 (12), replica 1 int32 (12)");
}

TEST_P(BadInput, ValuesWithoutComponents) {
  expect_refused(ReduceOp::SUM, PerReplica(), "CPU:0", "must be non-empty");
}

TEST_P(BadInput, EmptyDestinations) {
  EXPECT_THROW((void)ops->reduce(ReduceOp::SUM, good(), ""), ValueError);
  EXPECT_THROW((void)ops->reduce(ReduceOp::SUM, good(), Devices()), ValueError);
  EXPECT_THROW((void)ops->reduce(ReduceOp::SUM, good(), PerReplica()), ValueError);
  EXPECT_THROW((void)ops->reduce(ReduceOp::SUM, good(), Tensor()), ValueError);
  EXPECT_THROW((void)ops->broadcast(view(a, "CPU:0"), ""), ValueError);
  EXPECT_THROW((void)ops->gather(good(), "", 0), ValueError);
  expect_untouched();
}

TEST_P(BadInput, DevicesThatAreAbsentOrNoDevices) {
  expect_refused(ReduceOp::SUM, good(), "GPU:9", "GPU:9: this host has 0 GPUs");
  expect_refused(ReduceOp::SUM, good(), "CPU:64", "CPU:64");
  EXPECT_THROW((void)ops->reduce(ReduceOp::SUM, good(), "nonsense"), ValueError);
  EXPECT_THROW((void)Tensor::view(std::span(a), "GPU:9"), ValueError);
  EXPECT_THROW((void)Tensor::empty(DType::FLOAT32, {3}, "GPU:0"), ValueError);
}

TEST_P(BadInput, DestinationsThatNameADeviceTwice) {
  expect_refused(ReduceOp::SUM, good(), Devices({"CPU:1", "CPU:1"}), "twice");
}

TEST_P(BadInput, ADeviceThatHasGoneSinceTheValueWasMade) {
  std::vector<float> data(4, kUntouched);
  const PerReplica value{view(g0, "CPU:0"), view(data, "CPU:9")};
  set_logical_cpu_devices(4);
  expect_refused(ReduceOp::SUM, value, "CPU:0", "CPU:9");
  set_logical_cpu_devices(64);
}

TEST_P(BadInput, OptionsThatAreInvalid) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_refused(ReduceOp::SUM, good(), "CPU:0", "bytes_per_pack must be 0 or more, not -5",
                 {.bytes_per_pack = -5});
  expect_refused(ReduceOp::SUM, good(), "CPU:0", "timeout_seconds must be 0 or more, not -1",
                 {.timeout_seconds = -1});
  expect_refused(ReduceOp::SUM, good(), "CPU:0", "timeout_seconds must be 0 or more, not nan",
                 {.timeout_seconds = nan});
  EXPECT_THROW((void)ops->gather(good(), "CPU:0", 0, {.bytes_per_pack = -5}), ValueError);
}

TEST_P(BadInput, CombinationsOutsideTheTable) {
  bool flags[4] = {};
  std::complex<float> complex[4] = {};
  const PerReplica booleans{Tensor::view(std::span(flags), "CPU:0"),
                            Tensor::view(std::span(flags), "CPU:1")};
  const PerReplica complexes{Tensor::view(std::span(complex), "CPU:0"),
                             Tensor::view(std::span(complex), "CPU:1")};
  EXPECT_THAT([&] { (void)ops->reduce(ReduceOp::SUM, booleans, "CPU:0"); },
              ThrowsMessage<ValueError>(HasSubstr("SUM of bool is not defined")));
  EXPECT_THROW((void)ops->reduce(ReduceOp::MEAN, booleans, "CPU:0"), ValueError);
  EXPECT_THROW((void)ops->reduce(ReduceOp::MIN, complexes, "CPU:0"), ValueError);
  EXPECT_THAT([&] { (void)ops->reduce(ReduceOp::MAX, complexes, "CPU:0"); },
              ThrowsMessage<ValueError>(HasSubstr("MAX of complex64 is not defined")));
}

TEST_P(BadInput, OutputsThatAreReadOnly) {
  const std::vector<float> constant(4, 1.0f);
  const PerReplica read_only{Tensor::view(std::span(constant), "CPU:0"), view(g1, "CPU:1")};
  expect_refused_into(ReduceOp::SUM, good(), read_only, "read-only");
  expect_refused_into(ReduceOp::SUM, read_only, read_only, "read-only");
  EXPECT_THAT([&] { ops->broadcast_into(view(g1, "CPU:1"), read_only); },
              ThrowsMessage<ValueError>(HasSubstr("read-only")));
}

TEST_P(BadInput, OutputsOfAnotherShapeOrDType) {
  expect_refused_into(ReduceOp::SUM, good(), {view(a, "CPU:0"), view(b, "CPU:1")},
                      "must be float32 (4), it is float32 (12)");
  std::vector<std::int64_t> integers(4, 7);
  expect_refused_into(ReduceOp::SUM, good(), PerReplica(Tensor::view(std::span(integers), "CPU:0")),
                      "must be float32 (4), it is int64 (4)");
}

TEST_P(BadInput, AnInPlaceMeanOfIntegers) {
  std::vector<std::int32_t> integers(4, 7);
  const PerReplica value(Tensor::view(std::span(integers), "CPU:0"));
  EXPECT_THAT([&] { ops->reduce_into(ReduceOp::MEAN, value, value); },
              ThrowsMessage<ValueError>(HasSubstr("in-place MEAN of int32")));
}

TEST_P(BadInput, AMeanOfIntegersInTheirOwnMemory) {
  std::vector<std::int64_t> integers(4, 7);
  const PerReplica value(Tensor::view(std::span(integers), "CPU:0"));
  // The size of the result's elements is the same, so the same memory seen as floating point has the right shape.
  const PerReplica as_results(
      Tensor::view(static_cast<void*>(integers.data()), DType::FLOAT64, {4}, "CPU:0"));
  EXPECT_THAT([&] { ops->reduce_into(ReduceOp::MEAN, value, as_results); },
              ThrowsMessage<ValueError>(HasSubstr("overlap")));
  EXPECT_EQ(integers, std::vector<std::int64_t>(4, 7));
}

/// One row of a table.
IndexedSlices slices(std::vector<float>& row, std::vector<std::int32_t>& index,
                     const MaybeShape& dense_shape, const char* device) {
  return {Tensor::view(std::span(row), Shape{1, row.size()}, device),
          Tensor::view(std::span(index), device), dense_shape};
}

TEST_P(BadInput, SparseValuesThatDiffer) {
  std::vector<std::int32_t> index(1, 0);
  const IndexedSlices first = slices(a, index, {{5, 12}}, "CPU:0");
  const IndexedSlices shorter_rows = slices(c, index, {{5, 11}}, "CPU:1");
  const IndexedSlices larger_table = slices(b, index, {{6, 12}}, "CPU:1");
  expect_refused(ReduceOp::SUM, {first, shorter_rows}, "CPU:0",
                 "replica 1 float32 rows of (1, 11)");
  expect_refused(ReduceOp::SUM, {first, larger_table}, "CPU:0", "replica 1 has (6, 12)");
  const std::vector<ValueDestinationPair> pairs{{good(), Destinations::into(good_)},
                                                {{first, larger_table}, "CPU:0"}};
  EXPECT_THROW((void)ops->batch_reduce(ReduceOp::SUM, pairs), ValueError);
  EXPECT_THROW((void)ops->batch_reduce_async(ReduceOp::SUM, pairs), ValueError);
  expect_untouched();
}

TEST_P(BadInput, SparseValuesInTheOutputsOfOthers) {
  std::vector<std::int32_t> index(1, 0);
  const IndexedSlices rows_in_output = slices(g0, index, std::nullopt, "CPU:0");
  const std::vector<ValueDestinationPair> pairs{{PerReplica{rows_in_output}, "CPU:0"},
                                                {good_, Destinations::into(good_)}};
  EXPECT_THAT([&] { (void)ops->batch_reduce(ReduceOp::SUM, pairs); },
              ThrowsMessage<ValueError>(HasSubstr("overlap")));
  EXPECT_THAT([&] { (void)ops->batch_reduce_async(ReduceOp::SUM, pairs); },
              ThrowsMessage<ValueError>(HasSubstr("overlap")));
  expect_untouched();
}

TEST_P(BadInput, BuffersThatOverlapInPart) {
  const std::span<float> all(a);
  const PerReplica value{Tensor::view(all.first(6), "CPU:0"),
                         Tensor::view(std::span(b).first(6), "CPU:1")};
  const PerReplica shifted{Tensor::view(all.subspan(3, 6), "CPU:0"),
                           Tensor::view(std::span(b).subspan(6, 6), "CPU:1")};
  expect_refused_into(ReduceOp::SUM, value, shifted, "overlap");
  const PerReplica twice{Tensor::view(all.first(6), "CPU:0"), Tensor::view(all.first(6), "CPU:1")};
  expect_refused_into(ReduceOp::SUM, twice, twice, "overlap");
}

TEST_P(BadInput, BuffersOfOneValueThatAreOutputsOfAnother) {
  const PerReplica first{view(a, "CPU:0"), view(b, "CPU:1")};
  const std::vector<ValueOutputPair> crossed{{good(), good()}, {first, first}, {first, first}};
  EXPECT_THAT([&] { ops->batch_reduce_into(ReduceOp::SUM, crossed); },
              ThrowsMessage<ValueError>(HasSubstr("overlap")));
  expect_untouched();
}

TEST_P(BadInput, GatherOfWhatCannotBeConcatenated) {
  EXPECT_THROW((void)ops->gather(good(), "CPU:0", 1), ValueError);
  EXPECT_THROW((void)ops->gather(good(), "CPU:0", -1), ValueError);
  const Tensor scalar = Tensor::view(std::span(a).first(1), Shape{}, "CPU:0");
  EXPECT_THROW((void)ops->gather(scalar, "CPU:0", 0), ValueError);
  EXPECT_THAT(
      [&] {
        (void)ops->gather({Tensor::view(std::span(a), {3, 4}, "CPU:0"),
                           Tensor::view(std::span(b), {4, 3}, "CPU:1")},
                          "CPU:0", 0);
      },
      ThrowsMessage<ValueError>(HasSubstr("Shape mismatch")));
  EXPECT_THROW((void)ops->gather(PerReplica(), "CPU:0", 0), ValueError);
}

INSTANTIATE_TEST_SUITE_P(EveryOps, BadInput, ::testing::Values(0, 1, 2, 3));

TEST(BadConstruction, NegativeNumPacksAndAbsentDevices) {
  EXPECT_THAT([] { NcclAllReduce ops(-1); },
              ThrowsMessage<ValueError>(HasSubstr("num_packs must be 0 or more, not -1")));
  EXPECT_THROW(HierarchicalCopyAllReduce(-3), ValueError);
  EXPECT_THROW(ReductionToOneDevice({.reduce_to_device = "GPU:9"}), ValueError);
  EXPECT_THROW((void)select_cross_device_ops(Devices()), ValueError);
  EXPECT_THROW((void)select_cross_device_ops(Devices({"GPU:9"})), ValueError);
}

TEST(BadAccumulation, FunctionsThatReturnSomethingElse) {
  std::vector<float> a(4, 1.0f), b(4, 2.0f);
  const PerReplica value{Tensor::view(std::span(a), "CPU:0"), Tensor::view(std::span(b), "CPU:1")};
  ReductionToOneDevice none({.accumulation_fn = [](std::span<const Tensor>) { return Tensor(); }});
  ReductionToOneDevice shorter({.accumulation_fn = [](std::span<const Tensor>) {
    return Tensor::zeros(DType::FLOAT32, {3}, "CPU:0");
  }});
  EXPECT_THAT([&] { (void)none.reduce(ReduceOp::SUM, value, "CPU:0"); },
              ThrowsMessage<ValueError>(HasSubstr("it returned no tensor")));
  EXPECT_THAT([&] { (void)shorter.reduce(ReduceOp::SUM, value, "CPU:0"); },
              ThrowsMessage<ValueError>(HasSubstr("must return float32 (4)")));
  EXPECT_THROW((void)shorter.reduce(ReduceOp::MAX, value, "CPU:0"), ValueError);
}

}  // namespace
}  // namespace crossdevice
