// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/all_reduce_choice.h"

#include <string>

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

constexpr LinkModel kLinks{
    .latency_seconds = 1e-4, .ring_bytes_per_second = 1e8, .mesh_bytes_per_second = 0.8e8};

double predict(AllReduceAlgorithm algorithm, std::size_t num_ranks, std::size_t size_bytes) {
  return predict_all_reduce_seconds(algorithm, num_ranks, size_bytes, kLinks);
}

TEST(AllReduceChoice, PredictsRoundsAndBytes) {
  EXPECT_DOUBLE_EQ(predict(AllReduceAlgorithm::RING, 4, 4'000'000), 6e-4 + 6e6 / 1e8);
  EXPECT_DOUBLE_EQ(predict(AllReduceAlgorithm::SHUFFLE, 4, 4'000'000), 2e-4 + 1.05 * 6e6 / 0.8e8);
  EXPECT_DOUBLE_EQ(predict(AllReduceAlgorithm::EXCHANGE, 4, 1000), 1e-4 + 3e3 / 0.8e8);
  EXPECT_DOUBLE_EQ(predict(AllReduceAlgorithm::HALVING_DOUBLING, 8, 800),
                   6e-4 + 1.1 * 1400 / 0.8e8);
  EXPECT_DOUBLE_EQ(predict(AllReduceAlgorithm::HALVING_DOUBLING, 5, 800),
                   6e-4 + 1.1 * 2000 / 0.8e8);
  EXPECT_DOUBLE_EQ(predict(AllReduceAlgorithm::DOUBLING, 8, 800), 3e-4 + 2400 / 0.8e8);
  EXPECT_DOUBLE_EQ(predict(AllReduceAlgorithm::DOUBLING, 5, 800), 4e-4 + 2400 / 0.8e8);
  EXPECT_EQ(predict(AllReduceAlgorithm::RING, 1, 800), 0);
}

TEST(AllReduceChoice, WhereAMessageCostsMuchFewAreSent) {
  AllReduceTuning tuning{.links = kLinks};
  tuning.links->message_seconds = 0.4e-4;
  // One round of 3 messages, or 2 rounds of one.
  EXPECT_DOUBLE_EQ(predict_all_reduce_seconds(AllReduceAlgorithm::EXCHANGE, 4, 0, *tuning.links),
                   1.8e-4);
  EXPECT_DOUBLE_EQ(predict_all_reduce_seconds(AllReduceAlgorithm::SHUFFLE, 4, 0, *tuning.links),
                   3.6e-4);
  EXPECT_DOUBLE_EQ(predict_all_reduce_seconds(AllReduceAlgorithm::DOUBLING, 4, 0, *tuning.links),
                   2e-4);
  EXPECT_EQ(choose_all_reduce(4, 8, true, tuning), AllReduceAlgorithm::EXCHANGE);
  tuning.links->message_seconds = 0.6e-4;
  EXPECT_EQ(choose_all_reduce(4, 8, true, tuning), AllReduceAlgorithm::DOUBLING);
  EXPECT_EQ(choose_all_reduce(2, 8, true, tuning), AllReduceAlgorithm::EXCHANGE);
}

TEST(AllReduceChoice, FewBytesTakeFewRoundsAndManyBytesTheFastLinks) {
  const AllReduceTuning tuning{.links = kLinks};
  EXPECT_EQ(choose_all_reduce(4, 8, true, tuning), AllReduceAlgorithm::EXCHANGE);
  EXPECT_EQ(choose_all_reduce(4, 16 << 10, true, tuning), AllReduceAlgorithm::SHUFFLE);
  EXPECT_EQ(choose_all_reduce(4, 64 << 20, true, tuning), AllReduceAlgorithm::RING);
  EXPECT_EQ(choose_all_reduce(32, 8, false, tuning), AllReduceAlgorithm::DOUBLING);
  EXPECT_EQ(choose_all_reduce(32, 64 << 10, false, tuning), AllReduceAlgorithm::HALVING_DOUBLING);
  EXPECT_EQ(choose_all_reduce(32, 64 << 20, false, tuning), AllReduceAlgorithm::RING);
}

TEST(AllReduceChoice, RanksWhatIsPossible) {
  const AllReduceTuning tuning{.links = kLinks};
  const auto candidates = rank_all_reduce_algorithms(4, 8, true, tuning);
  ASSERT_EQ(candidates.size(), 5U);
  EXPECT_EQ(candidates[0].algorithm, AllReduceAlgorithm::EXCHANGE);
  EXPECT_EQ(candidates[1].algorithm, AllReduceAlgorithm::SHUFFLE);
  EXPECT_EQ(candidates[2].algorithm, AllReduceAlgorithm::DOUBLING);
  EXPECT_EQ(candidates[4].algorithm, AllReduceAlgorithm::RING);
  EXPECT_EQ(rank_all_reduce_algorithms(4, 1 << 20, true, tuning).size(), 3U);
  EXPECT_EQ(rank_all_reduce_algorithms(32, 8, false, tuning).size(), 3U);
}

TEST(AllReduceChoice, WithoutLinksThoseByDefaultCount) {
  for (const std::size_t bytes : {8UL, 16UL << 10U, 64UL << 20U}) {
    const auto candidates = rank_all_reduce_algorithms(4, bytes, true, {});
    const auto by_default = rank_all_reduce_algorithms(4, bytes, true, {.links = LinkModel{}});
    ASSERT_EQ(candidates.size(), by_default.size());
    EXPECT_EQ(candidates[0].algorithm, by_default[0].algorithm);
    EXPECT_EQ(candidates[0].predicted_seconds, by_default[0].predicted_seconds);
  }
}

TEST(AllReduceChoice, EverySizeIsPinnedIfEachPinIsPossible) {
  const auto pins = [](const std::string& list, bool is_mesh) {
    return pins_every_size(parse_all_reduce_tuning(R"({"all_reduce": [)" + list + "]}"), is_mesh);
  };
  EXPECT_FALSE(pins("", true));
  EXPECT_FALSE(pins_every_size({.links = kLinks}, true));
  EXPECT_FALSE(
      pins_every_size({.pins = {{.up_to_bytes = 8, .algorithm = AllReduceAlgorithm::RING}}}, true));
  EXPECT_TRUE(pins(R"({"algorithm": "ring"})", false));
  EXPECT_TRUE(pins(R"({"algorithm": "rechd"})", false));
  EXPECT_TRUE(pins(R"({"algorithm": "shuffle"})", true));
  EXPECT_FALSE(pins(R"({"algorithm": "shuffle"})", false));
  EXPECT_FALSE(pins(R"({"algorithm": "exchange"})", true));
  EXPECT_FALSE(pins(R"({"algorithm": "doubling"})", true));
  for (const char* const small : {"exchange", "doubling"}) {
    const auto then_ring = [&](const char* limit) {
      return std::string(R"({"up_to_bytes": )") + limit + R"(, "algorithm": ")" + small +
             R"("}, {"algorithm": "ring"})";
    };
    EXPECT_TRUE(pins(then_ring("16384"), true)) << small;
    EXPECT_FALSE(pins(then_ring("16385"), true)) << small;
    EXPECT_EQ(pins(then_ring("16384"), false), std::string(small) == "doubling") << small;
  }
}

TEST(AllReduceChoice, PinsWinWhereTheyArePossible) {
  const AllReduceTuning tuning = parse_all_reduce_tuning(
      R"({"links": {"latency_seconds": 1e-4, "ring_bytes_per_second": 1e8, "mesh_bytes_per_second": 8e7},
          "all_reduce": [{"up_to_bytes": 100, "algorithm": "rechd"}, {"up_to_bytes": 1000000, "algorithm": "exchange"},
                         {"algorithm": "shuffle"}]})");
  EXPECT_EQ(tuning.links, kLinks);
  EXPECT_EQ(choose_all_reduce(4, 100, true, tuning), AllReduceAlgorithm::HALVING_DOUBLING);
  EXPECT_EQ(choose_all_reduce(4, 101, true, tuning), AllReduceAlgorithm::EXCHANGE);
  EXPECT_EQ(choose_all_reduce(4, 1'000'000, true, tuning), AllReduceAlgorithm::RING);
  EXPECT_EQ(choose_all_reduce(4, 64 << 20, true, tuning), AllReduceAlgorithm::SHUFFLE);
  EXPECT_EQ(choose_all_reduce(32, 64 << 20, false, tuning), AllReduceAlgorithm::RING);
  EXPECT_EQ(rank_all_reduce_algorithms(4, 100, true, tuning)[0].algorithm,
            AllReduceAlgorithm::HALVING_DOUBLING);
  EXPECT_EQ(parse_all_reduce_tuning(to_string(tuning)), tuning);
  AllReduceTuning with_messages = tuning;
  with_messages.links->message_seconds = 3e-6;
  EXPECT_EQ(parse_all_reduce_tuning(to_string(with_messages)), with_messages);
  EXPECT_EQ(parse_all_reduce_tuning("{}"), AllReduceTuning{});
  EXPECT_EQ(to_string(AllReduceTuning{}), "{}");
}

TEST(AllReduceChoice, RefusesWhatIsNoTuning) {
  for (
      const char* const text : {
          "",
          "[]",
          "7",
          "{",
          R"({"links": {}})",
          R"({"links": 3})",
          R"({"links": {"latency_seconds": 0, "ring_bytes_per_second": 1, "mesh_bytes_per_second": 1}})",
          R"({"links": {"latency_seconds": "x", "ring_bytes_per_second": 1, "mesh_bytes_per_second": 1}})",
          R"({"links": {"latency_seconds": 1, "ring_bytes_per_second": 1, "mesh_bytes_per_second": 1, "message_seconds": -1}})",
          R"({"links": {"latency_seconds": 1, "ring_bytes_per_second": 1, "mesh_bytes_per_second": 1, "message_seconds": "x"}})",
          R"({"all_reduce": {}})",
          R"({"all_reduce": [{}]})",
          R"({"all_reduce": [{"algorithm": "tree"}]})",
          R"({"all_reduce": [{"algorithm": "ring", "up_to_bytes": 5}]})",
          R"({"all_reduce": [{"algorithm": "ring"}, {"algorithm": "ring"}]})",
          R"({"all_reduce": [{"algorithm": "ring", "up_to_bytes": -5}, {"algorithm": "ring"}]})",
          R"({"all_reduce": [{"algorithm": "ring", "up_to_bytes": 5}, {"algorithm": "ring", "up_to_bytes": 5}, {"algorithm": "ring"}]})",
      }) {
    EXPECT_THROW((void)parse_all_reduce_tuning(text), ValueError) << text;
  }
}

}  // namespace
}  // namespace crossdevice
