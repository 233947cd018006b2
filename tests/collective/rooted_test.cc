// SPDX-License-Identifier: Apache-2.0
/// Schedules that are no all-reduces, executed step by step on lists of contributions.
#include "crossdevice/collective/rooted.h"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/ring.h"
#include "crossdevice/collective/schedule_traffic.h"
#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

/// Per participant and element: whose values are in it, in the order in which they were combined.
using Rows = std::vector<std::vector<std::string>>;

std::string letter(std::size_t participant) {
  return std::string(1, static_cast<char>('a' + participant));
}

Rows execute(const Schedule& schedule, Rows rows) {
  for (const ScheduleStep& step : schedule.steps) {
    EXPECT_GT(step.range.count, 0U);
    for (std::size_t e = step.range.begin; e < step.range.end(); ++e) {
      std::string result;
      for (const std::size_t source : step.sources) result += rows[source][e];
      rows[step.target][e] = result;
    }
  }
  return rows;
}

Rows every_one_its_letter(std::size_t n, std::size_t count) {
  Rows rows;
  for (std::size_t p = 0; p < n; ++p) rows.emplace_back(count, letter(p));
  return rows;
}

bool has_each_once(std::string text, std::size_t n) {
  std::string expected;
  for (std::size_t p = 0; p < n; ++p) expected += letter(p);
  std::sort(text.begin(), text.end());
  return text == expected;
}

/// Parts of awkward lengths, some empty.
std::vector<Interval> parts_of(std::size_t n) {
  std::vector<Interval> parts;
  std::size_t begin = 0;
  for (std::size_t p = 0; p < n; ++p) {
    const std::size_t count = (p * 5 + 3) % 4;
    parts.push_back({.begin = begin, .count = count});
    begin += count;
  }
  return parts;
}

/// Participant p has letter p in its part, and nothing elsewhere.
Rows each_its_part(const std::vector<Interval>& parts) {
  Rows rows(parts.size(), std::vector<std::string>(parts.back().end()));
  for (std::size_t p = 0; p < parts.size(); ++p) {
    for (std::size_t e = parts[p].begin; e < parts[p].end(); ++e) rows[p][e] = letter(p);
  }
  return rows;
}

class RootedTest : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Participants, RootedTest,
                         ::testing::Values(1, 2, 3, 4, 5, 7, 8, 9, 16, 17));

TEST_P(RootedTest, ABroadcastCopiesTheRootsToAll) {
  const std::size_t n = GetParam();
  for (const auto make : {chain_broadcast_schedule, tree_broadcast_schedule}) {
    for (std::size_t root = 0; root < n; ++root) {
      for (const std::size_t count : {0UL, 1UL, 3UL}) {
        const Rows rows = execute(make(n, count, root), every_one_its_letter(n, count));
        EXPECT_EQ(rows, Rows(n, std::vector<std::string>(count, letter(root))));
      }
    }
  }
}

TEST_P(RootedTest, AReductionGivesTheRootEverybodysOnce) {
  const std::size_t n = GetParam();
  for (const auto make : {chain_reduce_schedule, tree_reduce_schedule}) {
    for (std::size_t root = 0; root < n; ++root) {
      const Rows rows = execute(make(n, 2, root), every_one_its_letter(n, 2));
      for (const std::string& element : rows[root]) {
        EXPECT_TRUE(has_each_once(element, n)) << element;
        EXPECT_EQ(element.substr(0, 1), letter(root));
      }
    }
  }
  std::string in_order;
  for (std::size_t p = 0; p < n; ++p) in_order += letter(p);
  for (std::size_t root = 0; root < n; ++root) {
    const Rows rows = execute(direct_reduce_schedule(n, 2, root), every_one_its_letter(n, 2));
    EXPECT_EQ(rows[root], std::vector<std::string>(2, in_order));
  }
}

TEST_P(RootedTest, GathersAndTheirHalves) {
  const std::size_t n = GetParam();
  const std::vector<Interval> parts = parts_of(n);
  std::vector<std::string> all;
  for (std::size_t p = 0; p < n; ++p) all.insert(all.end(), parts[p].count, letter(p));
  EXPECT_EQ(execute(ring_all_gather_schedule(parts), each_its_part(parts)), Rows(n, all));
  EXPECT_EQ(execute(direct_all_gather_schedule(parts), each_its_part(parts)), Rows(n, all));
  for (std::size_t root = 0; root < n; ++root) {
    const Rows rows = execute(direct_gather_schedule(parts, root), each_its_part(parts));
    EXPECT_EQ(rows[root], all);
  }
  for (const auto make : {ring_reduce_scatter_schedule, direct_reduce_scatter_schedule}) {
    const Rows rows = execute(make(parts), every_one_its_letter(n, all.size()));
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t e = parts[p].begin; e < parts[p].end(); ++e) {
        EXPECT_TRUE(has_each_once(rows[p][e], n)) << rows[p][e];
      }
    }
  }
}

TEST(Rooted, CostsWhatItSays) {
  const std::size_t n = 8;
  const Schedule chain = chain_broadcast_schedule(n, 100, 3);
  EXPECT_EQ(num_rounds(chain), n - 1);
  for (const RankTraffic& traffic : schedule_traffic(chain)) {
    EXPECT_LE(traffic.elements_sent, 100U);
    EXPECT_LE(traffic.elements_received, 100U);
  }
  EXPECT_EQ(num_rounds(tree_broadcast_schedule(n, 100, 3)), 3U);
  EXPECT_EQ(num_rounds(tree_reduce_schedule(n, 100, 3)), 3U);
  const std::vector<Interval> parts = {{0, 5}, {5, 5}, {10, 5}, {15, 5}};
  EXPECT_EQ(num_rounds(direct_all_gather_schedule(parts)), 1U);
  EXPECT_EQ(num_rounds(direct_gather_schedule(parts, 2)), 1U);
  EXPECT_EQ(num_rounds(ring_all_gather_schedule(parts)), 3U);
  EXPECT_EQ(num_rounds(ring_reduce_scatter_schedule(parts)), 3U);
  EXPECT_EQ(schedule_traffic(ring_all_gather_schedule(parts)),
            schedule_traffic(direct_all_gather_schedule(parts)));
}

TEST(Rooted, RefusesWhatCannotBe) {
  EXPECT_THROW((void)chain_broadcast_schedule(0, 1, 0), ValueError);
  EXPECT_THROW((void)chain_reduce_schedule(2, 1, 2), ValueError);
  EXPECT_THROW((void)tree_broadcast_schedule(2, 1, 2), ValueError);
  EXPECT_THROW((void)tree_reduce_schedule(0, 1, 0), ValueError);
  EXPECT_THROW((void)direct_gather_schedule({}, 0), ValueError);
  EXPECT_THROW((void)direct_all_gather_schedule({}), ValueError);
  EXPECT_THROW((void)ring_all_gather_schedule({}), ValueError);
  const std::vector<Interval> with_a_gap = {{0, 1}, {2, 1}};
  EXPECT_THROW((void)ring_reduce_scatter_schedule(with_a_gap), ValueError);
}

}  // namespace
}  // namespace crossdevice
