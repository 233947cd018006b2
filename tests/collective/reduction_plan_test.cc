// SPDX-License-Identifier: Apache-2.0
/// Plans: passes are merged where that makes no difference to the bits, and nowhere else.
#include "crossdevice/collective/reduction_plan.h"

#include <cstddef>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/halving_doubling.h"
#include "crossdevice/collective/hierarchical_copy.h"
#include "crossdevice/collective/ring.h"
#include "crossdevice/collective/shuffle.h"
#include "crossdevice/collective/two_level.h"
#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using Kind = ScheduleStep::Kind;
using Lists = std::vector<std::vector<std::size_t>>;

ReductionPlan::Part part(std::size_t begin, std::size_t count, std::size_t recipe) {
  return {.range = {.begin = begin, .count = count}, .recipe = recipe};
}

TEST(ReductionPlanTest, ARingIsOnePassPerSegmentInItsOrder) {
  const ReductionPlan plan = plan_reduction(ring_schedule(7, Lists{{0, 1, 2}}), DType::FLOAT32);
  EXPECT_EQ(plan.parts,
            (std::vector<ReductionPlan::Part>{part(0, 3, 0), part(3, 3, 1), part(6, 1, 2)}));
  ASSERT_EQ(plan.recipes.size(), 3u);
  const Lists orders{{1, 2, 0}, {2, 0, 1}, {0, 1, 2}};
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(plan.recipes[i].passes.size(), 1u);
    const std::vector<std::uint32_t> expected(orders[i].begin(), orders[i].end());
    EXPECT_EQ(plan.recipes[i].passes[0].operands, expected);
    EXPECT_EQ(plan.recipes[i].passes[0].first_group, 0u);
  }
}

TEST(ReductionPlanTest, WhereStoringRoundsEveryHopIsAPass) {
  for (const DType dtype :
       {DType::FLOAT16, DType::BFLOAT16, DType::FLOAT8_E4M3, DType::FLOAT8_E5M2}) {
    EXPECT_TRUE(rounds_when_stored(dtype));
    const ReductionPlan plan = plan_reduction(ring_schedule(1, Lists{{0, 1, 2, 3}}), dtype);
    ASSERT_EQ(plan.recipes.size(), 1u);
    const ReductionRecipe expected{.passes = {{{1, 2}, 0, 0}, {{4, 3}, 0, 0}, {{4, 0}, 0, 0}},
                                   .num_rows = 1};
    EXPECT_EQ(plan.recipes[0], expected);
  }
  EXPECT_FALSE(rounds_when_stored(DType::FLOAT32));
  EXPECT_FALSE(rounds_when_stored(DType::INT8));
}

TEST(ReductionPlanTest, TwoSumsThatAreAddedAreTwoGroupsOfOnePass) {
  const ReductionRecipe expected{.passes = {{{0, 1, 2, 3}, 2, 0}}, .num_rows = 1};
  for (const Schedule& schedule :
       {halving_doubling_schedule(4, 9), hierarchical_copy_schedule(4, 9, 0)}) {
    const ReductionPlan plan = plan_reduction(schedule, DType::FLOAT32);
    EXPECT_EQ(plan.parts, std::vector<ReductionPlan::Part>{part(0, 9, 0)});
    EXPECT_EQ(plan.recipes, std::vector<ReductionRecipe>{expected});
  }
}

TEST(ReductionPlanTest, DeepTreesTakeFewRows) {
  for (const DType dtype : {DType::FLOAT32, DType::FLOAT16}) {
    const ReductionPlan plan = plan_reduction(halving_doubling_schedule(64, 64), dtype);
    EXPECT_EQ(plan.parts.size(), 1u);
    EXPECT_LE(plan.recipes[0].num_rows, dtype == DType::FLOAT32 ? 11u : 6u);
    std::vector<std::size_t> uses(64, 0);
    for (const ReductionPass& pass : plan.recipes[0].passes) {
      for (const std::uint32_t operand : pass.operands) {
        if (operand < 64) ++uses[operand];
      }
    }
    EXPECT_EQ(uses, std::vector<std::size_t>(64, 1));
  }
}

TEST(ReductionPlanTest, AShuffleAmongAllIsTheDirectReduction) {
  const std::vector<std::size_t> owners{0, 2, 1};
  for (const DType dtype : {DType::FLOAT32, DType::BFLOAT16}) {
    ReductionPlan plan = plan_reduction(shuffle_schedule(3, 10, owners), dtype);
    ASSERT_EQ(plan.recipes.size(), 1u);
    plan.recipes[0].num_rows = 0;  // a row that a single pass does not need
    EXPECT_EQ(plan, plan_direct_reduction(3, 10));
  }
}

TEST(ReductionPlanTest, OneParticipantIsACopy) {
  const ReductionPlan plan = plan_reduction(ring_schedule(5, Lists{{0}}), DType::FLOAT16);
  EXPECT_EQ(plan, plan_direct_reduction(1, 5));
}

TEST(ReductionPlanTest, NoElementsAreNoParts) {
  EXPECT_TRUE(plan_reduction(ring_schedule(0, Lists{{0, 1}}), DType::FLOAT32).parts.empty());
  EXPECT_TRUE(plan_direct_reduction(4, 0).parts.empty());
}

TEST(ReductionPlanTest, WhatIsNoAllReduceIsAValueError) {
  const auto plan = [](std::vector<ScheduleStep> steps) {
    return plan_reduction({.num_participants = 2, .num_elements = 4, .steps = std::move(steps)},
                          DType::FLOAT32);
  };
  const ScheduleStep sum{Kind::REDUCE, {0, 4}, 0, {0, 1}};
  const ScheduleStep copy{Kind::COPY, {0, 4}, 1, {0}};
  EXPECT_NO_THROW((void)plan({sum, copy}));
  EXPECT_THROW((void)plan({}), ValueError);
  EXPECT_THROW((void)plan({sum}), ValueError);
  EXPECT_THROW((void)plan({copy}), ValueError);
  EXPECT_THROW((void)plan({sum, sum, copy}), ValueError);
  // The same sum, but each adds in its own order: the bits could differ.
  EXPECT_THROW((void)plan({{Kind::REDUCE, {0, 4}, 0, {0, 1}}, {Kind::REDUCE, {0, 4}, 1, {1, 0}}}),
               ValueError);
}

}  // namespace
}  // namespace crossdevice
