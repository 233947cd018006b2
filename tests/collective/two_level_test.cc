// SPDX-License-Identifier: Apache-2.0
/// Two levels: every upper level over groups of all kinds, and what leaves a group.
#include "crossdevice/collective/two_level.h"

#include <cstddef>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/halving_doubling.h"
#include "crossdevice/collective/ring.h"
#include "crossdevice/collective/schedule_traffic.h"
#include "crossdevice/collective/shuffle.h"
#include "crossdevice/core/error.h"

#include "support/verify_schedule.h"

namespace crossdevice {
namespace {

using testing::verify_all_reduce;
using Lists = std::vector<std::vector<std::size_t>>;

std::vector<std::size_t> first(std::size_t count) {
  std::vector<std::size_t> result(count);
  std::iota(result.begin(), result.end(), std::size_t{0});
  return result;
}

/// Every kind of upper level over `num_groups` groups.
std::vector<Schedule> upper_levels(std::size_t num_groups, std::size_t num_elements) {
  const std::vector<std::size_t> all = first(num_groups);
  return {ring_schedule(num_elements, ring_orders(Lists{all}, 1)),
          ring_schedule(num_elements, ring_orders(Lists{all}, 3)),
          halving_doubling_schedule(num_groups, num_elements),
          shuffle_schedule(num_groups, num_elements, all),
          shuffle_schedule(num_groups, num_elements, std::vector<std::size_t>{0})};
}

/// n participants in groups of `size`, the last one smaller; `interleaved`: dealt out in turns.
Lists groups_of(std::size_t n, std::size_t size, bool interleaved) {
  const std::size_t num_groups = (n + size - 1) / size;
  Lists groups(num_groups);
  for (std::size_t i = 0; i < n; ++i) groups[interleaved ? i % num_groups : i / size].push_back(i);
  return groups;
}

TEST(TwoLevelTest, TwoGroupsTakeTheseSteps) {
  const Lists groups{{0, 2}, {1, 3}};
  EXPECT_EQ(two_level_schedule(groups, shuffle_schedule(2, 4, first(2))).to_string(),
            "[0, 4) reduce 0 <- 0 2\n[0, 4) reduce 1 <- 1 3\n"
            "[0, 2) reduce 0 <- 0 1\n[2, 4) reduce 1 <- 0 1\n"
            "[0, 2) copy 1 <- 0\n[2, 4) copy 0 <- 1\n"
            "[0, 4) copy 2 <- 0\n[0, 4) copy 3 <- 1\n");
}

TEST(TwoLevelTest, IsAnAllReduceForEveryCountAndSize) {
  for (std::size_t n = 1; n <= 64; ++n) {
    for (const std::size_t group_size : {std::size_t{1}, std::size_t{2}, std::size_t{3}, n}) {
      for (const bool interleaved : {false, true}) {
        const Lists groups = groups_of(n, group_size, interleaved);
        for (const std::size_t size :
             {std::size_t{0}, std::size_t{1}, n - 1, n + 1, std::size_t{1009}}) {
          for (const Schedule& upper : upper_levels(groups.size(), size)) {
            ASSERT_EQ(verify_all_reduce(two_level_schedule(groups, upper)), "")
                << n << " participants in groups of " << group_size << ", " << size << " elements";
          }
        }
      }
    }
  }
}

TEST(TwoLevelTest, OnlyFirstMembersTakePartInTheUpperLevel) {
  for (std::size_t n = 1; n <= 16; ++n) {
    for (std::size_t group_size = 1; group_size <= n; ++group_size) {
      const Lists groups = groups_of(n, group_size, false);
      const std::size_t size = groups.size() * 12;
      const Schedule upper = halving_doubling_schedule(groups.size(), size);
      const std::vector<RankTraffic> above = schedule_traffic(upper);
      const Schedule schedule = two_level_schedule(groups, upper);
      const std::vector<RankTraffic> traffic = schedule_traffic(schedule);
      for (std::size_t g = 0; g < groups.size(); ++g) {
        const std::size_t others = groups[g].size() - 1;
        const RankTraffic& up = above[g];
        const RankTraffic of_first{.num_steps = up.num_steps + others + (others > 0 ? 1 : 0),
                                   .messages_sent = up.messages_sent + others,
                                   .messages_received = up.messages_received + others,
                                   .elements_sent = up.elements_sent + others * size,
                                   .elements_received = up.elements_received + others * size};
        const RankTraffic of_others{2, 1, 1, size, size};
        for (const std::size_t member : groups[g]) {
          EXPECT_EQ(traffic[member], member == groups[g][0] ? of_first : of_others)
              << n << " participants in groups of " << group_size << ", member " << member;
        }
      }
      const std::size_t rounds_within = group_size > 1 ? 2 : 0;
      EXPECT_LE(num_rounds(schedule), num_rounds(upper) + rounds_within);
      if (n % group_size == 0) {
        EXPECT_EQ(num_rounds(schedule), num_rounds(upper) + rounds_within);
      }
    }
  }
}

TEST(TwoLevelTest, WrongArgumentsAreValueErrors) {
  const Schedule upper = shuffle_schedule(2, 4, first(2));
  EXPECT_THROW((void)two_level_schedule(Lists{}, upper), ValueError);
  EXPECT_THROW((void)two_level_schedule(Lists{{0}, {}}, upper), ValueError);
  EXPECT_THROW((void)two_level_schedule(Lists{{0}, {0}}, upper), ValueError);
  EXPECT_THROW((void)two_level_schedule(Lists{{0}, {2}}, upper), ValueError);
  EXPECT_THROW((void)two_level_schedule(Lists{{0}, {1}, {2}}, upper), ValueError);
}

}  // namespace
}  // namespace crossdevice
