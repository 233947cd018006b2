// SPDX-License-Identifier: Apache-2.0
// That values which have come to another place are seen.
#include "chaos/values.h"

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace crossdevice::chaos {
namespace {

std::vector<std::byte> row(std::size_t count, const Tile& tile, std::size_t first = 0) {
  std::vector<std::byte> bytes(count * sizeof(float));
  fill(bytes, sizeof(float), tile, first);
  return bytes;
}

Tile a_tile() { return input_tile(ReduceOp::SUM, DType::FLOAT32, {.salt = 7, .rank = 1}); }

TEST(ValuesTest, WhatIsFilledMatches) {
  for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 60, 61, 62, 1000, 9999}) {
    EXPECT_TRUE(matches(row(count, a_tile()), sizeof(float), a_tile())) << count;
    EXPECT_TRUE(matches(row(count, a_tile(), 77), sizeof(float), a_tile(), 77)) << count;
  }
}

TEST(ValuesTest, WhatIsDisplacedByAnyNumberOfElementsIsFound) {
  constexpr std::size_t kCount = 2000;
  const std::vector<std::byte> all = row(2 * kCount, a_tile());
  for (std::size_t by = 1; by <= kCount; ++by) {
    const std::span<const std::byte> displaced(all.data() + by * sizeof(float),
                                               kCount * sizeof(float));
    ASSERT_FALSE(matches(displaced, sizeof(float), a_tile())) << by;
    ASSERT_TRUE(matches(displaced, sizeof(float), a_tile(), by)) << by;
  }
}

TEST(ValuesTest, EachByteIsLookedAt) {
  std::vector<std::byte> bytes = row(500, a_tile());
  for (std::byte& each : bytes) {
    each ^= std::byte{1};
    ASSERT_FALSE(matches(bytes, sizeof(float), a_tile()));
    each ^= std::byte{1};
  }
}

TEST(ValuesTest, WhatIsWrittenIsPoisonNoMore) {
  std::vector<std::byte> bytes(500);
  poison(bytes);
  EXPECT_TRUE(is_poison(bytes));
  EXPECT_TRUE(is_poison({}));
  for (std::byte& each : bytes) {
    each ^= std::byte{1};
    ASSERT_FALSE(is_poison(bytes));
    each ^= std::byte{1};
  }
}

TEST(ValuesTest, PartsOfAWholeAreReducedAsItIs) {
  constexpr std::size_t kCount = 700;
  const Tile reduced = reduced_tile(ReduceOp::SUM, DType::FLOAT32, 7, 0, 2, 1);
  std::vector<std::vector<float>> inputs;
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<std::byte> bytes =
        row(kCount, input_tile(ReduceOp::SUM, DType::FLOAT32, {.salt = 7, .rank = rank}), 123);
    std::memcpy(inputs.emplace_back(kCount).data(), bytes.data(), bytes.size());
  }
  for (std::size_t i = 0; i < kCount; ++i) inputs[0][i] += inputs[1][i];
  EXPECT_TRUE(matches(std::as_bytes(std::span(inputs[0])), sizeof(float), reduced, 123));
}

}  // namespace
}  // namespace crossdevice::chaos
