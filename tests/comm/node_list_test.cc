// SPDX-License-Identifier: Apache-2.0
// Slurm's short forms, and everything that only looks like them.
#include "comm/detail/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

TEST(ExpandNodeListTest, RangesListsAndPlainNames) {
  EXPECT_THAT(expand_node_list("n[1-2],m5,o[3-4,06]"),
              Optional(ElementsAre("n1", "n2", "m5", "o3", "o4", "o06")));
  EXPECT_THAT(expand_node_list("host"), Optional(ElementsAre("host")));
  EXPECT_THAT(expand_node_list("a,b"), Optional(ElementsAre("a", "b")));
  EXPECT_THAT(expand_node_list("tux[7]"), Optional(ElementsAre("tux7")));
  EXPECT_THAT(expand_node_list("gpu-a.b_c[1-1]"), Optional(ElementsAre("gpu-a.b_c1")));
}

TEST(ExpandNodeListTest, LeadingZerosStay) {
  EXPECT_THAT(expand_node_list("n[08-11]"), Optional(ElementsAre("n08", "n09", "n10", "n11")));
  EXPECT_THAT(expand_node_list("n[8-11]"), Optional(ElementsAre("n8", "n9", "n10", "n11")));
  EXPECT_THAT(expand_node_list("n[000,1]"), Optional(ElementsAre("n000", "n1")));
  EXPECT_THAT(expand_node_list("n[098-101]"),
              Optional(ElementsAre("n098", "n099", "n100", "n101")));
}

TEST(ExpandNodeListTest, EndingsAndSeveralBrackets) {
  EXPECT_THAT(expand_node_list("n[1-2]-ib,x"), Optional(ElementsAre("n1-ib", "n2-ib", "x")));
  EXPECT_THAT(expand_node_list("r[1-2]n[3-4]"),
              Optional(ElementsAre("r1n3", "r1n4", "r2n3", "r2n4")));
  EXPECT_THAT(expand_node_list("[1-2]"), Optional(ElementsAre("1", "2")));
}

TEST(ExpandNodeListTest, NonsenseIsRefused) {
  for (const char* text : {"",
                           ",",
                           "a,",
                           ",a",
                           "a,,b",
                           "n[",
                           "n]",
                           "n[]",
                           "n[1",
                           "n[1-]",
                           "n[-1]",
                           "n[2-1]",
                           "n[1-2-3]",
                           "n[a]",
                           "n[1,]",
                           "n[,1]",
                           "n[1 2]",
                           "a b",
                           "a\n",
                           "n[[1]]",
                           "n[1]]",
                           "\xff",
                           "a;b",
                           "n[+1]",
                           "n[9999999999]",
                           "n[0-9999999999]"}) {
    EXPECT_EQ(expand_node_list(text), std::nullopt) << text;
  }
  EXPECT_EQ(expand_node_list(std::string(256, 'a') + "[1]"), std::nullopt);
}

TEST(ExpandNodeListTest, ThereIsALimit) {
  EXPECT_EQ(expand_node_list("n[1-100000]")->size(), 100'000U);
  EXPECT_EQ(expand_node_list("n[1-100001]"), std::nullopt);
  EXPECT_EQ(expand_node_list("n[0-99999],m"), std::nullopt);
  EXPECT_EQ(expand_node_list("n[0-999999999]"), std::nullopt);
  EXPECT_EQ(expand_node_list("a[1-1000]b[1-101]"), std::nullopt);
  EXPECT_EQ(expand_node_list("a[1-50000,1-50001]"), std::nullopt);
}

TEST(ExpandTaskCountsTest, NumbersAndRepetitions) {
  EXPECT_THAT(expand_task_counts("4(x2),3"), Optional(ElementsAre(4, 4, 3)));
  EXPECT_THAT(expand_task_counts("1"), Optional(ElementsAre(1)));
  EXPECT_THAT(expand_task_counts("2(x1),1(x3)"), Optional(ElementsAre(2, 1, 1, 1)));
}

TEST(ExpandTaskCountsTest, NonsenseIsRefused) {
  for (const char* text : {"", ",", "4,", "4(x2", "4x2", "4(2)", "4(x)", "4(x0)", "(x2)", "4(x2)3",
                           "a", "-1", "4 ", "4(x2),,3", "4(x100001)", "1000001", ")", "4)"}) {
    EXPECT_EQ(expand_task_counts(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace crossdevice::detail
