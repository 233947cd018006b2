// SPDX-License-Identifier: Apache-2.0
/// Shuffles: an all-reduce for every count and choice of owners, and what it sends.
#include "crossdevice/collective/shuffle.h"

#include <cstddef>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/schedule_traffic.h"
#include "crossdevice/core/error.h"

#include "support/verify_schedule.h"

namespace crossdevice {
namespace {

using testing::awkward_sizes;
using testing::verify_all_reduce;
using Owners = std::vector<std::size_t>;

TEST(ShuffleTest, ShardsAreReducedByTheirOwnersAndCopied) {
  EXPECT_EQ(shuffle_schedule(3, 5, Owners{2, 0}).to_string(),
            "[0, 2) reduce 2 <- 0 1 2\n[2, 5) reduce 0 <- 0 1 2\n"
            "[0, 2) copy 0 <- 2\n[0, 2) copy 1 <- 2\n"
            "[2, 5) copy 1 <- 0\n[2, 5) copy 2 <- 0\n");
}

TEST(ShuffleTest, ResultsOfABlockAreCopiedBehindTheReductionsOfTheNext) {
  EXPECT_EQ(shuffle_schedule(2, 6, Owners{0, 1}, 3).to_string(),
            "[0, 1) reduce 0 <- 0 1\n[1, 2) reduce 1 <- 0 1\n"
            "[2, 3) reduce 0 <- 0 1\n[3, 4) reduce 1 <- 0 1\n"
            "[0, 1) copy 1 <- 0\n[1, 2) copy 0 <- 1\n"
            "[4, 5) reduce 0 <- 0 1\n[5, 6) reduce 1 <- 0 1\n"
            "[2, 3) copy 1 <- 0\n[3, 4) copy 0 <- 1\n"
            "[4, 5) copy 1 <- 0\n[5, 6) copy 0 <- 1\n");
}

TEST(ShuffleTest, OneParticipantHasNothingToDo) {
  EXPECT_TRUE(shuffle_schedule(1, 9, Owners{0, 0, 0}).steps.empty());
  EXPECT_TRUE(shuffle_schedule(1, 9, Owners{0}, 4).steps.empty());
}

TEST(ShuffleTest, IsAnAllReduceForEveryCountAndSize) {
  for (std::size_t n = 1; n <= 64; ++n) {
    Owners all(n);
    std::iota(all.begin(), all.end(), std::size_t{0});
    Owners twice = all;
    twice.insert(twice.end(), all.begin(), all.end());
    for (const Owners& owners : {all, twice, Owners{n / 2}, Owners{n - 1, 0, n - 1}}) {
      for (const std::size_t size : awkward_sizes(n)) {
        for (const std::size_t num_blocks : {1U, 2U, 5U}) {
          ASSERT_EQ(verify_all_reduce(shuffle_schedule(n, size, owners, num_blocks)), "")
              << n << " participants, " << owners.size() << " shards, " << num_blocks << " blocks, "
              << size << " elements";
        }
      }
    }
  }
}

TEST(ShuffleTest, SendsWhatIsPredicted) {
  for (std::size_t n = 1; n <= 16; ++n) {
    for (std::size_t num_owners = 1; num_owners <= n; ++num_owners) {
      Owners owners(num_owners);
      std::iota(owners.begin(), owners.end(), std::size_t{0});
      const std::size_t shard = 3;
      const Schedule schedule = shuffle_schedule(n, num_owners * shard, owners);
      const std::vector<RankTraffic> traffic = schedule_traffic(schedule);
      for (std::size_t rank = 0; rank < n; ++rank) {
        const std::size_t others_shards = n == 1 ? 0 : num_owners - (rank < num_owners ? 1 : 0);
        const std::size_t for_others = rank < num_owners ? n - 1 : 0;
        const std::size_t messages = others_shards + for_others;
        EXPECT_EQ(traffic[rank].messages_sent, messages);
        EXPECT_EQ(traffic[rank].messages_received, messages);
        EXPECT_EQ(traffic[rank].elements_sent, messages * shard);
        EXPECT_EQ(traffic[rank].elements_received, messages * shard);
        const std::size_t own_steps = rank < num_owners ? n : 0;  // its reduction, and its copies
        EXPECT_EQ(traffic[rank].num_steps, n == 1 ? 0 : own_steps + 2 * others_shards);
      }
      EXPECT_EQ(num_rounds(schedule), n == 1 ? 0u : 2u);
      constexpr std::size_t kBlocks = 4;
      const std::vector<RankTraffic> in_blocks =
          schedule_traffic(shuffle_schedule(n, kBlocks * num_owners * shard, owners, kBlocks));
      for (std::size_t rank = 0; rank < n; ++rank) {
        EXPECT_EQ(in_blocks[rank].messages_sent, kBlocks * traffic[rank].messages_sent);
        EXPECT_EQ(in_blocks[rank].elements_sent, kBlocks * traffic[rank].elements_sent);
        EXPECT_EQ(in_blocks[rank].elements_received, kBlocks * traffic[rank].elements_received);
      }
    }
  }
}

TEST(ShuffleTest, WrongArgumentsAreValueErrors) {
  EXPECT_THROW((void)shuffle_schedule(0, 4, Owners{0}), ValueError);
  EXPECT_THROW((void)shuffle_schedule(2, 4, Owners{}), ValueError);
  EXPECT_THROW((void)shuffle_schedule(2, 4, Owners{2}), ValueError);
  EXPECT_THROW((void)shuffle_schedule(2, 4, Owners{0}, 0), ValueError);
}

}  // namespace
}  // namespace crossdevice
