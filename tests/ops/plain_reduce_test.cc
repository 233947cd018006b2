// SPDX-License-Identifier: Apache-2.0
// What one look finds is what the checks find that it stands for.
#include "ops/detail/plain_reduce.h"

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "ops/detail/validation.h"

namespace crossdevice::detail {
namespace {

constexpr std::array<ReduceOp, 6> kOps{ReduceOp::SUM, ReduceOp::MEAN, ReduceOp::MIN,
                                       ReduceOp::MAX, ReduceOp::PROD, static_cast<ReduceOp>(5)};

/// Whether the checks find it in place; nothing: they refuse it.
std::optional<bool> check(ReduceOp op, const PerReplica& value, const Destinations& destinations) {
  try {
    require_reducible(op, value, destinations);
    return require_no_overlaps(value, destinations);
  } catch (const ValueError&) {
    return std::nullopt;
  }
}

/// Views of one block of memory that are alike, unlike, the same, apart and overlapping.
std::vector<Tensor> tensors_over(std::vector<std::byte>& memory) {
  std::vector<Tensor> tensors;
  for (const DType dtype : {DType::FLOAT32, DType::INT32, DType::BOOL, DType::COMPLEX64}) {
    for (const Shape& shape : {Shape({4}), Shape({2, 2}), Shape({0})}) {
      for (const std::size_t offset : {0U, 8U, 64U}) {
        void* const at = memory.data() + offset;
        tensors.push_back(Tensor::view(at, dtype, shape, "CPU:0"));
      }
    }
    tensors.push_back(tensors.back().as_read_only());
    const void* const constant = memory.data() + 64;
    tensors.push_back(Tensor::view(constant, dtype, {4}, "CPU:0"));
    tensors.push_back(Tensor::view(memory.data(), dtype, {4}, "CPU:1"));
  }
  return tensors;
}

TEST(PlainReduceTest, WhatItSaysTheChecksSay) {
  alignas(64) std::vector<std::byte> memory(256);
  const std::vector<Tensor> tensors = tensors_over(memory);
  std::array<std::size_t, 3> num_found{};
  for (const Tensor& input : tensors) {
    const PerReplica value(input);
    for (const Tensor& output : tensors) {
      const PerReplica outputs(output);
      for (const ReduceOp op : kOps) {
        const auto expect_right = [&](const Destinations& destinations) {
          const PlainReduce found = look_for_plain_reduce(op, value, destinations);
          ++num_found[static_cast<std::size_t>(found)];
          if (found == PlainReduce::NO) return;
          EXPECT_EQ(check(op, value, destinations), found == PlainReduce::IN_PLACE)
              << static_cast<int>(op) << " of " << input << " into " << output;
        };
        expect_right(Destinations::into(outputs));
        expect_right(Destinations(outputs));
      }
    }
  }
  for (const std::size_t count : num_found) EXPECT_GT(count, 100U);
}

TEST(PlainReduceTest, EverydayCallsAreFound) {
  const Tensor input = Tensor::zeros(DType::FLOAT32, {8}, "CPU:0");
  const PerReplica value(input);
  const PerReplica apart(Tensor::zeros(DType::FLOAT32, {8}, "CPU:0"));
  const auto look = [&](ReduceOp op, const PerReplica& outputs) {
    return look_for_plain_reduce(op, value, Destinations::into(outputs));
  };
  EXPECT_EQ(look(ReduceOp::SUM, value), PlainReduce::IN_PLACE);
  EXPECT_EQ(look(ReduceOp::MEAN, value), PlainReduce::IN_PLACE);
  EXPECT_EQ(look(ReduceOp::MAX, apart), PlainReduce::APART);
  EXPECT_EQ(look_for_plain_reduce(ReduceOp::SUM, value, Destinations("CPU:0")), PlainReduce::NO);
}

TEST(PlainReduceTest, NoneIsWhereSomethingIsUnderWayOrThereAreSeveralComponents) {
  const Tensor tensor = Tensor::zeros(DType::FLOAT32, {8}, "CPU:0");
  const PerReplica one(tensor);
  const PerReplica other(Tensor::zeros(DType::FLOAT32, {8}, "CPU:0"));
  const PerReplica two{tensor, Tensor::zeros(DType::FLOAT32, {8}, "CPU:1")};
  const auto look = [](const PerReplica& value, const PerReplica& outputs) {
    return look_for_plain_reduce(ReduceOp::SUM, value, Destinations::into(outputs));
  };
  EXPECT_EQ(look(two, two), PlainReduce::NO);
  EXPECT_EQ(look(one, two), PlainReduce::NO);
  tensor.readiness().add();
  EXPECT_EQ(look(one, one), PlainReduce::NO);
  EXPECT_EQ(look(one, other), PlainReduce::NO);
  EXPECT_EQ(look(other, one), PlainReduce::NO);
  tensor.readiness().remove();
  EXPECT_EQ(look(other, one), PlainReduce::APART);
  const PerReplica sparse({IndexedSlices{.values = Tensor::zeros(DType::FLOAT32, {1, 8}, "CPU:0"),
                                         .indices = Tensor::zeros(DType::INT64, {1}, "CPU:0"),
                                         .dense_shape = Shape({4, 8})}});
  EXPECT_EQ(look(sparse, one), PlainReduce::NO);
}

}  // namespace
}  // namespace crossdevice::detail
