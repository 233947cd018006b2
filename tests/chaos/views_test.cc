// SPDX-License-Identifier: Apache-2.0
#include "chaos/views.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chaos/story.h"

namespace crossdevice::chaos {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ViewsTest, WhoIsLeftOutHearsOfWhichEpoch) {
  Plan plan = killing();
  plan.fault = Fault::STOP;
  const auto survives = [](int rank) {
    return bereaved()
        .done("rebuild 1")
        .member({0, 1}, 2, rank)
        .done("barrier 2")
        .done("leave")
        .ended();
  };
  const auto late = [](const std::string& text) {
    return joined()
        .failed("call 1 1", "ABORTED", {}, "over")
        .failed("rebuild 1", "ABORTED", {}, text)
        .done("leave")
        .ended();
  };
  EXPECT_THAT(verdict(plan, survives(0), survives(1), late("epoch 2 has begun")), IsEmpty());
  for (const char* other : {"epoch 3 has begun", "epoch 21 has begun"}) {
    EXPECT_THAT(verdict(plan, survives(0), survives(1), late(other)),
                Contains(HasSubstr("who was left out does not hear of which epoch")));
  }
}

TEST(ViewsTest, TwoViewsOfAnEpochAreFound) {
  const auto found = [](Story first, Story second) {
    return verdict(killing(), first.done("barrier 2").done("leave").ended(),
                   second.done("barrier 2").done("leave").ended(), victim());
  };
  const auto in = [](std::vector<int> ranks, int epoch, int rank,
                     std::vector<int> completed = {1, 1}) {
    return bereaved().done("rebuild 1").member(std::move(ranks), epoch, rank, std::move(completed));
  };
  EXPECT_THAT(found(in({0, 1}, 2, 0), in({0, 1}, 2, 1)), IsEmpty());
  EXPECT_THAT(found(in({0, 1}, 2, 0), in({1}, 2, 0)),
              Contains("epoch 2 is of 0, 1 for rank 0, but of 1 for rank 1"));
  EXPECT_THAT(found(in({0, 1}, 2, 0), in({0, 1}, 2, 0)),
              Contains("rank 1: is rank 0 of 2 of epoch 2, whose members are 0, 1"));
  EXPECT_THAT(found(in({0, 1}, 2, 0), in({0, 1}, 1, 1)),
              Contains("rank 1: comes to epoch 1 after epoch 1"));
  EXPECT_THAT(found(in({0, 1}, 2, 0), in({0, 1}, 2, 1, {1, 2})),
              Contains("epoch 2 begins after #1 of epoch 1 for rank 0, but after #2 of epoch 1 for "
                       "rank 1"));
}

TEST(ViewsTest, WhatHadCompletedOnAllIsTold) {
  // Rank 1 has come to the end of a call more.
  const auto found = [](std::vector<int> completed) {
    const WorkerReport first = bereaved()
                                   .done("rebuild 1")
                                   .member({0, 1}, 2, 0, completed)
                                   .done("barrier 2")
                                   .done("leave")
                                   .ended();
    const WorkerReport second = joined()
                                    .done("call 1 1")
                                    .failed("call 1 2", "UNAVAILABLE", {2}, "rank 2 is gone")
                                    .done("rebuild 1")
                                    .member({0, 1}, 2, 1, completed)
                                    .done("barrier 2")
                                    .done("leave")
                                    .ended();
    return verdict(killing(), first, second, victim());
  };
  EXPECT_THAT(found({1, 1}), IsEmpty());
  EXPECT_THAT(found({1, 2}), IsEmpty());  // rank 0's call may have come to its end before it failed
  EXPECT_THAT(found({1, 3}),
              Contains("rank 0: epoch 2 begins after #3 of epoch 1, not after #1 of epoch 1"));
  EXPECT_THAT(found({0, 0}),
              Contains("rank 0: epoch 2 begins after #0 of epoch 0, not after #1 of epoch 1"));
}

TEST(ViewsTest, WhoHasGoneOnFromWhatAllHadCompletedHasCompletedNoMore) {
  Plan plan = killing();
  plan.phase = Phase::REBUILD;
  plan.victim = 0;
  plan.first_lost = 2;
  const auto found = [&](std::vector<int> completed) {
    const WorkerReport dead = joined()
                                  .failed("call 1 1", "UNAVAILABLE", {2}, "rank 2 is gone")
                                  .done("rebuild 1")
                                  .member({0, 1}, 2, 0, {1, 1})
                                  .killed();
    const WorkerReport left = joined()
                                  .done("call 1 1")  // of which rank 0 knows nothing
                                  .failed("call 1 2", "UNAVAILABLE", {2}, "rank 2 is gone")
                                  .done("rebuild 1")
                                  .member({0, 1}, 2, 1, {1, 1})
                                  .failed("make 2", "UNAVAILABLE", {0}, "rank 0 is gone")
                                  .done("rebuild 2")
                                  .member({1}, 3, 0, std::move(completed))
                                  .done("barrier 3")
                                  .done("leave")
                                  .ended();
    return violations(plan, {dead, left, victim()}, {});
  };
  EXPECT_THAT(found({1, 1}), IsEmpty());
  EXPECT_THAT(found({1, 2}),
              Contains("rank 1: epoch 3 begins after #2 of epoch 1, not after #1 of epoch 1"));
}

}  // namespace
}  // namespace crossdevice::chaos
