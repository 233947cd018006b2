// SPDX-License-Identifier: Apache-2.0
/// Tests of collective/pattern.h: the reference that crossdevice-bench checks results with must itself find mistakes.
#include "collective/pattern.h"

#include <cmath>
#include <cstring>
#include <set>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "collective/element_types.h"

namespace crossdevice::bench {
namespace {

constexpr std::size_t kCount = 3 * kPatternPeriod + 5;

std::vector<std::byte> inputs_of(const PatternPlace& place, std::size_t count) {
  std::vector<std::byte> bytes(count * size_in_bytes(place.dtype));
  write_inputs(place, bytes.data(), count);
  return bytes;
}

TEST(PatternTest, WhatWasWrittenIsFoundToBeTheInput) {
  for (const DType dtype : kAllDTypes) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, kPatternPeriod - 1,
                                    kPatternPeriod, kPatternPeriod + 1, kCount}) {
      const PatternPlace place{.dtype = dtype, .num_replicas = 4, .replica = 2, .first_index = 34};
      const auto bytes = inputs_of(place, count);
      EXPECT_EQ(count_different_from_input(place, bytes.data(), count), 0U) << to_string(dtype);
    }
  }
}

TEST(PatternTest, FirstIndexShiftsThePattern) {
  const PatternPlace whole{.dtype = DType::INT32, .num_replicas = 2, .replica = 1};
  PatternPlace shifted = whole;
  shifted.first_index = 1000;
  const auto bytes = inputs_of(whole, kCount);
  EXPECT_EQ(count_different_from_input(shifted, bytes.data() + 1000 * 4, kCount - 1000), 0U);
}

TEST(PatternTest, EverySingleChangedElementIsCounted) {
  for (const DType dtype : kAllDTypes) {
    const PatternPlace place{.dtype = dtype, .num_replicas = 1};
    auto bytes = inputs_of(place, kCount);
    const std::size_t size = size_in_bytes(dtype);
    for (const std::size_t index : {std::size_t{0}, kPatternPeriod, kCount - 1}) {
      std::memset(bytes.data() + index * size, 0xA5, size);
    }
    EXPECT_EQ(count_different_from_input(place, bytes.data(), kCount), 3U) << to_string(dtype);
  }
}

TEST(PatternTest, ReplicasHoldDifferentInputs) {
  for (const DType dtype : kAllDTypes) {
    const PatternPlace first{.dtype = dtype, .num_replicas = 2, .replica = 0};
    const PatternPlace second{.dtype = dtype, .num_replicas = 2, .replica = 1};
    const auto bytes = inputs_of(first, kCount);
    EXPECT_GT(count_different_from_input(second, bytes.data(), kCount), kCount / 4)
        << to_string(dtype);
  }
}

TEST(PatternTest, ReducedElementsAgreeWithSumsWrittenByHand) {
  for (const std::size_t index : {0U, 1U, 7U, 1020U, 1021U, 5000U}) {
    const auto at = [&](std::size_t r) {
      return input_element(DType::FLOAT32, ReduceOp::SUM, r, 3, index);
    };
    EXPECT_EQ(reduced_element(DType::FLOAT32, ReduceOp::SUM, 3, index), at(0) + at(1) + at(2));
    EXPECT_EQ(reduced_element(DType::FLOAT32, ReduceOp::MIN, 3, index),
              std::fmin(at(0), std::fmin(at(1), at(2))));
    EXPECT_EQ(reduced_element(DType::FLOAT32, ReduceOp::MAX, 3, index),
              std::fmax(at(0), std::fmax(at(1), at(2))));
  }
}

TEST(PatternTest, ReductionsTakeMoreThanOneValue) {
  for (const ReduceOp op : kAllReduceOps) {
    std::set<double> values;
    for (std::size_t i = 0; i < kPatternPeriod; ++i) {
      values.insert(reduced_element(DType::FLOAT32, op, 4, i));
    }
    EXPECT_GE(values.size(), 2U) << to_string(op);
  }
}

TEST(PatternTest, SumsAndProductsStaySmallEnoughToBeExactInEveryType) {
  for (const std::size_t n : {1U, 2U, 8U, 64U}) {
    for (std::size_t i = 0; i < kPatternPeriod; ++i) {
      EXPECT_LE(std::abs(reduced_element(DType::INT8, ReduceOp::SUM, n, i)), 127);
      EXPECT_LE(reduced_element(DType::UINT8, ReduceOp::SUM, n, i), 4.0 * static_cast<double>(n));
      EXPECT_LE(reduced_element(DType::FLOAT8_E4M3, ReduceOp::PROD, n, i), 2);
    }
  }
}

/// The reduction of `n` replicas' inputs, computed from the elements as they lie in memory.
template <class T>
std::vector<T> float_sums(const PatternPlace& place, std::size_t n) {
  std::vector<float> sums(kCount, 0.0F);
  for (std::size_t r = 0; r < n; ++r) {
    PatternPlace replica = place;
    replica.replica = r;
    const auto bytes = inputs_of(replica, kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      sums[i] += static_cast<float>(reinterpret_cast<const T*>(bytes.data())[i]);
    }
  }
  std::vector<T> results;
  for (const float sum : sums) {
    results.push_back(T(place.op == ReduceOp::MEAN ? sum / static_cast<float>(n) : sum));
  }
  return results;
}

TEST(PatternTest, SumAndMeanOfSmallFloatsAreAcceptedAndNeighboursAreNot) {
  for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::MEAN}) {
    const PatternPlace place{
        .dtype = DType::BFLOAT16, .op = op, .num_replicas = 5, .first_index = 3};
    PatternPlace written = place;
    auto results = float_sums<bfloat16>(written, 5);
    EXPECT_EQ(count_different_from_reduction(place, results.data(), kCount), 0U) << to_string(op);
    results[17].bits ^= 1U;
    EXPECT_EQ(count_different_from_reduction(place, results.data(), kCount), 1U) << to_string(op);
  }
}

TEST(PatternTest, MeanOfIntegersIsAFloat) {
  const PatternPlace place{.dtype = DType::INT16, .op = ReduceOp::MEAN, .num_replicas = 3};
  std::vector<float> results(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    results[i] = static_cast<float>(reduced_element(DType::INT16, ReduceOp::SUM, 3, i)) / 3.0F;
  }
  EXPECT_EQ(count_different_from_reduction(place, results.data(), kCount), 0U);
  results[9] = std::nextafter(results[9], 100.0F);
  EXPECT_EQ(count_different_from_reduction(place, results.data(), kCount), 1U);
}

TEST(PatternTest, BoolsCombineByAndAndOr) {
  for (const ReduceOp op : {ReduceOp::MIN, ReduceOp::MAX, ReduceOp::PROD}) {
    const PatternPlace place{.dtype = DType::BOOL, .op = op, .num_replicas = 2};
    PatternPlace other = place;
    other.replica = 1;
    const auto a = inputs_of(place, kCount);
    const auto b = inputs_of(other, kCount);
    std::vector<std::byte> results;
    for (std::size_t i = 0; i < kCount; ++i)
      results.push_back(op == ReduceOp::MAX ? a[i] | b[i] : a[i] & b[i]);
    EXPECT_EQ(count_different_from_reduction(place, results.data(), kCount), 0U) << to_string(op);
  }
}

}  // namespace
}  // namespace crossdevice::bench
