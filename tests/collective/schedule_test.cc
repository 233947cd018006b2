// SPDX-License-Identifier: Apache-2.0
/// Schedules print as one line per step.
#include "crossdevice/collective/schedule.h"

#include <gtest/gtest.h>

namespace crossdevice {
namespace {

TEST(ScheduleTest, PrintsOneLinePerStep) {
  const Schedule schedule{.num_participants = 13,
                          .num_elements = 10,
                          .steps = {{.kind = ScheduleStep::Kind::REDUCE,
                                     .range = {.begin = 0, .count = 4},
                                     .target = 0,
                                     .sources = {0, 1, 12}},
                                    {.kind = ScheduleStep::Kind::COPY,
                                     .range = {.begin = 4, .count = 6},
                                     .target = 12,
                                     .sources = {0}}}};
  EXPECT_EQ(schedule.to_string(), "[0, 4) reduce 0 <- 0 1 12\n[4, 10) copy 12 <- 0\n");
}

TEST(ScheduleTest, WithoutStepsPrintsNothing) {
  EXPECT_EQ((Schedule{.num_participants = 3, .num_elements = 5, .steps = {}}).to_string(), "");
}

TEST(ScheduleTest, AddLeavesOutStepsWithoutElements) {
  Schedule schedule{.num_participants = 2, .num_elements = 5, .steps = {}};
  schedule.add(ScheduleStep::Kind::REDUCE, {.begin = 5, .count = 0}, 0, {0, 1});
  EXPECT_TRUE(schedule.steps.empty());
  schedule.add(ScheduleStep::Kind::COPY, {.begin = 0, .count = 5}, 1, {0});
  EXPECT_EQ(schedule.to_string(), "[0, 5) copy 1 <- 0\n");
}

TEST(ScheduleTest, EqualityComparesEveryField) {
  const ScheduleStep step{.kind = ScheduleStep::Kind::REDUCE,
                          .range = {.begin = 0, .count = 3},
                          .target = 1,
                          .sources = {0, 1}};
  ScheduleStep other = step;
  EXPECT_EQ(step, other);
  other.kind = ScheduleStep::Kind::COPY;
  EXPECT_NE(step, other);
  other = step;
  other.range.count = 2;
  EXPECT_NE(step, other);
  other = step;
  other.target = 0;
  EXPECT_NE(step, other);
  other = step;
  other.sources = {1, 0};
  EXPECT_NE(step, other);
}

}  // namespace
}  // namespace crossdevice
