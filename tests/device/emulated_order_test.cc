// SPDX-License-Identifier: Apache-2.0
// Uses of memory without an order are found by the order of calls, whenever they happen to run; what has an order is not.
#include "support/emulated_order.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/emulated_cuda.h"
#include "support/emulated_nccl.h"

namespace crossdevice::testing {
namespace {

using detail::CudaEvent;
using detail::CudaPool;
using detail::CudaStatus;
using detail::CudaStream;
using detail::NcclComm;
using detail::NcclDataType;
using detail::NcclRedOp;
using detail::NcclStatus;
using detail::NcclUniqueId;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CudaStatus kOk = CudaStatus::SUCCESS;

class EmulatedOrderTest : public ::testing::Test {
 protected:
  EmulatedOrderTest() {
    for (int device = 0; device < 2; ++device) {
      EXPECT_EQ(cuda->set_device(device), kOk);
      EXPECT_EQ(cuda->stream_create(device == 0 ? &first : &second), kOk);
      EXPECT_EQ(cuda->event_create(device == 0 ? &of_first : &of_second), kOk);
    }
    EXPECT_EQ(cuda->set_device(0), kOk);
    void* pointer = nullptr;
    EXPECT_EQ(cuda->malloc_host(&pointer, 64), kOk);
    memory = static_cast<std::byte*>(pointer);
  }
  ~EmulatedOrderTest() override { cuda->stop(); }

  void write(CudaStream stream, std::size_t begin = 0, std::size_t count = 64) {
    EXPECT_EQ(cuda->memset_async(memory + begin, 0, count, stream), kOk);
  }
  void read(CudaStream stream, std::size_t begin = 0, std::size_t count = 64) {
    EXPECT_EQ(cuda->launch({"test.read",
                            stream,
                            count,
                            {{memory + begin, count, 1, false}},
                            false,
                            [](std::span<std::byte* const>) {}}),
              kOk);
  }
  /// What comes later on `stream` after what is on the other one.
  void order(CudaStream before, CudaEvent event, CudaStream stream) {
    EXPECT_EQ(cuda->event_record(event, before), kOk);
    EXPECT_EQ(cuda->stream_wait_event(stream, event), kOk);
  }
  void await(CudaEvent event) {
    while (cuda->event_query(event) == CudaStatus::NOT_READY) std::this_thread::yield();
  }

  std::shared_ptr<EmulatedCuda> cuda = std::make_shared<EmulatedCuda>(2, std::size_t{16} << 20);
  CudaStream first = nullptr;   // of device 0
  CudaStream second = nullptr;  // of device 1
  CudaEvent of_first = nullptr;
  CudaEvent of_second = nullptr;
  std::byte* memory = nullptr;
};

TEST_F(EmulatedOrderTest, AWriteAndAReadWithoutAnEventAreFound) {
  write(first);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // done long ago, which nobody knows
  read(second, 8, 1);
  EXPECT_THAT(cuda->violations(),
              ElementsAre(HasSubstr("no order between cuda.memset_async (writes bytes 0 to 64)")));
}

TEST_F(EmulatedOrderTest, SoAreAReadAndAWriteThatComesLater) {
  write(first);
  order(first, of_first, second);
  read(second);
  write(first);
  EXPECT_THAT(cuda->violations(), ElementsAre(HasSubstr("no order between test.read")));
}

TEST_F(EmulatedOrderTest, EventsGiveAnOrder) {
  write(first);
  order(first, of_first, second);
  read(second);
  write(second);
  order(second, of_second, first);
  write(first);
  EXPECT_THAT(cuda->violations(), IsEmpty());
}

TEST_F(EmulatedOrderTest, AnEventThatWasRecordedTooEarlyDoesNot) {
  EXPECT_EQ(cuda->event_record(of_first, first), kOk);
  write(first);
  EXPECT_EQ(cuda->stream_wait_event(second, of_first), kOk);
  read(second);
  EXPECT_EQ(cuda->violations().size(), 1U);
}

TEST_F(EmulatedOrderTest, AWaitConcernsWhatComesLaterOnly) {
  read(second);
  order(second, of_second, first);
  write(first);
  EXPECT_THAT(cuda->violations(), IsEmpty());
  EXPECT_EQ(cuda->event_record(of_first, first), kOk);
  read(second);
  EXPECT_EQ(cuda->stream_wait_event(second, of_first), kOk);
  EXPECT_EQ(cuda->violations().size(), 1U);
}

TEST_F(EmulatedOrderTest, ReadsNeedNoneAmongEachOtherNorOtherBytes) {
  read(first);
  read(second);
  EXPECT_THAT(cuda->violations(), IsEmpty());
  order(second, of_second, first);
  write(first, 0, 32);
  write(second, 32, 32);
  EXPECT_EQ(cuda->violations().size(), 1U);  // the first stream's read of those
}

TEST_F(EmulatedOrderTest, WhatTheHostHasWaitedForIsBefore) {
  write(first);
  EXPECT_EQ(cuda->event_record(of_first, first), kOk);
  await(of_first);
  write(second);
  while (cuda->stream_query(second) != kOk) std::this_thread::yield();
  std::thread([&] { read(first); }).join();
  ASSERT_TRUE(cuda->synchronize());
  write(second);
  std::vector<std::byte> ordinary(64);
  EXPECT_EQ(cuda->memcpy_async(ordinary.data(), memory, 64, second), kOk);  // waits too
  write(first);
  EXPECT_THAT(cuda->violations(), IsEmpty());
}

TEST_F(EmulatedOrderTest, AHostFunctionTellsWhatIsBeforeIt) {
  write(first);
  std::atomic<bool> is_called = false;
  EXPECT_EQ(cuda->launch_host_function(
                first, [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); },
                &is_called),
            kOk);
  while (!is_called) std::this_thread::yield();
  write(second);
  EXPECT_THAT(cuda->violations(), IsEmpty());
}

TEST_F(EmulatedOrderTest, AllocationsAreWritesAndSoAreFrees) {
  CudaPool pool = nullptr;
  void* block = nullptr;
  ASSERT_EQ(cuda->create_pool(&pool, 0), kOk);
  ASSERT_EQ(cuda->malloc_from_pool_async(&block, 8, pool, first), kOk);
  order(first, of_first, second);
  ASSERT_EQ(cuda->memset_async(block, 0, 8, second), kOk);
  ASSERT_EQ(cuda->free_async(block, first), kOk);
  // Where the memset also runs behind the free, that is a violation too.
  EXPECT_THAT(cuda->violations(), ::testing::Contains(::testing::AllOf(
                                      HasSubstr("cuda.memset_async"),
                                      HasSubstr("cuda.free_async (writes bytes 0 to 8)"))));
}

TEST_F(EmulatedOrderTest, AGraphIsOneOperationOfItsStream) {
  ASSERT_EQ(cuda->begin_capture(first, CaptureMode::GLOBAL), kOk);
  order(first, of_first, second);
  write(second, 0, 8);
  write(first, 8, 8);
  order(second, of_second, first);
  write(first, 0, 16);
  EmulatedGraph graph = nullptr;
  ASSERT_EQ(cuda->end_capture(first, &graph), kOk);
  write(first);
  ASSERT_EQ(cuda->launch_graph(graph, first), kOk);
  ASSERT_EQ(cuda->launch_graph(graph, first), kOk);
  read(first);
  EXPECT_THAT(cuda->violations(), IsEmpty());
  read(second);
  EXPECT_THAT(cuda->violations(), ElementsAre(HasSubstr("no order between")));
}

TEST_F(EmulatedOrderTest, RanksThatMeetInACollectiveComeAfterWhatIsBeforeIt) {
  EmulatedNccl nccl(cuda);
  NcclUniqueId id;
  std::vector<NcclComm> comms(2);
  ASSERT_EQ(nccl.get_unique_id(&id), NcclStatus::SUCCESS);
  ASSERT_EQ(nccl.group_start(), NcclStatus::SUCCESS);
  std::vector<void*> own;
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(cuda->set_device(rank), kOk);
    ASSERT_EQ(nccl.comm_init_rank(&comms[static_cast<std::size_t>(rank)], 2, id, rank, nullptr),
              NcclStatus::SUCCESS);
    own.push_back(cuda->malloc_device(rank, 4));
  }
  ASSERT_EQ(nccl.group_end(), NcclStatus::SUCCESS);
  write(first);
  ASSERT_EQ(nccl.group_start(), NcclStatus::SUCCESS);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(nccl.all_reduce(own[rank], own[rank], 1, NcclDataType::FLOAT32, NcclRedOp::SUM,
                              comms[rank], rank == 0 ? first : second),
              NcclStatus::SUCCESS);
  }
  ASSERT_EQ(nccl.group_end(), NcclStatus::SUCCESS);
  write(second);
  EXPECT_THAT(cuda->violations(), IsEmpty());
  ASSERT_EQ(cuda->memset_async(own[0], 0, 4, second),
            kOk);  // which the first's kernel may still use
  EXPECT_THAT(cuda->violations(), ElementsAre(HasSubstr("no order between nccl")));
  ASSERT_TRUE(cuda->synchronize());
}

TEST_F(EmulatedOrderTest, CanBeSwitchedOff) {
  cuda->set_checks_order(false);
  write(first);
  write(second);
  EXPECT_THAT(cuda->violations(), IsEmpty());
}

}  // namespace
}  // namespace crossdevice::testing
