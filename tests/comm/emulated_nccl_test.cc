// SPDX-License-Identifier: Apache-2.0
// The emulation of NCCL reduces as NCCL does, and waits for ever where NCCL would.
#include "support/emulated_nccl.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdevice::testing {
namespace {

using detail::CudaEvent;
using detail::CudaStatus;
using detail::CudaStream;
using detail::NcclComm;
using detail::NcclDataType;
using detail::NcclRedOp;
using detail::NcclStatus;
using detail::NcclUniqueId;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr NcclStatus kOk = NcclStatus::SUCCESS;
constexpr CudaStatus kCudaOk = CudaStatus::SUCCESS;
constexpr std::chrono::milliseconds kSoon{30};
constexpr std::chrono::seconds kLong{30};
constexpr int kNumDevices = 4;

class EmulatedNcclTest : public ::testing::Test {
 protected:
  EmulatedNcclTest() {
    for (int device = 0; device < kNumDevices; ++device) {
      streams.push_back(stream_on(device));
      other_streams.push_back(stream_on(device));
    }
  }
  ~EmulatedNcclTest() override {
    cuda->release_everything();
    cuda->stop();
  }

  CudaStream stream_on(int device) {
    CudaStream stream = nullptr;
    EXPECT_EQ(cuda->set_device(device), kCudaOk);
    EXPECT_EQ(cuda->stream_create(&stream), kCudaOk);
    return stream;
  }
  /// Communicators of the devices 0, 1, ..., made in one group.
  std::vector<NcclComm> make(int num_ranks) {
    NcclUniqueId id;
    EXPECT_EQ(nccl.get_unique_id(&id), kOk);
    std::vector<NcclComm> comms(static_cast<std::size_t>(num_ranks));
    EXPECT_EQ(nccl.group_start(), kOk);
    for (int rank = 0; rank < num_ranks; ++rank) {
      EXPECT_EQ(cuda->set_device(rank), kCudaOk);
      EXPECT_EQ(nccl.comm_init_rank(&comms[at(rank)], num_ranks, id, rank, "test"), kOk);
    }
    EXPECT_EQ(nccl.group_end(), kOk);
    return comms;
  }
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  template <class T>
  T* memory(int device, const std::vector<T>& values) {
    auto* const memory =
        static_cast<T*>(cuda->malloc_device(device, (values.size() + 1) * sizeof(T)));
    std::copy(values.begin(), values.end(), cuda->view(memory));
    return memory;
  }
  template <class T>
  std::vector<T> values(const T* memory, std::size_t count) {
    const T* const view = cuda->view(memory);
    return std::vector<T>(view, view + count);
  }
  /// One buffer for each device, of `count` floats: value + rank.
  std::vector<float*> buffers(std::size_t count, float value) {
    std::vector<float*> all;
    for (int rank = 0; rank < kNumDevices; ++rank) {
      all.push_back(memory(rank, std::vector<float>(count, value + static_cast<float>(rank))));
    }
    return all;
  }
  NcclStatus all_reduce(const std::vector<NcclComm>& comms, const std::vector<float*>& memory,
                        std::size_t count, const std::vector<CudaStream>& on) {
    EXPECT_EQ(nccl.group_start(), kOk);
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
      (void)nccl.all_reduce(memory[rank], memory[rank], count, NcclDataType::FLOAT32,
                            NcclRedOp::SUM, comms[rank], on[rank]);
    }
    return nccl.group_end();
  }
  void destroy(const std::vector<NcclComm>& comms) {
    for (const NcclComm comm : comms) EXPECT_EQ(nccl.comm_destroy(comm), kOk);
  }

  std::shared_ptr<EmulatedCuda> cuda =
      std::make_shared<EmulatedCuda>(kNumDevices, std::size_t{16} << 20);
  EmulatedNccl nccl{cuda};
  std::vector<CudaStream> streams;
  std::vector<CudaStream> other_streams;
};

// ---- values

class EmulatedNcclValuesTest : public EmulatedNcclTest,
                               public ::testing::WithParamInterface<int> {};

TEST_P(EmulatedNcclValuesTest, EveryCollective) {
  const int num_ranks = GetParam();
  const std::vector<NcclComm> comms = make(num_ranks);
  constexpr std::size_t kCount = 7;
  const std::size_t ranks = comms.size();
  float sum = 0;
  std::vector<std::vector<float>> inputs;
  std::vector<float*> sources;
  std::vector<float*> destinations;
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<float> input(kCount * ranks);
    for (std::size_t i = 0; i < input.size(); ++i) {
      input[i] = static_cast<float>(i) + 100 * static_cast<float>(rank);
    }
    sum += 100 * static_cast<float>(rank);
    sources.push_back(memory(rank, input));
    destinations.push_back(memory(rank, std::vector<float>(kCount * ranks, -1)));
    inputs.push_back(std::move(input));
  }
  const auto run = [&](const std::function<NcclStatus(std::size_t rank)>& call) {
    ASSERT_EQ(nccl.group_start(), kOk);
    for (std::size_t rank = 0; rank < ranks; ++rank) ASSERT_EQ(call(rank), kOk);
    ASSERT_EQ(nccl.group_end(), kOk);
    ASSERT_TRUE(cuda->synchronize());
  };
  const auto total = [&](std::size_t i) { return static_cast<float>(i * ranks) + sum; };
  const int root = num_ranks - 1;

  run([&](std::size_t rank) {
    return nccl.all_reduce(sources[rank], destinations[rank], kCount, NcclDataType::FLOAT32,
                           NcclRedOp::SUM, comms[rank], streams[rank]);
  });
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(values(destinations[rank], kCount)[3], total(3));
  }
  run([&](std::size_t rank) {
    return nccl.reduce_scatter(sources[rank], destinations[rank], kCount, NcclDataType::FLOAT32,
                               NcclRedOp::SUM, comms[rank], streams[rank]);
  });
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(values(destinations[rank], kCount)[6], total(rank * kCount + 6));
  }
  run([&](std::size_t rank) {
    return nccl.all_gather(sources[rank], destinations[rank], kCount, NcclDataType::FLOAT32,
                           comms[rank], streams[rank]);
  });
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(values(destinations[rank], kCount * ranks)[kCount * at(root) + 2],
              inputs[at(root)][2]);
  }
  run([&](std::size_t rank) {
    return nccl.broadcast(static_cast<int>(rank) == root ? sources[rank] : nullptr,
                          destinations[rank], kCount, NcclDataType::FLOAT32, root, comms[rank],
                          streams[rank]);
  });
  EXPECT_EQ(values(destinations[0], kCount)[5], inputs[at(root)][5]);
  run([&](std::size_t rank) {
    return nccl.reduce(sources[rank], static_cast<int>(rank) == root ? destinations[rank] : nullptr,
                       kCount, NcclDataType::FLOAT32, NcclRedOp::SUM, root, comms[rank],
                       streams[rank]);
  });
  EXPECT_EQ(values(destinations[at(root)], kCount)[4], total(4));
  run([&](std::size_t rank) {  // to the next one, round a ring
    const int to = (static_cast<int>(rank) + 1) % num_ranks;
    const int from = (static_cast<int>(rank) + num_ranks - 1) % num_ranks;
    const NcclStatus sent =
        nccl.send(sources[rank], kCount, NcclDataType::FLOAT32, to, comms[rank], streams[rank]);
    const NcclStatus received = nccl.receive(destinations[rank], kCount, NcclDataType::FLOAT32,
                                             from, comms[rank], streams[rank]);
    return sent == kOk ? received : sent;
  });
  EXPECT_EQ(values(destinations[0], kCount)[1], inputs[at(root)][1]);
  destroy(comms);
  EXPECT_EQ(nccl.num_communicators(), 0U);
  EXPECT_EQ(nccl.num_unreclaimed(), 0U);
  EXPECT_THAT(cuda->violations(), IsEmpty());
  EXPECT_THAT(nccl.mismatches(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Ranks, EmulatedNcclValuesTest, ::testing::Values(1, 2, 3, 4));

TEST_F(EmulatedNcclTest, SmallFloatsAreRoundedAfterEachAddition) {
  const std::vector<NcclComm> comms = make(3);
  std::vector<float16*> memories;
  for (int rank = 0; rank < 3; ++rank) {
    memories.push_back(memory(rank, std::vector<float16>{float16(rank == 0 ? 2048.0F : 1.0F)}));
  }
  ASSERT_EQ(nccl.group_start(), kOk);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(nccl.all_reduce(memories[rank], memories[rank], 1, NcclDataType::FLOAT16,
                              NcclRedOp::SUM, comms[rank], streams[rank]),
              kOk);
  }
  ASSERT_EQ(nccl.group_end(), kOk);
  ASSERT_TRUE(cuda->synchronize());
  EXPECT_THAT(values(memories[1], 1), ElementsAre(float16(2048.0F)));  // in float32: 2050
}

TEST_F(EmulatedNcclTest, MinAndMaxLoseNaN) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories{memory<float>(0, {NAN, 1}), memory<float>(1, {2, NAN})};
  ASSERT_EQ(nccl.group_start(), kOk);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(nccl.all_reduce(memories[rank], memories[rank], 2, NcclDataType::FLOAT32,
                              NcclRedOp::MAX, comms[rank], streams[rank]),
              kOk);
  }
  ASSERT_EQ(nccl.group_end(), kOk);
  ASSERT_TRUE(cuda->synchronize());
  EXPECT_THAT(values(memories[0], 2), ElementsAre(2, 1));
}

TEST_F(EmulatedNcclTest, FollowsItsStreams) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(4, 1);
  ASSERT_EQ(all_reduce(comms, memories, 4, streams), kOk);
  ASSERT_TRUE(cuda->synchronize());
  cuda->block_stream(streams[1]);
  ASSERT_EQ(all_reduce(comms, memories, 4, streams), kOk);
  EXPECT_FALSE(cuda->synchronize(streams[0], kSoon));  // waits for the other rank's kernel
  EXPECT_EQ(nccl.num_kernels(), 2U);
  cuda->release_stream(streams[1]);
  ASSERT_TRUE(cuda->synchronize());
  EXPECT_THAT(values(memories[0], 4), Each(6));
  EXPECT_EQ(nccl.num_kernels(), 0U);
}

TEST_F(EmulatedNcclTest, OneRankCopiesAndLaunchesNothingInPlace) {
  const std::vector<NcclComm> comms = make(1);
  float* const from = memory<float>(0, {5});
  float* const to = memory<float>(0, {0});
  ASSERT_EQ(
      nccl.all_reduce(from, from, 1, NcclDataType::FLOAT32, NcclRedOp::SUM, comms[0], streams[0]),
      kOk);
  ASSERT_EQ(
      nccl.all_reduce(from, to, 1, NcclDataType::FLOAT32, NcclRedOp::SUM, comms[0], streams[0]),
      kOk);
  ASSERT_TRUE(cuda->synchronize());
  EXPECT_THAT(values(to, 1), ElementsAre(5));
}

// ---- making

TEST_F(EmulatedNcclTest, ManyThreadsMakeOneClique) {
  NcclUniqueId id;
  ASSERT_EQ(nccl.get_unique_id(&id), kOk);
  std::vector<NcclComm> comms(3);
  std::atomic<int> num_made = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_EQ(cuda->set_device(rank), kCudaOk);
      EXPECT_EQ(nccl.comm_init_rank(&comms[at(rank)], 3, id, rank, nullptr), kOk);
      ++num_made;
      float* const mine = memory<float>(rank, {1});
      EXPECT_EQ(nccl.all_reduce(mine, mine, 1, NcclDataType::FLOAT32, NcclRedOp::SUM,
                                comms[at(rank)], streams[at(rank)]),
                kOk);  // a thread for each rank needs no group
      EXPECT_TRUE(cuda->synchronize(streams[at(rank)]));
      EXPECT_THAT(values(mine, 1), ElementsAre(3));
    });
    if (rank == 0) {
      ASSERT_TRUE(cuda->calls().await_count("nccl.comm_init_rank", 1, kLong));
      EXPECT_EQ(num_made, 0);
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(cuda->violations(), IsEmpty());
}

TEST_F(EmulatedNcclTest, OneDeviceTwiceIsRefused) {
  NcclUniqueId id;
  ASSERT_EQ(nccl.get_unique_id(&id), kOk);
  std::vector<NcclComm> comms(2);
  ASSERT_EQ(nccl.group_start(), kOk);
  ASSERT_EQ(cuda->set_device(1), kCudaOk);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(nccl.comm_init_rank(&comms[at(rank)], 2, id, rank, nullptr), kOk);
  }
  EXPECT_EQ(nccl.group_end(), NcclStatus::INVALID_USAGE);
  EXPECT_THAT(nccl.last_error(nullptr), HasSubstr("Duplicate GPU detected"));
  EXPECT_THAT(comms, ElementsAre(nullptr, nullptr));
  EXPECT_EQ(nccl.num_communicators(), 0U);
}

TEST_F(EmulatedNcclTest, ARankThatDoesNotComeHoldsTheMaking) {
  NcclUniqueId id;
  ASSERT_EQ(nccl.get_unique_id(&id), kOk);
  std::thread waits([&] {
    NcclComm comm = nullptr;
    EXPECT_EQ(nccl.comm_init_rank(&comm, 2, id, 0, nullptr), NcclStatus::INTERNAL_ERROR);
    EXPECT_EQ(comm, nullptr);
  });
  ASSERT_TRUE(cuda->calls().await_count("nccl.comm_init_rank", 1, kLong));
  std::this_thread::sleep_for(kSoon);
  cuda->release_everything();
  waits.join();
}

TEST_F(EmulatedNcclTest, WrongArgumentsAreRefused) {
  NcclComm comm = nullptr;
  EXPECT_EQ(nccl.comm_init_rank(&comm, 2, {}, 2, nullptr), NcclStatus::INVALID_ARGUMENT);
  EXPECT_EQ(nccl.comm_destroy(nullptr), NcclStatus::INVALID_ARGUMENT);
  EXPECT_EQ(nccl.group_end(), NcclStatus::INVALID_USAGE);
  const std::vector<NcclComm> comms = make(1);
  float* const mine = memory<float>(0, {1});
  EXPECT_EQ(nccl.broadcast(mine, mine, 1, NcclDataType::FLOAT32, 1, comms[0], streams[0]),
            NcclStatus::INVALID_ARGUMENT);
  EXPECT_EQ(
      nccl.all_reduce(mine, mine, 1, NcclDataType::FLOAT32, NcclRedOp::SUM, comms[0], streams[1]),
      NcclStatus::UNHANDLED_CUDA_ERROR);
  nccl.set_version(22000);
  EXPECT_EQ(nccl.version(), 22000);
  EXPECT_EQ(nccl.all_reduce(mine, mine, 1, NcclDataType::FLOAT8_E4M3, NcclRedOp::SUM, comms[0],
                            streams[0]),
            NcclStatus::INVALID_ARGUMENT);
}

// ---- groups

TEST_F(EmulatedNcclTest, GroupsNestAndLaunchAtTheOutermostEnd) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(1, 1);
  ASSERT_EQ(nccl.group_start(), kOk);
  ASSERT_EQ(all_reduce(comms, memories, 1, streams), kOk);
  ASSERT_TRUE(cuda->synchronize());
  EXPECT_EQ(cuda->calls().count("nccl.launch"), 0U);
  ASSERT_EQ(nccl.group_end(), kOk);
  EXPECT_EQ(cuda->calls().count("nccl.launch"), 2U);
  ASSERT_TRUE(cuda->synchronize());
  EXPECT_THAT(values(memories[1], 1), ElementsAre(3));
}

TEST_F(EmulatedNcclTest, AnErrorInAGroupSpoilsIt) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(1, 1);
  ASSERT_EQ(nccl.group_start(), kOk);
  ASSERT_EQ(nccl.all_reduce(memories[0], memories[0], 1, NcclDataType::FLOAT32, NcclRedOp::SUM,
                            comms[0], streams[0]),
            kOk);
  EXPECT_EQ(
      nccl.broadcast(memories[1], memories[1], 1, NcclDataType::FLOAT32, 7, comms[1], streams[1]),
      NcclStatus::INVALID_ARGUMENT);
  EXPECT_EQ(nccl.group_end(), NcclStatus::INVALID_ARGUMENT);
  EXPECT_EQ(cuda->calls().count("nccl.launch"), 0U);
  EXPECT_EQ(all_reduce(comms, memories, 1, streams), kOk);  // the next is as good as new
}

TEST_F(EmulatedNcclTest, MakingAndCallingInOneGroupIsRefused) {
  const std::vector<NcclComm> comms = make(1);
  NcclUniqueId id;
  ASSERT_EQ(nccl.get_unique_id(&id), kOk);
  float* const from = memory<float>(0, {1});
  float* const to = memory<float>(0, {0});
  NcclComm comm = nullptr;
  ASSERT_EQ(nccl.group_start(), kOk);
  ASSERT_EQ(nccl.comm_init_rank(&comm, 1, id, 0, nullptr), kOk);
  ASSERT_EQ(
      nccl.all_reduce(from, to, 1, NcclDataType::FLOAT32, NcclRedOp::SUM, comms[0], streams[0]),
      kOk);
  EXPECT_EQ(nccl.group_end(), NcclStatus::INVALID_USAGE);
  EXPECT_EQ(comm, nullptr);
}

// ---- what hangs

TEST_F(EmulatedNcclTest, AFirstUseOutsideAGroupHangs) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(1, 1);
  std::atomic<bool> is_back = false;
  std::thread caller([&] {
    EXPECT_EQ(nccl.all_reduce(memories[0], memories[0], 1, NcclDataType::FLOAT32, NcclRedOp::SUM,
                              comms[0], streams[0]),
              NcclStatus::INTERNAL_ERROR);
    is_back = true;
  });
  ASSERT_TRUE(cuda->calls().await_count("nccl.all_reduce", 1, kLong));
  std::this_thread::sleep_for(kSoon);
  EXPECT_FALSE(is_back);
  ASSERT_EQ(nccl.comm_abort(comms[0]), kOk);
  caller.join();
  ASSERT_EQ(nccl.comm_abort(comms[1]), kOk);
}

TEST_F(EmulatedNcclTest, DifferentOrdersOnTwoDevicesHang) {
  const std::vector<NcclComm> a = make(2);
  const std::vector<NcclComm> b = make(2);
  const std::vector<float*> of_a = buffers(1, 1);
  const std::vector<float*> of_b = buffers(1, 1);
  ASSERT_EQ(all_reduce(a, of_a, 1, streams), kOk);
  ASSERT_EQ(all_reduce(b, of_b, 1, other_streams), kOk);
  ASSERT_TRUE(cuda->synchronize());
  const auto one = [&](NcclComm comm, float* memory, CudaStream stream) {
    EXPECT_EQ(
        nccl.all_reduce(memory, memory, 1, NcclDataType::FLOAT32, NcclRedOp::SUM, comm, stream),
        kOk);
  };
  one(a[0], of_a[0], streams[0]);
  one(b[0], of_b[0], other_streams[0]);
  one(b[1], of_b[1], other_streams[1]);
  one(a[1], of_a[1], streams[1]);
  EXPECT_FALSE(cuda->synchronize(kSoon));
  for (const auto& clique : {a, b}) {
    ASSERT_EQ(nccl.group_start(), kOk);
    for (const NcclComm comm : clique) ASSERT_EQ(nccl.comm_abort(comm), kOk);
    ASSERT_EQ(nccl.group_end(), kOk);
  }
  EXPECT_TRUE(cuda->synchronize());
  EXPECT_EQ(nccl.num_unreclaimed(), 0U);
}

TEST_F(EmulatedNcclTest, TheSameOrderOnAllDevicesDoesNot) {
  const std::vector<NcclComm> a = make(2);
  const std::vector<NcclComm> b = make(2);
  const std::vector<float*> of_a = buffers(1, 1);
  const std::vector<float*> of_b = buffers(1, 1);
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(all_reduce(a, of_a, 1, streams), kOk);
    ASSERT_EQ(all_reduce(b, of_b, 1, other_streams), kOk);
  }
  EXPECT_TRUE(cuda->synchronize());
  EXPECT_THAT(values(of_a[0], 1), ElementsAre(std::ldexp(3.0F, 19)));
}

TEST_F(EmulatedNcclTest, OtherDataHangsAndIsReported) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(4, 1);
  ASSERT_EQ(nccl.group_start(), kOk);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(nccl.all_reduce(memories[rank], memories[rank], 3 + rank, NcclDataType::FLOAT32,
                              NcclRedOp::SUM, comms[rank], streams[rank]),
              kOk);
  }
  ASSERT_EQ(nccl.group_end(), kOk);
  EXPECT_FALSE(cuda->synchronize(kSoon));
  EXPECT_THAT(nccl.mismatches(),
              ElementsAre("rank 0: all_reduce of 3 float32 by SUM; rank 1: all_reduce of 4 float32 "
                          "by SUM"));
  cuda->release_everything();
  EXPECT_TRUE(cuda->synchronize());
}

TEST_F(EmulatedNcclTest, AnotherOpCorruptsAndIsReported) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(1, 1);
  ASSERT_EQ(nccl.group_start(), kOk);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(
        nccl.all_reduce(memories[rank], memories[rank], 1, NcclDataType::FLOAT32,
                        rank == 0 ? NcclRedOp::SUM : NcclRedOp::MAX, comms[rank], streams[rank]),
        kOk);
  }
  ASSERT_EQ(nccl.group_end(), kOk);
  EXPECT_TRUE(cuda->synchronize());
  EXPECT_EQ(nccl.mismatches().size(), 1U);
}

// ---- the end

TEST_F(EmulatedNcclTest, AnAbortEndsAKernelThatWaits) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(1, 1);
  ASSERT_EQ(all_reduce(comms, memories, 1, streams), kOk);
  ASSERT_TRUE(cuda->synchronize());
  ASSERT_EQ(nccl.all_reduce(memories[0], memories[0], 1, NcclDataType::FLOAT32, NcclRedOp::SUM,
                            comms[0], streams[0]),
            kOk);
  EXPECT_FALSE(cuda->synchronize(streams[0], kSoon));
  ASSERT_EQ(nccl.comm_abort(comms[0]), kOk);
  EXPECT_TRUE(cuda->synchronize());
  EXPECT_EQ(nccl.num_communicators(), 1U);
  EXPECT_EQ(nccl.num_unreclaimed(), 2U);  // until the sibling has ended too
  ASSERT_EQ(nccl.comm_abort(comms[1]), kOk);
  EXPECT_EQ(nccl.num_unreclaimed(), 0U);
}

TEST_F(EmulatedNcclTest, AnAbortOfOneRankLeavesTheOthersSpinning) {
  const std::vector<NcclComm> comms = make(3);
  const std::vector<float*> memories = buffers(1, 1);
  ASSERT_EQ(all_reduce(comms, memories, 1, streams), kOk);
  ASSERT_TRUE(cuda->synchronize());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(nccl.all_reduce(memories[rank], memories[rank], 1, NcclDataType::FLOAT32,
                              NcclRedOp::SUM, comms[rank], streams[rank]),
              kOk);
  }
  ASSERT_EQ(nccl.comm_abort(comms[0]), kOk);
  EXPECT_TRUE(cuda->synchronize(streams[0]));
  ASSERT_EQ(nccl.all_reduce(memories[2], memories[2], 1, NcclDataType::FLOAT32, NcclRedOp::SUM,
                            comms[2], streams[2]),
            kOk);
  EXPECT_FALSE(cuda->synchronize(streams[1], kSoon));
  EXPECT_FALSE(cuda->synchronize(streams[2], kSoon));
}

TEST_F(EmulatedNcclTest, AnAbortBlocksBehindAKernelThatNeverEnds) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(1, 1);
  ASSERT_EQ(all_reduce(comms, memories, 1, streams), kOk);
  ASSERT_TRUE(cuda->synchronize());
  cuda->block_stream(streams[0]);
  ASSERT_EQ(all_reduce(comms, memories, 1, streams), kOk);
  std::atomic<bool> is_back = false;
  std::thread aborts([&] {
    EXPECT_EQ(nccl.group_start(), kOk);
    for (const NcclComm comm : comms) EXPECT_EQ(nccl.comm_abort(comm), kOk);
    EXPECT_EQ(nccl.group_end(), kOk);
    is_back = true;
  });
  EXPECT_TRUE(cuda->synchronize(streams[1]));  // that rank's kernel leaves at once
  std::this_thread::sleep_for(kSoon);
  EXPECT_FALSE(is_back);
  cuda->release_stream(streams[0]);
  aborts.join();
  EXPECT_TRUE(cuda->synchronize());
  EXPECT_EQ(nccl.num_unreclaimed(), 0U);
}

TEST_F(EmulatedNcclTest, AnAbortMayWaitForOtherKernelsOfItsDevice) {
  nccl.set_exclusive_devices(false);
  nccl.set_abort_waits_for_device(true);
  const std::vector<NcclComm> a = make(2);
  const std::vector<NcclComm> b = make(2);
  const std::vector<float*> memories = buffers(1, 1);
  ASSERT_EQ(all_reduce(b, memories, 1, other_streams), kOk);
  ASSERT_TRUE(cuda->synchronize());
  ASSERT_EQ(nccl.all_reduce(memories[0], memories[0], 1, NcclDataType::FLOAT32, NcclRedOp::SUM,
                            b[0], other_streams[0]),
            kOk);
  std::atomic<bool> is_back = false;
  std::thread aborts([&] {
    EXPECT_EQ(nccl.comm_abort(a[0]), kOk);
    is_back = true;
  });
  std::this_thread::sleep_for(kSoon);
  EXPECT_FALSE(is_back);
  ASSERT_EQ(nccl.comm_abort(b[0]), kOk);
  aborts.join();
}

TEST_F(EmulatedNcclTest, UseAfterTheEndIsReported) {
  const std::vector<NcclComm> comms = make(1);
  destroy(comms);
  NcclStatus error = kOk;
  EXPECT_EQ(nccl.comm_destroy(comms[0]), NcclStatus::INVALID_ARGUMENT);
  EXPECT_EQ(nccl.comm_get_async_error(comms[0], &error), NcclStatus::INVALID_ARGUMENT);
  EXPECT_THAT(cuda->violations(), Each(HasSubstr("has been destroyed")));
  EXPECT_EQ(cuda->violations().size(), 2U);
}

TEST_F(EmulatedNcclTest, FinalizeWaitsForWhatIsEnqueued) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(1, 1);
  ASSERT_EQ(all_reduce(comms, memories, 1, streams), kOk);
  ASSERT_TRUE(cuda->synchronize());
  cuda->block_stream(streams[1]);
  ASSERT_EQ(all_reduce(comms, memories, 1, streams), kOk);
  std::atomic<bool> is_back = false;
  std::thread ends([&] {
    EXPECT_EQ(nccl.group_start(), kOk);
    for (const NcclComm comm : comms) EXPECT_EQ(nccl.comm_finalize(comm), kOk);
    EXPECT_EQ(nccl.group_end(), kOk);
    is_back = true;
  });
  std::this_thread::sleep_for(kSoon);
  EXPECT_FALSE(is_back);
  cuda->release_stream(streams[1]);
  ends.join();
  EXPECT_EQ(all_reduce(comms, memories, 1, streams), NcclStatus::INVALID_USAGE);
  EXPECT_THAT(cuda->violations(), Each(HasSubstr("after its abort or finalize")));
  destroy(comms);
}

TEST_F(EmulatedNcclTest, RevokeEndsKernelsAndRefusesMore) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(1, 1);
  ASSERT_EQ(all_reduce(comms, memories, 1, streams), kOk);
  ASSERT_TRUE(cuda->synchronize());
  ASSERT_EQ(nccl.all_reduce(memories[0], memories[0], 1, NcclDataType::FLOAT32, NcclRedOp::SUM,
                            comms[0], streams[0]),
            kOk);
  nccl.set_version(22806);
  EXPECT_EQ(nccl.comm_revoke(comms[0]), NcclStatus::INVALID_USAGE);
  nccl.set_version(22807);
  EXPECT_EQ(nccl.comm_revoke(comms[0]), kOk);
  EXPECT_TRUE(cuda->synchronize());
  EXPECT_EQ(all_reduce(comms, memories, 1, streams), NcclStatus::INVALID_USAGE);
  EXPECT_THAT(nccl.last_error(nullptr), HasSubstr("revoked"));
  EXPECT_EQ(nccl.comm_finalize(comms[0]), NcclStatus::INVALID_USAGE);
  destroy(comms);
  EXPECT_THAT(cuda->violations(), IsEmpty());
}

TEST_F(EmulatedNcclTest, AsynchronousErrorsAreTold) {
  const std::vector<NcclComm> comms = make(2);
  NcclStatus error = NcclStatus::INTERNAL_ERROR;
  ASSERT_EQ(nccl.comm_get_async_error(comms[1], &error), kOk);
  EXPECT_EQ(error, kOk);
  nccl.set_async_error(comms[1], NcclStatus::REMOTE_ERROR, "connection closed by peer");
  ASSERT_EQ(nccl.comm_get_async_error(comms[1], &error), kOk);
  EXPECT_EQ(error, NcclStatus::REMOTE_ERROR);
  EXPECT_EQ(nccl.last_error(comms[1]), "connection closed by peer");
  EXPECT_EQ(nccl.communicator_name(comms[1]), "test");
}

TEST_F(EmulatedNcclTest, FaultsOfCallsAndLaunches) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(1, 1);
  ASSERT_EQ(all_reduce(comms, memories, 1, streams), kOk);
  ASSERT_TRUE(cuda->synchronize());
  cuda->calls().inject({.function = "nccl.launch",
                        .status = static_cast<int>(NcclStatus::SYSTEM_ERROR),
                        .device = 1});
  EXPECT_EQ(all_reduce(comms, memories, 1, streams), NcclStatus::SYSTEM_ERROR);
  EXPECT_FALSE(cuda->synchronize(kSoon));  // rank 0 was launched, rank 1 was not
  cuda->calls().inject({.function = "nccl.comm_abort", .kind = FaultKind::HANG_CALL});
  std::atomic<bool> is_back = false;
  std::thread aborts([&] {
    EXPECT_EQ(nccl.comm_abort(comms[0]), kOk);
    is_back = true;
  });
  ASSERT_TRUE(cuda->calls().await_count("nccl.comm_abort", 1, kLong));
  EXPECT_FALSE(cuda->synchronize(kSoon));
  EXPECT_FALSE(is_back);
  cuda->calls().release_hangs();
  aborts.join();
  EXPECT_TRUE(cuda->synchronize());
}

TEST_F(EmulatedNcclTest, ADeviceThatHasFailedDoesNotHoldAnAbort) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(1, 1);
  ASSERT_EQ(all_reduce(comms, memories, 1, streams), kOk);
  ASSERT_TRUE(cuda->synchronize());
  cuda->block_stream(streams[0]);
  ASSERT_EQ(all_reduce(comms, memories, 1, streams), kOk);
  cuda->fail_device(0, kIllegalAddress);
  cuda->release_stream(streams[0]);
  EXPECT_EQ(all_reduce(comms, memories, 1, streams), NcclStatus::UNHANDLED_CUDA_ERROR);
  for (const NcclComm comm : comms) EXPECT_EQ(nccl.comm_abort(comm), kOk);
  EXPECT_TRUE(cuda->synchronize());
}

// ---- graphs

TEST_F(EmulatedNcclTest, CollectivesAreCapturedOnAllDevices) {
  const std::vector<NcclComm> comms = make(3);
  const std::vector<float*> memories = buffers(2, 1);
  ASSERT_EQ(all_reduce(comms, memories, 2, streams), kOk);
  ASSERT_TRUE(cuda->synchronize());
  EXPECT_THAT(values(memories[0], 2), Each(6));
  std::vector<CudaEvent> events(6);
  for (std::size_t each = 0; each < 6; ++each) {
    ASSERT_EQ(cuda->set_device(static_cast<int>(each / 2)), kCudaOk);
    ASSERT_EQ(cuda->event_create(&events[each]), kCudaOk);
  }
  ASSERT_EQ(cuda->begin_capture(streams[0], CaptureMode::THREAD_LOCAL), kCudaOk);
  ASSERT_EQ(cuda->event_record(events[0], streams[0]), kCudaOk);
  for (std::size_t rank = 1; rank < 3; ++rank) {
    ASSERT_EQ(cuda->stream_wait_event(streams[rank], events[0]), kCudaOk);
  }
  ASSERT_EQ(all_reduce(comms, memories, 2, streams), kOk);
  for (std::size_t rank = 1; rank < 3; ++rank) {
    ASSERT_EQ(cuda->event_record(events[2 * rank], streams[rank]), kCudaOk);
    ASSERT_EQ(cuda->stream_wait_event(streams[0], events[2 * rank]), kCudaOk);
  }
  EmulatedGraph graph = nullptr;
  ASSERT_EQ(cuda->end_capture(streams[0], &graph), kCudaOk);
  EXPECT_THAT(values(memories[0], 2), Each(6));  // nothing ran
  ASSERT_EQ(cuda->launch_graph(graph, streams[0]), kCudaOk);
  ASSERT_EQ(cuda->launch_graph(graph, streams[0]), kCudaOk);
  ASSERT_TRUE(cuda->synchronize());
  EXPECT_THAT(values(memories[2], 2), Each(54));

  std::atomic<bool> is_back = false;
  std::thread aborts([&] {
    EXPECT_EQ(nccl.comm_abort(comms[0]), kOk);
    is_back = true;
  });
  std::this_thread::sleep_for(kSoon);
  EXPECT_FALSE(is_back);  // as long as the graph lives
  ASSERT_EQ(cuda->destroy_graph(graph), kCudaOk);
  aborts.join();
  EXPECT_THAT(cuda->violations(), IsEmpty());
}

TEST_F(EmulatedNcclTest, AFirstCollectiveInAGlobalCaptureIsRefused) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(1, 1);
  ASSERT_EQ(cuda->begin_capture(streams[0], CaptureMode::GLOBAL), kCudaOk);
  EXPECT_EQ(nccl.all_reduce(memories[0], memories[0], 1, NcclDataType::FLOAT32, NcclRedOp::SUM,
                            comms[0], streams[0]),
            NcclStatus::UNHANDLED_CUDA_ERROR);
  EmulatedGraph graph = nullptr;
  EXPECT_EQ(cuda->end_capture(streams[0], &graph), CudaStatus::STREAM_CAPTURE_INVALIDATED);
}

TEST_F(EmulatedNcclTest, AGroupIsCapturedWholeOrNotAtAll) {
  const std::vector<NcclComm> comms = make(2);
  const std::vector<float*> memories = buffers(1, 1);
  ASSERT_EQ(all_reduce(comms, memories, 1, streams), kOk);
  ASSERT_TRUE(cuda->synchronize());
  ASSERT_EQ(cuda->begin_capture(streams[0], CaptureMode::THREAD_LOCAL), kCudaOk);
  EXPECT_EQ(all_reduce(comms, memories, 1, streams), NcclStatus::INVALID_USAGE);
  EmulatedGraph graph = nullptr;
  EXPECT_EQ(cuda->end_capture(streams[0], &graph), kCudaOk);
}

}  // namespace
}  // namespace crossdevice::testing
