// SPDX-License-Identifier: Apache-2.0
/// Every schedule in one process, bit by bit as the step-by-step execution: all dtypes, ops, counts, sizes, in place and not, and packs
/// that cut across tensors.
#include "crossdevice/collective/scheduled_reduce.h"

#include <chrono>
#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include "collective/scheduled_reduce_fixture.h"

namespace crossdevice::testing {
namespace {

class ScheduledReduceTest : public ::testing::TestWithParam<Maker> {};

INSTANTIATE_TEST_SUITE_P(EverySchedule, ScheduledReduceTest, ::testing::ValuesIn(kMakers),
                         [](const auto& maker) { return std::string(maker.param.name); });

TEST_P(ScheduledReduceTest, EveryDtypeAndOp) {
  for (const ReduceOp op : kAllReduceOps) {
    ScheduledBatch scheduled(op, GetParam());
    for (const DType dtype : kAllDTypes) {
      if (!is_supported(op, dtype)) continue;
      for (const std::size_t n : {1u, 2u, 3u, 5u, 8u}) {
        scheduled.add(dtype, 41, n, {.fresh = 2});
        if (result_dtype(op, dtype) == dtype) scheduled.add(dtype, 41, n, {.in_place = first(n)});
      }
    }
    scheduled.plan_each();
    EXPECT_EQ(scheduled_reduce(scheduled.request()), DirectReduceOutcome::COMPLETED);
    scheduled.batch.expect_reduced();
  }
}

TEST_P(ScheduledReduceTest, AwkwardCountsAndSizes) {
  for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::MEAN}) {
    ScheduledBatch scheduled(op, GetParam());
    for (const DType dtype : {DType::FLOAT32, DType::BFLOAT16}) {
      for (const std::size_t n : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 16u, 17u}) {
        for (const std::size_t size : {std::size_t{0}, std::size_t{1}, n - 1, n, n + 1,
                                       std::size_t{97}, std::size_t{8192}, std::size_t{8193}}) {
          scheduled.add(dtype, size, n, {.fresh = 1, .in_place = {n - 1, 0}});
        }
      }
    }
    scheduled.plan_each();
    EXPECT_EQ(scheduled_reduce(scheduled.request()), DirectReduceOutcome::COMPLETED);
    scheduled.batch.expect_reduced();
  }
}

TEST_P(ScheduledReduceTest, APackCutsAcrossTensors) {
  ScheduledBatch scheduled(ReduceOp::SUM, GetParam());
  const std::size_t sizes[] = {3, 0, 1, 50'000, 17, 0};
  Pack front{.dtype = DType::BFLOAT16, .ranges = {}};
  Pack back{.dtype = DType::FLOAT32, .ranges = {}};
  for (std::size_t t = 0; t < 6; ++t) {
    Pack& pack = t % 2 == 0 ? front : back;
    scheduled.add(pack.dtype, sizes[t], 5, {.fresh = 1, .in_place = {2}});
    pack.ranges.push_back({.tensor = t, .begin = 0, .count = sizes[t]});
  }
  scheduled.plan(back);
  scheduled.plan(front);
  RecordingObserver observer(scheduled.batch);
  ScheduledReduceRequest request = scheduled.request();
  request.observer = &observer;
  EXPECT_EQ(scheduled_reduce(request), DirectReduceOutcome::COMPLETED);
  scheduled.batch.expect_reduced();
  observer.expect_each_tensor_once();
}

TEST(ScheduledReduceRequestTest, APassedDeadlineTouchesNothing) {
  ScheduledBatch scheduled(ReduceOp::SUM, kMakers[0]);
  scheduled.add(DType::FLOAT32, 10, 3, {.fresh = 3});
  scheduled.add(DType::FLOAT32, 200'000, 3, {.in_place = {0}});
  scheduled.plan_each();
  ScheduledReduceRequest request = scheduled.request();
  request.deadline = Deadline::after(std::chrono::seconds(-1));
  EXPECT_EQ(scheduled_reduce(request), DirectReduceOutcome::DEADLINE_PASSED);
  scheduled.batch.expect_untouched();
}

TEST(ScheduledReduceRequestTest, NothingToDo) {
  EXPECT_EQ(scheduled_reduce({}), DirectReduceOutcome::COMPLETED);
  ScheduledBatch scheduled(ReduceOp::SUM, kMakers[0]);
  scheduled.add(DType::FLOAT32, 10, 3, {});
  scheduled.plan_each();
  EXPECT_EQ(scheduled_reduce(scheduled.request()), DirectReduceOutcome::COMPLETED);
  scheduled.batch.expect_reduced();
}

}  // namespace
}  // namespace crossdevice::testing
