// SPDX-License-Identifier: Apache-2.0
/// Tests of collective/sizes.h.
#include "collective/sizes.h"

#include <vector>

#include <gtest/gtest.h>

#include "support/program.h"

namespace crossdevice::bench {
namespace {

using Sizes = std::vector<std::size_t>;

TEST(SizesTest, FactorsMultiply) {
  EXPECT_EQ(sizes_in({.min_bytes = 8, .max_bytes = 64, .step_factor = 2}), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(sizes_in({.min_bytes = 8, .max_bytes = 100, .step_factor = 3}), (Sizes{8, 24, 72}));
  EXPECT_EQ(sizes_in({.min_bytes = 100, .max_bytes = 250, .step_factor = 1.5}),
            (Sizes{100, 150, 225}));
}

TEST(SizesTest, StepsAdd) {
  EXPECT_EQ(sizes_in({.min_bytes = 8, .max_bytes = 40, .step_bytes = 16}), (Sizes{8, 24, 40}));
  EXPECT_EQ(sizes_in({.min_bytes = 0, .max_bytes = 20, .step_bytes = 16}), (Sizes{0, 16}));
}

TEST(SizesTest, EqualBoundsAreOneSize) {
  EXPECT_EQ(sizes_in({.min_bytes = 64, .max_bytes = 64}), (Sizes{64}));
  EXPECT_EQ(sizes_in({.min_bytes = 0, .max_bytes = 0}), (Sizes{0}));
}

TEST(SizesTest, SmallSizesGrowAllTheSame) {
  EXPECT_EQ(sizes_in({.min_bytes = 0, .max_bytes = 4, .step_factor = 2}), (Sizes{0, 1, 2, 4}));
}

TEST(SizesTest, RefusesRangesThatEndBeforeTheyBegin) {
  EXPECT_THROW((void)sizes_in({.min_bytes = 9, .max_bytes = 8}), programs::ArgumentError);
}

TEST(SizesTest, RefusesFactorsThatDoNotGrow) {
  EXPECT_THROW((void)sizes_in({.step_factor = 1}), programs::ArgumentError);
  EXPECT_THROW((void)sizes_in({.step_factor = 0.5}), programs::ArgumentError);
}

TEST(SizesTest, TheLargestSizesDoNotOverflow) {
  const std::size_t top = ~std::size_t{0};
  EXPECT_EQ(sizes_in({.min_bytes = top - 1, .max_bytes = top, .step_bytes = 8}), (Sizes{top - 1}));
}

}  // namespace
}  // namespace crossdevice::bench
