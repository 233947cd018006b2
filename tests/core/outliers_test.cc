// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/core/outliers.h"

#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdevice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Of letters that should be equal.
std::vector<std::size_t> outliers_of(const std::string& letters) {
  return detail::outliers(letters.size(),
                          [&](std::size_t i, std::size_t j) { return letters[i] != letters[j]; });
}

TEST(OutliersTest, NobodyAmongEquals) {
  EXPECT_THAT(outliers_of(""), IsEmpty());
  EXPECT_THAT(outliers_of("a"), IsEmpty());
  EXPECT_THAT(outliers_of("aaaa"), IsEmpty());
}

TEST(OutliersTest, TheOneThatDiffersWhereverItStands) {
  EXPECT_THAT(outliers_of("baa"), ElementsAre(0));
  EXPECT_THAT(outliers_of("aba"), ElementsAre(1));
  EXPECT_THAT(outliers_of("aab"), ElementsAre(2));
}

TEST(OutliersTest, AllButTheMost) {
  EXPECT_THAT(outliers_of("abbcb"), ElementsAre(0, 3));
  EXPECT_THAT(outliers_of("abcdd"), ElementsAre(0, 1, 2));
}

TEST(OutliersTest, AllWhereNobodyCanSayWhoIsRight) {
  EXPECT_THAT(outliers_of("ab"), ElementsAre(0, 1));
  EXPECT_THAT(outliers_of("abba"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(outliers_of("abc"), ElementsAre(0, 1, 2));
  EXPECT_THAT(outliers_of("abcbc"), ElementsAre(0, 1, 2, 3, 4));
}

/// '?' may be anything.
TEST(OutliersTest, WhoSaysTooLittleIsNeitherAnOutlierNorAModel) {
  const std::string letters = "b?aa";
  EXPECT_THAT(detail::outliers(4,
                               [&](std::size_t i, std::size_t j) {
                                 return letters[i] != letters[j] && i != 1 && j != 1;
                               }),
              ElementsAre(0));
  EXPECT_THAT(
      detail::outliers(3, [](std::size_t i, std::size_t j) { return i != j && i != 1 && j != 1; }),
      ElementsAre(0, 2));
}

}  // namespace
}  // namespace crossdevice
