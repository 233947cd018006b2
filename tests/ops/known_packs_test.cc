// SPDX-License-Identifier: Apache-2.0
// The packs of a batch: those of make_packs(), whatever was asked for before, and made once.
#include "ops/detail/known_packs.h"

#include <vector>

#include <gtest/gtest.h>

#include "support/allocation_counter.h"

namespace crossdevice::detail {
namespace {

using Sizes = std::vector<TensorSize>;

const Sizes kGradients{{DType::FLOAT32, 1000}, {DType::FLOAT32, 10}, {DType::FLOAT16, 500}};

void expect_same(std::span<const Pack> packs, const std::vector<Pack>& expected) {
  ASSERT_EQ(packs.size(), expected.size());
  for (std::size_t p = 0; p < packs.size(); ++p) {
    EXPECT_EQ(packs[p].dtype, expected[p].dtype);
    ASSERT_EQ(packs[p].ranges.size(), expected[p].ranges.size());
    for (std::size_t r = 0; r < packs[p].ranges.size(); ++r) {
      EXPECT_EQ(packs[p].ranges[r].tensor, expected[p].ranges[r].tensor);
      EXPECT_EQ(packs[p].ranges[r].begin, expected[p].ranges[r].begin);
      EXPECT_EQ(packs[p].ranges[r].count, expected[p].ranges[r].count);
    }
  }
}

TEST(KnownPacksTest, WhatDiffersInOneThingHasPacksOfItsOwn) {
  KnownPacks known;
  Sizes other_dtype = kGradients;
  other_dtype[1].dtype = DType::FLOAT16;
  Sizes other_size = kGradients;
  other_size[2].num_elements = 501;
  const Sizes fewer(kGradients.begin(), kGradients.begin() + 2);
  for (int round = 0; round < 2; ++round) {  // the second time they are known
    for (const Sizes& sizes : {kGradients, other_dtype, other_size, fewer, Sizes()}) {
      expect_same(known.packs(sizes, 0), make_packs(sizes, {.num_packs = 1}));
      for (const std::int64_t limit : {1, 3000, 1 << 20}) {
        expect_same(known.packs(sizes, limit), make_packs(sizes, {.bytes_per_pack = limit}));
      }
    }
  }
}

TEST(KnownPacksTest, MoreKindsThanAreKeptAreMadeAgain) {
  KnownPacks known;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t count = 1; count <= 50; ++count) {
      const Sizes sizes(3, TensorSize{DType::FLOAT32, count});
      expect_same(known.packs(sizes, 100), make_packs(sizes, {.bytes_per_pack = 100}));
    }
  }
}

TEST(KnownPacksTest, AKnownBatchAllocatesNothing) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer replaces the heap";
  KnownPacks known;
  (void)known.packs(kGradients, 0);
  (void)known.packs(kGradients, 3000);
  const std::size_t before = testing::num_allocations_of_this_thread();
  (void)known.packs(kGradients, 0);
  (void)known.packs(kGradients, 3000);
  EXPECT_EQ(testing::num_allocations_of_this_thread(), before);
}

}  // namespace
}  // namespace crossdevice::detail
