// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/repeated_value.h"

#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/shared_direct_reduce.h"
#include "crossdevice/core/error.h"

#include "support/threaded_cluster.h"

namespace crossdevice::detail {
namespace {

Tensor make_tensor(DType dtype = DType::FLOAT32, std::size_t count = 4) {
  return Tensor::zeros(dtype, {count}, "CPU:0");
}

CollectiveValue value_of(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  return {.inputs = inputs, .outputs = outputs};
}

bool repeats(const RepeatedValue& known, const CollectiveRequest& request,
             std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  const CollectiveValue value = value_of(inputs, outputs);
  return known.repeats(request, std::span(&value, 1));
}

void describe(RepeatedValue& known, const CollectiveRequest& request,
              std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  InlineBatch batch;
  const CollectiveValue value = value_of(inputs, outputs);
  known.describe(request, value,
                 {.kind = request.kind,
                  .reduce_op = request.op,
                  .dtype = inputs[0].dtype(),
                  .num_values = 1,
                  .size_bytes = inputs[0].size_bytes(),
                  .fingerprint = request.fingerprint});
  known.describe_reduction(batch, request.op, value);
}

TEST(RepeatedValueTest, WhereTheElementsLieAndTheNumberDoNotTell) {
  const std::vector<Tensor> tensors{make_tensor(), make_tensor(), make_tensor()};
  const std::span<const Tensor> all(tensors);
  RepeatedValue known;
  EXPECT_FALSE(repeats(known, {}, all.first(1), all.first(1)));
  describe(known, {.sequence = 1}, all.first(1), all.first(1));
  EXPECT_TRUE(repeats(known, {.sequence = 1}, all.first(1), all.first(1)));
  EXPECT_TRUE(repeats(known, {.sequence = 2, .deadline = Deadline::after_timeout_seconds(1)},
                      all.subspan(1, 1), all.subspan(2, 1)));
  EXPECT_EQ(known.operation().packed.kind[0], 'a');
  EXPECT_EQ(known.operation().digest, digest_of(known.operation().packed));
  EXPECT_EQ(known.size_bytes(), 16U);
  EXPECT_EQ(known.dtype(), DType::FLOAT32);
}

TEST(RepeatedValueTest, EverythingElseTells) {
  const std::vector<Tensor> floats(2, make_tensor());
  const std::span<const Tensor> one = std::span(floats).first(1);
  const CollectiveRequest request{.kind = "reduce", .fingerprint = 5};
  RepeatedValue known;
  describe(known, request, one, one);
  ASSERT_TRUE(repeats(known, request, one, one));
  for (const CollectiveRequest& other : std::vector<CollectiveRequest>{
           {.kind = "reducE", .fingerprint = 5},
           {.kind = "reduce ", .fingerprint = 5},
           {.kind = "", .fingerprint = 5},
           {.kind = "reduce", .op = ReduceOp::MAX, .fingerprint = 5},
           {.kind = "reduce", .deterministic = true, .fingerprint = 5},
           {.kind = "reduce", .grouping_independent = true, .fingerprint = 5},
           {.kind = "reduce", .fingerprint = 6}}) {
    EXPECT_FALSE(repeats(known, other, one, one)) << other.kind;
  }
  const Tensor ints = make_tensor(DType::INT32);
  const Tensor more = make_tensor(DType::FLOAT32, 5);
  const Tensor read_only = make_tensor().as_read_only();
  for (const Tensor& other : {ints, more}) {
    EXPECT_FALSE(repeats(known, request, std::span(&other, 1), std::span(&other, 1)));
    EXPECT_FALSE(repeats(known, request, one, std::span(&other, 1)));
    EXPECT_FALSE(repeats(known, request, std::span(&other, 1), one));
  }
  EXPECT_TRUE(repeats(known, request, std::span(&read_only, 1), one));
  EXPECT_FALSE(repeats(known, request, one, std::span(&read_only, 1)));
  EXPECT_FALSE(repeats(known, request, one, {}));
  EXPECT_FALSE(repeats(known, request, one, floats));
  EXPECT_FALSE(repeats(known, request, floats, one));
  const std::vector<CollectiveValue> two(2, value_of(one, one));
  EXPECT_FALSE(known.repeats(request, two));
}

TEST(RepeatedValueTest, WhatIsNotKeptWholeIsNotRepeated) {
  const std::vector<Tensor> floats(2, make_tensor());
  const std::span<const Tensor> one = std::span(floats).first(1);
  const CollectiveRequest request{.kind = "reduce"};
  RepeatedValue known;
  describe(known, request, one, one);
  const std::string text(24, 'k');  // one more than is kept
  describe(known, {.kind = text}, one, one);
  EXPECT_FALSE(repeats(known, {.kind = text}, one, one));
  EXPECT_FALSE(repeats(known, {.kind = std::string_view(text).substr(1)}, one, one));
  EXPECT_FALSE(repeats(known, request, one, one));
  describe(known, request, one, floats);
  EXPECT_FALSE(repeats(known, request, one, floats));
  EXPECT_FALSE(repeats(known, request, one, one));
  // Described, but not how it is reduced: its announcement has failed.
  describe(known, request, one, one);
  known.describe(request, value_of(one, one), {.kind = "reduce"});
  EXPECT_FALSE(repeats(known, request, one, one));
}

/// Small calls of an engine, each drawn so that it often is the one before again, with other elements in other memory.
TEST(RepeatedValueTest, CallsInAnyOrderAreReducedAsTheyAre) {
  constexpr int kNumCalls = 400;
  constexpr int kNumWorkers = 3;
  const auto work = [](const std::shared_ptr<Cluster>& cluster) {
    SharedDirectReduce engine(cluster);
    std::mt19937 draw(7);  // equal on all workers
    std::size_t count = 1;
    ReduceOp op = ReduceOp::SUM;
    bool has_output = true;
    for (int call = 0; call < kNumCalls; ++call) {
      if (draw() % 4 == 0) count = draw() % 6;
      if (draw() % 4 == 0) op = draw() % 2 == 0 ? ReduceOp::SUM : ReduceOp::MAX;
      if (draw() % 4 == 0) has_output = draw() % 4 != 0;
      const Tensor input = make_tensor(DType::INT32, count);
      const bool is_in_place = draw() % 2 == 0;
      const Tensor output = is_in_place ? input : make_tensor(DType::INT32, count);
      for (std::int32_t& each : input.span<std::int32_t>()) each = call + cluster->rank();
      const std::size_t num_outputs = has_output ? 1 : 0;
      const CollectiveValue value = value_of(std::span(&input, 1), std::span(&output, num_outputs));
      engine.all_reduce({.kind = "test", .sequence = static_cast<std::uint64_t>(call), .op = op},
                        std::span(&value, 1));
      const std::int32_t last = call + kNumWorkers - 1;
      const std::int32_t result = op == ReduceOp::SUM ? kNumWorkers * (call + last) / 2 : last;
      const std::int32_t unchanged = is_in_place ? call + cluster->rank() : 0;
      const std::vector<std::int32_t> expected(count, has_output ? result : unchanged);
      const auto found = output.span<const std::int32_t>();
      ASSERT_EQ(std::vector<std::int32_t>(found.begin(), found.end()), expected) << call;
    }
  };
  EXPECT_EQ(testing::run_clusters(kNumWorkers, work), testing::no_errors(kNumWorkers));
}

TEST(RepeatedValueTest, WhatIsWrongAfterARightOneIsRefusedAndWhatDiffersIsNoticed) {
  const auto work = [](const std::shared_ptr<Cluster>& cluster) {
    SharedDirectReduce engine(cluster);
    const Tensor floats = make_tensor();
    const Tensor read_only = floats.as_read_only();
    const auto reduce = [&](const Tensor& output, ReduceOp op) {
      const CollectiveValue value = value_of(std::span(&floats, 1), std::span(&output, 1));
      engine.all_reduce({.kind = "test", .op = op}, std::span(&value, 1));
    };
    for (int i = 0; i < 3; ++i) reduce(floats, ReduceOp::SUM);
    EXPECT_THROW(reduce(read_only, ReduceOp::SUM), ValueError);
    for (int i = 0; i < 3; ++i) reduce(floats, ReduceOp::SUM);
    // One repeats its call, the other does not.
    EXPECT_THROW(reduce(floats, cluster->rank() == 0 ? ReduceOp::SUM : ReduceOp::MAX),
                 InternalError);
    EXPECT_THROW(reduce(floats, ReduceOp::SUM), FailedPreconditionError);
  };
  EXPECT_EQ(testing::run_clusters(2, work), testing::no_errors(2));
}

}  // namespace
}  // namespace crossdevice::detail
