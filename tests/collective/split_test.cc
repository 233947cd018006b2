// SPDX-License-Identifier: Apache-2.0
/// Splits and groups: TF's values, and every element and member once for all counts.
#include "crossdevice/collective/split.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using Split = std::vector<Interval> (*)(const Interval&, std::size_t);

std::vector<std::size_t> counts(Split split, std::size_t num_elements, std::size_t num_parts) {
  std::vector<std::size_t> result;
  for (const Interval& part : split({.begin = 0, .count = num_elements}, num_parts)) {
    result.push_back(part.count);
  }
  return result;
}

using Counts = std::vector<std::size_t>;
using Groups = std::vector<std::vector<std::size_t>>;

// TF pads the parts to one length; its examples, with the padding taken off.
TEST(SplitTest, PaddedSplitHasTfsParts) {
  EXPECT_EQ(counts(padded_split, 8, 4), (Counts{2, 2, 2, 2}));
  EXPECT_EQ(counts(padded_split, 10, 4), (Counts{3, 3, 3, 1}));
  EXPECT_EQ(counts(padded_split, 5, 4), (Counts{2, 2, 1, 0}));
  EXPECT_EQ(counts(padded_split, 9, 5), (Counts{2, 2, 2, 2, 1}));
  EXPECT_EQ(counts(padded_split, 3, 4), (Counts{1, 1, 1, 0}));
  EXPECT_EQ(counts(padded_split, 25, 6), (Counts{5, 5, 5, 5, 5, 0}));
  const Counts of_91 = counts(padded_split, 91, 16);
  EXPECT_EQ(of_91[0], 6u);
  EXPECT_EQ(of_91[14], 6u);
  EXPECT_EQ(of_91[15], 1u);
}

// Row AR-3: 16 elements on 4 devices with 2 sub-chunks are 8 chunks of 2.
TEST(SplitTest, AR_3_SixteenElementsInEightChunks) {
  EXPECT_EQ(counts(padded_split, 16, 8), Counts(8, 2));
}

TEST(SplitTest, RaggedSplitHasTfsParts) {
  EXPECT_EQ(counts(ragged_split, 10, 4), (Counts{2, 2, 2, 4}));
  EXPECT_EQ(counts(ragged_split, 3, 4), (Counts{0, 0, 0, 3}));
  EXPECT_EQ(counts(ragged_split, 7, 4), (Counts{1, 1, 1, 4}));
}

TEST(SplitTest, EveryElementLiesInOnePartOfEachSplit) {
  for (const Split split : {padded_split, ragged_split}) {
    for (std::size_t num_elements = 0; num_elements < 70; ++num_elements) {
      for (std::size_t num_parts = 1; num_parts < 20; ++num_parts) {
        const std::vector<Interval> parts = split({.begin = 11, .count = num_elements}, num_parts);
        ASSERT_EQ(parts.size(), num_parts);
        std::size_t next = 11;
        for (const Interval& part : parts) {
          if (part.count == 0) continue;
          EXPECT_EQ(part.begin, next);
          next = part.end();
        }
        EXPECT_EQ(next, 11 + num_elements);
      }
    }
  }
}

TEST(SplitTest, NoPartsIsAValueError) {
  EXPECT_THROW((void)padded_split({.begin = 0, .count = 3}, 0), ValueError);
  EXPECT_THROW((void)ragged_split({.begin = 0, .count = 3}, 0), ValueError);
}

TEST(SplitTest, GroupsAreDealtAsTfDoes) {
  EXPECT_EQ(deal_into_groups(3, 2), (Groups{{0, 2}, {1, 0}}));
  EXPECT_EQ(deal_into_groups(4, 2), (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ(deal_into_groups(5, 2), (Groups{{0, 3}, {1, 4}, {2, 0}}));
  EXPECT_EQ(deal_into_groups(5, 3), (Groups{{0, 2, 4}, {1, 3, 0}}));
  EXPECT_EQ(deal_into_groups(8, 3), (Groups{{0, 3, 6}, {1, 4, 7}, {2, 5, 0}}));
  EXPECT_EQ(deal_into_groups(1, 1), (Groups{{0}}));
}

TEST(SplitTest, GroupsOfNobodyOrOfTooManyAreValueErrors) {
  EXPECT_THROW((void)deal_into_groups(3, 0), ValueError);
  EXPECT_THROW((void)deal_into_groups(3, 4), ValueError);
  EXPECT_THROW((void)deal_into_groups(0, 1), ValueError);
}

}  // namespace
}  // namespace crossdevice
