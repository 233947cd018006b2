// SPDX-License-Identifier: Apache-2.0
/// Tests of train/epoch_order.h, train/time_split.h and train/progress_bar.h.
#include <chrono>
#include <set>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "train/epoch_order.h"
#include "train/progress_bar.h"
#include "train/time_split.h"

namespace crossdevice::train {
namespace {

TEST(EpochOrderTest, IsAPermutationThatDiffersByEpochAndSeed) {
  const auto order = epoch_order(1000, 1, 0);
  EXPECT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), 1000U);
  EXPECT_EQ(*std::max_element(order.begin(), order.end()), 999U);
  EXPECT_EQ(order, epoch_order(1000, 1, 0));
  EXPECT_NE(order, epoch_order(1000, 1, 1));
  EXPECT_NE(order, epoch_order(1000, 2, 0));
  EXPECT_TRUE(epoch_order(0, 1, 0).empty());
}

TEST(EpochOrderTest, PartsOfReplicasAreTheWholeBatchInOrder) {
  const std::vector<int> batch = {0, 1, 2, 3, 4, 5, 6};
  for (const std::size_t n : {1U, 2U, 3U, 7U, 8U}) {
    std::vector<int> together;
    for (std::size_t r = 0; r < n; ++r) {
      const auto part = part_of_replica(std::span<const int>(batch), r, n);
      EXPECT_LE(part.size(), (batch.size() + n - 1) / n);
      together.insert(together.end(), part.begin(), part.end());
    }
    EXPECT_EQ(together, batch) << n;
  }
}

class TimeSplitTest : public testing::Test {
 protected:
  static Clock::time_point at(int seconds) {
    return Clock::time_point(std::chrono::seconds(seconds));
  }
  const StepMoments moments_{.begin = at(10), .computed = at(20), .reduced = at(23), .end = at(24)};
};

TEST_F(TimeSplitTest, WithoutOverlapCommunicationIsWhatReplicasWaitFor) {
  const std::vector<CommunicationLog::Interval> reductions = {{at(21), at(23)}};
  const TimeSplit split = split_step(moments_, reductions);
  EXPECT_DOUBLE_EQ(split.compute, 11);
  EXPECT_DOUBLE_EQ(split.communication, 3);
  EXPECT_DOUBLE_EQ(split.hidden, 0);
  EXPECT_DOUBLE_EQ(split.total(), 14);
}

TEST_F(TimeSplitTest, WhatRunsBeforeTheLastGradientIsHidden) {
  const std::vector<CommunicationLog::Interval> reductions = {{at(12), at(14)}, {at(19), at(22)}};
  const TimeSplit split = split_step(moments_, reductions);
  EXPECT_DOUBLE_EQ(split.hidden, 3);
  EXPECT_DOUBLE_EQ(split.communication, 6);
  EXPECT_DOUBLE_EQ(split.total(), 14);
}

TEST_F(TimeSplitTest, SplitsAddUp) {
  TimeSplit sum;
  sum += {.compute = 1, .communication = 2, .hidden = 0.5};
  sum += {.compute = 3, .communication = 1, .hidden = 0.25};
  EXPECT_DOUBLE_EQ(sum.compute, 4);
  EXPECT_DOUBLE_EQ(sum.communication, 3);
  EXPECT_DOUBLE_EQ(sum.hidden, 0.75);
  EXPECT_DOUBLE_EQ(sum.total(), 6.25);
}

TEST(CommunicationLogTest, NestedScopesCountOnceAsTheOuterOne) {
  CommunicationLog log;
  Clock::time_point before_inner;
  {
    const CommunicationLog::Scope outer(log);
    before_inner = Clock::now();
    const CommunicationLog::Scope inner(log);
  }
  const auto intervals = log.take();
  ASSERT_EQ(intervals.size(), 1U);
  EXPECT_LE(intervals[0].begin, before_inner);
  EXPECT_TRUE(log.take().empty());
}

TEST(ProgressBarTest, TheLineFillsUp) {
  EXPECT_EQ(ProgressBar::line("epoch 1/5", 0, 4, "loss 2.3", 8),
            "epoch 1/5 [        ]   0 %  loss 2.3");
  EXPECT_EQ(ProgressBar::line("epoch 1/5", 1, 4, "", 8), "epoch 1/5 [==      ]  25 %  ");
  EXPECT_EQ(ProgressBar::line("e", 4, 4, "x", 4), "e [====] 100 %  x");
  EXPECT_EQ(ProgressBar::line("e", 0, 0, "x", 4), "e [====] 100 %  x");
}

}  // namespace
}  // namespace crossdevice::train
