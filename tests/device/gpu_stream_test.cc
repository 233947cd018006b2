// SPDX-License-Identifier: Apache-2.0
// A Stream on a GPU: the host's tasks between the GPU's work, and events that host and GPU streams exchange.
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/stream.h"

#include "support/gpu_fixture.h"
#include "support/log_keeper.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using testing::elements_on_gpu;
using testing::emulated_cuda;
using ::testing::HasSubstr;
using testing::thrown;

const bool kInstalled = (testing::install_emulated_gpus(3), true);

using GpuStreamTest = testing::GpuTest;

TEST_F(GpuStreamTest, TasksRunInOrderBetweenTheGpusWork) {
  Stream stream("GPU:1", "mine");
  const Tensor tensor = Tensor::empty(DType::UINT8, {100}, "GPU:1", stream.view());
  const auto* const view = static_cast<const unsigned char*>(emulated_cuda().view(tensor.data()));
  const Tensor zeros = Tensor::zeros(DType::UINT8, {100}, "GPU:1");
  std::vector<int> seen;
  emulated_cuda().block_stream(stream.view().cuda());
  for (int i = 0; i < 3; ++i) {
    stream.launch([&seen, i] { seen.push_back(i); });
  }
  copy(tensor, zeros);
  stream.launch([&] { seen.push_back(view[99]); });
  EXPECT_TRUE(seen.empty());
  emulated_cuda().release_stream(stream.view().cuda());
  stream.synchronize(Deadline::never());
  EXPECT_THAT(seen, ::testing::ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(elements_on_gpu(tensor), Each(0));
}

TEST_F(GpuStreamTest, EventsComeInItsOrder) {
  Stream stream("GPU:0", "mine");
  const Event before = stream.record();
  before.wait(Deadline::never());
  emulated_cuda().block_stream(stream.view().cuda());
  int runs = 0;
  stream.launch([&] { ++runs; });
  const Event after = stream.record();
  EXPECT_TRUE(before.has_completed());
  EXPECT_FALSE(after.has_completed());
  EXPECT_THAT(thrown<DeadlineExceededError>(
                  [&] { after.wait(Deadline::after(std::chrono::milliseconds(5))); }),
              HasSubstr("CUDA device 0"));
  EXPECT_THAT(thrown<DeadlineExceededError>(
                  [&] { stream.synchronize(Deadline::after(std::chrono::milliseconds(5))); }),
              HasSubstr("CUDA device 0"));
  emulated_cuda().release_stream(stream.view().cuda());
  after.wait(Deadline::never());
  EXPECT_EQ(runs, 1);
}

TEST_F(GpuStreamTest, GpuStreamsWaitForEachOther) {
  Stream first("GPU:0", "first");
  Stream second("GPU:1", "second");
  emulated_cuda().block_stream(first.view().cuda());
  std::string order;
  first.launch([&] { order += 'a'; });
  second.wait(first.record());
  second.launch([&] { order += 'b'; });
  first.wait(second.record());
  first.launch([&] { order += 'c'; });
  emulated_cuda().release_stream(first.view().cuda());
  first.synchronize(Deadline::never());
  EXPECT_EQ(order, "abc");
}

TEST_F(GpuStreamTest, AHostStreamWaitsForAGpusEvent) {
  Stream on_gpu("GPU:0", "gpu");
  Stream on_host("CPU:0", "host");
  emulated_cuda().block_stream(on_gpu.view().cuda());
  std::string order;
  on_gpu.launch([&] { order += 'a'; });
  on_host.wait(on_gpu.record());
  on_host.launch([&] { order += 'b'; });
  EXPECT_FALSE(on_host.record().has_completed());
  emulated_cuda().release_stream(on_gpu.view().cuda());
  on_host.synchronize(Deadline::never());
  EXPECT_EQ(order, "ab");
}

TEST_F(GpuStreamTest, AGpuStreamTakesAHostsEventOnlyWhenItHasCome) {
  Stream on_gpu("GPU:0", "gpu");
  Stream on_host("CPU:0", "host");
  std::atomic_flag open;
  on_host.launch([&] { open.wait(false); });
  const Event event = on_host.record();
  EXPECT_THAT(thrown<UnimplementedError>([&] { on_gpu.wait(event); }),
              HasSubstr("wait for the event on the host"));
  open.test_and_set();
  open.notify_all();
  event.wait(Deadline::never());
  on_gpu.wait(event);
  on_gpu.wait(Event());
  on_gpu.synchronize(Deadline::never());
}

TEST_F(GpuStreamTest, TheFirstErrorOfATaskIsThrownOnce) {
  const testing::LogKeeper log;
  Stream stream("GPU:0", "mine");
  int runs = 0;
  stream.launch([] { throw std::runtime_error("first"); });
  stream.launch([] { throw std::runtime_error("second"); });
  stream.launch([&] { ++runs; });
  EXPECT_EQ(thrown<std::runtime_error>([&] { stream.synchronize(Deadline::never()); }), "first");
  stream.synchronize(Deadline::never());
  EXPECT_EQ(runs, 1);
  EXPECT_THAT(log.texts(), AllOf(HasSubstr("\"mine\""), HasSubstr("second")));
}

TEST_F(GpuStreamTest, InATaskNothingOfAGpuCanBeUsed) {
  Stream stream("GPU:0", "mine");
  Stream other("GPU:0", "other");
  std::vector<std::string> texts;
  bool is_current = false;
  stream.launch([&] {
    is_current = stream.is_current() && !other.is_current();
    texts.push_back(thrown<FailedPreconditionError>([&] { other.launch([] {}); }));
    texts.push_back(thrown<FailedPreconditionError>([&] { (void)stream.record(); }));
    texts.push_back(
        thrown<FailedPreconditionError>([&] { stream.synchronize(Deadline::never()); }));
    texts.push_back(thrown<FailedPreconditionError>([&] { stream.stop(); }));
  });
  stream.synchronize(Deadline::never());
  EXPECT_TRUE(is_current);
  EXPECT_FALSE(stream.is_current());
  ASSERT_EQ(texts.size(), 4u);
  EXPECT_THAT(texts, Each(HasSubstr("must not call CUDA")));
}

TEST_F(GpuStreamTest, AfterStopItTakesNothing) {
  Stream stream("GPU:2", "mine");
  int runs = 0;
  stream.launch([&] { ++runs; });
  stream.stop();
  EXPECT_EQ(runs, 1);
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { stream.launch([] {}); }), HasSubstr("stopped"));
  stream.stop();
  EXPECT_EQ(thrown<ValueError>([&] { stream.launch(nullptr); }),
            "Stream::launch: expected a task, got an empty function");
}

TEST_F(GpuStreamTest, WhatItWasGivenRunsAlsoWhenTheHandleIsGone) {
  const auto runs = std::make_shared<std::atomic<int>>(0);
  const std::size_t before = emulated_cuda().num_streams();
  Event last;
  {
    Stream stream("GPU:0", "mine");
    const detail::CudaStream cuda = stream.view().cuda();
    emulated_cuda().block_stream(cuda);
    for (int i = 0; i < 10; ++i) stream.launch([runs] { ++*runs; });
    last = stream.record();
    Stream moved = std::move(stream);
    stream = Stream("GPU:1", "another");
    EXPECT_FALSE(last.has_completed());
  }
  EXPECT_EQ(emulated_cuda().num_streams(), before);
  emulated_cuda().release_everything();
  last.wait(Deadline::never());
  EXPECT_EQ(*runs, 10);
  EXPECT_EQ(runs.use_count(), 1);
}

TEST_F(GpuStreamTest, ATaskThatCudaRefusesIsNotKept) {
  Stream stream("GPU:0", "mine");
  const auto held = std::make_shared<int>(1);
  emulated_cuda().calls().inject({.function = "cuda.launch_host_function", .status = 2});
  EXPECT_THAT(thrown<ResourceExhaustedError>([&] { stream.launch([held] {}); }),
              HasSubstr("cudaLaunchHostFunc"));
  EXPECT_EQ(held.use_count(), 1);
  int runs = 0;
  stream.launch([&] { ++runs; });
  stream.synchronize(Deadline::never());
  EXPECT_EQ(runs, 1);
}

TEST_F(GpuStreamTest, ThreadsLaunchAtOnce) {
  Stream stream("GPU:0", "mine");
  int runs = 0;  // tasks of one stream never run at once
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) stream.launch([&] { ++runs; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  stream.synchronize(Deadline::never());
  EXPECT_EQ(runs, 200);
}

TEST_F(GpuStreamTest, OnlyAGpusStreamHasAView) {
  const Stream on_host("CPU:0", "host");
  EXPECT_THAT(thrown<ValueError>([&] { (void)on_host.view(); }), HasSubstr("host's"));
  EXPECT_EQ(thrown<ValueError>([] { const Stream absent("GPU:3", "x"); }),
            "GPU:3: this host has 3 GPUs");
}

}  // namespace
}  // namespace crossdevice
