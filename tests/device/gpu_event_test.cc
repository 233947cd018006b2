// SPDX-License-Identifier: Apache-2.0
// Moments of CUDA streams come in order, hold other streams back, and their events are used again.
#include "crossdevice/device/gpu_event.h"

#include <thread>
#include <utility>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/device/gpu_platform.h"

#include "support/allocation_counter.h"
#include "support/gpu_fixture.h"
#include "support/thrown.h"

namespace crossdevice::detail {
namespace {

using crossdevice::testing::emulated_cuda;
using crossdevice::testing::gpu;
using crossdevice::testing::make_cuda_stream;
using crossdevice::testing::thrown;
using ::testing::AllOf;
using ::testing::HasSubstr;

const bool kInstalled = (crossdevice::testing::install_emulated_gpus(3), true);

using GpuEventTest = crossdevice::testing::GpuTest;

TEST_F(GpuEventTest, NeverRecordedIsComplete) {
  const GpuEvent event;
  EXPECT_TRUE(event.has_completed());
  event.wait(Deadline::after(std::chrono::seconds(-1)));
  event.hold_back(gpu("GPU:0").own_stream());
  EXPECT_EQ(emulated_cuda().calls().count("cuda.stream_wait_event"), 0u);
}

TEST_F(GpuEventTest, ItComesWhenTheStreamHasComeThere) {
  const CudaStream stream = gpu("GPU:0").own_stream();
  emulated_cuda().block_stream(stream);
  const GpuEvent event = GpuEvent::record(gpu("GPU:0"), stream);
  const GpuEvent copy = event;
  EXPECT_FALSE(event.has_completed());
  EXPECT_THAT(thrown<DeadlineExceededError>(
                  [&] { event.wait(Deadline::after(std::chrono::milliseconds(5))); }),
              AllOf(HasSubstr("CUDA device 0"), HasSubstr("Emulated GPU")));
  EXPECT_THAT(
      thrown<DeadlineExceededError>([&] { event.wait(Deadline::after(std::chrono::seconds(-1))); }),
      HasSubstr("deadline passed"));
  std::thread waiter([copy] { copy.wait(Deadline::never()); });
  emulated_cuda().release_stream(stream);
  waiter.join();
  EXPECT_TRUE(event.has_completed());
  EXPECT_TRUE(copy.has_completed());
  event.wait(Deadline::after(std::chrono::seconds(-1)));  // what has come is never late
}

TEST_F(GpuEventTest, ItHoldsBackStreamsOfAnyGpu) {
  const CudaStream first = make_cuda_stream(0);
  const CudaStream second = make_cuda_stream(1);
  emulated_cuda().block_stream(first);
  GpuEvent::record(gpu("GPU:0"), first).hold_back(second);
  const GpuEvent behind = GpuEvent::record(gpu("GPU:1"), second);
  EXPECT_TRUE(emulated_cuda().synchronize(gpu("GPU:1").own_stream()));
  EXPECT_FALSE(behind.has_completed());
  emulated_cuda().release_stream(first);
  behind.wait(Deadline::never());
}

TEST_F(GpuEventTest, ANullStreamIsItsGpusDefaultStream) {
  const CudaStream blocker = make_cuda_stream(1);
  emulated_cuda().block_stream(blocker);
  {
    const CurrentCudaDevice current(emulated_cuda(), 1);
    GpuEvent::record(gpu("GPU:1"), blocker).hold_back(nullptr);
  }
  const GpuEvent held_back = GpuEvent::record(gpu("GPU:1"), nullptr);
  GpuEvent::record(gpu("GPU:0"), nullptr).wait(Deadline::never());
  EXPECT_FALSE(held_back.has_completed());
  emulated_cuda().release_stream(blocker);
  held_back.wait(Deadline::never());
}

TEST_F(GpuEventTest, AnEventThatIsUsedAgainKeepsWhatWaitsForItsFormerMoment) {
  const CudaStream first = make_cuda_stream(0);
  const CudaStream other = make_cuda_stream(0);
  const CudaStream waiting = make_cuda_stream(0);
  { const GpuEvent spare = GpuEvent::record(gpu("GPU:0"), other); }
  const std::size_t made = emulated_cuda().calls().count("cuda.event_create");
  emulated_cuda().block_stream(other);
  GpuEvent::record(gpu("GPU:0"), first).hold_back(waiting);  // given back at once
  const GpuEvent again = GpuEvent::record(gpu("GPU:0"), other);
  EXPECT_EQ(emulated_cuda().calls().count("cuda.event_create"), made);
  GpuEvent::record(gpu("GPU:0"), waiting).wait(Deadline::never());  // not behind `other`
  EXPECT_FALSE(again.has_completed());
  emulated_cuda().release_stream(other);
}

TEST_F(GpuEventTest, InSteadyStateNothingIsAllocated) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer owns the heap";
  const CudaStream stream = gpu("GPU:0").own_stream();
  const auto step = [&] {
    const GpuEvent one = GpuEvent::record(gpu("GPU:0"), stream);
    const GpuEvent two = GpuEvent::record(gpu("GPU:0"), stream);
    two.hold_back(stream);
    two.wait(Deadline::never());
    return one.has_completed();
  };
  EXPECT_TRUE(step());
  const std::size_t made = emulated_cuda().calls().count("cuda.event_create");
  const std::size_t before = testing::num_allocations_of_this_thread();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(step());
  EXPECT_EQ(testing::num_allocations_of_this_thread(), before);
  EXPECT_EQ(emulated_cuda().calls().count("cuda.event_create"), made);
}

TEST_F(GpuEventTest, WhatWentWrongBeforeItIsThrown) {
  const GpuEvent event = GpuEvent::record(gpu("GPU:0"), gpu("GPU:0").own_stream());
  emulated_cuda().fail_device(0, CudaStatus{700});
  EXPECT_THAT(thrown<InternalError>([&] { event.wait(Deadline::never()); }),
              AllOf(HasSubstr("cudaEventQuery"), HasSubstr("700")));
  EXPECT_THAT(thrown<InternalError>(
                  [&] { (void)GpuEvent::record(gpu("GPU:0"), gpu("GPU:0").own_stream()); }),
              HasSubstr("cudaEvent"));
  emulated_cuda().clear_violations();
}

TEST_F(GpuEventTest, ThreadsShareThem) {
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      GpuDevice& device = gpu(t % 2 == 0 ? "GPU:0" : "GPU:1");
      for (int i = 0; i < 50; ++i) {
        const GpuEvent event = GpuEvent::record(device, device.own_stream());
        const GpuEvent copy = event;
        copy.hold_back(device.own_stream());
        event.wait(Deadline::never());
      }
    });
  }
  const GpuEvent shared = GpuEvent::record(gpu("GPU:0"), gpu("GPU:0").own_stream());
  for (std::thread& thread : threads) thread.join();
  shared.wait(Deadline::never());
  EXPECT_LE(emulated_cuda().num_events(), 8u);
}

}  // namespace
}  // namespace crossdevice::detail
