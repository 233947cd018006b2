// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/pack_choice.h"

#include <cstddef>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossdevice {
namespace {

AllReduceTuning links_of(double latency_seconds, double bytes_per_second) {
  return {.links = LinkModel{.latency_seconds = latency_seconds,
                             .ring_bytes_per_second = bytes_per_second,
                             .mesh_bytes_per_second = bytes_per_second}};
}

/// The first of the candidates, as ops take it, or what they take where there is none.
std::size_t choose_pack_bytes(std::size_t num_ranks, bool is_mesh, const AllReduceTuning& tuning) {
  const std::vector<PackCandidate> candidates = rank_pack_sizes(num_ranks, is_mesh, tuning);
  return candidates.empty() ? kDefaultPackBytes : candidates[0].size_bytes;
}

TEST(PackChoice, TheOverheadIsWhatIsNotForBytes) {
  // A ring of four: 6 rounds and 2 to agree, 1.5 times the bytes.
  const std::vector<PackCandidate> candidates = rank_pack_sizes(
      4, true, {.links = links_of(1e-4, 1e8).links, .pins = {{.up_to_bytes = ~0ULL}}});
  ASSERT_EQ(candidates.size(), 8U);
  for (const PackCandidate& each : candidates) {
    const double bytes_seconds = 1.5 * static_cast<double>(each.size_bytes) / 1e8;
    EXPECT_DOUBLE_EQ(each.predicted_seconds, 8e-4 + bytes_seconds);
    EXPECT_NEAR(each.overhead, 8e-4 / each.predicted_seconds, 1e-12);
  }
}

TEST(PackChoice, TheSmallestThatWastesLittle) {
  for (const auto& [latency, rate] : {std::pair{80e-6, 1.2e8}, {100e-6, 2.4e7}, {30e-6, 1.1e9}}) {
    const AllReduceTuning tuning = links_of(latency, rate);
    std::vector<PackCandidate> candidates = rank_pack_sizes(4, true, tuning);
    const PackCandidate choice = candidates[0];
    EXPECT_EQ(choose_pack_bytes(4, true, tuning), choice.size_bytes);
    EXPECT_LE(choice.overhead, kMaxPackOverhead);
    candidates.erase(candidates.begin());
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (i > 0) {
        EXPECT_LT(candidates[i - 1].size_bytes, candidates[i].size_bytes);
      }
      if (candidates[i].size_bytes < choice.size_bytes) {
        EXPECT_GT(candidates[i].overhead, kMaxPackOverhead);
      }
    }
  }
}

TEST(PackChoice, FastOrDistantLinksTakeLargePacks) {
  EXPECT_EQ(choose_pack_bytes(4, true, links_of(100e-6, 2.4e7)),
            std::size_t{256} << 10);  // 200 Mbit/s
  EXPECT_EQ(choose_pack_bytes(4, true, links_of(80e-6, 1.2e8)), std::size_t{1} << 20);  // 1 Gbit/s
  EXPECT_EQ(choose_pack_bytes(4, true, links_of(30e-6, 1.1e9)), std::size_t{4} << 20);  // 10 Gbit/s
  EXPECT_EQ(choose_pack_bytes(4, true, links_of(50e-3, 1.2e8)), kMaxPackBytes);
  EXPECT_EQ(choose_pack_bytes(2, true, links_of(1e-6, 1e6)), kMinPackBytes);
  // More workers have more rounds.
  EXPECT_GT(choose_pack_bytes(64, false, links_of(80e-6, 1.2e8)),
            choose_pack_bytes(4, true, links_of(80e-6, 1.2e8)));
}

TEST(PackChoice, WithoutLinksThereIsNothingToChooseFrom) {
  EXPECT_TRUE(rank_pack_sizes(4, true, {}).empty());
  EXPECT_TRUE(rank_pack_sizes(1, true, links_of(1e-4, 1e8)).empty());
  EXPECT_EQ(choose_pack_bytes(4, true, {}), kDefaultPackBytes);
  EXPECT_EQ(choose_pack_bytes(1, true, links_of(1e-4, 1e8)), kDefaultPackBytes);
}

}  // namespace
}  // namespace crossdevice
