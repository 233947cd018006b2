// SPDX-License-Identifier: Apache-2.0
/// Schedules print as one line per step.
#include "crossdevice/collective/schedule.h"

#include <gtest/gtest.h>

namespace crossdevice {
namespace {

TEST(ScheduleTest, PrintsOneLinePerStep) {
  const Schedule schedule{
      .num_participants = 13,
      .steps = {{.kind = ScheduleStep::Kind::REDUCE, .target = 0, .sources = {0, 1, 12}},
                {.kind = ScheduleStep::Kind::COPY, .target = 12, .sources = {0}}}};
  EXPECT_EQ(schedule.to_string(), "reduce 0 <- 0 1 12\ncopy 12 <- 0\n");
}

TEST(ScheduleTest, WithoutStepsPrintsNothing) {
  EXPECT_EQ((Schedule{.num_participants = 3, .steps = {}}).to_string(), "");
}

TEST(ScheduleTest, EqualityComparesEveryField) {
  const ScheduleStep step{.kind = ScheduleStep::Kind::REDUCE, .target = 1, .sources = {0, 1}};
  ScheduleStep other = step;
  EXPECT_EQ(step, other);
  other.kind = ScheduleStep::Kind::COPY;
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
