// SPDX-License-Identifier: Apache-2.0
// Small batches as blocks: reduced at once they give what direct_reduce gives, bit by bit, whatever came before.
#include "collective/detail/inline_batch.h"

#include <array>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/direct_reduce.h"

#include "support/allocation_counter.h"

namespace crossdevice::detail {
namespace {

constexpr std::size_t kNumBlocks = 3;

/// Two values of `num_inputs` tensors each, and every worker's block of them.
class Batch {
 public:
  Batch(ReduceOp op, DType dtype, std::size_t num_elements, std::size_t num_inputs) : op_(op) {
    for (std::size_t i = 0; i < 2 * num_inputs; ++i) {
      inputs_.push_back(Tensor::zeros(dtype, {num_elements + i / num_inputs}, "CPU:0"));
      outputs_.push_back(Tensor::zeros(result_dtype(op, dtype), inputs_.back().shape(), "CPU:0"));
    }
    for (std::size_t v = 0; v < 2; ++v) {
      values_.push_back({std::span(inputs_).subspan(v * num_inputs, num_inputs),
                         std::span(outputs_).subspan(v * num_inputs, num_inputs)});
    }
    for (std::size_t b = 0; b < kNumBlocks; ++b) {
      fill(dtype, b);
      blocks_.emplace_back(4096);
      fill_inline_block(values_, blocks_.back().data());
      addresses_.push_back(blocks_.back().data());
    }
  }

  void reduce(InlineBatch& by, std::size_t num_sums = 0) {
    by.reduce(op_, num_sums, values_, addresses_);
  }
  /// The first value, of one input, alone.
  void reduce_first_alone(InlineBatch& by) {
    const std::vector<const void*> blocks(addresses_.begin(), addresses_.end());
    by.prepare(op_, values_[0], blocks).run();
  }
  /// The same by direct_reduce, each value with its own op.
  void reduce_directly(InlineBatch& by, std::size_t num_sums = 0) {
    const std::span<const DirectReduceTensor> all = by.tensors(values_, addresses_);
    for (std::size_t v = 0; v < all.size(); ++v) {
      const ReduceOp op = v < num_sums ? ReduceOp::SUM : op_;
      ASSERT_EQ(direct_reduce({.op = op, .tensors = all.subspan(v, 1)}),
                DirectReduceOutcome::COMPLETED);
    }
  }
  /// What the outputs hold; they are cleared.
  std::vector<std::byte> take() {
    std::vector<std::byte> bytes;
    for (const Tensor& output : outputs_) {
      auto* const begin = static_cast<std::byte*>(output.data());
      bytes.insert(bytes.end(), begin, begin + output.size_bytes());
      std::memset(begin, 0, output.size_bytes());
    }
    return bytes;
  }
  void drop_outputs() {
    for (CollectiveValue& value : values_) value.outputs = {};
  }

 private:
  void fill(DType dtype, std::size_t block) {
    int next = static_cast<int>(block) + 1;
    for (const Tensor& input : inputs_) {
      for (std::size_t i = 0; i < input.num_elements(); ++i, next += 3) {
        if (dtype == DType::FLOAT32)
          static_cast<float*>(input.data())[i] = 0.1F * static_cast<float>(next);
        if (dtype == DType::FLOAT64) static_cast<double*>(input.data())[i] = 0.1 * next;
        if (dtype == DType::INT32) static_cast<std::int32_t*>(input.data())[i] = next;
      }
    }
  }

  ReduceOp op_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
  std::vector<CollectiveValue> values_;
  std::vector<std::vector<std::byte>> blocks_;
  std::vector<const std::byte*> addresses_;
};

TEST(InlineBatchTest, WhateverCameBeforeTheBitsAreThoseOfDirectReduce) {
  InlineBatch batch;
  InlineBatch fresh;
  struct Call {
    ReduceOp op;
    DType dtype;
    std::size_t num_elements;
    std::size_t num_inputs;
  };
  // From one to the next the op alone differs, the dtype alone, the sizes alone.
  const std::array<Call, 9> calls{{{ReduceOp::SUM, DType::FLOAT32, 2, 1},
                                   {ReduceOp::MAX, DType::FLOAT32, 2, 1},
                                   {ReduceOp::MAX, DType::INT32, 2, 1},
                                   {ReduceOp::MAX, DType::INT32, 17, 3},
                                   {ReduceOp::MEAN, DType::INT32, 17, 3},
                                   {ReduceOp::MEAN, DType::FLOAT64, 5, 2},
                                   {ReduceOp::PROD, DType::FLOAT64, 5, 1},
                                   {ReduceOp::SUM, DType::FLOAT64, 1, 1},
                                   {ReduceOp::SUM, DType::FLOAT32, 40, 2}}};
  for (const Call& call : calls) {
    Batch values(call.op, call.dtype, call.num_elements, call.num_inputs);
    values.reduce(batch);
    const std::vector<std::byte> reduced = values.take();
    values.reduce_directly(fresh);
    EXPECT_EQ(reduced, values.take()) << to_string(call.op) << " of " << to_string(call.dtype);
    EXPECT_NE(reduced, std::vector<std::byte>(reduced.size())) << "nothing was written";
  }
}

TEST(InlineBatchTest, OfAMeanTheFirstValuesMayBeSums) {
  Batch values(ReduceOp::MEAN, DType::FLOAT32, 4, 1);
  InlineBatch batch;
  for (const std::size_t num_sums : {1U, 0U, 2U}) {
    values.reduce(batch, num_sums);
    const std::vector<std::byte> reduced = values.take();
    values.reduce_directly(batch, num_sums);
    EXPECT_EQ(reduced, values.take()) << num_sums;
  }
}

TEST(InlineBatchTest, OneValueAloneIsReducedAsInABatch) {
  InlineBatch batch;
  for (const DType dtype : {DType::FLOAT32, DType::FLOAT64, DType::INT32}) {
    Batch values(ReduceOp::MEAN, dtype, 2, 1);
    const std::size_t size_bytes = 2 * size_in_bytes(result_dtype(ReduceOp::MEAN, dtype));
    values.reduce(batch);
    std::vector<std::byte> first = values.take();
    first.resize(size_bytes);
    values.reduce_first_alone(batch);
    std::vector<std::byte> alone = values.take();
    EXPECT_EQ(std::vector<std::byte>(alone.begin() + std::ptrdiff_t(size_bytes), alone.end()),
              std::vector<std::byte>(alone.size() - size_bytes))
        << "another value was written";
    alone.resize(size_bytes);
    EXPECT_EQ(alone, first) << to_string(dtype);
  }
  Batch unwanted(ReduceOp::SUM, DType::FLOAT32, 2, 1);
  unwanted.drop_outputs();
  unwanted.reduce_first_alone(batch);
  Batch empty(ReduceOp::SUM, DType::FLOAT32, 0, 1);
  empty.reduce_first_alone(batch);
  const std::vector<std::byte> untouched = empty.take();
  EXPECT_EQ(untouched, std::vector<std::byte>(untouched.size()));
}

TEST(InlineBatchTest, WhereNothingIsToBeWrittenNothingIs) {
  Batch values(ReduceOp::SUM, DType::FLOAT32, 4, 1);
  values.drop_outputs();
  InlineBatch batch;
  values.reduce(batch);
  const std::vector<std::byte> untouched = values.take();
  EXPECT_EQ(untouched, std::vector<std::byte>(untouched.size()));
  Batch empty(ReduceOp::SUM, DType::FLOAT32, 0, 1);  // its first value has no elements
  empty.reduce(batch);
  const std::vector<std::byte> reduced = empty.take();
  empty.reduce_directly(batch);
  EXPECT_EQ(reduced, empty.take());
}

TEST(InlineBatchTest, ARepeatedCallAllocatesNothing) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer replaces the heap";
  Batch large(ReduceOp::SUM, DType::FLOAT32, 4, 3);
  Batch small(ReduceOp::MAX, DType::INT32, 2, 1);
  InlineBatch batch;
  large.reduce(batch);
  const std::size_t before = testing::num_allocations_of_this_thread();
  small.reduce(batch);
  large.reduce(batch);
  EXPECT_EQ(testing::num_allocations_of_this_thread(), before);
}

}  // namespace
}  // namespace crossdevice::detail
