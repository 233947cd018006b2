// SPDX-License-Identifier: Apache-2.0
/// Rings: TF's permutations and order of summation, an all-reduce for every count, and what it sends.
#include "crossdevice/collective/ring.h"

#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/schedule_traffic.h"
#include "crossdevice/core/error.h"

#include "support/verify_schedule.h"

namespace crossdevice {
namespace {

using testing::awkward_sizes;
using testing::verify_all_reduce;
using Lists = std::vector<std::vector<std::size_t>>;

/// `num_workers` workers with `perm` each, as TF numbers them.
Lists workers_of(std::size_t num_workers, const std::vector<std::size_t>& perm) {
  Lists workers(num_workers);
  for (std::size_t w = 0; w < num_workers; ++w) {
    for (const std::size_t gpu : perm) workers[w].push_back(gpu + w * perm.size());
  }
  return workers;
}

/// TF's two tables: of each device its position in each ring, and its predecessor there.
struct Permutations {
  Lists pred;
  Lists rank;
  friend bool operator==(const Permutations&, const Permutations&) = default;
};

Permutations permutations(std::size_t num_workers, std::size_t num_subchunks,
                          const std::vector<std::size_t>& perm) {
  Permutations result;
  const Lists workers = workers_of(num_workers, perm);
  for (const std::vector<std::size_t>& order : ring_orders(workers, num_subchunks)) {
    const std::size_t n = order.size();
    std::vector<std::size_t> pred(n);
    std::vector<std::size_t> rank(n);
    for (std::size_t k = 0; k < n; ++k) {
      rank[order[k]] = k;
      pred[order[k]] = order[(k + n - 1) % n];
    }
    result.pred.push_back(pred);
    result.rank.push_back(rank);
  }
  return result;
}

// testRingPermutations, and more of TF's values.
TEST(RingTest, AR_2_RingPermutations) {
  EXPECT_EQ(permutations(1, 0, {}), (Permutations{{}, {}}));
  EXPECT_EQ(permutations(1, 1, {0}), (Permutations{{{0}}, {{0}}}));
  EXPECT_EQ(permutations(1, 1, {0, 1, 2}), (Permutations{{{2, 0, 1}}, {{0, 1, 2}}}));
  EXPECT_EQ(permutations(2, 1, {0, 1, 2}).pred, (Lists{{5, 0, 1, 2, 3, 4}}));
  EXPECT_EQ(permutations(3, 1, {0, 1, 2}).pred, (Lists{{8, 0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(permutations(2, 1, {2, 1, 0}),
            (Permutations{{{1, 2, 3, 4, 5, 0}}, {{2, 1, 0, 5, 4, 3}}}));
  EXPECT_EQ(permutations(1, 2, {0, 1, 2, 3}).rank, (Lists{{0, 1, 2, 3}, {2, 3, 0, 1}}));
  EXPECT_EQ(permutations(1, 4, {0, 1, 2, 3}).rank,
            (Lists{{0, 1, 2, 3}, {3, 0, 1, 2}, {2, 3, 0, 1}, {1, 2, 3, 0}}));
  const Permutations two_by_four = permutations(2, 2, {0, 1, 2, 3});
  EXPECT_EQ(two_by_four.pred[1], (std::vector<std::size_t>{3, 0, 5, 2, 7, 4, 1, 6}));
  EXPECT_EQ(two_by_four.rank[1], (std::vector<std::size_t>{2, 3, 0, 1, 6, 7, 4, 5}));
  EXPECT_EQ(permutations(2, 2, {0, 3, 2, 1}),
            (Permutations{{{5, 2, 3, 0, 1, 6, 7, 4}, {1, 2, 7, 0, 5, 6, 3, 4}},
                          {{0, 3, 2, 1, 4, 7, 6, 5}, {2, 1, 0, 3, 6, 5, 4, 7}}}));
  EXPECT_EQ(permutations(1, 2, {0, 1, 2}).rank, (Lists{{0, 1, 2}, {2, 0, 1}}));
  EXPECT_EQ(permutations(2, 2, {0, 1}),
            (Permutations{{{3, 0, 1, 2}, {1, 2, 3, 0}}, {{0, 1, 2, 3}, {1, 0, 3, 2}}}));
  EXPECT_EQ(permutations(1, 2, {0, 1, 2, 3, 4}).rank[1], (std::vector<std::size_t>{3, 4, 0, 1, 2}));
}

TEST(RingTest, WorkersMayDifferInSizeAndThereMayBeMoreSubchunksThanMembers) {
  const Lists workers{{0}, {1, 2, 3}};
  EXPECT_EQ(ring_orders(workers, 5),
            (Lists{{0, 1, 2, 3}, {0, 2, 3, 1}, {0, 3, 1, 2}, {0, 1, 2, 3}, {0, 2, 3, 1}}));
}

/// What participant 0 .. n-1 hold of element `at`, as the text of the additions.
std::vector<std::string> sums_of(const Schedule& schedule, std::size_t at) {
  std::vector<std::string> held;
  for (std::size_t i = 0; i < schedule.num_participants; ++i) held.push_back(std::to_string(i));
  for (const ScheduleStep& step : schedule.steps) {
    if (at < step.range.begin || at >= step.range.end()) continue;
    std::string sum;
    for (const std::size_t source : step.sources) sum += (sum.empty() ? "" : "+") + held[source];
    held[step.target] = sum;
  }
  return held;
}

// Segment k is summed in the order of positions k+1, k+2, ..., k.
TEST(RingTest, SegmentsAreSummedInTfsOrder) {
  const Lists workers = workers_of(1, {0, 1, 2, 3});
  const Schedule schedule = ring_schedule(8, ring_orders(workers, 2));
  // Chunk k * 2 + s has one element; ring 1 is 2, 3, 0, 1.
  const char* const expected[] = {"1+2+3+0", "3+0+1+2", "2+3+0+1", "0+1+2+3",
                                  "3+0+1+2", "1+2+3+0", "0+1+2+3", "2+3+0+1"};
  for (std::size_t at = 0; at < 8; ++at) {
    EXPECT_EQ(sums_of(schedule, at), std::vector<std::string>(4, expected[at])) << at;
  }
}

TEST(RingTest, ThreeParticipantsTakeTheseSteps) {
  const Schedule schedule = ring_schedule(3, Lists{{0, 1, 2}});
  EXPECT_EQ(schedule.to_string(),
            "[0, 1) reduce 2 <- 1 2\n[2, 3) reduce 1 <- 0 1\n[1, 2) reduce 0 <- 2 0\n"
            "[2, 3) reduce 2 <- 1 2\n[1, 2) reduce 1 <- 0 1\n[0, 1) reduce 0 <- 2 0\n"
            "[1, 2) copy 2 <- 1\n[0, 1) copy 1 <- 0\n[2, 3) copy 0 <- 2\n"
            "[0, 1) copy 2 <- 1\n[2, 3) copy 1 <- 0\n[1, 2) copy 0 <- 2\n");
}

TEST(RingTest, IsAnAllReduceForEveryCountAndSize) {
  for (std::size_t n = 1; n <= 64; ++n) {
    std::vector<std::size_t> everybody(n);
    std::iota(everybody.begin(), everybody.end(), std::size_t{0});
    for (const std::size_t num_subchunks : {1u, 2u, 3u}) {
      const Lists orders = ring_orders(Lists{everybody}, num_subchunks);
      for (const std::size_t size : awkward_sizes(n)) {
        ASSERT_EQ(verify_all_reduce(ring_schedule(size, orders)), "")
            << n << " participants, " << num_subchunks << " rings, " << size << " elements";
      }
    }
  }
}

TEST(RingTest, SendsWhatIsPredicted) {
  for (std::size_t n = 1; n <= 16; ++n) {
    for (const std::size_t num_rings : {1u, 2u, 4u}) {
      std::vector<std::size_t> everybody(n);
      std::iota(everybody.begin(), everybody.end(), std::size_t{0});
      const std::size_t chunk = 5;
      const std::size_t size = n * num_rings * chunk;
      const Schedule schedule = ring_schedule(size, ring_orders(Lists{everybody}, num_rings));
      const std::size_t messages = 2 * (n - 1) * num_rings;
      const RankTraffic expected{.num_steps = 2 * messages,
                                 .messages_sent = messages,
                                 .messages_received = messages,
                                 .elements_sent = messages * chunk,
                                 .elements_received = messages * chunk};
      EXPECT_EQ(expected.elements_sent * n, 2 * (n - 1) * size);
      EXPECT_EQ(schedule_traffic(schedule), std::vector<RankTraffic>(n, expected)) << n;
      EXPECT_EQ(num_rounds(schedule), 2 * (n - 1)) << n;
    }
  }
}

// Uneven chunks: position k sends every segment but its own, then every one but its successor's.
TEST(RingTest, UnevenChunksAreSentOnceInEachPass) {
  for (std::size_t n = 2; n <= 16; ++n) {
    std::vector<std::size_t> everybody(n);
    std::iota(everybody.begin(), everybody.end(), std::size_t{0});
    for (const std::size_t size : awkward_sizes(n)) {
      const std::vector<Interval> chunks = padded_split({.begin = 0, .count = size}, n);
      const std::vector<RankTraffic> traffic =
          schedule_traffic(ring_schedule(size, Lists{everybody}));
      for (std::size_t k = 0; k < n; ++k) {
        EXPECT_EQ(traffic[k].elements_sent, 2 * size - chunks[k].count - chunks[(k + 1) % n].count)
            << n << " participants, " << size << " elements, position " << k;
      }
    }
  }
}

TEST(RingTest, WrongArgumentsAreValueErrors) {
  EXPECT_THROW((void)ring_orders(Lists{{0, 1}}, 0), ValueError);
  EXPECT_THROW((void)ring_orders(Lists{{0, 1}, {1}}, 1), ValueError);
  EXPECT_THROW((void)ring_orders(Lists{{0, 2}}, 1), ValueError);
  EXPECT_THROW((void)ring_schedule(3, Lists{}), ValueError);
  EXPECT_THROW((void)ring_schedule(3, Lists{{}}), ValueError);
  EXPECT_THROW((void)ring_schedule(3, Lists{{0, 0}}), ValueError);
  EXPECT_THROW((void)ring_schedule(3, Lists{{0, 1}, {0}}), ValueError);
}

}  // namespace
}  // namespace crossdevice
