// SPDX-License-Identifier: Apache-2.0
/// The in-process engine allocates nothing once it has run a batch as large.
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/direct_reduce.h"

#include "collective/direct_reduce_fixture.h"
#include "support/allocation_counter.h"

namespace crossdevice {
namespace {

using testing::RecordingObserver;
using testing::TestBatch;

std::size_t allocations_of(const DirectReduceRequest& request) {
  const std::size_t before = testing::num_allocations_of_this_thread();
  EXPECT_EQ(direct_reduce(request), DirectReduceOutcome::COMPLETED);
  return testing::num_allocations_of_this_thread() - before;
}

class DirectReduceAllocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::can_count_allocations()) GTEST_SKIP() << "the heap is a sanitizer's";
  }
};

TEST_F(DirectReduceAllocationTest, ASmallReductionAllocatesNothingEvenTheFirstTime) {
  TestBatch batch(ReduceOp::SUM);
  batch.add(DType::FLOAT32, 2, 2, {.in_place = {0, 1}});
  EXPECT_EQ(allocations_of(batch.request()), 0u);
}

TEST_F(DirectReduceAllocationTest, ALargeBatchAllocatesNothingTheSecondTime) {
  TestBatch batch(ReduceOp::SUM);
  for (const std::size_t count : {10u, 2'000'003u, 64u, 0u, 300'000u}) {
    batch.add(DType::FLOAT32, count, 2, {.in_place = {0, 1}});
  }
  const std::vector<Pack> packs = make_packs(batch.sizes(), {.bytes_per_pack = 100'000});
  RecordingObserver observer(batch);
  DirectReduceRequest request = batch.request();
  request.packs = packs;
  EXPECT_GT(allocations_of(request), 0u);  // or the counter counts nothing
  EXPECT_EQ(allocations_of(request), 0u);
}

TEST_F(DirectReduceAllocationTest, NorDoesOneThatIsObserved) {
  TestBatch batch(ReduceOp::SUM);
  for (const std::size_t count : {10u, 2'000'003u, 64u}) {
    batch.add(DType::FLOAT32, count, 2, {.fresh = 2});
  }
  class Silent final : public OperationObserver {
   public:
    [[nodiscard]] bool stop_requested() const override { return false; }
    void tensor_completed(std::size_t /*tensor*/) override {}
  } observer;
  DirectReduceRequest request = batch.request();
  request.observer = &observer;
  (void)allocations_of(request);
  EXPECT_EQ(allocations_of(request), 0u);
}

}  // namespace
}  // namespace crossdevice
