// SPDX-License-Identifier: Apache-2.0
// The watchdog over emulated GPUs, without NCCL.
#include "crossdevice/comm/gpu_watchdog.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "crossdevice/comm/flight_record.h"
#include "crossdevice/core/exception_text.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/shutdown.h"

#include "comm/watched_failure.h"
#include "support/allocation_counter.h"
#include "support/emulated_gpus.h"
#include "support/log_keeper.h"
#include "support/thrown.h"

namespace crossdevice::detail {
namespace {

using crossdevice::testing::emulated_cuda;
using crossdevice::testing::Failure;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kFlightFile =
    (std::filesystem::temp_directory_path() / "crossdevice_watchdog.").string() +
    std::to_string(::getpid());

const bool is_installed = [] {
  crossdevice::testing::install_emulated_gpus(4);
  const std::string pattern =
      (std::filesystem::temp_directory_path() / "crossdevice_watchdog.%p").string();
  (void)::setenv("CROSSDEVICE_FLIGHT_RECORD", pattern.c_str(), 1);
  return true;
}();

constexpr std::chrono::seconds kLong{30};

GpuDevice& gpu(int i) { return GpuDevice::of("GPU:" + std::to_string(i)); }

class Stream {
 public:
  explicit Stream(int device) : device_(gpu(device)) {
    const CurrentCudaDevice current(device_.cuda(), device_.ordinal());
    require_cuda(device_.cuda(), device_.cuda().stream_create(&stream_), "stream_create");
  }
  ~Stream() {
    emulated_cuda().release_stream(stream_);
    EXPECT_TRUE(emulated_cuda().synchronize(stream_));
    EXPECT_EQ(device_.cuda().stream_destroy(stream_), CudaStatus::SUCCESS);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] GpuEvent record() const { return GpuEvent::record(device_, stream_); }
  void block() const { emulated_cuda().block_stream(stream_); }
  void release() const { emulated_cuda().release_stream(stream_); }
  [[nodiscard]] CudaStream handle() const { return stream_; }

 private:
  GpuDevice& device_;
  CudaStream stream_ = nullptr;
};

WatchedOperation operation(std::uint64_t sequence) {
  return {.record = {.kind = "all_reduce", .sequence = sequence, .num_values = 1, .size_bytes = 4},
          .size_bytes = 4};
}

/// Until an operation's record says so.
bool await_state(std::uint64_t sequence, FlightState state) {
  const Deadline deadline = Deadline::after(kLong);
  while (!deadline.has_passed()) {
    for (const FlightEntry& each : flight_record()) {
      if (each.operation.sequence == sequence && each.state == state) return true;
    }
    std::this_thread::yield();
  }
  return false;
}

std::size_t num_threads() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/task")) {
    ++count;
  }
  return count;
}

TEST(GpuWatchdogTest, WhatEndsIsNoFailure) {
  const Stream stream(0);
  Failure failure;
  WatchedOperation watched = operation(1);
  watched.timeout_seconds = 30;
  watched.start = stream.record();
  watched.ends = {stream.record()};
  watched.failed = failure.callback();
  watch(std::move(watched));
  EXPECT_TRUE(await_state(1, FlightState::COMPLETED));
  EXPECT_EQ(failure.count(), 0);
}

TEST(GpuWatchdogTest, TheDeadlineNamesTheOperationAndWhoDidNotCome) {
  const Stream fast(0);
  const Stream slow(2);
  Failure failure;
  WatchedOperation watched = operation(12);
  watched.timeout_seconds = 0.05;
  watched.start = fast.record();
  slow.block();
  watched.ends = {fast.record(), slow.record()};
  watched.devices = {"GPU:0", "GPU:2"};
  watched.failed = failure.callback();
  EXPECT_TRUE(emulated_cuda().synchronize(fast.handle()));
  watch(std::move(watched));
  ASSERT_TRUE(failure.await());
  EXPECT_EQ(failure.text(),
            "all_reduce #12 (1 value, 4 bytes) timed out after 0.05 s: waiting for GPU:2");
  EXPECT_TRUE(failure.was_on_watchdog());
  try {
    std::rethrow_exception(failure.error());
  } catch (const DeadlineExceededError& error) {
    EXPECT_EQ(error.operation().sequence, 12U);
    ASSERT_EQ(error.culprits().size(), 1U);
    EXPECT_EQ(error.culprits()[0].replica, 1);
    EXPECT_FALSE(error.inputs_intact());
  }
  EXPECT_TRUE(await_state(12, FlightState::FAILED));
}

TEST(GpuWatchdogTest, TheClockStartsWithTheStart) {
  const Stream before(0);
  const Stream work(1);
  Failure failure;
  before.block();
  WatchedOperation watched = operation(1);
  watched.timeout_seconds = 0.2;
  watched.start = before.record();
  work.block();
  watched.ends = {work.record()};
  watched.failed = failure.callback();
  watch(std::move(watched));
  // Twice the time passes, and nothing happens: it has not come to the head of its stream.
  EXPECT_FALSE(failure.await(milliseconds(400)));
  const auto released = std::chrono::steady_clock::now();
  before.release();
  ASSERT_TRUE(failure.await());
  EXPECT_GE(std::chrono::steady_clock::now() - released, milliseconds(200));
  EXPECT_THAT(failure.text(), HasSubstr("timed out after 0.2 s"));
  EXPECT_EQ(failure.count(), 1);
}

TEST(GpuWatchdogTest, WithoutATimeoutItIsWaitedForWithoutEnd) {
  const Stream stream(0);
  Failure failure;
  WatchedOperation watched = operation(1);
  watched.start = stream.record();
  stream.block();
  watched.ends = {stream.record()};
  watched.timeout_seconds = 0;
  watched.failed = failure.callback();
  watch(std::move(watched));
  EXPECT_TRUE(await_state(1, FlightState::STARTED));
  EXPECT_FALSE(failure.await(milliseconds(300)));
  stream.release();
  EXPECT_TRUE(await_state(1, FlightState::COMPLETED));
}

TEST(GpuWatchdogTest, WhatCudaReportsIsTheOperationsFailure) {
  const Stream stream(3);
  Failure failure;
  WatchedOperation watched = operation(5);
  stream.block();
  watched.ends = {stream.record()};
  watched.failed = failure.callback();
  watch(std::move(watched));
  emulated_cuda().fail_device(3, crossdevice::testing::kIllegalAddress);
  ASSERT_TRUE(failure.await());
  EXPECT_THAT(failure.text(),
              AllOf(StartsWith("all_reduce #5 (1 value, 4 bytes): "), HasSubstr("cudaEventQuery")));
  emulated_cuda().clear_violations();
}

TEST(GpuWatchdogTest, ACallbackThatThrowsHurtsNobody) {
  const crossdevice::testing::LogKeeper log;
  const Stream stream(0);
  stream.block();
  for (std::uint64_t i = 1; i <= 2; ++i) {
    WatchedOperation watched = operation(i);
    watched.timeout_seconds = 0.01;
    watched.ends = {stream.record()};
    watched.failed = [](const std::exception_ptr&) { throw std::runtime_error("no"); };
    watch(std::move(watched));
  }
  EXPECT_TRUE(await_state(1, FlightState::FAILED));
  EXPECT_TRUE(await_state(2, FlightState::FAILED));
  EXPECT_THAT(log.texts(), HasSubstr("has failed: no"));
}

TEST(GpuWatchdogTest, OneThreadForAllAndOnlyTheFirstOfAStreamIsAskedFor) {
  constexpr std::size_t kCount = 400;
  const Stream stream(0);
  const GpuEvent event = stream.record();  // whatever threads the emulation needs are there now
  EXPECT_TRUE(emulated_cuda().synchronize(stream.handle()));
  const std::size_t threads_before = num_threads();
  stream.block();
  emulated_cuda().calls().clear();
  for (std::size_t i = 1; i <= kCount; ++i) {
    WatchedOperation watched = operation(i);
    watched.timeout_seconds = 60;
    watched.stream = stream.handle();
    watched.ends = {stream.record()};
    watch(std::move(watched));
  }
  EXPECT_TRUE(await_state(1, FlightState::STARTED));
  EXPECT_EQ(num_threads(), threads_before + 1);
  // A look asks once for the first; it would take 400 of them, 40 seconds, to come to so many otherwise.
  EXPECT_LT(emulated_cuda().calls().count("cuda.event_query"), kCount);
  stream.release();
  for (std::size_t i = 1; i <= kCount; ++i) ASSERT_TRUE(await_state(i, FlightState::COMPLETED));
}

TEST(GpuWatchdogTest, WithoutAKnownOrderALaterOneIsSeenBeforeAnEarlierOne) {
  const Stream blocked(0);
  const Stream open(1);
  blocked.block();
  WatchedOperation first = operation(1);
  first.ends = {blocked.record()};
  watch(std::move(first));
  WatchedOperation second = operation(2);
  second.ends = {open.record()};
  watch(std::move(second));
  EXPECT_TRUE(await_state(2, FlightState::COMPLETED));
  EXPECT_EQ(flight_record().front().state, FlightState::STARTED);
  blocked.release();
  EXPECT_TRUE(await_state(1, FlightState::COMPLETED));
}

TEST(GpuWatchdogTest, DisturbsNoCapture) {
  WatchedOperation watched = operation(1);
  watch(std::move(watched));
  EXPECT_TRUE(await_state(1, FlightState::COMPLETED));
  EXPECT_EQ(emulated_cuda().calls().count("cuda.exchange_capture_mode"), 1U);
}

TEST(GpuWatchdogTest, AsksWhileAnotherThreadCapturesAndSpoilsNothing) {
  const Stream watched_stream(0);
  const Stream captured_stream(1);
  watched_stream.block();
  WatchedOperation watched = operation(1);
  watched.timeout_seconds = 0.05;  // looks every few milliseconds
  watched.start = watched_stream.record();
  watched.ends = {watched_stream.record()};
  watch(std::move(watched));
  const CurrentCudaDevice current(emulated_cuda(), 1);
  const crossdevice::testing::CaptureMode mode = crossdevice::testing::CaptureMode::GLOBAL;
  ASSERT_EQ(emulated_cuda().begin_capture(captured_stream.handle(), mode), CudaStatus::SUCCESS);
  const std::size_t asked = emulated_cuda().calls().count("cuda.event_query");
  const Deadline deadline = Deadline::after(kLong);
  while (emulated_cuda().calls().count("cuda.event_query") < asked + 5) {
    ASSERT_FALSE(deadline.has_passed());
    std::this_thread::yield();
  }
  crossdevice::testing::EmulatedGraph graph{};
  EXPECT_EQ(emulated_cuda().end_capture(captured_stream.handle(), &graph), CudaStatus::SUCCESS);
  (void)emulated_cuda().destroy_graph(graph);
}

TEST(GpuWatchdogTest, InSteadyStateNothingIsAllocated) {
  constexpr std::size_t kBatch = 100;
  std::uint64_t sequence = 0;
  const auto batch = [&sequence] {
    for (std::size_t i = 0; i < kBatch; ++i) {
      WatchedOperation watched = operation(++sequence);
      watched.timeout_seconds = 60;
      watch(std::move(watched));
    }
  };
  for (int i = 0; i < 15; ++i) {
    batch();
    ASSERT_TRUE(await_state(sequence, FlightState::COMPLETED));
  }
  if (!crossdevice::testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer has the heap";
  const std::size_t before = crossdevice::testing::num_allocations_of_this_thread();
  batch();
  EXPECT_EQ(crossdevice::testing::num_allocations_of_this_thread(), before);
}

TEST(GpuWatchdogTest, AFailureWritesTheFlightRecord) {
  const Stream stream(0);
  Failure failure;
  WatchedOperation watched = operation(77);
  watched.detail = "into GPU:0";
  watched.dtype = DType::FLOAT32;
  watched.devices = {"GPU:0"};
  watched.timeout_seconds = 0.01;
  stream.block();
  watched.ends = {stream.record()};
  watched.failed = failure.callback();
  watch(std::move(watched));
  ASSERT_TRUE(failure.await());
  const Deadline deadline = Deadline::after(kLong);
  while (!std::filesystem::exists(kFlightFile) && !deadline.has_passed()) {
    std::this_thread::yield();
  }
  std::ifstream file(kFlightFile);
  const nlohmann::json all = nlohmann::json::parse(file);
  EXPECT_EQ(all.at("pid"), ::getpid());
  nlohmann::json last = all.at("operations").back();
  const auto take = [&last](const char* key) {
    const nlohmann::json value = last.at(key);
    last.erase(key);
    return value;
  };
  const auto enqueued = take("enqueued_ns").get<std::int64_t>();
  const auto started = take("started_ns").get<std::int64_t>();
  const auto ended = take("ended_ns").get<std::int64_t>();
  EXPECT_LE(enqueued, started);
  EXPECT_LE(started, ended);
  EXPECT_LE(ended, all.at("written_ns").get<std::int64_t>());
  EXPECT_GT(take("number").get<std::uint64_t>(), 0U);
  EXPECT_THAT(take("error").get<std::string>(), HasSubstr("timed out after 0.01 s"));
  EXPECT_EQ(last, nlohmann::json({{"operation", "all_reduce #77 (1 value, 4 bytes)"},
                                  {"kind", "all_reduce"},
                                  {"sequence", 77},
                                  {"num_values", 1},
                                  {"detail", "into GPU:0"},
                                  {"size_bytes", 4},
                                  {"dtype", "float32"},
                                  {"devices", {"GPU:0"}},
                                  {"timeout_seconds", 0.01},
                                  {"state", "failed"}}));
  std::filesystem::remove(kFlightFile);
}

TEST(GpuWatchdogTest, AfterShutdownNothingIsWatched) {
  const Stream stream(0);
  Failure failure;
  WatchedOperation watched = operation(1);
  stream.block();
  watched.ends = {stream.record()};
  watched.timeout_seconds = 3600;
  watched.failed = failure.callback();
  watch(std::move(watched));
  shutdown();  // does not wait for it
  watch(operation(2));
  EXPECT_EQ(failure.count(), 0);
  EXPECT_EQ(flight_record().size(), 1U);
}

TEST(GpuWatchdogTest, ItsOwnThreadCannotEndIt) {
  const Stream stream(0);
  stream.block();
  WatchedOperation watched = operation(1);
  watched.ends = {stream.record()};
  watched.timeout_seconds = 0.01;
  std::promise<std::string> said;
  watched.failed = [&said](const std::exception_ptr&) {
    said.set_value(crossdevice::testing::thrown<FailedPreconditionError>([] { shutdown(); }));
  };
  watch(std::move(watched));
  EXPECT_THAT(said.get_future().get(), HasSubstr("cannot wait for itself"));
}

TEST(GpuWatchdogTest, ManyThreadsMayWatch) {
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      const Stream stream(t);
      for (std::uint64_t i = 0; i < 100; ++i) {
        WatchedOperation watched = operation(static_cast<std::uint64_t>(t) * 100 + i + 1);
        watched.timeout_seconds = 60;
        watched.start = stream.record();
        watched.ends = {stream.record()};
        watched.stream = stream.handle();
        watch(std::move(watched));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint64_t i = 1; i <= 400; ++i) ASSERT_TRUE(await_state(i, FlightState::COMPLETED));
}

}  // namespace
}  // namespace crossdevice::detail
