// SPDX-License-Identifier: Apache-2.0
// Which reductions NCCL may do for us, every dtype and op.
#include "crossdevice/comm/nccl_api.h"

#include <array>
#include <optional>

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

constexpr std::array kOps = {ReduceOp::SUM, ReduceOp::MEAN, ReduceOp::MIN, ReduceOp::MAX,
                             ReduceOp::PROD};
constexpr NcclVersion kNew = 22809;
constexpr int kHopper = 90;

std::optional<NcclReduction> on_hopper(ReduceOp op, DType dtype) {
  return nccl_reduction(op, dtype, kNew, kHopper);
}

TEST(NcclReductionTest, WhatTheLibraryDoesNotSupportNcclMayNotDo) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kOps) {
      if (!is_supported(op, dtype)) {
        EXPECT_FALSE(on_hopper(op, dtype).has_value()) << to_string(op) << " " << to_string(dtype);
      }
    }
  }
}

TEST(NcclReductionTest, PartsMakeUpAnElement) {
  constexpr std::array<std::size_t, 12> kBytes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kOps) {
      const std::optional<NcclReduction> found = on_hopper(op, dtype);
      if (!found.has_value()) continue;
      EXPECT_EQ(found->parts * kBytes.at(static_cast<std::size_t>(found->type)),
                size_in_bytes(dtype))
          << to_string(op) << " " << to_string(dtype);
    }
  }
}

TEST(NcclReductionTest, ASumOfWhatNcclKnows) {
  for (const DType dtype : kAllDTypes) {
    const bool expected =
        is_supported(ReduceOp::SUM, dtype) && dtype != DType::INT16 && dtype != DType::UINT16;
    EXPECT_EQ(on_hopper(ReduceOp::SUM, dtype).has_value(), expected) << to_string(dtype);
  }
}

TEST(NcclReductionTest, AMeanBeginsWithASumAndKeepsItsDtype) {
  for (const DType dtype : {DType::FLOAT16, DType::BFLOAT16, DType::FLOAT32, DType::FLOAT64,
                            DType::COMPLEX64, DType::COMPLEX128}) {
    const std::optional<NcclReduction> found = on_hopper(ReduceOp::MEAN, dtype);
    ASSERT_TRUE(found.has_value()) << to_string(dtype);
    EXPECT_EQ(found->op, NcclRedOp::SUM);
  }
  for (const DType dtype : {DType::INT8, DType::INT32, DType::INT64, DType::UINT64}) {
    EXPECT_FALSE(on_hopper(ReduceOp::MEAN, dtype).has_value()) << to_string(dtype);
  }
}

TEST(NcclReductionTest, MinAndMaxOfFloatsWouldLoseNaN) {
  for (const ReduceOp op : {ReduceOp::MIN, ReduceOp::MAX}) {
    for (const DType dtype : {DType::FLOAT16, DType::BFLOAT16, DType::FLOAT32, DType::FLOAT64,
                              DType::FLOAT8_E4M3, DType::FLOAT8_E5M2}) {
      EXPECT_FALSE(on_hopper(op, dtype).has_value()) << to_string(dtype);
    }
    EXPECT_TRUE(on_hopper(op, DType::INT32).has_value());
  }
  EXPECT_EQ(on_hopper(ReduceOp::MIN, DType::INT64)->op, NcclRedOp::MIN);
  EXPECT_EQ(on_hopper(ReduceOp::MAX, DType::UINT8)->op, NcclRedOp::MAX);
}

TEST(NcclReductionTest, ComplexNumbersAreTwoUnlessMultiplied) {
  const std::optional<NcclReduction> sum = on_hopper(ReduceOp::SUM, DType::COMPLEX128);
  ASSERT_TRUE(sum.has_value());
  EXPECT_EQ(sum->type, NcclDataType::FLOAT64);
  EXPECT_EQ(sum->parts, 2U);
  EXPECT_FALSE(on_hopper(ReduceOp::PROD, DType::COMPLEX64).has_value());
}

TEST(NcclReductionTest, BooleansAreBytes) {
  ASSERT_TRUE(on_hopper(ReduceOp::MIN, DType::BOOL).has_value());
  EXPECT_EQ(on_hopper(ReduceOp::MIN, DType::BOOL)->type, NcclDataType::UINT8);
  EXPECT_EQ(on_hopper(ReduceOp::MAX, DType::BOOL)->op, NcclRedOp::MAX);
}

TEST(NcclReductionTest, Float8NeedsBothItsNcclAndItsGpu) {
  for (const DType dtype : {DType::FLOAT8_E4M3, DType::FLOAT8_E5M2}) {
    EXPECT_TRUE(nccl_reduction(ReduceOp::SUM, dtype, kNcclWithFloat8, 90).has_value());
    EXPECT_TRUE(nccl_reduction(ReduceOp::SUM, dtype, kNcclWithFloat8, 100).has_value());
    EXPECT_FALSE(nccl_reduction(ReduceOp::SUM, dtype, kNcclWithFloat8 - 1, 90).has_value());
    EXPECT_FALSE(nccl_reduction(ReduceOp::SUM, dtype, kNcclWithFloat8, 89).has_value());
  }
  EXPECT_TRUE(nccl_reduction(ReduceOp::SUM, DType::BFLOAT16, kMinimumNcclVersion, 70).has_value());
}

}  // namespace
}  // namespace crossdevice::detail
