// SPDX-License-Identifier: Apache-2.0
/// The verifier finds what is wrong with schedules that are no all-reduce, and traffic is counted as it says.
#include "support/verify_schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/hierarchical_copy.h"
#include "crossdevice/collective/reduction_plan.h"
#include "crossdevice/collective/schedule_traffic.h"
#include "crossdevice/core/error.h"

#include "support/verify_plan.h"
#include "support/verify_programs.h"

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

const std::vector<Interval> kHalves{{0, 2}, {2, 2}};
const ScheduleStep kFirstHalf{Kind::COPY, {0, 2}, 1, {0}};
const ScheduleStep kSecondHalf{Kind::COPY, {2, 2}, 0, {1}};

TEST(VerifyScheduleTest, FindsWhatIsNoBroadcast) {
  EXPECT_EQ(testing::verify_broadcast(two({kCopy}), 0), "");
  EXPECT_EQ(testing::verify_broadcast(two({kCopy}), 1), "step 0: what is copied is not complete");
  EXPECT_EQ(testing::verify_broadcast(two({kFirstHalf}), 0),
            "participant 1 lacks contributions in part 1");
  EXPECT_EQ(testing::verify_broadcast(two({kCopy, kSum}), 0),
            "step 1: a contribution is combined twice");
  EXPECT_EQ(testing::verify_broadcast(two({kSum}), 0),
            "participant 0 lacks contributions in part 0");
}

TEST(VerifyScheduleTest, FindsWhatIsNoReduction) {
  EXPECT_EQ(testing::verify_reduce(two({kSum}), 0), "");
  EXPECT_EQ(testing::verify_reduce(two({kSum}), 1), "participant 1 lacks contributions in part 0");
  EXPECT_EQ(testing::verify_reduce(two({kSum, kSum}), 0),
            "step 1: a contribution is combined twice");
  EXPECT_EQ(testing::verify_reduce(two({kCopy}), 0), "step 0: what is copied is not complete");
}

TEST(VerifyScheduleTest, FindsWhatIsNoGather) {
  EXPECT_EQ(testing::verify_gather(two({kSecondHalf}), kHalves, 0), "");
  EXPECT_EQ(testing::verify_gather(two({kFirstHalf}), kHalves, 1), "");
  EXPECT_EQ(testing::verify_gather(two({}), kHalves, 0),
            "participant 0 lacks contributions in part 1");
  EXPECT_EQ(testing::verify_gather(two({{Kind::COPY, {1, 3}, 0, {1}}}), kHalves, 0),
            "step 0: what is copied is not complete");
  const std::vector<Interval> with_a_gap{{0, 2}, {3, 1}};
  EXPECT_EQ(testing::verify_gather(two({kSecondHalf}), with_a_gap, 0),
            "step 0: elements that nobody is to have");
}

TEST(VerifyScheduleTest, FindsWhatIsNoHalfOfAnAllReduce) {
  const ScheduleStep sums[]{{Kind::REDUCE, {0, 2}, 0, {0, 1}}, {Kind::REDUCE, {2, 2}, 1, {0, 1}}};
  EXPECT_EQ(testing::verify_reduce_scatter(two({sums[0], sums[1]}), kHalves), "");
  EXPECT_EQ(testing::verify_reduce_scatter(two({sums[0]}), kHalves),
            "participant 1 lacks contributions in part 1");
  EXPECT_EQ(testing::verify_reduce_scatter(two({kSum, sums[1]}), kHalves),
            "step 1: a contribution is combined twice");
  EXPECT_EQ(testing::verify_all_gather(two({kFirstHalf, kSecondHalf}), kHalves), "");
  EXPECT_EQ(testing::verify_all_gather(two({kFirstHalf}), kHalves),
            "participant 0 lacks contributions in part 1");
  EXPECT_EQ(testing::verify_all_gather(two({kFirstHalf, sums[1]}), kHalves),
            "participant 0 lacks contributions in part 1");
}

TEST(VerifyPlanTest, FindsPlansThatAreNotTheSchedules) {
  const Schedule schedule = two({kSum, kCopy});
  const auto verify = [&](const std::function<void(ReductionPlan&)>& change) {
    ReductionPlan plan = plan_reduction(schedule, DType::FLOAT32);
    change(plan);
    return testing::verify_plan(plan, schedule);
  };
  EXPECT_EQ(verify([](ReductionPlan&) {}), "");
  EXPECT_EQ(verify([](ReductionPlan& plan) { plan.parts.clear(); }), "elements without a recipe");
  EXPECT_EQ(verify([](ReductionPlan& plan) {
              plan.parts[0].range = {1, 3};
            }),
            "part 0: not behind the last");
  EXPECT_EQ(verify([](ReductionPlan& plan) {
              plan.parts[0].range = {0, 5};
            }),
            "part 0: elements beyond the end");
  EXPECT_EQ(verify([](ReductionPlan& plan) { plan.parts[0].recipe = 1; }),
            "part 0: no such recipe");
  const auto verify_operands = [&](std::vector<std::uint32_t> operands) {
    return verify(
        [&](ReductionPlan& plan) { plan.recipes[0].passes[0].operands = std::move(operands); });
  };
  EXPECT_EQ(verify_operands({1, 0}), "part 0: another order than the steps'");
  EXPECT_EQ(verify_operands({0}), "part 0: not everybody's contribution once");
  EXPECT_EQ(verify_operands({0, 0}), "part 0: not everybody's contribution once");
  EXPECT_EQ(verify_operands({0, 9}), "part 0: an operand that there is not");
  EXPECT_EQ(verify([](ReductionPlan& plan) { plan.recipes[0].passes.clear(); }),
            "part 0: a recipe without passes");
  EXPECT_EQ(verify([](ReductionPlan& plan) { plan.recipes[0].passes[0].first_group = 3; }),
            "part 0: a group of more than all operands");
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

/// The programs of an exchange between two, in which each also sends back what it has got.
std::vector<ScheduleProgram> programs() {
  return testing::compile_all(two({kSum, kCopy, {Kind::REDUCE, {0, 4}, 0, {1}}}), 4);
}

TEST(VerifyProgramsTest, AcceptsWhatIsCompiled) {
  EXPECT_EQ(testing::ProgramGraph(programs()).verify(), "");
  EXPECT_EQ(testing::verify_programs(two({kSum, kCopy}), 1), "");
}

TEST(VerifyProgramsTest, FindsMessagesThatDoNotMeet) {
  std::vector<ScheduleProgram> changed = programs();
  const auto receive = std::ranges::find_if(changed[1].tasks, [](const ProgramTask& task) {
    return task.kind == ProgramTask::Kind::RECEIVE;
  });
  ASSERT_NE(receive, changed[1].tasks.end());
  receive->range.count = 3;
  EXPECT_EQ(testing::ProgramGraph(changed).verify(),
            "task 1 of participant 1 receives other elements than task 2 of participant 0 sends");
  receive->kind = ProgramTask::Kind::COMBINE;
  EXPECT_EQ(testing::ProgramGraph(changed).verify(),
            "task 2 of participant 0 sends what nobody expects");
  receive->kind = ProgramTask::Kind::RECEIVE;
  receive->range.count = 4;
  changed[0].tasks[2].kind = ProgramTask::Kind::COMBINE;
  EXPECT_EQ(testing::ProgramGraph(changed).verify(),
            "task 1 of participant 1 waits for what nobody sends");
}

TEST(VerifyProgramsTest, FindsThoseThatWaitForEachOther) {
  std::vector<ScheduleProgram> changed = programs();
  // The first send of participant 1 waits for its last task, which waits for what participant 0 makes of that send.
  ProgramTask& last = changed[1].tasks.back();
  ASSERT_EQ(last.num_successors, 0U);
  last.first_successor = static_cast<std::uint32_t>(changed[1].successors.size());
  last.num_successors = 1;
  changed[1].successors.push_back(0);
  EXPECT_EQ(testing::ProgramGraph(changed).verify(), "5 tasks wait for each other");
}

TEST(VerifyProgramsTest, FindsTwoThatTouchOneElement) {
  std::vector<ScheduleProgram> changed = programs();
  for (ProgramTask& task : changed[1].tasks) task.num_successors = 0;
  EXPECT_EQ(testing::ProgramGraph(changed).verify(),
            "task 1 of participant 1 writes what task 0 may be reading");
  changed = programs();
  for (ProgramTask& task : changed[0].tasks) task.num_successors = 0;
  EXPECT_EQ(testing::ProgramGraph(changed).verify(),
            "task 2 of participant 0 touches what task 1 may be writing");
}

TEST(ScheduleTest, WhatFollowsStepsRefusesThoseThatAreNone) {
  const std::vector<ScheduleStep> none{{Kind::REDUCE, {0, 0}, 0, {0, 1}},
                                       {Kind::REDUCE, {1, 4}, 0, {0, 1}},
                                       {Kind::REDUCE, {~std::size_t{0}, 2}, 0, {0, 1}},
                                       {Kind::REDUCE, {0, 4}, 2, {0, 1}},
                                       {Kind::REDUCE, {0, 4}, 0, {}},
                                       {Kind::REDUCE, {0, 4}, 0, {2}},
                                       {Kind::REDUCE, {0, 4}, 0, {1, 1}},
                                       {Kind::COPY, {0, 4}, 0, {0}},
                                       {Kind::COPY, {0, 4}, 0, {0, 1}}};
  for (const ScheduleStep& step : none) {
    const Schedule schedule = two({kSum, kCopy, step});
    SCOPED_TRACE(schedule.to_string());
    EXPECT_THROW((void)compile_schedule(schedule, 0, 4), ValueError);
    EXPECT_THROW((void)plan_reduction(schedule, DType::FLOAT32), ValueError);
    EXPECT_THROW((void)schedule_traffic(schedule), ValueError);
    EXPECT_THROW((void)num_rounds(schedule), ValueError);
  }
  EXPECT_THROW(
      (void)plan_reduction({.num_participants = 0, .num_elements = 4, .steps = {}}, DType::FLOAT32),
      ValueError);
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
