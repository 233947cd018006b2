// SPDX-License-Identifier: Apache-2.0
// The cores of the process are those of its main thread, whoever asks.
#include "crossdevice/core/usable_cores.h"

#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

namespace crossdevice::detail {
namespace {

/// Binds the calling thread to the core it is on, and says which that is.
int bind_to_one_core() {
  const int core = sched_getcpu();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(core), &one);
  EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  return core;
}

TEST(UsableCoresTest, AreThoseOfTheMainThread) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  std::set<int> expected;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<unsigned>(core), &before)) expected.insert(core);
  }
  EXPECT_EQ(usable_cores(), expected);

  const int core = bind_to_one_core();
  const std::set<int> when_bound = usable_cores();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(when_bound, std::set<int>{core});
}

TEST(UsableCoresTest, DoNotDependOnTheThreadThatAsks) {
  const std::set<int> expected = usable_cores();
  std::set<int> seen;
  std::thread([&] {
    (void)bind_to_one_core();
    seen = usable_cores();
  }).join();
  EXPECT_EQ(seen, expected);
}

bool each(const std::vector<std::set<int>>& usable) { return can_have_a_core_each(usable); }

TEST(CoreEachTest, AsManyCoresAsProcesses) {
  EXPECT_TRUE(each({}));
  EXPECT_TRUE(each({{3}}));
  EXPECT_TRUE(each({{0, 1}, {0, 1}}));
  EXPECT_FALSE(each({{0, 1}, {0, 1}, {0, 1}}));
  EXPECT_FALSE(each({{}}));
}

TEST(CoreEachTest, BoundProcesses) {
  EXPECT_TRUE(each({{0}, {1}}));
  EXPECT_FALSE(each({{1}, {1}}));
  EXPECT_FALSE(each({{1}, {0, 1, 2, 3}, {1}}));
  EXPECT_TRUE(each({{0, 1, 2, 3}, {0}}));
  // Everybody must move on for the last one.
  EXPECT_TRUE(each({{0, 1}, {1, 2}, {2, 3}, {0}}));
  EXPECT_FALSE(each({{0, 1}, {1, 2}, {2, 0}, {0, 1, 2}}));
}

TEST(CoreEachTest, ManyProcesses) {
  std::set<int> all;
  for (int core = 0; core < 256; ++core) all.insert(core);
  std::vector<std::set<int>> usable(256, all);
  EXPECT_TRUE(each(usable));
  usable.push_back(all);
  EXPECT_FALSE(each(usable));
}

}  // namespace
}  // namespace crossdevice::detail
