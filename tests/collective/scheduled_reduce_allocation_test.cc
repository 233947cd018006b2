// SPDX-License-Identifier: Apache-2.0
/// A call by schedule allocates nothing once one as large has run, whichever threads run its chunks.
#include <cstddef>

#include <gtest/gtest.h>

#include "crossdevice/collective/halving_doubling.h"
#include "crossdevice/collective/scheduled_reduce.h"
#include "crossdevice/device/host_thread_pool.h"
#include "crossdevice/device/scratch_lease.h"

#include "collective/detail/recipe_runner.h"
#include "collective/scheduled_reduce_fixture.h"
#include "support/allocation_counter.h"

namespace crossdevice {
namespace {

constexpr std::size_t kParticipants = 5;
constexpr std::size_t kManyElements = 1'000'003;  // work for all threads
constexpr std::size_t kFewElements = 100;         // of one chunk

TEST(ScheduledReduceAllocation, EveryRunnerThatACallMayTakeHasGrownToItsNeeds) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "the heap is a sanitizer's";
  if (HostThreadPool::instance().num_threads() < 2) GTEST_SKIP() << "one thread takes one runner";
  const testing::Maker maker{"HalvingDoubling", [](std::size_t n, std::size_t count) {
                               return halving_doubling_schedule(n, count);
                             }};
  testing::ScheduledBatch batch(ReduceOp::SUM, maker);
  batch.add(DType::FLOAT32, kManyElements, kParticipants, {.fresh = kParticipants});
  // Which is rounded in each step, so that it needs rows between them; one thread meets it.
  batch.add(DType::BFLOAT16, kFewElements, kParticipants, {.fresh = kParticipants});
  batch.plan_each();
  const ScheduledReduceRequest request = batch.request();
  ASSERT_EQ(scheduled_reduce(request), DirectReduceOutcome::COMPLETED);

  const ReductionPlan& plan = *request.packs[1].plan;
  const detail::ScratchLease<detail::RecipeRunner> one;
  const detail::ScratchLease<detail::RecipeRunner> other;
  std::size_t num_rows = 0;
  for (const detail::ScratchLease<detail::RecipeRunner>* runner : {&one, &other}) {
    const std::size_t before = testing::num_allocations_of_this_thread();
    for (const ReductionPlan::Part& part : plan.parts) {
      const ReductionRecipe& recipe = plan.recipes[part.recipe];
      num_rows += recipe.passes.size() > 1 ? recipe.num_rows : 0;
      (*runner)->run(request.op, request.tensors[1], recipe, part.range, StoreMode::CACHED);
    }
    EXPECT_EQ(testing::num_allocations_of_this_thread() - before, 0u);
  }
  EXPECT_GT(num_rows, 0u);  // or there was little to grow
}

}  // namespace
}  // namespace crossdevice
