// SPDX-License-Identifier: Apache-2.0
// The real NCCL on a real GPU: a clique of one, the watchdog, an abort.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/flight_record.h"
#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/core/exception_text.h"
#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/gpu_platform.h"

#include "support/real_gpu.h"
#include "support/thrown.h"

namespace crossdevice::detail {
namespace {

using ::testing::HasSubstr;
using testing::must_succeed;
using testing::thrown;

constexpr std::chrono::seconds kLong{60};
constexpr std::size_t kCount = 1009;

/// Holds a stream until it is let go: a user's kernel that does not end.
class Gate {
 public:
  void hold(CudaApi& cuda, CudaStream stream) {
    must_succeed(cuda.launch_host_function(
                     stream, [](void* gate) { static_cast<Gate*>(gate)->wait(); }, this),
                 "launch_host_function");
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      is_open_ = true;
    }
    changed_.notify_all();
  }

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    (void)changed_.wait_for(lock, kLong, [this] { return is_open_; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

class GpuNcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CROSSDEVICE_SKIP_WITHOUT_NCCL();
    gpu_ = &GpuDevice::of("GPU:0");
    cuda_ = gpu_platform().cuda.get();
    const CurrentCudaDevice current(*cuda_, gpu_->ordinal());
    stream_ = gpu_->own_stream();
    for (float*& each : {std::ref(source_), std::ref(destination_)}) {
      void* pointer = nullptr;
      must_succeed(cuda_->malloc_from_pool_async(&pointer, kCount * sizeof(float),
                                                 gpu_->memory_pool(), stream_),
                   "malloc_from_pool_async");
      each = static_cast<float*>(pointer);
    }
    for (std::size_t i = 0; i < kCount; ++i) values_[i] = static_cast<float>(i) / 3;
    must_succeed(cuda_->memcpy_async(source_, values_.data(), kCount * sizeof(float), stream_),
                 "memcpy_async");
  }
  void TearDown() override {
    if (cuda_ == nullptr) return;
    (void)cuda_->free_async(source_, stream_);
    (void)cuda_->free_async(destination_, stream_);
    GpuEvent::record(*gpu_, stream_).wait(Deadline::after(kLong));
  }
  void all_reduce(NcclClique& clique) {
    NcclClique::Launch launch(clique,
                              {.operation = {.kind = "all_reduce", .sequence = 1, .num_values = 1},
                               .timeout_seconds = 60});
    launch.require(clique.api().all_reduce(source_, destination_, kCount, NcclDataType::FLOAT32,
                                           NcclRedOp::SUM, clique.communicator(0), stream_),
                   "ncclAllReduce");
    launch.end();
  }
  std::vector<float> result() {
    std::vector<float> values(kCount);
    must_succeed(cuda_->memcpy_async(values.data(), destination_, kCount * sizeof(float), stream_),
                 "memcpy_async");
    GpuEvent::record(*gpu_, stream_).wait(Deadline::after(kLong));
    return values;
  }

  GpuDevice* gpu_ = nullptr;
  CudaApi* cuda_ = nullptr;
  CudaStream stream_ = nullptr;
  float* source_ = nullptr;
  float* destination_ = nullptr;
  std::vector<float> values_ = std::vector<float>(kCount);
};

TEST_F(GpuNcclTest, ACliqueOfOneReduces) {
  const auto clique = NcclClique::of({"GPU:0"});
  EXPECT_EQ(NcclClique::of({"GPU:0"}), clique);
  EXPECT_GE(clique->api().version(), kMinimumNcclVersion);
  EXPECT_EQ(clique->find_async_error(), nullptr);
  all_reduce(*clique);
  EXPECT_EQ(result(), values_);
}

TEST_F(GpuNcclTest, ARefusedCallIsHarmless) {
  const auto clique = NcclClique::of({"GPU:0"});
  EXPECT_THAT(thrown<InternalError>([&] {
                NcclClique::Launch launch(*clique);
                launch.require(clique->api().reduce(source_, destination_, kCount,
                                                    NcclDataType::FLOAT32, NcclRedOp::SUM,
                                                    /*root=*/7, clique->communicator(0), stream_),
                               "ncclReduce");
              }),
              HasSubstr("ncclReduce: "));
  EXPECT_EQ(clique->state(), NcclCliqueState::WHOLE);
  all_reduce(*clique);
  EXPECT_EQ(result(), values_);
}

TEST_F(GpuNcclTest, AStreamThatDoesNotGoOnIsFoundByTheDeadline) {
  const auto clique = NcclClique::of({"GPU:0"});
  Gate gate;
  const GpuEvent start = GpuEvent::record(*gpu_, stream_);
  gate.hold(*cuda_, stream_);
  all_reduce(*clique);
  std::promise<std::string> said;
  watch({.record = {.kind = "all_reduce", .sequence = 5, .num_values = 1, .size_bytes = 4},
         .timeout_seconds = 0.2,
         .start = start,
         .ends = {GpuEvent::record(*gpu_, stream_)},
         .clique = clique,
         .failed = [&said](const std::exception_ptr& why) { said.set_value(exception_text(why)); },
         .stream = stream_});
  auto text = said.get_future();
  ASSERT_EQ(text.wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(text.get(),
            "all_reduce #5 (1 value, 4 bytes) timed out after 0.2 s: waiting for GPU:0");
  EXPECT_THAT(thrown<DeadlineExceededError>([&] { clique->require_usable(); }),
              HasSubstr("all_reduce #5"));
  gate.open();
  EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
  const Deadline deadline = Deadline::after(kLong);
  while (clique->state() != NcclCliqueState::ABORTED && !deadline.has_passed()) {
    std::this_thread::yield();
  }
  EXPECT_EQ(clique->state(), NcclCliqueState::ABORTED);
  const auto next = NcclClique::of({"GPU:0"});
  EXPECT_NE(next, clique);
  all_reduce(*next);
  EXPECT_EQ(result(), values_);
}

TEST_F(GpuNcclTest, WhatIsWatchedIsOnRecord) {
  const auto clique = NcclClique::of({"GPU:0"});
  const GpuEvent start = GpuEvent::record(*gpu_, stream_);
  all_reduce(*clique);
  watch({.record = {.kind = "all_reduce", .sequence = 9, .num_values = 1},
         .timeout_seconds = 60,
         .start = start,
         .ends = {GpuEvent::record(*gpu_, stream_)},
         .clique = clique});
  const auto is_completed = [] {
    const std::vector<FlightEntry> all = flight_record();
    return std::any_of(all.begin(), all.end(), [](const FlightEntry& each) {
      return each.operation.sequence == 9 && each.state == FlightState::COMPLETED;
    });
  };
  const Deadline deadline = Deadline::after(kLong);
  while (!is_completed() && !deadline.has_passed()) std::this_thread::yield();
  EXPECT_TRUE(is_completed());
}

}  // namespace
}  // namespace crossdevice::detail
