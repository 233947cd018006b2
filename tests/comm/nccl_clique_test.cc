// SPDX-License-Identifier: Apache-2.0
// How cliques are made, kept, used and adopted, over emulated GPUs.
#include "crossdevice/comm/nccl_clique.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "crossdevice/device/device.h"

#include "comm/nccl_clique_fixture.h"

namespace crossdevice {
namespace {

using testing::all_reduce;
using ::testing::AllOf;
using testing::await;
using ::testing::ElementsAre;
using testing::emulated_cuda;
using testing::emulated_nccl;
using ::testing::HasSubstr;
using testing::Lanes;
using testing::NcclClique;
using testing::NcclCliqueState;
using testing::NcclStatus;
using testing::thrown;

const bool is_installed = (testing::install_emulated_gpus(4), true);

class NcclCliqueTest : public testing::NcclCliqueFixture {};

const Devices kAll{"GPU:0", "GPU:1", "GPU:2", "GPU:3"};

TEST_F(NcclCliqueTest, IsMadeOnceForAListAndKept) {
  const NcclClique* const first = NcclClique::of(kAll).get();
  EXPECT_EQ(NcclClique::of(kAll).get(), first);
  EXPECT_EQ(count("nccl.comm_init_rank"), 4U);
  EXPECT_NE(NcclClique::of({"GPU:1", "GPU:0"}).get(), NcclClique::of({"GPU:0", "GPU:1"}).get());
  EXPECT_EQ(emulated_nccl().num_communicators(), 8U);
}

TEST_F(NcclCliqueTest, SaysWhoItIs) {
  const auto clique = NcclClique::of({"GPU:2", "GPU:0"});
  EXPECT_EQ(clique->size(), 2);
  EXPECT_EQ(clique->num_ranks(), 2);
  EXPECT_EQ(clique->rank(1), 1);
  EXPECT_EQ(clique->device(0).ordinal(), 2);
  EXPECT_EQ(clique->devices(), (Devices{"GPU:2", "GPU:0"}));
  EXPECT_EQ(clique->state(), NcclCliqueState::WHOLE);
  EXPECT_EQ(clique->first_error(), nullptr);
  EXPECT_EQ(clique->find_async_error(), nullptr);
  clique->require_usable();
  EXPECT_THAT(emulated_nccl().communicator_name(clique->communicator(0)),
              AllOf(HasSubstr("crossdevice"), HasSubstr("GPU:2")));
}

TEST_F(NcclCliqueTest, EachRankIsMadeOnItsOwnDeviceInOneGroup) {
  int before = -1;
  ASSERT_EQ(emulated_cuda().set_device(3), detail::CudaStatus::SUCCESS);
  (void)NcclClique::of({"GPU:2", "GPU:1"});
  ASSERT_EQ(emulated_cuda().get_device(&before), detail::CudaStatus::SUCCESS);
  EXPECT_EQ(before, 3);  // the caller's stays
  std::vector<std::string> made;
  for (const testing::EmulatedCall& call : emulated_cuda().calls().list()) {
    if (call.function == "nccl.get_unique_id" || call.function.substr(0, 5) != "nccl.") continue;
    made.emplace_back(call.function.substr(5));
    if (made.size() == 4) break;
  }
  EXPECT_THAT(made, ElementsAre("group_start", "comm_init_rank", "comm_init_rank", "group_end"));
}

TEST_F(NcclCliqueTest, ConnectsBeforeItIsGiven) {
  const auto clique = NcclClique::of(kAll);
  EXPECT_EQ(count("nccl.all_reduce"), 4U);
  EXPECT_EQ(emulated_nccl().num_kernels(), 0U);
  (void)NcclClique::of({"GPU:0"});
  EXPECT_EQ(count("nccl.all_reduce"), 4U);  // one rank has nothing to connect to
}

TEST_F(NcclCliqueTest, Reduces) {
  for (const Devices& devices :
       {Devices{"GPU:0"}, Devices{"GPU:3", "GPU:1"}, Devices{"GPU:0", "GPU:1", "GPU:2"}, kAll}) {
    const auto clique = NcclClique::of(devices);
    Lanes lanes(*clique);
    all_reduce(*clique, lanes);
    ASSERT_TRUE(lanes.synchronize());
    EXPECT_TRUE(lanes.have_sums()) << devices;
  }
}

TEST_F(NcclCliqueTest, WhatItCannotBe) {
  EXPECT_NE(thrown<ValueError>([] { (void)NcclClique::of({}); }), "");
  EXPECT_NE(thrown<ValueError>([] { (void)NcclClique::of({"CPU:0"}); }), "");
  EXPECT_NE(thrown<ValueError>([] { (void)NcclClique::of({"GPU:9"}); }), "");
  EXPECT_EQ(thrown<UnavailableError>([] {
              (void)NcclClique::of({"GPU:1", "GPU:1"});
            }),
            "NCCL cannot: GPU:1 and GPU:1 are the same GPU");
}

TEST_F(NcclCliqueTest, TwoLogicalGpusOfOneAreTheSame) {
  set_logical_gpu_devices(2);
  EXPECT_EQ(thrown<UnavailableError>([] {
              (void)NcclClique::of({"GPU:2", "GPU:3"});
            }),
            "NCCL cannot: GPU:2 and GPU:3 are the same GPU");
  const auto clique = NcclClique::of({"GPU:2", "GPU:5"});
  Lanes lanes(*clique);
  all_reduce(*clique, lanes);
  ASSERT_TRUE(lanes.synchronize());
  EXPECT_TRUE(lanes.have_sums());
}

TEST_F(NcclCliqueTest, WhenNcclRefusesItsTextIsToldAndTheNextTryMayWork) {
  inject({.function = "nccl.comm_init_rank", .status = 2});
  EXPECT_THAT(thrown<UnavailableError>([] { (void)NcclClique::of(kAll); }),
              AllOf(HasSubstr("cannot make communicators of [GPU:0, GPU:1, GPU:2, GPU:3]"),
                    HasSubstr("ncclCommInitRankConfig"),
                    HasSubstr(emulated_nccl().error_text(NcclStatus::SYSTEM_ERROR))));
  EXPECT_TRUE(await([] { return emulated_nccl().num_communicators() == 0; }));
  EXPECT_EQ(NcclClique::of(kAll)->size(), 4);
}

TEST_F(NcclCliqueTest, MakingHasADeadlineAndWhatComesLateIsUndone) {
  inject({.function = "nccl.comm_init_rank", .kind = testing::FaultKind::HANG_CALL});
  EXPECT_THAT(thrown<DeadlineExceededError>([] { (void)NcclClique::of(kAll, 0.05); }),
              HasSubstr("making communicators of [GPU:0, GPU:1, GPU:2, GPU:3] (4 ranks)"));
  emulated_cuda().calls().release_hangs();
  EXPECT_TRUE(emulated_cuda().calls().await_count("nccl.comm_abort", 4, testing::kLong));
  EXPECT_TRUE(await([] { return emulated_nccl().num_communicators() == 0; }));
}

/// The first launch makes connections, and may not come back.
TEST_F(NcclCliqueTest, TheFirstLaunchHasTheDeadlineOfMaking) {
  inject({.function = "nccl.group_end", .kind = testing::FaultKind::HANG_CALL, .skip = 1});
  std::string said;
  std::thread maker(
      [&] { said = thrown<DeadlineExceededError>([] { (void)NcclClique::of(kAll, 0.5); }); });
  EXPECT_TRUE(emulated_cuda().calls().await_count("nccl.comm_abort", 4, testing::kLong));
  emulated_cuda().calls().release_hangs();
  maker.join();
  EXPECT_THAT(said, AllOf(HasSubstr("warm-up"), HasSubstr("(launch) timed out after "),
                          HasSubstr("waiting for NCCL to launch it")));
  EXPECT_EQ(NcclClique::of(kAll)->size(), 4);
}

TEST_F(NcclCliqueTest, CliquesThatShareGpusMayBeUsedByManyThreads) {
  const std::vector<Devices> lists = {
      {"GPU:0", "GPU:1"}, {"GPU:1", "GPU:0"}, {"GPU:1", "GPU:2", "GPU:3"}, {"GPU:3", "GPU:0"}};
  std::vector<std::thread> threads;
  threads.reserve(lists.size());
  for (const Devices& devices : lists) {
    threads.emplace_back([devices] {
      const auto clique = NcclClique::of(devices);
      Lanes lanes(*clique);
      for (int i = 0; i < 25; ++i) all_reduce(*clique, lanes);
      EXPECT_TRUE(lanes.synchronize());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(NcclCliqueTest, OneListAskedForByManyThreadsIsMadeOnce) {
  std::vector<std::shared_ptr<NcclClique>> found(4);
  std::vector<std::thread> threads;
  threads.reserve(found.size());
  for (auto& each : found) {
    threads.emplace_back([&each] { each = NcclClique::of(kAll); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& each : found) EXPECT_EQ(each, found[0]);
  EXPECT_EQ(count("nccl.comm_init_rank"), 4U);
}

class NcclAdoptionTest : public NcclCliqueTest {
 protected:
  /// As a program makes them.
  static std::vector<detail::NcclComm> make(const std::vector<int>& ordinals) {
    std::vector<detail::NcclComm> comms(ordinals.size());
    detail::NcclUniqueId id;
    EXPECT_EQ(emulated_nccl().get_unique_id(&id), NcclStatus::SUCCESS);
    EXPECT_EQ(emulated_nccl().group_start(), NcclStatus::SUCCESS);
    for (std::size_t i = 0; i < comms.size(); ++i) {
      const detail::CurrentCudaDevice current(emulated_cuda(), ordinals[i]);
      EXPECT_EQ(emulated_nccl().comm_init_rank(&comms[i], static_cast<int>(comms.size()), id,
                                               static_cast<int>(i), "mine"),
                NcclStatus::SUCCESS);
    }
    EXPECT_EQ(emulated_nccl().group_end(), NcclStatus::SUCCESS);
    return comms;
  }
  static void destroy(const std::vector<detail::NcclComm>& comms) {
    EXPECT_EQ(emulated_nccl().group_start(), NcclStatus::SUCCESS);
    for (const detail::NcclComm each : comms) {
      EXPECT_EQ(emulated_nccl().comm_destroy(each), NcclStatus::SUCCESS);
    }
    EXPECT_EQ(emulated_nccl().group_end(), NcclStatus::SUCCESS);
  }
};

TEST_F(NcclAdoptionTest, TheProgramsCommunicatorsAreUsedAndGivenBack) {
  const Devices devices{"GPU:1", "GPU:3"};
  const std::vector<detail::NcclComm> comms = make({1, 3});
  const auto clique = NcclClique::adopt(devices, comms);
  EXPECT_EQ(NcclClique::of(devices), clique);
  EXPECT_EQ(clique->communicator(1), comms[1]);
  {
    Lanes lanes(*clique);
    all_reduce(*clique, lanes);
    ASSERT_TRUE(lanes.synchronize());
    EXPECT_TRUE(lanes.have_sums());
  }
  NcclClique::end_adoption(devices);
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { clique->require_usable(); }),
              HasSubstr("their owner took them back"));
  EXPECT_EQ(emulated_nccl().num_communicators(), 2U);
  destroy(comms);
  EXPECT_NE(NcclClique::of(devices), clique);
}

TEST_F(NcclAdoptionTest, RanksAreWhatTheCommunicatorsSay) {
  const std::vector<detail::NcclComm> comms = make({0, 1, 2});
  const auto clique =
      NcclClique::adopt({"GPU:2", "GPU:0", "GPU:1"}, {comms[2], comms[0], comms[1]});
  EXPECT_EQ(clique->rank(0), 2);
  EXPECT_EQ(clique->rank(1), 0);
  EXPECT_EQ(clique->rank(2), 1);
  NcclClique::end_adoption(clique->devices());
  destroy(comms);
}

TEST_F(NcclAdoptionTest, APartOfAClique) {
  const std::vector<detail::NcclComm> comms = make({0, 1, 2});
  const std::size_t num_calls = emulated_cuda().calls().list().size();
  EXPECT_EQ(thrown<ValueError>([&] {
              (void)NcclClique::adopt({"GPU:0", "GPU:1"}, {comms[0], comms[1]});
            }),
            "the communicator for GPU:0 is one of 3 ranks, expected 2, one for each of [GPU:0, "
            "GPU:1]");
  EXPECT_EQ(emulated_cuda().calls().list().size(), num_calls);  // nothing but questions
  EXPECT_NE(thrown<ValueError>([] { NcclClique::end_adoption({"GPU:0", "GPU:1"}); }), "");
  destroy(comms);
}

TEST_F(NcclAdoptionTest, CommunicatorsOfOtherDevices) {
  const std::vector<detail::NcclComm> comms = make({0, 3});
  for (const Devices& devices : {Devices{"GPU:3", "GPU:0"}, Devices{"GPU:2", "GPU:3"}}) {
    const std::size_t num_calls = emulated_cuda().calls().list().size();
    EXPECT_EQ(thrown<ValueError>([&] { (void)NcclClique::adopt(devices, comms); }),
              "the communicator for " + devices[0].short_name() +
                  " is of CUDA device 0, expected " + devices[0].short_name().substr(4));
    EXPECT_EQ(emulated_cuda().calls().list().size(), num_calls);
  }
  const auto clique = NcclClique::adopt({"GPU:3", "GPU:0"}, {comms[1], comms[0]});
  EXPECT_EQ(clique->rank(0), 1);
  NcclClique::end_adoption(clique->devices());
  destroy(comms);
}

/// Two of one clique and one of another: as many ranks as there should be, but not all of them.
TEST_F(NcclAdoptionTest, RanksOfTwoCliques) {
  const std::vector<detail::NcclComm> comms = make({0, 1, 2});
  const std::vector<detail::NcclComm> others = make({1, 0, 2});
  EXPECT_THAT(
      thrown<ValueError>([&] {
        (void)NcclClique::adopt({"GPU:0", "GPU:1", "GPU:2"}, {comms[0], others[0], comms[2]});
      }),
      HasSubstr("of 3 communicators that are adopted another one has rank 0 of its clique, "
                "expected all ranks of one, 0 to 2"));
  destroy(comms);
  destroy(others);
}

TEST_F(NcclAdoptionTest, WhatCannotBeAdopted) {
  const Devices devices{"GPU:0", "GPU:1"};
  EXPECT_NE(thrown<ValueError>([&] { (void)NcclClique::adopt(devices, {nullptr, nullptr}); }), "");
  EXPECT_NE(thrown<ValueError>([&] { (void)NcclClique::adopt(devices, {}); }), "");
  EXPECT_NE(thrown<ValueError>([&] { NcclClique::end_adoption(devices); }), "");
  (void)NcclClique::of(devices);
  const std::vector<detail::NcclComm> comms = make({0, 1});
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { (void)NcclClique::adopt(devices, comms); }),
              HasSubstr("have NCCL communicators already"));
  EXPECT_NE(thrown<ValueError>([&] { NcclClique::end_adoption(devices); }), "");
  destroy(comms);
}

TEST_F(NcclAdoptionTest, BrokenOnesAreRevokedAndLeftToTheirOwner) {
  const std::vector<detail::NcclComm> comms = make({0, 1});
  const auto clique = NcclClique::adopt({"GPU:0", "GPU:1"}, comms);
  clique->break_with(std::make_exception_ptr(InternalError("enough")));
  ASSERT_TRUE(clique->await_end_of_abort(Deadline::after(testing::kLong)));
  EXPECT_EQ(clique->state(), NcclCliqueState::ABORTED);
  EXPECT_EQ(count("nccl.comm_revoke"), 2U);
  EXPECT_EQ(count("nccl.comm_abort"), 0U);
  EXPECT_EQ(emulated_nccl().num_communicators(), 2U);
  destroy(comms);
}

/// Threads of the library's are inside NCCL with them until then.
TEST_F(NcclAdoptionTest, BrokenOnesAreGivenBackWhenNcclHasComeBackFromThem) {
  const Devices devices{"GPU:0", "GPU:1"};
  const std::vector<detail::NcclComm> comms = make({0, 1});
  const auto clique = NcclClique::adopt(devices, comms);
  inject({.function = "nccl.comm_revoke", .kind = testing::FaultKind::HANG_CALL, .count = 2});
  clique->break_with(std::make_exception_ptr(InternalError("enough")));
  ASSERT_TRUE(emulated_cuda().calls().await_count("nccl.comm_revoke", 2, testing::kLong));
  std::future<void> back =
      std::async(std::launch::async, [&devices] { NcclClique::end_adoption(devices); });
  EXPECT_EQ(back.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  emulated_cuda().calls().release_hangs();
  EXPECT_NO_THROW(back.get());
  EXPECT_EQ(clique->state(), NcclCliqueState::ABORTED);
  destroy(comms);
}

TEST_F(NcclAdoptionTest, ThoseThatNcclDoesNotComeBackFromMustNotBeFreed) {
  const Devices devices{"GPU:0", "GPU:1"};
  const std::vector<detail::NcclComm> comms = make({0, 1});
  const auto clique = NcclClique::adopt(devices, comms);
  inject({.function = "nccl.comm_revoke", .kind = testing::FaultKind::HANG_CALL, .count = 2});
  detail::set_nccl_grace(std::chrono::milliseconds(100));
  clique->break_with(std::make_exception_ptr(InternalError("enough")));
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { NcclClique::end_adoption(devices); }),
              HasSubstr("neither aborted nor destroyed"));
  detail::set_nccl_grace(std::chrono::seconds(10));
  emulated_cuda().calls().release_hangs();
  EXPECT_TRUE(testing::await([&] { return clique->state() == NcclCliqueState::ABORTED; }));
  destroy(comms);
}

}  // namespace
}  // namespace crossdevice
