// SPDX-License-Identifier: Apache-2.0
/// Halving and doubling: an all-reduce for every count, powers of two or not, and what it sends.
#include "crossdevice/collective/halving_doubling.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/schedule_traffic.h"
#include "crossdevice/core/error.h"

#include "support/verify_schedule.h"

namespace crossdevice {
namespace {

using testing::awkward_sizes;
using testing::verify_all_reduce;

TEST(HalvingDoublingTest, FourParticipantsTakeTfsSteps) {
  EXPECT_EQ(halving_doubling_schedule(4, 8).to_string(),
            "[0, 4) reduce 0 <- 0 1\n[4, 8) reduce 1 <- 0 1\n"
            "[0, 4) reduce 2 <- 2 3\n[4, 8) reduce 3 <- 2 3\n"
            "[0, 2) reduce 0 <- 0 2\n[2, 4) reduce 2 <- 0 2\n"
            "[4, 6) reduce 1 <- 1 3\n[6, 8) reduce 3 <- 1 3\n"
            "[2, 4) copy 0 <- 2\n[0, 2) copy 2 <- 0\n"
            "[6, 8) copy 1 <- 3\n[4, 6) copy 3 <- 1\n"
            "[4, 8) copy 0 <- 1\n[0, 4) copy 1 <- 0\n"
            "[4, 8) copy 2 <- 3\n[0, 4) copy 3 <- 2\n");
}

TEST(HalvingDoublingTest, AnExtraParticipantIsFoldedInAndOut) {
  EXPECT_EQ(halving_doubling_schedule(3, 3).to_string(),
            "[0, 3) reduce 0 <- 0 2\n"
            "[0, 2) reduce 0 <- 0 1\n[2, 3) reduce 1 <- 0 1\n"
            "[2, 3) copy 0 <- 1\n[0, 2) copy 1 <- 0\n"
            "[0, 3) copy 2 <- 0\n");
}

TEST(HalvingDoublingTest, CoreIsTheLargestPowerOfTwo) {
  EXPECT_EQ(halving_doubling_core(1), 1u);
  EXPECT_EQ(halving_doubling_core(2), 2u);
  EXPECT_EQ(halving_doubling_core(3), 2u);
  EXPECT_EQ(halving_doubling_core(4), 4u);
  EXPECT_EQ(halving_doubling_core(63), 32u);
  EXPECT_EQ(halving_doubling_core(64), 64u);
}

TEST(HalvingDoublingTest, IsAnAllReduceForEveryCountAndSize) {
  for (std::size_t n = 1; n <= 64; ++n) {
    for (const std::size_t num_shards : {1u, 2u, 5u}) {
      for (const std::size_t size : awkward_sizes(n)) {
        ASSERT_EQ(verify_all_reduce(halving_doubling_schedule(n, size, num_shards)), "")
            << n << " participants, " << num_shards << " shards, " << size << " elements";
      }
    }
  }
}

TEST(HalvingDoublingTest, SendsWhatIsPredicted) {
  for (std::size_t n = 1; n <= 16; ++n) {
    for (const std::size_t num_shards : {1u, 3u}) {
      const std::size_t core = halving_doubling_core(n);
      const std::size_t size = core * num_shards * 7;
      std::size_t hops = 0;
      while ((std::size_t{1} << hops) < core) ++hops;
      const Schedule schedule = halving_doubling_schedule(n, size, num_shards);
      const std::vector<RankTraffic> traffic = schedule_traffic(schedule);
      for (std::size_t rank = 0; rank < n; ++rank) {
        std::size_t messages = 2 * hops * num_shards;
        std::size_t elements = 2 * (core - 1) * (size / core);
        if (rank >= core) {
          messages = 1;
          elements = size;
        } else if (rank < n - core) {
          messages += 1;
          elements += size;
        }
        const RankTraffic expected{.num_steps = 2 * messages,
                                   .messages_sent = messages,
                                   .messages_received = messages,
                                   .elements_sent = elements,
                                   .elements_received = elements};
        EXPECT_EQ(traffic[rank], expected) << n << " participants, rank " << rank;
      }
      EXPECT_EQ(num_rounds(schedule), 2 * hops + (core == n ? 0 : 2)) << n;
    }
  }
}

TEST(HalvingDoublingTest, WrongArgumentsAreValueErrors) {
  EXPECT_THROW((void)halving_doubling_schedule(0, 4), ValueError);
  EXPECT_THROW((void)halving_doubling_schedule(4, 4, 0), ValueError);
}

}  // namespace
}  // namespace crossdevice
