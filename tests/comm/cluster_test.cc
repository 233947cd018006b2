// SPDX-License-Identifier: Apache-2.0
// Workers are processes: this program starts itself once per rank, with the name of what the worker is to do.
#include "crossdevice/comm/cluster.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/comm/environment_cluster_resolver.h"
#include "crossdevice/comm/reserved_port.h"
#include "crossdevice/comm/slurm_cluster_resolver.h"

#include "comm/environment_map.h"
#include "support/log_keeper.h"
#include "support/threaded_cluster.h"
#include "support/without_descriptors.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

/// 0 when `call` throws an Error whose text has `text` and that blames exactly `culprit`; says what came otherwise.
template <class Error, class Call>
int expect_error(const std::string& text, int culprit, Call call) {
  try {
    call();
    std::cerr << "no error\n";
  } catch (const Error& error) {
    const bool blames = error.culprits().size() == 1 && error.culprits()[0].rank == culprit;
    if (std::string(error.what()).find(text) != std::string::npos && blames) return 0;
    std::cerr << "unexpected: " << error.what() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "another kind of error: " << error.what() << '\n';
  }
  return 1;
}

int meet(Cluster& cluster) {
  for (int round = 0; round < 50; ++round) {
    cluster.barrier();
    const std::string text = cluster.broadcast_bytes(
        "from " + std::to_string(cluster.rank()) + " in " + std::to_string(round),
        round % cluster.num_workers());
    if (text !=
        "from " + std::to_string(round % cluster.num_workers()) + " in " + std::to_string(round)) {
      return 2;
    }
    const std::vector<std::string> all =
        cluster.all_gather_bytes(std::string(static_cast<std::size_t>(cluster.rank()), 'x'));
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank] != std::string(rank, 'x')) return 3;
    }
  }
  // All are on this machine.
  if (cluster.local_rank() != cluster.rank()) return 4;
  if (cluster.num_local_workers() != cluster.num_workers()) return 5;
  return cluster.worker(cluster.rank()).pid == ::getpid() ? 0 : 6;
}

/// Who waits without a deadline hears who is missing when another thread gives the round up.
int give_up(Cluster& cluster) {
  cluster.give_up_round("nobody is in one");
  cluster.barrier(60);
  const std::shared_ptr<Cluster> all = cluster.subgroup({0, 1, 2});
  if (cluster.rank() == 2) {
    cluster.barrier(60);
    return 0;
  }
  std::atomic<bool> has_ended{false};
  std::thread impatient([&] {
    if (cluster.rank() != 0) return;
    std::this_thread::sleep_for(std::chrono::seconds(3));  // rank 1 is in it, too
    while (!has_ended.load()) {
      all->give_up_round("all_reduce #12 timed out after 5 s");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const int result = expect_error<DeadlineExceededError>(
      "all_reduce #12 timed out after 5 s: waiting for rank 2 (", 2,
      [&] { (void)all->all_gather_bytes("x"); });
  has_ended.store(true);
  impatient.join();
  cluster.barrier(60);
  return result;
}

int split(Cluster& cluster) {
  std::vector<int> mine;
  for (int rank = cluster.num_workers() - 1; rank >= 0; --rank) {
    if (rank % 2 == cluster.rank() % 2) mine.push_back(rank);
  }
  const std::shared_ptr<Cluster> half = cluster.subgroup(mine);
  if (half->num_workers() != static_cast<int>(mine.size())) return 1;
  if (mine[static_cast<std::size_t>(half->rank())] != cluster.rank()) return 2;
  const std::vector<std::string> ranks = half->all_gather_bytes(std::to_string(cluster.rank()));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] != std::to_string(mine[i])) return 3;
  }
  // Whoever is not in it may call it or not, and gets nothing.
  const std::vector<int> others =
      cluster.rank() % 2 == 0 ? std::vector<int>{1} : std::vector<int>{0};
  if (cluster.rank() > 1 && cluster.subgroup(others) != nullptr) return 5;
  const std::shared_ptr<Cluster> again = cluster.subgroup(mine);
  if (again->id() == half->id()) return 4;
  again->barrier();
  cluster.barrier();
  return 0;
}

/// The worker of that rank ends without a word in the middle.
int lose(Cluster& cluster, int victim) {
  cluster.barrier();
  if (cluster.rank() == victim) ::kill(::getpid(), SIGKILL);
  return expect_error<UnavailableError>("is gone", victim, [&] { cluster.barrier(); });
}

/// It is stopped, so its connection stays.
int silence(Cluster& cluster, int victim) {
  cluster.barrier();
  if (cluster.rank() == victim) ::kill(::getpid(), SIGSTOP);
  return expect_error<UnavailableError>("no heartbeat for 3 s", victim, [&] { cluster.barrier(); });
}

int be_late(Cluster& cluster) {
  const std::shared_ptr<Cluster> afterwards = cluster.subgroup({0, 1, 2});
  cluster.barrier();
  if (cluster.rank() == 1) {
    cluster.set_operation("reading data");
    afterwards->barrier();
    // The others have given up, which breaks the cluster.
    try {
      cluster.barrier();
    } catch (const DeadlineExceededError&) {
      return 0;
    }
    return 1;
  }
  const int result = expect_error<DeadlineExceededError>(" s: waiting for rank 1 (", 1,
                                                         [&] { cluster.barrier(4); });
  afterwards->barrier();
  return result;
}

int differ(Cluster& cluster) {
  try {
    if (cluster.rank() == 0) {
      cluster.barrier();
    } else {
      (void)cluster.broadcast_bytes("", 0);
    }
  } catch (const InternalError& error) {
    const std::string text = error.what();
    return text.find("rank 0 barrier #1") != std::string::npos ||
                   text.find("rank 1 broadcast_bytes from rank 0 #1") != std::string::npos
               ? 0
               : 1;
  }
  return 2;
}

int fork_off(Cluster& cluster) {
  cluster.barrier();
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      cluster.barrier();
    } catch (const FailedPreconditionError&) {
      std::_Exit(0);
    }
    std::_Exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  cluster.barrier();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 7;
}

/// The cluster ends when the program's variables do, after whatever libraries do at exit.
int outlive_main() {
  static std::shared_ptr<Cluster> cluster;
  cluster = Cluster::join(JoinOptions{.timeout_seconds = 60});
  cluster->barrier();
  return 0;
}

const Works& works() {
  static const Works all = {
      {"meet", meet},
      {"give_up", give_up},
      {"split", split},
      {"lose the chief", [](Cluster& cluster) { return lose(cluster, 0); }},
      {"lose a worker", [](Cluster& cluster) { return lose(cluster, 1); }},
      {"silence the chief", [](Cluster& cluster) { return silence(cluster, 0); }},
      {"silence a worker", [](Cluster& cluster) { return silence(cluster, 2); }},
      {"be late", be_late},
      {"differ", differ},
      {"fork", fork_off},
      {"outlive main", outlive_main},
  };
  return all;
}

TEST(ClusterTest, WorkersMeet) {
  for (const int num_workers : {1, 2, 3, 5, 8}) {
    EXPECT_EQ(run_workers("meet", num_workers), all_well(num_workers));
  }
}

TEST(ClusterTest, ARoundThatIsGivenUpNamesWhoIsMissingToAllThatWait) {
  EXPECT_EQ(run_workers("give_up", 3), all_well(3));
}

TEST(ClusterTest, SubgroupsAreClusters) {
  for (const int num_workers : {1, 2, 5}) {
    EXPECT_EQ(run_workers("split", num_workers), all_well(num_workers));
  }
}

TEST(ClusterTest, AKilledWorkerIsNamedByTheOthers) {
  EXPECT_EQ(run_workers("lose a worker", 3), (std::vector<int>{0, -SIGKILL, 0}));
  EXPECT_EQ(run_workers("lose the chief", 3), (std::vector<int>{-SIGKILL, 0, 0}));
}

TEST(ClusterTest, AStoppedWorkerIsNamedByTheOthers) {
  EXPECT_EQ(run_workers("silence a worker", 3, 2), (std::vector<int>{0, 0, -SIGKILL}));
  EXPECT_EQ(run_workers("silence the chief", 3, 0), (std::vector<int>{-SIGKILL, 0, 0}));
}

TEST(ClusterTest, ALateWorkerIsNamedAtTheDeadline) {
  EXPECT_EQ(run_workers("be late", 3), all_well(3));
}

TEST(ClusterTest, DifferentCallsAreNamed) { EXPECT_EQ(run_workers("differ", 2), all_well(2)); }

TEST(ClusterTest, AChildOfForkThrowsAndItsParentGoesOn) {
  EXPECT_EQ(run_workers("fork", 2), all_well(2));
}

TEST(ClusterTest, AClusterMayOutliveMain) {
  EXPECT_EQ(run_workers("outlive main", 3), all_well(3));
}

TEST(ClusterTest, AProcessThatNobodyLaunchedIsAClusterOfItsOwn) {
  const std::shared_ptr<Cluster> cluster = Cluster::join();
  EXPECT_EQ(cluster->rank(), 0);
  EXPECT_EQ(cluster->num_workers(), 1);
  cluster->barrier();
  EXPECT_EQ(cluster->broadcast_bytes("x"), "x");
  EXPECT_EQ(cluster->subgroup({0})->all_gather_bytes("y"), std::vector<std::string>{"y"});
}

TEST(ClusterTest, WorkersThatCanAllGatherNeedNoAddress) {
  const auto work = [](const std::shared_ptr<Cluster>& cluster) {
    EXPECT_EQ(cluster->all_gather_bytes(std::to_string(cluster->rank())),
              (std::vector<std::string>{"0", "1", "2"}));
  };
  EXPECT_EQ(run_clusters(3, work), no_errors(3));
}

/// Two steps of one batch job, or two jobs, whose ports are the same.
TEST(ClusterTest, AWorkerOfAnotherJobIsRefusedAndTheOthersMeet) {
  const detail::ReservedPort reserved;
  const auto join = [&](int rank, const char* step) {
    Variables variables{
        {"SLURM_JOB_ID", "4711"},
        {"SLURM_STEP_ID", step},
        {"SLURM_STEP_NODELIST", "here"},
        {"SLURM_STEP_NUM_TASKS", "2"},
        {"SLURM_PROCID", std::to_string(rank)},
        {"CROSSDEVICE_CHIEF_ADDRESS", "127.0.0.1:" + std::to_string(reserved.number())}};
    if (variables["SLURM_STEP_ID"].empty()) variables.erase("SLURM_JOB_ID");
    return Cluster::join(SlurmClusterResolver(source_of(variables)), {.timeout_seconds = 60});
  };
  std::thread chief([&] { join(0, "0")->barrier(60); });
  EXPECT_THAT([&] { (void)join(1, "1"); }, ::testing::ThrowsMessage<FailedPreconditionError>(
                                               ::testing::HasSubstr("epoch 1 of another job")));
  join(1, "")->barrier(60);  // which nobody has given a name may be the same
  chief.join();
}

TEST(ClusterTest, WhatIsRefusedHereCountsNowhere) {
  const auto work = [](const std::shared_ptr<Cluster>& cluster) {
    const std::string too_large((std::size_t{2} << 20), 'x');
    if (cluster->rank() == 1) {
      EXPECT_THROW((void)cluster->all_gather_bytes(too_large), ValueError);
    }
    EXPECT_EQ(cluster->all_gather_bytes("y", 30), (std::vector<std::string>{"y", "y"}));
  };
  EXPECT_EQ(run_clusters(2, work), no_errors(2));
}

TEST(ClusterTest, WhoWaitsForAnotherThreadsCallHasADeadline) {
  LogKeeper log;
  std::latch other_has_ended(1);
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    if (cluster->rank() == 1) {
      other_has_ended.wait();
      cluster->barrier(60);
      return;
    }
    std::thread waiting([&] { EXPECT_NO_THROW(cluster->barrier()); });
    EXPECT_TRUE(log.await("rank 0 still waits in barrier #1 for rank 1",
                          Deadline::after(std::chrono::seconds(60))));
    try {
      cluster->barrier(0.05);
      ADD_FAILURE() << "two rounds at a time";
    } catch (const DeadlineExceededError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("another thread of this worker, rank 0"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("is still in barrier #1"));
      ASSERT_EQ(error.culprits().size(), 1U);
      EXPECT_EQ(error.culprits()[0].rank, 0);
    }
    EXPECT_EQ(cluster->subgroup({0})->num_workers(), 1);
    other_has_ended.count_down();
    waiting.join();
  };
  const auto twice = [&](const std::shared_ptr<Cluster>& cluster) {
    work(cluster);
    cluster->barrier(60);  // all are in the same round
  };
  EXPECT_EQ(run_clusters(2, twice, {.timeout_seconds = 60, .stall_warning_seconds = 0.05}),
            no_errors(2));
}

/// Whatever the chief says, all hear in one order: so who posts before it comes to a round is heard before the round has ended.
TEST(ClusterTest, PostsAreHeardByThoseThatTheyAreForInOneOrderWithTheEndsOfRounds) {
  const auto work = [](const std::shared_ptr<Cluster>& cluster) {
    const std::shared_ptr<Cluster> twin = cluster->duplicate();
    EXPECT_TRUE(twin->has_same_chief(*cluster));
    EXPECT_FALSE(twin->has_same_chief(*Cluster::join()));
    std::mutex mutex;
    std::vector<std::string> heard;
    const auto hear = [&](const std::string& what) {
      const std::lock_guard lock(mutex);
      heard.push_back(what);
    };
    const std::shared_ptr<void> listening =
        twin->listen({.on_post = [&](int from, std::string_view bytes) {
          hear(std::to_string(from) + ": " + std::string(bytes));
        }});
    cluster->barrier(60);  // all listen
    if (cluster->rank() == 2) {
      twin->post("to all");
      twin->post("to one", 1);
      cluster->post("to those who listen to another");
    }
    (void)twin->all_gather_bytes("", Deadline::after(std::chrono::seconds(60)),
                                 {.on_completion = [&] { hear("the end of the round"); }});
    const std::lock_guard lock(mutex);
    std::vector<std::string> expected{"2: to all"};
    if (cluster->rank() == 1) expected.emplace_back("2: to one");
    expected.emplace_back("the end of the round");
    EXPECT_EQ(heard, expected);
  };
  EXPECT_EQ(run_clusters(3, work), no_errors(3));
}

TEST(ClusterTest, BadArgumentsAreRefused) {
  const std::shared_ptr<Cluster> cluster = Cluster::join();
  EXPECT_THROW(cluster->post("x", 1), ValueError);
  EXPECT_THROW(cluster->post(std::string(5000, 'x')), ValueError);
  EXPECT_THROW((void)cluster->subgroup(std::initializer_list<int>{}), ValueError);
  EXPECT_THROW((void)cluster->subgroup({0, 0}), ValueError);
  EXPECT_THROW((void)cluster->subgroup({1}), ValueError);
  EXPECT_THROW((void)cluster->broadcast_bytes("", 1), ValueError);
  EXPECT_THROW((void)cluster->worker(-1), ValueError);
  EXPECT_THROW(cluster->barrier(-1.0), ValueError);
  EXPECT_THROW((void)Cluster::join({.heartbeat_timeout_seconds = 0}), ValueError);
  EXPECT_THROW((void)Cluster::join({.stall_warning_seconds = std::nan("")}), ValueError);
}

TEST(ClusterTest, WhoHasNoDescriptorsLeftCannotJoin) {
  if (!can_do_without_descriptors()) GTEST_SKIP() << "the sanitizer needs some";
  const std::map<std::string, std::string> variables = {
      {kRankVariable, "1"}, {kNumWorkersVariable, "2"}, {kChiefAddressVariable, "127.0.0.1:9"}};
  const EnvironmentClusterResolver resolver(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      });
  const WithoutDescriptors none;
  EXPECT_THROW((void)Cluster::join(resolver, {.timeout_seconds = 1}), ResourceExhaustedError);
}

TEST(ClusterTest, ASingleWorkerMakesItsClusterAnew) {
  const std::shared_ptr<Cluster> cluster = Cluster::join();
  EXPECT_EQ(cluster->epoch(), 1U);
  cluster->set_completed(1204);
  cluster->abort_collective_ops("enough");
  EXPECT_THROW(cluster->barrier(), AbortedError);
  const Rebuilt rebuilt = cluster->rebuild(Survivors::ONLY);
  EXPECT_EQ(rebuilt.epoch, 2U);
  EXPECT_EQ(rebuilt.cluster->epoch(), 2U);
  EXPECT_EQ(rebuilt.last_completed, (CompletedOperation{1, 1204}));
  std::ostringstream said;
  said << rebuilt.last_completed << ", " << CompletedOperation{};
  EXPECT_EQ(said.str(), "#1204 of epoch 1, none");
  EXPECT_TRUE(rebuilt.left_out.empty());
  EXPECT_NE(rebuilt.cluster->id(), cluster->id());
  rebuilt.cluster->barrier();
  EXPECT_THROW((void)cluster->rebuild(Survivors::ALL), FailedPreconditionError);
  const Rebuilt again = rebuilt.cluster->rebuild(Survivors::ALL);
  EXPECT_EQ(again.epoch, 3U);
  EXPECT_EQ(again.last_completed, (CompletedOperation{1, 1204}));  // nothing has since
  again.cluster->set_completed(1);
  EXPECT_EQ(again.cluster->rebuild(Survivors::ALL).last_completed, (CompletedOperation{3, 1}));
}

TEST(ClusterTest, ARebuildThatCannotBeIsRefused) {
  const std::shared_ptr<Cluster> cluster = Cluster::join();
  EXPECT_THROW((void)cluster->rebuild(Survivors::ONLY, {.timeout_seconds = -1}), ValueError);
  EXPECT_THROW((void)cluster->rebuild(Survivors::ONLY, {.patience_seconds = -1}), ValueError);
  EXPECT_THROW((void)cluster->rebuild(Survivors::ONLY, {.patience_seconds = std::nan("")}),
               ValueError);
  EXPECT_THROW((void)cluster->rebuild(Survivors::ONLY, {.min_workers = 2}), ValueError);
  EXPECT_THROW((void)cluster->rebuild(Survivors::ONLY, {.min_workers = -1}), ValueError);
  EXPECT_THROW((void)cluster->subgroup({0})->rebuild(Survivors::ALL), FailedPreconditionError);
}

TEST(ClusterTest, AnAbortBreaksTheClusterForGood) {
  const std::shared_ptr<Cluster> cluster = Cluster::join();
  std::string heard;
  cluster->abort_collective_ops("enough");
  EXPECT_THROW(cluster->barrier(), AbortedError);
  const std::shared_ptr<void> listening = cluster->listen(
      {.on_abort = [&](const RankInfo&, const std::string& text) { heard = text; }});
  EXPECT_EQ(heard, "enough");  // at once of what has happened
  EXPECT_THROW(cluster->barrier(), AbortedError);
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(
      argc, argv, crossdevice::works(), [](const std::string& work) {
        return crossdevice::JoinOptions{
            .timeout_seconds = 60,
            .heartbeat_timeout_seconds = work.starts_with("silence") ? 3.0 : 10.0};
      });
}
