// SPDX-License-Identifier: Apache-2.0
/// The verifier finds what is wrong with schedules that are no all-reduce, and traffic is counted as it says.
#include "support/verify_schedule.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/hierarchical_copy.h"
#include "crossdevice/collective/schedule_traffic.h"

namespace crossdevice {
namespace {

using testing::awkward_sizes;
using testing::verify_all_reduce;
using Kind = ScheduleStep::Kind;

Schedule two(std::vector<ScheduleStep> steps) {
  return {.num_participants = 2, .num_elements = 4, .steps = std::move(steps)};
}

const ScheduleStep kSum{Kind::REDUCE, {0, 4}, 0, {0, 1}};
const ScheduleStep kCopy{Kind::COPY, {0, 4}, 1, {0}};

TEST(VerifyScheduleTest, AcceptsAnAllReduce) {
  EXPECT_EQ(verify_all_reduce(two({kSum, kCopy})), "");
}

TEST(VerifyScheduleTest, FindsWhatIsMissing) {
  EXPECT_EQ(verify_all_reduce(two({})), "participant 0 lacks contributions in part 0");
  EXPECT_EQ(verify_all_reduce(two({kSum})), "participant 1 lacks contributions in part 0");
  EXPECT_EQ(verify_all_reduce(two({kSum, {Kind::COPY, {0, 3}, 1, {0}}})),
            "participant 1 lacks contributions in part 1");
}

TEST(VerifyScheduleTest, FindsWhatIsCombinedTwiceOrCopiedTooEarly) {
  EXPECT_EQ(verify_all_reduce(two({kSum, {Kind::REDUCE, {2, 1}, 1, {0, 1}}})),
            "step 1: a contribution is combined twice");
  EXPECT_EQ(verify_all_reduce(two({kCopy, kSum})), "step 0: what is copied is not complete");
}

TEST(VerifyScheduleTest, FindsStepsThatAreNone) {
  EXPECT_EQ(verify_all_reduce(two({{Kind::REDUCE, {0, 0}, 0, {0, 1}}})), "step 0: no elements");
  EXPECT_EQ(verify_all_reduce(two({{Kind::REDUCE, {1, 4}, 0, {0, 1}}})),
            "step 0: elements beyond the end");
  EXPECT_EQ(verify_all_reduce(two({{Kind::REDUCE, {0, 4}, 2, {0, 1}}})), "step 0: no such target");
  EXPECT_EQ(verify_all_reduce(two({{Kind::REDUCE, {0, 4}, 0, {}}})), "step 0: no sources");
  EXPECT_EQ(verify_all_reduce(two({{Kind::REDUCE, {0, 4}, 0, {2}}})), "step 0: no such source");
  EXPECT_EQ(verify_all_reduce(two({{Kind::COPY, {0, 4}, 0, {0}}})),
            "step 0: a copy has one source, which is another participant");
}

TEST(VerifyScheduleTest, HierarchicalCopyIsAnAllReduce) {
  for (std::size_t n = 1; n <= 64; ++n) {
    for (const std::size_t pack : {std::size_t{0}, std::size_t{1}, n - 1}) {
      for (const std::size_t size : awkward_sizes(n)) {
        ASSERT_EQ(verify_all_reduce(hierarchical_copy_schedule(n, size, pack)), "")
            << n << " participants, pack " << pack << ", " << size << " elements";
      }
    }
  }
}

TEST(ScheduleTrafficTest, CountsMessagesBetweenParticipantsAlone) {
  const Schedule schedule{.num_participants = 3,
                          .num_elements = 10,
                          .steps = {{Kind::REDUCE, {0, 10}, 0, {0, 1, 2}},
                                    {Kind::REDUCE, {0, 10}, 0, {0}},
                                    {Kind::COPY, {4, 6}, 2, {0}}}};
  const std::vector<RankTraffic> expected{{3, 1, 2, 6, 20}, {1, 1, 0, 10, 0}, {2, 1, 1, 10, 6}};
  EXPECT_EQ(schedule_traffic(schedule), expected);
  EXPECT_EQ(num_rounds(schedule), 2u);
  EXPECT_EQ(num_rounds({.num_participants = 3, .num_elements = 0, .steps = {}}), 0u);
}

}  // namespace
}  // namespace crossdevice
