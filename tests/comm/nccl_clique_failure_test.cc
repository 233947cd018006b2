// SPDX-License-Identifier: Apache-2.0
// What breaks cliques, how that is said, and how their communicators end; over emulated GPUs.
#include <algorithm>
#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "crossdevice/comm/flight_record.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/shutdown.h"

#include "comm/nccl_clique_fixture.h"
#include "support/log_keeper.h"

namespace crossdevice {
namespace {

using testing::all_reduce;
using ::testing::AllOf;
using testing::await;
using testing::emulated_cuda;
using testing::emulated_nccl;
using ::testing::EndsWith;
using testing::Failure;
using testing::FaultKind;
using testing::GpuEvent;
using ::testing::HasSubstr;
using testing::kLong;
using testing::Lanes;
using testing::NcclClique;
using testing::NcclCliqueState;
using testing::NcclStatus;
using ::testing::StartsWith;
using testing::thrown;
using testing::watched;

const bool kIsInstalled = (testing::install_emulated_gpus(4), true);

const Devices kThree{"GPU:0", "GPU:1", "GPU:2"};
/// For what comes soon, where it comes at all.
constexpr std::chrono::seconds kLimit{5};

std::exception_ptr error(const std::string& text) {
  return std::make_exception_ptr(InternalError(text));
}

class NcclCliqueFailureTest : public testing::NcclCliqueFixture {
 protected:
  void TearDown() override {
    detail::set_nccl_grace(std::chrono::seconds(10));
    NcclCliqueFixture::TearDown();
  }
  /// Until the watchdog has looked at everything; leaves one operation on record.
  static bool await_look() {
    detail::watch({.record = {.kind = "nothing", .sequence = 99}});
    return await([] {
      const FlightEntry last = flight_record().back();
      return last.operation.sequence == 99 && last.state == FlightState::COMPLETED;
    });
  }
  static bool await_state(const NcclClique& clique, NcclCliqueState state) {
    return await([&] { return clique.state() == state; });
  }
};

// ---------------------------------------------------------------------------------------------- breaking

TEST_F(NcclCliqueFailureTest, TheFirstErrorCountsAndIsThrownOnce) {
  const auto clique = NcclClique::of(kThree);
  clique->break_with(error("the first"));
  clique->break_with(error("the second"));
  EXPECT_EQ(thrown<InternalError>([&] { clique->require_usable(); }), "the first");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(thrown<FailedPreconditionError>([&] { clique->require_usable(); }),
              "NCCL's communicators of [GPU:0, GPU:1, GPU:2] are broken since the first");
  }
  EXPECT_NE(thrown<FailedPreconditionError>([&] { const NcclClique::Launch launch(*clique); }), "");
  EXPECT_EQ(detail::exception_text(clique->first_error()), "the first");
}

TEST_F(NcclCliqueFailureTest, ANewOneIsMadeOnRequest) {
  const auto broken = NcclClique::of(kThree);
  broken->break_with(error("enough"));
  const auto next = NcclClique::of(kThree);
  EXPECT_NE(next, broken);
  EXPECT_EQ(broken->state(), NcclCliqueState::ABORTED);  // it was waited for
  Lanes lanes(*next);
  all_reduce(*next, lanes);
  ASSERT_TRUE(lanes.synchronize());
  EXPECT_TRUE(lanes.have_sums());
}

TEST_F(NcclCliqueFailureTest, ManyThreadsMayBreakIt) {
  const auto clique = NcclClique::of(kThree);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] { clique->break_with(error("one of four")); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
  EXPECT_EQ(count("nccl.comm_abort"), 3U);
  EXPECT_EQ(emulated_nccl().num_communicators(), 0U);
  EXPECT_EQ(emulated_nccl().num_unreclaimed(), 0U);
}

TEST_F(NcclCliqueFailureTest, ARefusedCallIsTheCallersFaultAlone) {
  const auto clique = NcclClique::of(kThree);
  Lanes lanes(*clique);
  inject({.function = "nccl.all_reduce",
          .skip = 1,
          .status = static_cast<int>(NcclStatus::INVALID_ARGUMENT)});
  EXPECT_THAT(thrown<InternalError>([&] { all_reduce(*clique, lanes); }),
              StartsWith("ncclAllReduce: "));
  // Whether NCCL forgets the first rank's call then is NCCL's to say: where it does not, the clique breaks.
  if (clique->state() != NcclCliqueState::WHOLE) {
    EXPECT_NE(thrown([&] { clique->require_usable(); }), "");
    EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
    return;
  }
  all_reduce(*clique, lanes);
  ASSERT_TRUE(lanes.synchronize());
  EXPECT_TRUE(lanes.have_sums());
}

TEST_F(NcclCliqueFailureTest, ALaunchGivenUpHalfWayBreaksIt) {
  const auto clique = NcclClique::of(kThree);
  Lanes lanes(*clique);
  { const NcclClique::Launch nothing_called(*clique); }
  EXPECT_EQ(clique->state(), NcclCliqueState::WHOLE);
  {
    NcclClique::Launch launch(*clique);
    launch.require(clique->api().all_reduce(lanes.buffer(0), lanes.buffer(0), 1,
                                            testing::NcclDataType::FLOAT32, testing::NcclRedOp::SUM,
                                            clique->communicator(0), lanes.stream(0)),
                   "ncclAllReduce");
  }
  EXPECT_THAT(thrown<AbortedError>([&] { clique->require_usable(); }), HasSubstr("half way"));
  EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
  EXPECT_TRUE(lanes.synchronize());
}

TEST_F(NcclCliqueFailureTest, ALaunchThatFailsBreaksItWithNcclsText) {
  const auto clique = NcclClique::of(kThree);
  Lanes lanes(*clique);
  inject({.function = "nccl.group_end", .status = static_cast<int>(NcclStatus::SYSTEM_ERROR)});
  EXPECT_THAT(thrown<UnavailableError>([&] { all_reduce(*clique, lanes); }),
              AllOf(StartsWith("ncclGroupEnd: "),
                    HasSubstr(emulated_nccl().error_text(NcclStatus::SYSTEM_ERROR))));
  EXPECT_NE(thrown<FailedPreconditionError>([&] { clique->require_usable(); }), "");
}

// ---------------------------------------------------------------------------------------------- operations

TEST_F(NcclCliqueFailureTest, ARankThatWasNeverLaunchedIsFoundByTheDeadline) {
  const auto clique = NcclClique::of(kThree);
  Lanes lanes(*clique);
  Failure failure;
  const GpuEvent start = lanes.record(0);
  all_reduce(*clique, lanes, 2);
  detail::watch(watched(clique, lanes, 3, 0.1, start, failure));
  ASSERT_TRUE(failure.await());
  EXPECT_EQ(failure.text(),
            "all_reduce #3 (1 value, 3.9 KiB) timed out after 0.1 s: waiting for GPU:0, GPU:1");
  EXPECT_THAT(thrown<DeadlineExceededError>([&] { clique->require_usable(); }),
              HasSubstr("all_reduce #3"));
  EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
  // The kernels have left, and the streams go on.
  EXPECT_TRUE(lanes.synchronize());
  EXPECT_EQ(emulated_nccl().num_communicators(), 0U);
  const auto next = NcclClique::of(kThree);
  Lanes others(*next);
  all_reduce(*next, others);
  ASSERT_TRUE(others.synchronize());
  EXPECT_TRUE(others.have_sums());
}

TEST_F(NcclCliqueFailureTest, WithItFailsEverythingThatIsWatchedOnIt) {
  const auto clique = NcclClique::of(kThree);
  Lanes lanes(*clique);
  Failure first;
  Failure second;
  const GpuEvent start = lanes.record(0);
  all_reduce(*clique, lanes, 2);
  detail::watch(watched(clique, lanes, 1, 0.1, start, first));
  detail::watch(watched(clique, lanes, 2, std::nullopt, start, second));
  ASSERT_TRUE(first.await());
  ASSERT_TRUE(second.await());
  EXPECT_THAT(second.text(), HasSubstr("all_reduce #1"));
  EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
  EXPECT_EQ(first.count(), 1);
  EXPECT_EQ(second.count(), 1);
  for (const FlightEntry& each : flight_record()) EXPECT_EQ(each.state, FlightState::FAILED);
}

TEST_F(NcclCliqueFailureTest, WhatBreaksItElsewhereReachesWhatIsWatched) {
  const auto clique = NcclClique::of(kThree);
  Lanes lanes(*clique);
  Failure failure;
  const GpuEvent start = lanes.record(0);
  all_reduce(*clique, lanes, 1);
  detail::watch(watched(clique, lanes, 1, std::nullopt, start, failure));
  clique->break_with(error("a peer is gone"));
  ASSERT_TRUE(failure.await());
  EXPECT_EQ(failure.text(), "a peer is gone");
  EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
}

TEST_F(NcclCliqueFailureTest, NcclsAsyncErrorIsTheOperationsFailure) {
  const auto clique = NcclClique::of(kThree);
  Lanes lanes(*clique);
  Failure failure;
  const GpuEvent start = lanes.record(0);
  all_reduce(*clique, lanes, 2);
  detail::watch(watched(clique, lanes, 8, 60, start, failure));
  emulated_nccl().set_async_error(clique->communicator(1), NcclStatus::REMOTE_ERROR,
                                  "the peer hung up");
  ASSERT_TRUE(failure.await());
  EXPECT_THAT(failure.text(), AllOf(StartsWith("all_reduce #8 (1 value, 3.9 KiB): NCCL on GPU:1: "),
                                    HasSubstr("the peer hung up")));
  EXPECT_NE(thrown<UnavailableError>([&] { std::rethrow_exception(failure.error()); }), "");
  EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
}

class NcclCliqueBlockedStreamTest : public NcclCliqueFailureTest,
                                    public ::testing::WithParamInterface<int> {};

TEST_P(NcclCliqueBlockedStreamTest, KeepsTheAbortFromComingBackAndFreesTheOthers) {
  const int blocked = GetParam();
  const Devices with_it{kThree[static_cast<std::size_t>(blocked)], "GPU:3"};
  const testing::LogKeeper log;
  detail::set_nccl_grace(std::chrono::milliseconds(200));
  const auto clique = NcclClique::of(kThree);
  Lanes lanes(*clique);
  Failure failure;
  const GpuEvent start = lanes.record(0);
  emulated_cuda().block_stream(lanes.stream(blocked));
  all_reduce(*clique, lanes);
  detail::watch(watched(clique, lanes, 1, 0.1, start, failure));
  ASSERT_TRUE(failure.await());
  EXPECT_THAT(failure.text(), HasSubstr("waiting for GPU:0, GPU:1, GPU:2"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(i == blocked || emulated_cuda().synchronize(lanes.stream(i), kLimit)) << i;
  }
  ASSERT_TRUE(await_state(*clique, NcclCliqueState::ABORT_INCOMPLETE));
  EXPECT_TRUE(log.await("has not come back within 0.2 s", Deadline::after(kLong)));
  EXPECT_THAT(log.texts(), HasSubstr("only the process's end is safe"));
  EXPECT_NE(thrown<DeadlineExceededError>([&] { clique->require_usable(); }), "");
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { clique->require_usable(); }),
              HasSubstr("only the process's end is safe"));
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { (void)NcclClique::of(with_it); }),
              HasSubstr("only the process's end is safe"));
  EXPECT_EQ(NcclClique::of({"GPU:3"})->size(), 1);  // has no part in it
  // When the user's kernel ends after all, so does the abort, and the GPU can be used again.
  emulated_cuda().release_stream(lanes.stream(blocked));
  ASSERT_TRUE(await_state(*clique, NcclCliqueState::ABORTED));
  EXPECT_TRUE(log.await("came back late", Deadline::after(kLong)));
  EXPECT_EQ(NcclClique::of(with_it)->size(), 2);
}

INSTANTIATE_TEST_SUITE_P(OfEachRank, NcclCliqueBlockedStreamTest, ::testing::Values(0, 1, 2));

// ---------------------------------------------------------------------------------------------- aborts

TEST_F(NcclCliqueFailureTest, AnAbortThatNeverReturnsHoldsUpNobody) {
  const testing::LogKeeper log;
  detail::set_nccl_grace(std::chrono::milliseconds(100));
  const auto clique = NcclClique::of(kThree);
  inject({.function = "nccl.comm_abort", .kind = FaultKind::HANG_CALL});
  clique->break_with(error("enough"));
  ASSERT_TRUE(await_state(*clique, NcclCliqueState::ABORT_INCOMPLETE));
  EXPECT_THAT(thrown<FailedPreconditionError>([] { (void)NcclClique::of(kThree); }),
              HasSubstr("CUDA device 0 has not come"));
  emulated_cuda().calls().release_hangs();
  ASSERT_TRUE(await_state(*clique, NcclCliqueState::ABORTED));
  EXPECT_EQ(NcclClique::of(kThree)->size(), 3);
}

std::vector<std::string> ends_in_log() {
  std::vector<std::string> names;
  for (const testing::EmulatedCall& call : emulated_cuda().calls().list()) {
    const std::string name(call.function);
    if (name == "nccl.comm_revoke" || name == "nccl.comm_abort" || name == "nccl.comm_finalize" ||
        name == "nccl.comm_destroy" || name == "nccl.group_start" || name == "nccl.group_end") {
      names.push_back(name.substr(5));
    }
  }
  return names;
}

TEST_F(NcclCliqueFailureTest, EachIsRevokedThenAllAreAbortedInOneGroup) {
  const auto clique = NcclClique::of({"GPU:0", "GPU:1"});
  emulated_cuda().calls().clear();
  clique->break_with(error("enough"));
  ASSERT_TRUE(await_state(*clique, NcclCliqueState::ABORTED));
  EXPECT_THAT(ends_in_log(), ::testing::ElementsAre("comm_revoke", "comm_revoke", "group_start",
                                                    "comm_abort", "comm_abort", "group_end"));
}

TEST_F(NcclCliqueFailureTest, BeforeRevokeThereIsTheGroupAlone) {
  emulated_nccl().set_version(22200);
  const auto clique = NcclClique::of({"GPU:0", "GPU:1"});
  emulated_cuda().calls().clear();
  clique->break_with(error("enough"));
  ASSERT_TRUE(await_state(*clique, NcclCliqueState::ABORTED));
  EXPECT_THAT(ends_in_log(),
              ::testing::ElementsAre("group_start", "comm_abort", "comm_abort", "group_end"));
}

TEST_F(NcclCliqueFailureTest, BeforeThatEachHasItsThread) {
  emulated_nccl().set_version(21400);
  const auto clique = NcclClique::of(kThree);
  emulated_cuda().calls().clear();
  // One that waits for another must not keep that from coming.
  inject({.function = "nccl.comm_abort", .kind = FaultKind::HANG_CALL});
  clique->break_with(error("enough"));
  EXPECT_TRUE(emulated_cuda().calls().await_count("nccl.comm_abort", 3, kLong));
  EXPECT_EQ(clique->state(), NcclCliqueState::BROKEN);
  emulated_cuda().calls().release_hangs();
  ASSERT_TRUE(await_state(*clique, NcclCliqueState::ABORTED));
  EXPECT_EQ(count("nccl.comm_revoke"), 0U);
}

TEST_F(NcclCliqueFailureTest, WhoIsStuckInALaunchComesOutAndHearsWhy) {
  const auto clique = NcclClique::of(kThree);
  Lanes lanes(*clique);
  emulated_cuda().calls().clear();
  inject({.function = "nccl.group_end",
          .kind = FaultKind::DELAY_CALL,
          .delay = std::chrono::seconds(2)});
  std::string said;
  std::thread launcher([&] { said = thrown([&] { all_reduce(*clique, lanes, 2); }); });
  ASSERT_TRUE(emulated_cuda().calls().await_count("nccl.all_reduce", 2, kLong));
  clique->break_with(error("a peer is gone"));
  launcher.join();
  EXPECT_EQ(said, "a peer is gone");
  ASSERT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
  EXPECT_EQ(emulated_nccl().num_communicators(), 0U);
}

TEST_F(NcclCliqueFailureTest, WhoCallsWhatHasBeenRevokedHearsWhy) {
  const auto clique = NcclClique::of(kThree);
  Lanes lanes(*clique);
  {
    NcclClique::Launch launch(*clique);
    clique->break_with(error("a peer is gone"));
    ASSERT_TRUE(emulated_cuda().calls().await_count("nccl.comm_revoke", 3, kLong));
    const NcclStatus status = clique->api().all_reduce(
        lanes.buffer(0), lanes.buffer(0), 1, testing::NcclDataType::FLOAT32,
        testing::NcclRedOp::SUM, clique->communicator(0), lanes.stream(0));
    EXPECT_EQ(status, NcclStatus::INVALID_USAGE);
    EXPECT_EQ(thrown<InternalError>([&] { launch.require(status, "ncclAllReduce"); }),
              "a peer is gone");
  }
  EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
}

TEST_F(NcclCliqueFailureTest, ALaunchThatDoesNotComeBackHasADeadline) {
  detail::set_nccl_grace(std::chrono::milliseconds(200));
  const auto clique = NcclClique::of(kThree);
  Lanes lanes(*clique);
  inject({.function = "nccl.group_end", .kind = FaultKind::HANG_CALL});
  std::string said;
  std::thread launcher([&] {
    said = thrown<DeadlineExceededError>([&] {
      NcclClique::Launch launch(
          *clique,
          {.operation = {.kind = "all_reduce", .sequence = 6, .num_values = 1, .size_bytes = 4096},
           .timeout_seconds = 0.05});
      launch.end();
    });
  });
  ASSERT_TRUE(await_state(*clique, NcclCliqueState::ABORTED));
  emulated_cuda().calls().release_hangs();
  launcher.join();
  EXPECT_THAT(said,
              AllOf(StartsWith("all_reduce #6 (1 value, "),
                    HasSubstr("(launch) timed out after 0.05 s: waiting for NCCL to launch it")));
  const FlightEntry last = flight_record().back();
  EXPECT_EQ(last.state, FlightState::FAILED);
  EXPECT_EQ(last.detail, "(launch)");
  // The operation's bytes are not the launch's, of which nothing was said.
  EXPECT_EQ(last.operation.size_bytes, 4096U);
  EXPECT_EQ(last.size_bytes, 0U);
  EXPECT_EQ(last.dtype, std::nullopt);
  EXPECT_GE(last.ended_ns - last.enqueued_ns, 50'000'000);
}

/// When it is asked it breaks the clique with `verdict`, if that is not empty, and says `knows_more`.
class Witness : public detail::StallWitness {
 public:
  Witness(NcclClique& clique, std::string verdict, bool knows_more)
      : clique_(clique), verdict_(std::move(verdict)), knows_more_(knows_more) {}
  bool ask_who_is_missing(const OperationRecord& late, bool inputs_intact,
                          const std::string& text) override {
    EXPECT_EQ(late.sequence, 12U);
    EXPECT_FALSE(inputs_intact);
    EXPECT_THAT(text, AllOf(StartsWith("all_reduce #12 (1 value, "), EndsWith(" after 0.05 s")));
    ++num_asked;
    if (!verdict_.empty()) clique_.break_with(error(verdict_));
    return knows_more_;
  }
  std::atomic<int> num_asked{0};

 private:
  NcclClique& clique_;
  std::string verdict_;
  bool knows_more_;
};

/// What an operation fails with.
void ask_witness(const std::string& verdict, bool knows_more, const std::string& heard) {
  const auto clique = NcclClique::of(kThree);
  Lanes lanes(*clique);
  const auto witness = std::make_shared<Witness>(*clique, verdict, knows_more);
  clique->set_witness(witness);
  Failure failure;
  const GpuEvent start = lanes.record(0);
  all_reduce(*clique, lanes, 2);  // GPU:2 never comes
  detail::watch(watched(clique, lanes, 12, 0.05, start, failure));
  ASSERT_TRUE(failure.await());
  EXPECT_THAT(failure.text(), HasSubstr(heard));
  EXPECT_GE(witness->num_asked.load(), 1);
  EXPECT_EQ(flight_record().back().error, failure.text());
  ASSERT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
}

TEST_F(NcclCliqueFailureTest, WhoMayKnowWhoIsMissingIsAskedAndNotWaitedForWithoutEnd) {
  ask_witness("rank 1 is", true, "rank 1 is");
  ask_witness("", true, "waiting for GPU:0");
}

/// Then the witness has nothing more to say.
TEST_F(NcclCliqueFailureTest, AVerdictThatComesWhileItIsAskedForIsTheOperationsFailure) {
  ask_witness("rank 1 is", false, "rank 1 is");
}

TEST_F(NcclCliqueFailureTest, ALaunchInTimeIsNoFailureAndIsNotRecorded) {
  const auto clique = NcclClique::of(kThree);
  Lanes lanes(*clique);
  const std::size_t num_records = flight_record().size();
  for (int i = 0; i < 3; ++i) {
    NcclClique::Launch launch(
        *clique, {.operation = {.kind = "all_reduce", .sequence = 1}, .timeout_seconds = 30});
    launch.end();
  }
  EXPECT_TRUE(await_look());
  EXPECT_EQ(clique->state(), NcclCliqueState::WHOLE);
  EXPECT_EQ(flight_record().size(), num_records + 1);
}

TEST_F(NcclCliqueFailureTest, LaunchesThatCameBackHaveNotFailedWhateverComesLater) {
  const auto clique = NcclClique::of(kThree);
  const std::size_t num_records = flight_record().size();
  for (int i = 0; i < 100; ++i) {
    NcclClique::Launch launch(
        *clique, {.operation = {.kind = "all_reduce", .sequence = 1}, .timeout_seconds = 30});
    launch.end();
  }
  clique->break_with(error("a peer is gone"));
  EXPECT_TRUE(await_look());
  EXPECT_EQ(flight_record().size(), num_records + 1);
}

TEST_F(NcclCliqueFailureTest, WhoWaitsForAnotherLaunchHasADeadline) {
  const auto first = NcclClique::of(kThree);
  const auto second = NcclClique::of({"GPU:2", "GPU:1"});
  std::latch has_begun(1);
  std::latch has_waited(1);
  std::thread launcher([&] {
    NcclClique::Launch launch(*first);
    has_begun.count_down();
    has_waited.wait();
    launch.end();
  });
  has_begun.wait();
  const std::string said = thrown<DeadlineExceededError>([&] {
    const NcclClique::Launch launch(
        *second, {.operation = {.kind = "all_reduce", .sequence = 3, .num_values = 1},
                  .timeout_seconds = 0.05});
  });
  EXPECT_THAT(said,
              AllOf(StartsWith("all_reduce #3 (1 value, "),
                    HasSubstr("timed out after 1.05 s: another launch has not come to its end "
                              "on CUDA device 1")));
  has_waited.count_down();
  launcher.join();
  // No lock is left behind, and nothing is broken.
  for (const auto& clique : {first, second}) {
    EXPECT_EQ(clique->state(), NcclCliqueState::WHOLE);
    NcclClique::Launch launch(
        *clique, {.operation = {.kind = "all_reduce", .sequence = 4}, .timeout_seconds = 30});
    launch.end();
  }
}

TEST_F(NcclCliqueFailureTest, AnAbortMayWaitForAnotherCliquesKernel) {
  detail::set_nccl_grace(std::chrono::milliseconds(200));
  emulated_nccl().set_abort_waits_for_device(true);
  emulated_nccl().set_exclusive_devices(false);
  const auto first = NcclClique::of({"GPU:0", "GPU:1"});
  const auto second = NcclClique::of({"GPU:1", "GPU:2"});
  Lanes first_lanes(*first);
  Lanes second_lanes(*second);
  all_reduce(*first, first_lanes, 1);    // GPU:1 never comes
  all_reduce(*second, second_lanes, 1);  // GPU:2 never comes
  first->break_with(error("enough"));
  ASSERT_TRUE(await_state(*first, NcclCliqueState::ABORT_INCOMPLETE));
  // The other's abort lets both go.
  second->break_with(error("enough of this too"));
  ASSERT_TRUE(await_state(*second, NcclCliqueState::ABORTED));
  ASSERT_TRUE(await_state(*first, NcclCliqueState::ABORTED));
  EXPECT_EQ(NcclClique::of(kThree)->size(), 3);
}

TEST_F(NcclCliqueFailureTest, ShutdownEndsWhatNobodyHolds) {
  const auto held = NcclClique::of({"GPU:3"});
  {
    NcclClique::Launch launch(
        *NcclClique::of(kThree),
        {.operation = {.kind = "all_reduce", .sequence = 1}, .timeout_seconds = 30});
    launch.end();
  }
  emulated_cuda().calls().clear();
  shutdown();
  EXPECT_EQ(count("nccl.comm_finalize"), 3U);
  EXPECT_EQ(count("nccl.comm_destroy"), 3U);
  EXPECT_EQ(count("nccl.comm_abort"), 0U);
  EXPECT_EQ(emulated_nccl().num_communicators(), 1U);
  EXPECT_EQ(held->state(), NcclCliqueState::WHOLE);
}

TEST_F(NcclCliqueFailureTest, ShutdownWaitsForAnAbortThatIsUnderWay) {
  const auto clique = NcclClique::of(kThree);
  inject({.function = "nccl.comm_abort",
          .kind = FaultKind::DELAY_CALL,
          .delay = std::chrono::milliseconds(100)});
  clique->break_with(error("enough"));
  shutdown();
  EXPECT_EQ(clique->state(), NcclCliqueState::ABORTED);
}

TEST_F(NcclCliqueFailureTest, ShutdownWaitsForNoAbortThatDoesNotComeBack) {
  const testing::LogKeeper log;
  detail::set_nccl_grace(std::chrono::milliseconds(100));
  const auto clique = NcclClique::of(kThree);
  inject({.function = "nccl.comm_abort", .kind = FaultKind::HANG_CALL});
  clique->break_with(error("enough"));
  shutdown();
  EXPECT_NE(clique->state(), NcclCliqueState::ABORTED);
  emulated_cuda().calls().release_hangs();
  EXPECT_TRUE(await_state(*clique, NcclCliqueState::ABORTED));
}

}  // namespace
}  // namespace crossdevice
