// SPDX-License-Identifier: Apache-2.0
/// Tests of collective/statistics.h and collective/interleave.h.
#include "collective/statistics.h"

#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "collective/interleave.h"

namespace crossdevice::bench {
namespace {

TEST(StatisticsTest, OneSampleIsEveryQuantile) {
  const std::vector<double> samples = {7};
  EXPECT_EQ(quantile(samples, 0), 7);
  EXPECT_EQ(quantile(samples, 0.5), 7);
  EXPECT_EQ(quantile(samples, 1), 7);
}

TEST(StatisticsTest, QuantilesInterpolateBetweenSortedSamples) {
  const std::vector<double> samples = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(quantile(samples, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(samples, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(samples, 0.1), 1.3);
  EXPECT_DOUBLE_EQ(quantile(samples, 1), 4);
  EXPECT_EQ(samples, (std::vector<double>{4, 1, 3, 2}));
}

TEST(StatisticsTest, SummaryOfHundredAndOneSamples) {
  std::vector<double> samples;
  for (int i = 100; i >= 0; --i) samples.push_back(i);
  const TimeStatistics summary = summarise(samples);
  EXPECT_DOUBLE_EQ(summary.median_us, 50);
  EXPECT_DOUBLE_EQ(summary.p10_us, 10);
  EXPECT_DOUBLE_EQ(summary.p99_us, 99);
}

TEST(InterleaveTest, ContendersTakeTurnsAndArePreparedBeforeEachCall) {
  std::string log;
  const std::vector<Contender> contenders = {
      {.prepare = [&] { log += 'a'; }, .run = [&] { log += 'A'; }},
      {.prepare = [&] { log += 'b'; }, .run = [&] { log += 'B'; }}};
  Team team;
  const auto times =
      time_interleaved(contenders, {.iterations = 4, .warmup = 1, .rounds = 2}, team);
  EXPECT_EQ(log,
            "aAbB"
            "aAaAbBbB"
            "aAaAbBbB");
  EXPECT_EQ(times.size(), 2U);
}

TEST(InterleaveTest, EveryRoundHasAtLeastOneCall) {
  int calls = 0;
  const std::vector<Contender> contenders = {{.prepare = [] {}, .run = [&] { ++calls; }}};
  Team team;
  (void)time_interleaved(contenders, {.iterations = 3, .warmup = 0, .rounds = 5}, team);
  EXPECT_EQ(calls, 5);
}

TEST(InterleaveTest, TheTimeOfARunIsSharedByItsCalls) {
  Team team;
  const auto busy = [] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < until) {
    }
  };
  const std::vector<Contender> contenders = {{.prepare = [] {}, .run = busy, .calls = 1},
                                             {.prepare = [] {}, .run = busy, .calls = 1000}};
  const auto times =
      time_interleaved(contenders, {.iterations = 5, .warmup = 0, .rounds = 5}, team);
  EXPECT_GE(times[0].median_us, 2000);
  EXPECT_GE(times[1].median_us, 2);
  EXPECT_LT(times[1].p10_us, times[0].p10_us);
}

}  // namespace
}  // namespace crossdevice::bench
