// SPDX-License-Identifier: Apache-2.0
// A reused list comes back empty, and its elements with their memory.
#include "crossdevice/core/reused_list.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "support/allocation_counter.h"

namespace crossdevice::detail {
namespace {

TEST(ReusedListTest, ElementsComeBackEmpty) {
  ReusedList<std::vector<int>> list;
  EXPECT_TRUE(list.view().empty());
  list.add().push_back(1);
  list.add().push_back(2);
  ASSERT_EQ(list.view().size(), 2U);
  EXPECT_EQ(list.view()[1], std::vector<int>({2}));
  list.clear();
  EXPECT_TRUE(list.view().empty());
  EXPECT_TRUE(list.add().empty());
  EXPECT_EQ(list.view().size(), 1U);
}

TEST(ReusedListTest, InSteadyStateNothingIsAllocated) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer has replaced the heap";
  ReusedList<std::vector<int>> list;
  const auto fill = [&list] {
    for (int i = 0; i < 5; ++i) list.add().push_back(i);
    list.clear();
  };
  fill();
  const std::size_t before = testing::num_allocations_of_this_thread();
  fill();
  EXPECT_EQ(testing::num_allocations_of_this_thread(), before);
}

}  // namespace
}  // namespace crossdevice::detail
