// SPDX-License-Identifier: Apache-2.0
// Capture over the emulation of CUDA: what is recorded, what forks and joins, what makes a capture invalid.
#include "support/emulated_capture.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/emulated_cuda.h"

namespace crossdevice::testing {
namespace {

using detail::CudaCaptureStatus;
using detail::CudaEvent;
using detail::CudaPool;
using detail::CudaStatus;
using detail::CudaStream;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CudaStatus kOk = CudaStatus::SUCCESS;
constexpr CudaStatus kUnsupported = CudaStatus::STREAM_CAPTURE_UNSUPPORTED;
constexpr CudaStatus kInvalidated = CudaStatus::STREAM_CAPTURE_INVALIDATED;

class EmulatedCaptureTest : public ::testing::Test {
 protected:
  EmulatedCaptureTest() {
    for (int device = 0; device < 2; ++device) {
      EXPECT_EQ(cuda.set_device(device), kOk);
      for (auto* stream : {device == 0 ? &origin : &branch, device == 0 ? &local : &unused}) {
        EXPECT_EQ(cuda.stream_create(stream), kOk);
      }
      for (auto* event : {device == 0 ? &fork : &join, device == 0 ? &other : &unused_event}) {
        EXPECT_EQ(cuda.event_create(event), kOk);
      }
    }
    EXPECT_EQ(cuda.set_device(0), kOk);
    void* pointer = nullptr;
    EXPECT_EQ(cuda.malloc_host(&pointer, 8), kOk);
    cells = static_cast<unsigned char*>(pointer);
    std::fill(cells, cells + 8, static_cast<unsigned char>(0));
  }

  CudaCaptureStatus status_of(CudaStream stream) {
    CudaCaptureStatus status = CudaCaptureStatus::NONE;
    EXPECT_EQ(cuda.stream_get_capture(stream, &status), kOk);
    return status;
  }
  /// One more in the cell.
  CudaStatus add(std::size_t cell, CudaStream stream) {
    return cuda.launch(
        {"test.add", stream, 1, {{cells + cell, 1}}, false, [](std::span<std::byte* const> views) {
           *views[0] = std::byte(std::to_integer<int>(*views[0]) + 1);
         }});
  }
  void begin(CaptureMode mode = CaptureMode::GLOBAL) {
    ASSERT_EQ(cuda.begin_capture(origin, mode), kOk);
  }
  /// What the end says.
  CudaStatus end() { return cuda.end_capture(origin, &graph); }
  std::vector<int> values() {
    EXPECT_TRUE(cuda.synchronize());
    return {cells[0], cells[1], cells[2]};
  }

  EmulatedCuda cuda{2, std::size_t{16} << 20};
  CudaStream origin = nullptr;  // of device 0
  CudaStream local = nullptr;
  CudaStream branch = nullptr;  // of device 1
  CudaStream unused = nullptr;
  CudaEvent fork = nullptr;
  CudaEvent other = nullptr;
  CudaEvent join = nullptr;
  CudaEvent unused_event = nullptr;
  unsigned char* cells = nullptr;
  EmulatedGraph graph = nullptr;
};

TEST_F(EmulatedCaptureTest, RecordsInsteadOfRunning) {
  begin();
  EXPECT_EQ(status_of(origin), CudaCaptureStatus::ACTIVE);
  EXPECT_EQ(status_of(local), CudaCaptureStatus::NONE);
  ASSERT_EQ(add(0, origin), kOk);
  ASSERT_EQ(add(1, local), kOk);  // does not capture
  ASSERT_EQ(end(), kOk);
  EXPECT_THAT(values(), ElementsAre(0, 1, 0));
  for (int launch = 0; launch < 3; ++launch) ASSERT_EQ(cuda.launch_graph(graph, local), kOk);
  EXPECT_THAT(values(), ElementsAre(3, 1, 0));
  ASSERT_EQ(cuda.destroy_graph(graph), kOk);
  EXPECT_EQ(cuda.launch_graph(graph, local), CudaStatus::INVALID_VALUE);
  EXPECT_EQ(cuda.destroy_graph(graph), CudaStatus::INVALID_VALUE);
  EXPECT_EQ(cuda.violations().size(), 2U);
}

TEST_F(EmulatedCaptureTest, ForksAndJoinsThroughEvents) {
  begin();
  ASSERT_EQ(cuda.event_record(fork, origin), kOk);
  ASSERT_EQ(cuda.stream_wait_event(branch, fork), kOk);
  EXPECT_EQ(status_of(branch), CudaCaptureStatus::ACTIVE);
  ASSERT_EQ(add(1, branch), kOk);
  ASSERT_EQ(cuda.event_record(join, branch), kOk);
  ASSERT_EQ(add(0, origin), kOk);
  ASSERT_EQ(cuda.stream_wait_event(origin, join), kOk);
  ASSERT_EQ(add(2, origin), kOk);
  ASSERT_EQ(end(), kOk);
  EXPECT_EQ(status_of(branch), CudaCaptureStatus::NONE);
  ASSERT_EQ(cuda.launch_graph(graph, origin), kOk);
  ASSERT_EQ(cuda.launch_graph(graph, origin), kOk);
  EXPECT_THAT(values(), ElementsAre(2, 2, 2));
  // What was recorded inside has no meaning outside.
  EXPECT_EQ(cuda.stream_wait_event(local, join), CudaStatus::CAPTURED_EVENT);
  ASSERT_EQ(cuda.event_record(join, branch), kOk);
  EXPECT_EQ(cuda.stream_wait_event(local, join), kOk);
}

TEST_F(EmulatedCaptureTest, ALaunchedGraphKeepsItsStreamsOrder) {
  begin();
  ASSERT_EQ(cuda.event_record(fork, origin), kOk);
  ASSERT_EQ(cuda.stream_wait_event(branch, fork), kOk);
  ASSERT_EQ(add(1, branch), kOk);
  ASSERT_EQ(cuda.event_record(join, branch), kOk);
  ASSERT_EQ(cuda.stream_wait_event(origin, join), kOk);
  ASSERT_EQ(end(), kOk);
  cuda.block_stream(local);
  ASSERT_EQ(cuda.launch_graph(graph, local), kOk);
  EXPECT_FALSE(cuda.synchronize(std::chrono::milliseconds(20)));
  EXPECT_EQ(cells[1], 0);
  cuda.release_stream(local);
  EXPECT_THAT(values(), ElementsAre(0, 1, 0));
}

TEST_F(EmulatedCaptureTest, WorkThatIsNotJoinedIsAnError) {
  begin();
  ASSERT_EQ(cuda.event_record(fork, origin), kOk);
  ASSERT_EQ(cuda.stream_wait_event(branch, fork), kOk);
  ASSERT_EQ(cuda.event_record(join, branch), kOk);
  ASSERT_EQ(add(1, branch), kOk);  // after the record
  ASSERT_EQ(cuda.stream_wait_event(origin, join), kOk);
  EXPECT_EQ(end(), CudaStatus::STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(status_of(branch), CudaCaptureStatus::NONE);
}

TEST_F(EmulatedCaptureTest, AnEventFromOutsideInvalidates) {
  ASSERT_EQ(cuda.event_record(other, local), kOk);
  ASSERT_TRUE(cuda.synchronize());
  begin();
  EXPECT_EQ(cuda.stream_wait_event(origin, fork), kOk);  // never recorded: nothing
  EXPECT_EQ(cuda.stream_wait_event(origin, other), CudaStatus::STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(status_of(origin), CudaCaptureStatus::INVALIDATED);
  EXPECT_EQ(add(0, origin), kInvalidated);
  EXPECT_EQ(cuda.event_record(fork, origin), kInvalidated);
  EXPECT_EQ(end(), kInvalidated);
  EXPECT_EQ(status_of(origin), CudaCaptureStatus::NONE);
  EXPECT_EQ(add(0, origin), kOk);
}

TEST_F(EmulatedCaptureTest, TwoCapturesDoNotMix) {
  begin(CaptureMode::RELAXED);
  ASSERT_EQ(cuda.event_record(fork, origin), kOk);
  ASSERT_EQ(cuda.begin_capture(local, CaptureMode::RELAXED), kOk);
  EXPECT_EQ(cuda.stream_wait_event(local, fork), CudaStatus::STREAM_CAPTURE_MERGE);
  EmulatedGraph none = nullptr;
  EXPECT_EQ(cuda.end_capture(local, &none), kInvalidated);
  EXPECT_EQ(end(), kOk);
}

TEST_F(EmulatedCaptureTest, TheDefaultStreamDoesNotCapture) {
  EXPECT_EQ(cuda.begin_capture(nullptr, CaptureMode::GLOBAL), kUnsupported);
  begin();
  ASSERT_EQ(cuda.event_record(fork, origin), kOk);
  EXPECT_EQ(cuda.stream_wait_event(nullptr, fork), CudaStatus::STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(end(), kInvalidated);
}

TEST_F(EmulatedCaptureTest, QueriesOfWhatIsCapturedInvalidate) {
  begin(CaptureMode::RELAXED);
  ASSERT_EQ(cuda.event_record(fork, origin), kOk);
  EXPECT_EQ(cuda.event_query(fork), CudaStatus::CAPTURED_EVENT);
  EXPECT_EQ(end(), kInvalidated);
  begin(CaptureMode::RELAXED);
  EXPECT_EQ(cuda.stream_query(origin), kUnsupported);
  EXPECT_EQ(end(), kInvalidated);
}

TEST_F(EmulatedCaptureTest, OrdinaryMemoryIsNotCopiedInACapture) {
  begin();
  unsigned char ordinary = 0;
  EXPECT_EQ(cuda.memcpy_async(&ordinary, cells, 1, origin), kUnsupported);
  EXPECT_EQ(end(), kInvalidated);
}

// ---- what other threads may do meanwhile

TEST_F(EmulatedCaptureTest, AGlobalCaptureForbidsUnsafeCallsToEveryThread) {
  begin();
  std::thread([&] {
    EXPECT_EQ(add(0, local), kOk);  // launches are safe
    EXPECT_EQ(cuda.event_query(other), kUnsupported);
  }).join();
  EXPECT_EQ(end(), kInvalidated);
  begin();
  std::thread([&] {
    void* pointer = nullptr;
    EXPECT_EQ(cuda.malloc_host(&pointer, 8), kUnsupported);
  }).join();
  EXPECT_EQ(end(), kInvalidated);
  begin();
  std::thread([&] {
    CudaStream stream = nullptr;
    EXPECT_EQ(cuda.stream_create(&stream), kUnsupported);
  }).join();
  EXPECT_EQ(end(), kInvalidated);
}

TEST_F(EmulatedCaptureTest, NotToThreadsThatCaptureForThemselves) {
  begin();
  std::thread([&] {
    CaptureMode mode = CaptureMode::THREAD_LOCAL;
    EXPECT_EQ(cuda.exchange_capture_mode(&mode), kOk);
    EXPECT_EQ(mode, CaptureMode::GLOBAL);
    EXPECT_EQ(cuda.event_query(other), kOk);
    void* pointer = nullptr;
    EXPECT_EQ(cuda.malloc_host(&pointer, 8), kOk);
  }).join();
  EXPECT_EQ(end(), kOk);
}

TEST_F(EmulatedCaptureTest, NotToAThreadThatIsRelaxedNotEvenToItsOwn) {
  begin();
  CaptureMode mode = CaptureMode::RELAXED;
  EXPECT_EQ(cuda.exchange_capture_mode(&mode), kOk);
  EXPECT_EQ(cuda.event_query(other), kOk);
  void* pointer = nullptr;
  EXPECT_EQ(cuda.malloc_host(&pointer, 8), kOk);
  EXPECT_EQ(cuda.exchange_capture_mode(&mode), kOk);
  EXPECT_EQ(mode, CaptureMode::RELAXED);
  EXPECT_EQ(end(), kOk);
}

TEST_F(EmulatedCaptureTest, AThreadLocalCaptureForbidsThemToItsOwnThread) {
  begin(CaptureMode::THREAD_LOCAL);
  std::thread([&] { EXPECT_EQ(cuda.event_query(other), kOk); }).join();
  EXPECT_EQ(status_of(origin), CudaCaptureStatus::ACTIVE);
  EXPECT_EQ(cuda.event_query(other), kUnsupported);
  EXPECT_EQ(end(), kInvalidated);
}

TEST_F(EmulatedCaptureTest, EndsWhereItBegan) {
  begin();
  ASSERT_EQ(cuda.event_record(fork, origin), kOk);
  ASSERT_EQ(cuda.stream_wait_event(branch, fork), kOk);
  EXPECT_EQ(cuda.end_capture(branch, &graph), CudaStatus::STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(end(), kInvalidated);
  begin();
  std::thread([&] { EXPECT_EQ(end(), CudaStatus::STREAM_CAPTURE_WRONG_THREAD); }).join();
  EXPECT_EQ(end(), kInvalidated);
  EXPECT_EQ(end(), CudaStatus::INVALID_VALUE);  // does not capture
}

// ---- memory

TEST_F(EmulatedCaptureTest, MemoryTakenInACaptureIsTheGraphs) {
  CudaPool pool = nullptr;
  ASSERT_EQ(cuda.create_pool(&pool, 0), kOk);
  const std::size_t before = cuda.num_allocations();
  begin();
  void* memory = nullptr;
  ASSERT_EQ(cuda.malloc_from_pool_async(&memory, 1, pool, origin), kOk);
  ASSERT_EQ(cuda.memset_async(memory, 7, 1, origin), kOk);
  ASSERT_EQ(cuda.memcpy_async(cells, memory, 1, origin), kOk);
  ASSERT_EQ(cuda.free_async(memory, origin), kOk);
  ASSERT_EQ(end(), kOk);
  ASSERT_EQ(cuda.launch_graph(graph, origin), kOk);
  ASSERT_EQ(cuda.launch_graph(graph, origin), kOk);
  EXPECT_THAT(values(), ElementsAre(7, 0, 0));
  EXPECT_THAT(cuda.violations(), IsEmpty());
  EXPECT_EQ(cuda.num_allocations(), before + 1);
  ASSERT_EQ(cuda.destroy_graph(graph), kOk);
  EXPECT_EQ(cuda.num_allocations(), before);
}

TEST_F(EmulatedCaptureTest, MemoryFromOutsideIsNotFreedInACapture) {
  CudaPool pool = nullptr;
  void* memory = nullptr;
  ASSERT_EQ(cuda.create_pool(&pool, 0), kOk);
  ASSERT_EQ(cuda.malloc_from_pool_async(&memory, 1, pool, origin), kOk);
  begin();
  EXPECT_EQ(cuda.free_async(memory, origin), CudaStatus::INVALID_VALUE);
  EXPECT_THAT(cuda.violations(), ElementsAre(HasSubstr("memory from outside")));
  EXPECT_EQ(end(), kInvalidated);
  EXPECT_EQ(cuda.free_async(memory, origin), kOk);
}

TEST_F(EmulatedCaptureTest, AGraphThatUsesFreedMemoryIsFound) {
  CudaPool pool = nullptr;
  void* memory = nullptr;
  ASSERT_EQ(cuda.create_pool(&pool, 0), kOk);
  ASSERT_EQ(cuda.malloc_from_pool_async(&memory, 1, pool, origin), kOk);
  begin();
  ASSERT_EQ(cuda.memset_async(memory, 7, 1, origin), kOk);
  ASSERT_EQ(end(), kOk);
  ASSERT_EQ(cuda.free_async(memory, origin), kOk);
  ASSERT_EQ(cuda.launch_graph(graph, origin), kOk);
  ASSERT_TRUE(cuda.synchronize());
  EXPECT_THAT(cuda.violations(), ElementsAre(HasSubstr("after it was freed")));
}

}  // namespace
}  // namespace crossdevice::testing
