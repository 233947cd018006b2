// SPDX-License-Identifier: Apache-2.0
// The emulation of CUDA keeps CUDA's rules: order, events, pools, what must not be done; and its faults do what they say.
#include "support/emulated_cuda.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <span>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdevice::testing {
namespace {

using detail::CudaEvent;
using detail::CudaMemoryKind;
using detail::CudaPointerAttributes;
using detail::CudaPool;
using detail::CudaPoolUse;
using detail::CudaStatus;
using detail::CudaStream;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::chrono::milliseconds kSoon{20};
constexpr CudaStatus kOk = CudaStatus::SUCCESS;

class EmulatedCudaTest : public ::testing::Test {
 protected:
  CudaStream stream_on(int device) {
    CudaStream stream = nullptr;
    EXPECT_EQ(cuda.set_device(device), kOk);
    EXPECT_EQ(cuda.stream_create(&stream), kOk);
    return stream;
  }
  CudaEvent event_on(int device) {
    CudaEvent event = nullptr;
    EXPECT_EQ(cuda.set_device(device), kOk);
    EXPECT_EQ(cuda.event_create(&event), kOk);
    return event;
  }
  CudaPool pool_on(int device) {
    CudaPool pool = nullptr;
    EXPECT_EQ(cuda.create_pool(&pool, device), kOk);
    return pool;
  }
  float* take(std::size_t count, CudaPool pool, CudaStream stream) {
    void* pointer = nullptr;
    EXPECT_EQ(cuda.malloc_from_pool_async(&pointer, count * sizeof(float), pool, stream), kOk);
    return static_cast<float*>(pointer);
  }
  float* pinned(std::size_t count) {
    void* pointer = nullptr;
    EXPECT_EQ(cuda.malloc_host(&pointer, count * sizeof(float)), kOk);
    return static_cast<float*>(pointer);
  }

  EmulatedCuda cuda{4, std::size_t{16} << 20};
};

TEST_F(EmulatedCudaTest, CopiesRunInTheOrderOfTheirStream) {
  const CudaStream stream = stream_on(1);
  const CudaPool pool = pool_on(1);
  float* const device = take(3, pool, stream);
  const std::vector<float> in{1, 2, 3};
  std::vector<float> out(3);
  ASSERT_EQ(cuda.memcpy_async(device, in.data(), 12, stream), kOk);
  ASSERT_EQ(cuda.memcpy_async(out.data(), device, 12, stream), kOk);
  EXPECT_THAT(out, ElementsAre(1, 2, 3));  // of ordinary memory: when the call returns
  EXPECT_EQ(cuda.free_async(device, stream), kOk);
  EXPECT_TRUE(cuda.synchronize());
  EXPECT_THAT(cuda.violations(), IsEmpty());
}

TEST_F(EmulatedCudaTest, FreshAndFreedMemoryIsPoisoned) {
  const CudaStream stream = stream_on(0);
  float* const device = take(5, pool_on(0), stream);
  ASSERT_TRUE(cuda.synchronize());
  EXPECT_TRUE(std::isnan(cuda.view(device)[4]));
  *cuda.view(device) = 1;
  ASSERT_EQ(cuda.free_async(device, stream), kOk);
  ASSERT_TRUE(cuda.synchronize());
  EXPECT_NE(*cuda.view(device), 1);
}

TEST_F(EmulatedCudaTest, ABlockedStreamHoldsWhatComesLaterAndNothingElse) {
  const CudaStream blocked = stream_on(0);
  const CudaStream other = stream_on(0);
  float* const host = pinned(1);
  *host = 0;
  cuda.block_stream(blocked);
  ASSERT_EQ(cuda.memset_async(host, 0x40, 4, blocked), kOk);
  EXPECT_EQ(cuda.stream_query(blocked), CudaStatus::NOT_READY);
  EXPECT_FALSE(cuda.synchronize(blocked, kSoon));
  EXPECT_TRUE(cuda.synchronize(other));
  EXPECT_EQ(*host, 0);
  cuda.release_stream(blocked);
  EXPECT_TRUE(cuda.synchronize(blocked));
  EXPECT_NE(*host, 0);
  EXPECT_EQ(cuda.stream_query(blocked), kOk);
}

TEST_F(EmulatedCudaTest, AWaitMeansTheLastRecordBeforeIt) {
  const CudaStream first = stream_on(0);
  const CudaStream second = stream_on(1);
  const CudaStream third = stream_on(2);
  const CudaEvent event = event_on(0);
  EXPECT_EQ(cuda.event_query(event), kOk);  // never recorded
  ASSERT_EQ(cuda.stream_wait_event(second, event), kOk);
  ASSERT_TRUE(cuda.synchronize(second));

  ASSERT_EQ(cuda.event_record(event, first), kOk);
  ASSERT_TRUE(cuda.synchronize(first));
  cuda.block_stream(first);
  ASSERT_EQ(cuda.stream_wait_event(second, event), kOk);  // of the record that has come
  EXPECT_TRUE(cuda.synchronize(second));
  ASSERT_EQ(cuda.event_record(event, first), kOk);
  EXPECT_EQ(cuda.event_query(event), CudaStatus::NOT_READY);
  ASSERT_EQ(cuda.stream_wait_event(third, event), kOk);
  EXPECT_FALSE(cuda.synchronize(third, kSoon));
  cuda.release_stream(first);
  EXPECT_TRUE(cuda.synchronize(third));
  EXPECT_EQ(cuda.event_query(event), kOk);
}

TEST_F(EmulatedCudaTest, AnEventAndItsStreamAreOfOneDevice) {
  const CudaStream stream = stream_on(1);
  EXPECT_EQ(cuda.event_record(event_on(0), stream), kInvalidResourceHandle);
  EXPECT_THAT(cuda.violations(), ElementsAre(HasSubstr("an event of device 0")));
}

TEST_F(EmulatedCudaTest, HandlesThatWereDestroyedAreKnownAsSuch) {
  const CudaStream stream = stream_on(1);
  const CudaEvent event = event_on(1);
  ASSERT_EQ(cuda.event_destroy(event), kOk);
  ASSERT_EQ(cuda.stream_destroy(stream), kOk);
  EXPECT_EQ(cuda.event_query(event), kInvalidResourceHandle);
  EXPECT_EQ(cuda.event_destroy(event), kInvalidResourceHandle);
  EXPECT_EQ(cuda.stream_query(stream), kInvalidResourceHandle);
  EXPECT_EQ(cuda.stream_destroy(stream), kInvalidResourceHandle);
  EXPECT_EQ(cuda.violations().size(), 4U);
  EXPECT_EQ(cuda.num_streams(), 0U);
  EXPECT_EQ(cuda.num_events(), 0U);
}

TEST_F(EmulatedCudaTest, AStreamThatIsDestroyedStillRunsWhatItHas) {
  const CudaStream stream = stream_on(0);
  float* const host = pinned(1);
  *host = 0;
  cuda.block_stream(stream);
  ASSERT_EQ(cuda.memset_async(host, 0x40, 4, stream), kOk);
  cuda.block_stream(stream);
  ASSERT_EQ(cuda.stream_destroy(stream), kOk);
  cuda.release_everything();
  EXPECT_TRUE(cuda.synchronize());
  EXPECT_NE(*host, 0);
}

TEST_F(EmulatedCudaTest, TheDefaultStreamIsOneOfEachDevice) {
  float* const host = pinned(2);
  host[0] = host[1] = 0;
  ASSERT_EQ(cuda.set_device(1), kOk);
  cuda.block_stream(nullptr);
  ASSERT_EQ(cuda.memset_async(host, 0x40, 4, nullptr), kOk);
  ASSERT_EQ(cuda.set_device(2), kOk);
  ASSERT_EQ(cuda.memset_async(host + 1, 0x40, 4, nullptr), kOk);
  EXPECT_TRUE(cuda.synchronize(nullptr));
  EXPECT_EQ(host[0], 0);
  EXPECT_NE(host[1], 0);
  cuda.release_everything();
  EXPECT_TRUE(cuda.synchronize());
}

TEST_F(EmulatedCudaTest, TheCurrentDeviceIsTheThreadsOwn) {
  ASSERT_EQ(cuda.set_device(3), kOk);
  std::thread([&] {
    int device = -1;
    EXPECT_EQ(cuda.get_device(&device), kOk);
    EXPECT_EQ(device, 0);
    EXPECT_EQ(cuda.set_device(1), kOk);
  }).join();
  int device = -1;
  EXPECT_EQ(cuda.get_device(&device), kOk);
  EXPECT_EQ(device, 3);
  EXPECT_EQ(cuda.set_device(4), CudaStatus::INVALID_DEVICE);
}

TEST_F(EmulatedCudaTest, PoolsTakeAgainWhatIsFreeInStreamOrder) {
  const CudaStream stream = stream_on(0);
  const CudaStream other = stream_on(0);
  const CudaPool pool = pool_on(0);
  cuda.block_stream(stream);
  float* const first = take(100, pool, stream);
  ASSERT_EQ(cuda.free_async(first, stream), kOk);
  float* const elsewhere = take(100, pool, other);
  EXPECT_NE(elsewhere, first);  // the stream that freed it has not come so far
  float* const again = take(100, pool, stream);
  EXPECT_EQ(again, first);
  CudaPoolUse use;
  ASSERT_EQ(cuda.get_pool_use(&use, pool), kOk);
  EXPECT_EQ(use.used_bytes, 1024U);
  EXPECT_EQ(use.reserved_bytes, 1024U);

  ASSERT_EQ(cuda.free_async(again, stream), kOk);
  ASSERT_EQ(cuda.trim_pool(pool), kOk);
  ASSERT_EQ(cuda.get_pool_use(&use, pool), kOk);
  EXPECT_EQ(use.used_bytes, 512U);
  EXPECT_EQ(use.reserved_bytes, 1024U);
  cuda.release_stream(stream);
  ASSERT_TRUE(cuda.synchronize());
  EXPECT_EQ(take(100, pool, other), first);  // now it has
  ASSERT_EQ(cuda.free_async(first, other), kOk);
  CudaEvent freed = nullptr;
  ASSERT_EQ(cuda.event_create(&freed), kOk);
  ASSERT_EQ(cuda.event_record(freed, other), kOk);
  ASSERT_TRUE(cuda.synchronize());
  ASSERT_EQ(cuda.trim_pool(pool), kOk);
  ASSERT_EQ(cuda.get_pool_use(&use, pool), kOk);
  EXPECT_EQ(use.reserved_bytes, 1024U);  // it has come, but the host has not waited for it
  ASSERT_EQ(cuda.event_synchronize(freed), kOk);
  ASSERT_EQ(cuda.event_destroy(freed), kOk);
  ASSERT_EQ(cuda.trim_pool(pool), kOk);
  ASSERT_EQ(cuda.get_pool_use(&use, pool), kOk);
  EXPECT_EQ(use.reserved_bytes, 512U);
  EXPECT_EQ(cuda.num_allocations(), 1U);
  EXPECT_THAT(cuda.violations(), IsEmpty());
}

TEST_F(EmulatedCudaTest, TheTimeBetweenTwoEventsHasASignAndNeedsEventsThatTellIt) {
  const CudaStream stream = stream_on(0);
  CudaEvent first = nullptr;
  CudaEvent second = nullptr;
  CudaEvent without = nullptr;
  ASSERT_EQ(cuda.event_create_with_timing(&first), kOk);
  ASSERT_EQ(cuda.event_create_with_timing(&second), kOk);
  ASSERT_EQ(cuda.event_create(&without), kOk);
  ASSERT_EQ(cuda.event_record(first, stream), kOk);
  ASSERT_TRUE(cuda.synchronize());
  cuda.block_stream(stream);
  ASSERT_EQ(cuda.event_record(second, stream), kOk);
  ASSERT_EQ(cuda.event_record(without, stream), kOk);
  float forth = 0;
  EXPECT_EQ(cuda.event_elapsed(&forth, first, second), CudaStatus::NOT_READY);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  cuda.release_stream(stream);
  ASSERT_TRUE(cuda.synchronize());
  ASSERT_EQ(cuda.event_elapsed(&forth, first, second), kOk);
  float back = 0;
  ASSERT_EQ(cuda.event_elapsed(&back, second, first), kOk);
  EXPECT_GE(forth, 5);
  EXPECT_FLOAT_EQ(back, -forth);
  EXPECT_NE(cuda.event_elapsed(&back, first, without), kOk);
}

TEST_F(EmulatedCudaTest, ADeviceIsFullOnceEverythingIsTaken) {
  const CudaStream stream = stream_on(0);
  const CudaPool pool = pool_on(0);
  void* all = nullptr;
  void* more = nullptr;
  ASSERT_EQ(cuda.malloc_from_pool_async(&all, std::size_t{16} << 20, pool, stream), kOk);
  EXPECT_EQ(cuda.malloc_from_pool_async(&more, 1, pool, stream), CudaStatus::OUT_OF_MEMORY);
  ASSERT_EQ(cuda.free_async(all, stream), kOk);
  ASSERT_TRUE(cuda.synchronize());
  EXPECT_EQ(cuda.malloc_from_pool_async(&more, 1, pool, stream), kOk);  // trims what is cached
  EXPECT_THAT(cuda.violations(), IsEmpty());
}

TEST_F(EmulatedCudaTest, PointersAreKnownByTheirMemory) {
  const CudaStream stream = stream_on(2);
  float* const device = take(4, pool_on(2), stream);
  float* const host = pinned(4);
  const std::vector<float> ordinary(1);
  CudaPointerAttributes attributes;
  ASSERT_EQ(cuda.get_pointer_attributes(&attributes, device + 3), kOk);
  EXPECT_EQ(attributes.kind, CudaMemoryKind::DEVICE);
  EXPECT_EQ(attributes.device, 2);
  ASSERT_EQ(cuda.get_pointer_attributes(&attributes, host + 3), kOk);
  EXPECT_EQ(attributes.kind, CudaMemoryKind::HOST);
  for (const float* pointer :
       std::vector<const float*>{device + 4, device - 1, host + 4, ordinary.data()}) {
    ASSERT_EQ(cuda.get_pointer_attributes(&attributes, pointer), kOk);
    EXPECT_EQ(attributes.kind, CudaMemoryKind::UNREGISTERED);
  }
}

TEST_F(EmulatedCudaTest, UseAfterFreeIsAnErrorThatTheDeviceKeeps) {
  const CudaStream stream = stream_on(1);
  float* const device = take(4, pool_on(1), stream);
  ASSERT_EQ(cuda.free_async(device, stream), kOk);
  EXPECT_EQ(cuda.memset_async(device, 0, 4, stream), kIllegalAddress);
  EXPECT_THAT(cuda.violations(), ElementsAre(HasSubstr("is not allocated")));
  EXPECT_EQ(cuda.stream_query(stream), kIllegalAddress);
  const CudaStream unharmed = stream_on(2);
  EXPECT_EQ(cuda.stream_query(unharmed), kOk);
  EXPECT_EQ(cuda.free_async(device, unharmed), CudaStatus::INVALID_VALUE);  // twice
  EXPECT_EQ(cuda.violations().size(), 2U);
  cuda.clear_violations();
  ASSERT_TRUE(cuda.synchronize());
  EXPECT_EQ(cuda.stream_query(stream), kOk);
}

TEST_F(EmulatedCudaTest, WhatWasEnqueuedOnADeviceThatHadFailedIsNeverDone) {
  auto* const memory = static_cast<unsigned char*>(cuda.malloc_device(1, 4));
  ASSERT_EQ(cuda.memset_async(memory, 7, 4, stream_on(1)), kOk);
  ASSERT_TRUE(cuda.synchronize());
  const CudaStream late = stream_on(1);
  cuda.block_stream(late);
  ASSERT_EQ(cuda.memset_async(memory, 8, 4, late), kOk);
  cuda.fail_device(1, kIllegalAddress);
  cuda.clear_violations();
  cuda.release_stream(late);
  ASSERT_TRUE(cuda.synchronize());
  EXPECT_THAT(std::span(cuda.view(memory), 4), Each(7));
  ASSERT_EQ(cuda.memset_async(memory, 9, 4, late), kOk);
  ASSERT_TRUE(cuda.synchronize());
  EXPECT_THAT(std::span(cuda.view(memory), 4), Each(9));
  cuda.free_device(memory);
}

TEST_F(EmulatedCudaTest, UseBeyondTheEndIsAnError) {
  const CudaStream stream = stream_on(1);
  float* const device = take(4, pool_on(1), stream);
  EXPECT_EQ(cuda.memset_async(device + 1, 0, 16, stream), kIllegalAddress);
  EXPECT_THAT(cuda.violations(), ElementsAre(HasSubstr("beyond the end")));
}

TEST_F(EmulatedCudaTest, UseAfterAFreeInAnotherStreamIsFoundWhenItRuns) {
  cuda.set_checks_order(false);  // would find it before
  const CudaStream late = stream_on(0);
  const CudaStream frees = stream_on(0);
  float* const device = take(4, pool_on(0), late);
  ASSERT_TRUE(cuda.synchronize());
  cuda.block_stream(late);
  ASSERT_EQ(cuda.memset_async(device, 0, 16, late), kOk);
  ASSERT_EQ(cuda.free_async(device, frees), kOk);
  ASSERT_TRUE(cuda.synchronize(frees));
  EXPECT_THAT(cuda.violations(), IsEmpty());
  cuda.release_stream(late);
  ASSERT_TRUE(cuda.synchronize(late));
  EXPECT_THAT(cuda.violations(), ElementsAre(HasSubstr("after it was freed")));
}

TEST_F(EmulatedCudaTest, UseBeforeTheAllocationIsDueIsFoundWhenItRuns) {
  cuda.set_checks_order(false);  // would find it before
  const CudaStream takes = stream_on(0);
  const CudaStream early = stream_on(0);
  cuda.block_stream(takes);
  float* const device = take(4, pool_on(0), takes);
  ASSERT_EQ(cuda.memset_async(device, 0, 16, early), kOk);
  ASSERT_TRUE(cuda.synchronize(early));
  EXPECT_THAT(cuda.violations(), ElementsAre(HasSubstr("before its allocation")));
  EXPECT_EQ(cuda.stream_query(early), kIllegalAddress);
}

TEST_F(EmulatedCudaTest, CopiesReachEveryDeviceKernelsOnlyWhatIsOpenToThem) {
  const CudaStream stream = stream_on(0);
  const CudaStream peer = stream_on(1);
  const CudaPool pool = pool_on(1);
  float* const there = take(2, pool, peer);
  float* const here = take(2, pool_on(0), stream);
  ASSERT_TRUE(cuda.synchronize());
  EXPECT_EQ(cuda.memcpy_async(here, there, 8, stream), kOk);
  ASSERT_EQ(cuda.set_device(0), kOk);
  const auto kernel = [&](const void* pointer) {
    return cuda.launch(
        {"test.kernel", stream, 4, {{pointer, 4}}, true, [](std::span<std::byte* const>) {}});
  };
  EXPECT_EQ(kernel(here), kOk);
  ASSERT_EQ(cuda.enable_peer_access(1), kOk);  // concerns cudaMalloc's memory only
  EXPECT_EQ(cuda.enable_peer_access(1), CudaStatus::PEER_ACCESS_ALREADY_ENABLED);
  ASSERT_TRUE(cuda.synchronize());
  EXPECT_THAT(cuda.violations(), IsEmpty());
  EXPECT_EQ(kernel(there), kOk);
  ASSERT_TRUE(cuda.synchronize());
  EXPECT_THAT(cuda.violations(), ElementsAre(HasSubstr("without access")));

  cuda.clear_violations();
  ASSERT_EQ(cuda.set_pool_access(pool, 0), kOk);
  EXPECT_EQ(kernel(there), kOk);
  void* const plain = cuda.malloc_device(1, 4);
  EXPECT_EQ(kernel(plain), kOk);
  ASSERT_TRUE(cuda.synchronize());
  EXPECT_THAT(cuda.violations(), IsEmpty());
  cuda.free_device(plain);
}

TEST_F(EmulatedCudaTest, PeersThatAreNone) {
  cuda.set_peers(0, 1, false);
  bool can = true;
  ASSERT_EQ(cuda.can_access_peer(&can, 0, 1), kOk);
  EXPECT_FALSE(can);
  ASSERT_EQ(cuda.can_access_peer(&can, 1, 0), kOk);
  EXPECT_TRUE(can);
  ASSERT_EQ(cuda.set_device(0), kOk);
  EXPECT_EQ(cuda.enable_peer_access(1), kPeerAccessUnsupported);
  EXPECT_EQ(cuda.set_pool_access(pool_on(1), 0), CudaStatus::INVALID_DEVICE);
}

TEST_F(EmulatedCudaTest, AKernelNeedsItsStreamsDeviceAsTheCurrentOne) {
  const CudaStream stream = stream_on(0);
  ASSERT_EQ(cuda.set_device(1), kOk);
  EXPECT_EQ(cuda.launch({"test.kernel", stream, 0, {}, true, [](std::span<std::byte* const>) {}}),
            kInvalidResourceHandle);
  EXPECT_THAT(cuda.violations(), ElementsAre(HasSubstr("the current device is 1")));
}

TEST_F(EmulatedCudaTest, HostFunctionsRunInOrderAndMustNotCallCuda) {
  const CudaStream stream = stream_on(0);
  struct State {
    EmulatedCuda& cuda;
    CudaStream stream;
    std::atomic<int> status{0};
  } state{cuda, stream, {}};
  ASSERT_EQ(cuda.launch_host_function(
                stream,
                [](void* argument) {
                  auto& own = *static_cast<State*>(argument);
                  own.status = static_cast<int>(own.cuda.stream_query(own.stream));
                },
                &state),
            kOk);
  ASSERT_TRUE(cuda.synchronize());
  EXPECT_EQ(CudaStatus{state.status.load()}, kNotPermitted);
  EXPECT_THAT(cuda.violations(), ElementsAre(HasSubstr("by a host function")));
}

TEST_F(EmulatedCudaTest, FreeHostWaitsForEveryDevice) {
  const CudaStream stream = stream_on(3);
  float* const host = pinned(1);
  cuda.block_stream(stream);
  std::atomic<bool> is_free = false;
  std::thread frees([&] {
    EXPECT_EQ(cuda.free_host(host), kOk);
    is_free = true;
  });
  ASSERT_TRUE(cuda.calls().await_count("cuda.free_host", 1, std::chrono::seconds(10)));
  EXPECT_FALSE(is_free);
  cuda.release_stream(stream);
  frees.join();
  EXPECT_EQ(cuda.num_allocations(), 0U);
}

// ---- log and faults

TEST_F(EmulatedCudaTest, CallsAreListedInOrder) {
  const CudaStream stream = stream_on(1);
  cuda.calls().clear();
  float* const host = pinned(2);
  ASSERT_EQ(cuda.memset_async(host, 0, 8, stream), kOk);
  (void)cuda.stream_query(stream);
  EXPECT_THAT(cuda.calls().names(), ElementsAre("cuda.malloc_host", "cuda.memset_async"));
  EXPECT_EQ(cuda.calls().count("cuda.stream_query"), 1U);
  const EmulatedCall call = cuda.calls().list().back();
  EXPECT_EQ(call.device, 1);
  EXPECT_EQ(call.stream, stream);
  EXPECT_EQ(call.size_bytes, 8U);
  EXPECT_EQ(call.thread, std::this_thread::get_id());
  cuda.calls().list_queries();
  (void)cuda.stream_query(stream);
  EXPECT_EQ(cuda.calls().names().back(), "cuda.stream_query");
}

TEST_F(EmulatedCudaTest, ACallFailsAsOftenAsItIsTold) {
  cuda.calls().inject({.function = "cuda.stream_create",
                       .kind = FaultKind::FAIL_CALL,
                       .skip = 1,
                       .count = 2,
                       .status = static_cast<int>(CudaStatus::OUT_OF_MEMORY)});
  CudaStream stream = nullptr;
  EXPECT_EQ(cuda.stream_create(&stream), kOk);
  EXPECT_EQ(cuda.stream_create(&stream), CudaStatus::OUT_OF_MEMORY);
  EXPECT_EQ(cuda.stream_create(&stream), CudaStatus::OUT_OF_MEMORY);
  EXPECT_EQ(cuda.stream_create(&stream), kOk);
  EXPECT_THAT(cuda.violations(), IsEmpty());
}

TEST_F(EmulatedCudaTest, ACallHangsUntilItIsReleased) {
  cuda.calls().inject({.function = "cuda.stream_create", .kind = FaultKind::HANG_CALL});
  std::atomic<bool> is_back = false;
  std::thread caller([&] {
    CudaStream stream = nullptr;
    EXPECT_EQ(cuda.stream_create(&stream), kOk);
    is_back = true;
  });
  ASSERT_TRUE(cuda.calls().await_count("cuda.stream_create", 1, std::chrono::seconds(10)));
  EXPECT_FALSE(is_back);
  (void)stream_on(0);  // only that call
  cuda.calls().release_hangs();
  caller.join();
}

TEST_F(EmulatedCudaTest, AnOperationHangsOrFailsWhileItsCallSucceeds) {
  const CudaStream stream = stream_on(1);
  float* const host = pinned(1);
  cuda.calls().inject({.function = "cuda.memset_async", .kind = FaultKind::HANG_OPERATION});
  EXPECT_EQ(cuda.memset_async(host, 0, 4, stream), kOk);
  EXPECT_FALSE(cuda.synchronize(stream, kSoon));
  cuda.release_stream(stream);
  EXPECT_TRUE(cuda.synchronize(stream));

  cuda.calls().inject({.function = "cuda.memset_async", .kind = FaultKind::DELAY_OPERATION});
  EXPECT_EQ(cuda.memset_async(host, 0, 4, stream), kOk);
  EXPECT_TRUE(cuda.synchronize(stream));
  cuda.calls().inject({.function = "cuda.memset_async",
                       .kind = FaultKind::FAIL_OPERATION,
                       .status = static_cast<int>(kIllegalAddress)});
  EXPECT_EQ(cuda.memset_async(host, 0x40, 4, stream), kOk);
  EXPECT_TRUE(cuda.synchronize(stream));
  EXPECT_EQ(cuda.stream_query(stream), kIllegalAddress);
  EXPECT_EQ(*host, 0);  // and nothing was done
  EXPECT_THAT(cuda.violations(), IsEmpty());
}

TEST_F(EmulatedCudaTest, AfterTheEndEveryCallFails) {
  const CudaStream stream = stream_on(0);
  cuda.block_stream(stream);  // the end does not wait for it
  cuda.stop();
  EXPECT_EQ(cuda.stream_query(stream), kCudartUnloading);
  cuda.stop();
}

TEST_F(EmulatedCudaTest, ManyThreadsManyStreams) {
  constexpr int kRounds = 50;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int device = 0; device < 4; ++device) {
    threads.emplace_back([this, device] {
      const CudaStream first = stream_on(device);
      const CudaStream second = stream_on(device);
      const CudaEvent event = event_on(device);
      const CudaPool pool = pool_on(device);
      for (int round = 0; round < kRounds; ++round) {
        auto* const memory = take(64, pool, first);
        EXPECT_EQ(cuda.memset_async(memory, round, 256, first), kOk);
        EXPECT_EQ(cuda.event_record(event, first), kOk);
        EXPECT_EQ(cuda.stream_wait_event(second, event), kOk);
        std::vector<unsigned char> out(256);
        EXPECT_EQ(cuda.memcpy_async(out.data(), memory, 256, second), kOk);
        EXPECT_THAT(out, Each(static_cast<unsigned char>(round)));
        EXPECT_EQ(cuda.free_async(memory, second), kOk);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(cuda.synchronize());
  EXPECT_THAT(cuda.violations(), IsEmpty());
}

}  // namespace
}  // namespace crossdevice::testing
