// SPDX-License-Identifier: Apache-2.0
// Cliques over several workers, which are threads with GPUs of their own.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <latch>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/comm/callback_cluster_resolver.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/device/device.h"

#include "comm/nccl_clique_fixture.h"
#include "support/log_keeper.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using testing::all_reduce;
using ::testing::AllOf;
using testing::await;
using ::testing::Each;
using testing::emulated_cuda;
using testing::emulated_nccl;
using testing::Failure;
using testing::GpuEvent;
using ::testing::HasSubstr;
using testing::kLong;
using testing::Lanes;
using testing::NcclClique;
using testing::NcclCliqueState;
using testing::no_errors;
using ::testing::Not;
using testing::run_clusters;
using testing::thrown;
using testing::watched;
using ClusterPtr = std::shared_ptr<Cluster>;

const bool is_installed = (testing::install_emulated_gpus(8), true);

/// Worker r's GPUs: the next `counts[r]`.
Devices devices_of(const std::vector<int>& counts, int rank) {
  int first = 0;
  for (int r = 0; r < rank; ++r) first += counts[static_cast<std::size_t>(r)];
  std::vector<Device> devices;
  for (int i = 0; i < counts[static_cast<std::size_t>(rank)]; ++i) {
    devices.emplace_back("GPU:" + std::to_string(first + i));
  }
  return Devices(devices);
}

class NcclCliqueAmongTest : public testing::NcclCliqueFixture {
 protected:
  void TearDown() override {
    detail::set_nccl_grace(std::chrono::seconds(10));
    NcclCliqueFixture::TearDown();
  }
};

TEST_F(NcclCliqueAmongTest, RanksFollowTheWorkersAndTheirGpus) {
  for (const std::vector<int>& counts : std::vector<std::vector<int>>{
           {1}, {3}, {1, 1}, {2, 1}, {1, 2, 3}, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
    const std::vector<std::string> errors =
        run_clusters(counts.size(), [&](const ClusterPtr& cluster) {
          const auto clique =
              NcclClique::among(cluster, devices_of(counts, cluster->rank()), meeting_deadline(60));
          int first = 0;
          int all = 0;
          for (std::size_t r = 0; r < counts.size(); ++r) {
            if (static_cast<int>(r) < cluster->rank()) first += counts[r];
            all += counts[r];
          }
          EXPECT_EQ(clique->rank(0), first);
          EXPECT_EQ(clique->num_ranks(), all);
          Lanes lanes(*clique);
          all_reduce(*clique, lanes);
          EXPECT_TRUE(lanes.synchronize());
          EXPECT_TRUE(lanes.have_sums());
          cluster->barrier(60);
        });
    EXPECT_EQ(errors, no_errors(counts.size()));
    // Each worker's go with its clique: destroyed, or aborted where another worker has left before.
    EXPECT_TRUE(await([] {
      return emulated_nccl().num_communicators() == 0 && emulated_nccl().num_unreclaimed() == 0;
    }));
  }
}

TEST_F(NcclCliqueAmongTest, EachIsFinalizedBeforeAnyIsDestroyed) {
  EXPECT_EQ(
      run_clusters(
          1,
          [](const ClusterPtr& cluster) {
            auto clique = NcclClique::among(cluster, {"GPU:0", "GPU:1"}, meeting_deadline(60));
            emulated_cuda().calls().clear();
          }),
      no_errors(1));
  std::vector<std::string> ends;
  for (const testing::EmulatedCall& call : emulated_cuda().calls().list()) {
    if (call.function.substr(0, 5) == "nccl.") ends.emplace_back(call.function.substr(5));
  }
  EXPECT_THAT(ends,
              ::testing::ElementsAre("group_start", "comm_finalize", "comm_finalize", "group_end",
                                     "group_start", "comm_destroy", "comm_destroy", "group_end"));
}

TEST_F(NcclCliqueAmongTest, AnEndThatNeverComesHoldsUpNoDestructor) {
  const testing::LogKeeper log;
  detail::set_nccl_grace(std::chrono::milliseconds(100));
  EXPECT_EQ(
      run_clusters(
          1,
          [](const ClusterPtr& cluster) {
            auto clique = NcclClique::among(cluster, {"GPU:0", "GPU:1"}, meeting_deadline(60));
            inject({.function = "nccl.comm_finalize", .kind = testing::FaultKind::HANG_CALL});
          }),
      no_errors(1));
  EXPECT_THAT(log.texts(), HasSubstr("left to a thread"));
  emulated_cuda().calls().release_hangs();
  EXPECT_TRUE(await([] { return emulated_nccl().num_communicators() == 0; }));
}

TEST_F(NcclCliqueAmongTest, NobodyEntersNcclAlone) {
  const std::vector<std::string> errors = run_clusters(3, [](const ClusterPtr& cluster) {
    const Devices devices =
        cluster->rank() == 1 ? Devices{"GPU:1", "GPU:1"} : devices_of({1, 1, 1}, cluster->rank());
    (void)NcclClique::among(cluster, devices, meeting_deadline(60));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1 "), HasSubstr("are the same GPU"))));
  EXPECT_EQ(count("nccl.comm_init_rank"), 0U);
  EXPECT_EQ(count("nccl.get_unique_id"), 0U);
}

TEST_F(NcclCliqueAmongTest, AnIdThatCannotBeMadeIsEverybodysTrouble) {
  inject({.function = "nccl.get_unique_id", .status = 2});
  const std::vector<std::string> errors = run_clusters(2, [](const ClusterPtr& cluster) {
    (void)NcclClique::among(cluster, devices_of({1, 1}, cluster->rank()), meeting_deadline(60));
  });
  EXPECT_THAT(errors, Each(HasSubstr("ncclGetUniqueId")));
  EXPECT_EQ(count("nccl.comm_init_rank"), 0U);
}

TEST_F(NcclCliqueAmongTest, WhenOneCannotComeInAllHearOfIt) {
  inject({.function = "nccl.comm_init_rank", .skip = 1, .status = 2});
  const std::vector<std::string> errors = run_clusters(2, [](const ClusterPtr& cluster) {
    (void)NcclClique::among(cluster, devices_of({1, 1}, cluster->rank()), meeting_deadline(3));
  });
  EXPECT_THAT(errors, Each(HasSubstr("ncclCommInitRankConfig")));
}

TEST_F(NcclCliqueAmongTest, WhoBreaksItTellsTheOthers) {
  std::latch have_heard(3);  // who leaves earlier is taken for gone by those who have not heard yet
  const std::vector<std::string> errors = run_clusters(3, [&](const ClusterPtr& cluster) {
    const auto clique =
        NcclClique::among(cluster, devices_of({1, 2, 1}, cluster->rank()), meeting_deadline(60));
    Lanes lanes(*clique);
    if (cluster->rank() == 1) {
      clique->break_with(std::make_exception_ptr(InternalError("GPU:1 smells of smoke")));
    } else {
      // Rank 1 never comes; it may have broken the clique before this.
      (void)thrown<OpError>([&] { all_reduce(*clique, lanes); });
    }
    EXPECT_TRUE(await([&] { return clique->state() == NcclCliqueState::ABORTED; }));
    have_heard.arrive_and_wait();
    const std::string said = detail::exception_text(clique->first_error());
    EXPECT_THAT(said, HasSubstr("GPU:1 smells of smoke"));
    if (cluster->rank() != 1) {
      EXPECT_THAT(said, HasSubstr("rank 1 "));
    }
    EXPECT_TRUE(lanes.synchronize());
  });
  EXPECT_EQ(errors, no_errors(3));
  EXPECT_TRUE(await([] { return emulated_nccl().num_communicators() == 0; }));
}

TEST_F(NcclCliqueAmongTest, ADeadlineOnOneWorkerEndsItOnAll) {
  std::latch have_heard(2);
  const std::vector<std::string> errors = run_clusters(2, [&](const ClusterPtr& cluster) {
    const auto clique =
        NcclClique::among(cluster, devices_of({2, 1}, cluster->rank()), meeting_deadline(60));
    cluster->barrier(60);
    Lanes lanes(*clique);
    Failure failure;
    if (cluster->rank() == 0) {
      const GpuEvent start = lanes.record(0);
      all_reduce(*clique, lanes);
      detail::watch(watched(clique, lanes, 4, 0.1, start, failure));
      EXPECT_TRUE(failure.await());
      EXPECT_THAT(failure.text(), HasSubstr("all_reduce #4 (1 value, 3.9 KiB) timed out"));
    }
    EXPECT_TRUE(await([&] { return clique->state() == NcclCliqueState::ABORTED; }));
    have_heard.arrive_and_wait();
    EXPECT_THAT(thrown<OpError>([&] { clique->require_usable(); }), HasSubstr("all_reduce #4"));
    EXPECT_TRUE(lanes.synchronize());
  });
  EXPECT_EQ(errors, no_errors(2));
}

using CliquePtr = std::shared_ptr<NcclClique>;

/// What breaks rank 0's clique of two workers where NCCL tells it, by `report`, that a peer hung up. Rank 1 ends then, or stays until rank 0 has heard.
std::string heard_by_rank_0(bool ends, const std::function<void(const CliquePtr&)>& report,
                            double timeout_seconds = 60) {
  std::latch has_spoken(1);
  std::latch has_heard(1);
  std::string heard;
  const std::vector<std::string> errors = run_clusters(2, [&](const ClusterPtr& cluster) {
    const auto clique =
        NcclClique::among(cluster, devices_of({1, 1}, cluster->rank()), meeting_deadline(60));
    cluster->barrier(60);
    if (cluster->rank() == 1) return (ends ? has_spoken : has_heard).wait();
    const Lanes lanes(*clique);
    Failure failure;
    const GpuEvent start = lanes.record(0);
    all_reduce(*clique, lanes);
    detail::watch(watched(clique, lanes, 3, timeout_seconds, start, failure));
    report(clique);
    has_spoken.count_down();
    EXPECT_TRUE(failure.await());
    heard = failure.text();
    has_heard.count_down();
    EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
  });
  EXPECT_EQ(errors, no_errors(2));
  return heard;
}

void hang_up(const CliquePtr& clique) {
  emulated_nccl().set_async_error(clique->communicator(0), detail::NcclStatus::REMOTE_ERROR,
                                  "the peer hung up");
}

TEST_F(NcclCliqueAmongTest, WhoHasEndedIsNamedAlsoWhereNcclSaysFirstThatSomebodyHas) {
  detail::set_nccl_grace(std::chrono::minutes(2));  // six seconds for the job's news
  EXPECT_THAT(heard_by_rank_0(/*ends=*/true,
                              [](const CliquePtr& clique) {
                                hang_up(clique);
                                EXPECT_EQ(clique->find_async_error(), nullptr);
                              }),
              AllOf(HasSubstr("rank 1 "), HasSubstr("is gone"), HasSubstr("the peer hung up")));
}

TEST_F(NcclCliqueAmongTest, WhatNcclSaysOfAPeerIsSaidAlsoWhereTheTimeIsOverBeforeTheNews) {
  detail::set_nccl_grace(std::chrono::minutes(20));  // a minute
  EXPECT_THAT(heard_by_rank_0(/*ends=*/false, hang_up, 1),
              AllOf(HasSubstr("all_reduce #3"), HasSubstr("the peer hung up"),
                    Not(HasSubstr("timed out"))));
}

TEST_F(NcclCliqueAmongTest, WhatNcclSaysOfAPeerIsSaidWhereTheJobMissesNobody) {
  detail::set_nccl_grace(std::chrono::seconds(2));  // a tenth of a second
  EXPECT_THAT(heard_by_rank_0(/*ends=*/false, hang_up),
              AllOf(HasSubstr("all_reduce #3"), HasSubstr("the peer hung up")));
}

class NcclCliqueAmongRefusalTest : public NcclCliqueAmongTest,
                                   public ::testing::WithParamInterface<const char*> {};

/// Behind a launch of rank 0's, of two workers, that NCCL refuses because of others, rank 1 ends, or stays until rank 0 has heard.
void refuse_launch(const std::string& function, bool ends, const std::vector<std::string>& texts) {
  std::latch has_heard(1);
  const std::vector<std::string> errors = run_clusters(2, [&](const ClusterPtr& cluster) {
    const auto clique =
        NcclClique::among(cluster, devices_of({1, 1}, cluster->rank()), meeting_deadline(60));
    cluster->barrier(60);
    if (cluster->rank() == 0) emulated_cuda().calls().clear();
    cluster->barrier(60);
    if (cluster->rank() == 1) {
      if (!ends) return has_heard.wait();
      EXPECT_TRUE(emulated_cuda().calls().await_count(function, 1, kLong));
      return;
    }
    const Lanes lanes(*clique);
    emulated_cuda().calls().inject(
        {.function = function, .status = static_cast<int>(detail::NcclStatus::REMOTE_ERROR)});
    const std::string heard = thrown<UnavailableError>([&] { all_reduce(*clique, lanes); });
    for (const std::string& text : texts) EXPECT_THAT(heard, HasSubstr(text));
    has_heard.count_down();
    EXPECT_TRUE(!ends || clique->await_end_of_abort(Deadline::after(kLong)));
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_P(NcclCliqueAmongRefusalTest, NamesWhoHasEnded) {
  detail::set_nccl_grace(std::chrono::minutes(2));
  refuse_launch(GetParam(), /*ends=*/true, {"rank 1 ", "is gone"});
}

TEST_P(NcclCliqueAmongRefusalTest, HasNcclsWordsWhereTheJobMissesNobody) {
  detail::set_nccl_grace(std::chrono::seconds(2));
  refuse_launch(GetParam(), /*ends=*/false, {"remote process exited"});
}

INSTANTIATE_TEST_SUITE_P(Of, NcclCliqueAmongRefusalTest,
                         ::testing::Values("nccl.all_reduce", "nccl.group_end"),
                         [](const auto& test) { return std::string(test.param).substr(5); });

TEST_F(NcclCliqueAmongTest, WhoGivesTheJobUpEndsIt) {
  std::latch have_heard(2);
  const std::vector<std::string> errors = run_clusters(2, [&](const ClusterPtr& cluster) {
    const auto clique =
        NcclClique::among(cluster, devices_of({1, 1}, cluster->rank()), meeting_deadline(60));
    cluster->barrier(60);  // nobody is still on its way here
    if (cluster->rank() == 0) cluster->abort_collective_ops("bad data");
    EXPECT_TRUE(await([&] { return clique->state() == NcclCliqueState::ABORTED; }));
    have_heard.arrive_and_wait();
    EXPECT_THAT(thrown<AbortedError>([&] { clique->require_usable(); }),
                AllOf(HasSubstr("rank 0 "), HasSubstr("has given up: bad data")));
  });
  EXPECT_EQ(errors, no_errors(2));
}

/// The watchdog has the last of a clique whose operation ends after everything else has gone: it must not say the job's goodbye, which waits for the others.
TEST_F(NcclCliqueAmongTest, AGoodbyeThatWaitsHoldsUpNobodysDeadline) {
  constexpr std::size_t kNumWorkers = 2;
  testing::ThreadedAllGather gather(kNumWorkers);
  std::latch is_told(1);
  EXPECT_EQ(testing::run_ranks(
                kNumWorkers,
                [&](std::size_t rank) {
                  const CallbackClusterResolver resolver(
                      static_cast<int>(rank), static_cast<int>(kNumWorkers),
                      [&](std::span<const std::byte> mine, std::span<std::byte> all) {
                        gather(rank, mine, all);
                      });
                  std::shared_ptr<Cluster> cluster =
                      Cluster::join(resolver, {.timeout_seconds = 60});
                  auto clique = NcclClique::among(cluster, devices_of({1, 1}, cluster->rank()),
                                                  meeting_deadline(60));
                  if (rank == 1) {
                    is_told.wait();
                    return;
                  }
                  std::atomic<std::uint64_t> over{0};
                  detail::watch({.record = {.kind = "all_reduce"},
                                 .clique = clique,
                                 .launches_over = &over,
                                 .launch = 1});
                  clique.reset();
                  cluster.reset();
                  over.store(1);
                  Failure failure;
                  const auto begin = std::chrono::steady_clock::now();
                  detail::watch({.record = {.kind = "broadcast"},
                                 .timeout_seconds = 0.5,
                                 .failed = failure.callback(),
                                 .launches_over = &over,
                                 .launch = 2});
                  EXPECT_TRUE(failure.await(kLong));
                  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
                  is_told.count_down();
                }),
            no_errors(kNumWorkers));
}

}  // namespace
}  // namespace crossdevice
