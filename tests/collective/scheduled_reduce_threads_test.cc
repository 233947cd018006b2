// SPDX-License-Identifier: Apache-2.0
/// Scheduled reductions on all threads: observers, stops, and several callers.
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/scheduled_reduce.h"

#include "collective/scheduled_reduce_fixture.h"

namespace crossdevice::testing {
namespace {

class ScheduledReduceThreadsTest : public ::testing::TestWithParam<Maker> {};

INSTANTIATE_TEST_SUITE_P(EverySchedule, ScheduledReduceThreadsTest, ::testing::ValuesIn(kMakers),
                         [](const auto& maker) { return std::string(maker.param.name); });

TEST_P(ScheduledReduceThreadsTest, LargeTensorsOnAllThreads) {
  for (const DType dtype : {DType::FLOAT32, DType::FLOAT16}) {
    ScheduledBatch scheduled(ReduceOp::MEAN, GetParam());
    scheduled.add(dtype, 100'003, 4, {.fresh = 4});
    scheduled.add(dtype, 40'009, 8, {.in_place = first(8)});
    scheduled.plan_each();
    RecordingObserver observer(scheduled.batch);
    ScheduledReduceRequest request = scheduled.request();
    request.observer = &observer;
    EXPECT_EQ(scheduled_reduce(request), DirectReduceOutcome::COMPLETED);
    scheduled.batch.expect_reduced();
    observer.expect_each_tensor_once();
  }
}

TEST(ScheduledReduceStopTest, AStopEndsItWithinAChunk) {
  for (const std::size_t after : {0u, 1u, 3u}) {
    ScheduledBatch scheduled(ReduceOp::SUM, kMakers[0]);
    scheduled.add(DType::FLOAT32, 300'007, 4, {.fresh = 4});
    scheduled.plan_each();
    RecordingObserver observer(scheduled.batch);
    observer.on_stop_requested = [after](std::size_t asked) { return asked >= after; };
    ScheduledReduceRequest request = scheduled.request();
    request.observer = &observer;
    EXPECT_EQ(scheduled_reduce(request), DirectReduceOutcome::STOPPED);
    EXPECT_EQ(observer.num_completed(), 0u);
    scheduled.batch.expect_others_intact(0);
  }
}

TEST(ScheduledReduceStopTest, SeveralCallersAtOnce) {
  std::vector<std::unique_ptr<ScheduledBatch>> batches;
  for (std::size_t i = 0; i < 4; ++i) {
    batches.push_back(std::make_unique<ScheduledBatch>(ReduceOp::MEAN, kMakers[i]));
    batches.back()->add(DType::BFLOAT16, 20'000 + i, 5, {.fresh = 1, .in_place = first(5)});
    batches.back()->plan_each();
  }
  std::vector<std::thread> callers;
  for (const auto& batch : batches) {
    callers.emplace_back([&batch] { (void)scheduled_reduce(batch->request()); });
  }
  for (std::thread& caller : callers) caller.join();
  for (const auto& batch : batches) batch->batch.expect_reduced();
}

}  // namespace
}  // namespace crossdevice::testing
