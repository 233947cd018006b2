// SPDX-License-Identifier: Apache-2.0
// Workers are processes that fail, make their cluster anew and go on reducing: this program starts itself once per rank.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

template <class Error>
bool throws(const std::string& text, int culprit, const std::function<void()>& call) {
  try {
    call();
    std::cerr << "no error\n";
  } catch (const Error& error) {
    const bool blames =
        culprit < 0 || (error.culprits().size() == 1 && error.culprits()[0].rank == culprit);
    if (std::string(error.what()).find(text) != std::string::npos && blames) return true;
    std::cerr << "unexpected: " << error.what() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "another kind of error: " << error.what() << '\n';
  }
  return false;
}

/// As throws(). Or another survivor, which has heard of the same a second before this one, has called rebuild() and misses it: then that is what it hears.
template <class Error>
bool throws_or_is_missed(const std::string& text, int culprit, const std::function<void()>& call) {
  bool is_missed = false;
  const bool is_expected = throws<Error>(text, culprit, [&] {
    try {
      call();
    } catch (const AbortedError& error) {
      is_missed = std::string(error.what()).find("called rebuild(") != std::string::npos;
      throw;
    }
  });
  return is_expected || is_missed;
}

/// In seconds: the workers hear meanwhile what each of them does, by two heartbeats at least. So who is slow to say it at the end is not taken for late.
constexpr double kTwoBeats = 6;

/// A worker's ops object and its gradient.
struct Trainer {
  explicit Trainer(const std::shared_ptr<Cluster>& of, std::size_t count = 20011)
      : cluster(of),
        ops({"CPU:0"}, of->num_workers(), {}, of),
        value{Tensor::zeros(DType::FLOAT32, Shape({count}), Device("CPU:0"))} {}
  /// Whether the sum over the workers is what it should be.
  bool step(std::optional<double> timeout_seconds = 60) {
    const std::span<float> elements = value.values()[0].span<float>();
    for (std::size_t i = 0; i < elements.size(); ++i) {
      elements[i] = static_cast<float>(i % 97) + static_cast<float>(cluster->rank());
    }
    ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = timeout_seconds});
    const int n = cluster->num_workers();
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const auto wanted = static_cast<float>(n * static_cast<int>(i % 97) + n * (n - 1) / 2);
      if (elements[i] == wanted) continue;
      std::cerr << "element " << i << ": " << elements[i] << ", expected " << wanted << '\n';
      return false;
    }
    return true;
  }
  bool steps(int count) {
    for (int i = 0; i < count; ++i) {
      if (!step()) return false;
    }
    return true;
  }

  std::shared_ptr<Cluster> cluster;
  CollectiveAllReduce ops;
  PerReplica value;
};

/// Whether `rebuilt` is what is left of `before` without `left_out`, after `completed` steps.
bool is_whole(const Rebuilt& rebuilt, const Cluster& before, const std::vector<int>& left_out,
              std::uint64_t completed) {
  std::vector<int> out;
  for (const RankInfo& each : rebuilt.left_out) out.push_back(each.rank);
  int rank = before.rank();
  for (const int each : left_out) rank -= each < before.rank() ? 1 : 0;
  const Cluster& after = *rebuilt.cluster;
  const bool is_well =
      out == left_out && rebuilt.epoch == before.epoch() + 1 && after.epoch() == rebuilt.epoch &&
      rebuilt.last_completed == CompletedOperation{before.epoch(), completed} &&
      after.num_workers() == before.num_workers() - static_cast<int>(left_out.size()) &&
      after.rank() == rank && after.worker(rank).pid == ::getpid() && after.id() != before.id();
  if (!is_well) {
    std::cerr << "rank " << after.rank() << " of " << after.num_workers() << " in epoch "
              << rebuilt.epoch << ", completed " << rebuilt.last_completed.epoch << '.'
              << rebuilt.last_completed.sequence << '\n';
  }
  return is_well;
}

/// The workers of those ranks die after five steps, the others go on.
int lose(Cluster& cluster, const std::vector<int>& victims) {
  Trainer before(shared(cluster));
  if (!before.steps(5)) return 1;
  cluster.barrier();  // they have completed on all
  for (const int victim : victims) {
    if (cluster.rank() == victim) ::kill(::getpid(), SIGKILL);
  }
  if (!throws_or_is_missed<UnavailableError>("is gone", -1, [&] { (void)before.steps(1); })) {
    return 2;
  }
  const bool is_minority =
      2 * (cluster.num_workers() - static_cast<int>(victims.size())) <= cluster.num_workers();
  RebuildOptions options{.timeout_seconds = 30};
  if (is_minority) {
    if (!throws<UnavailableError>("workers are left, ", -1,
                                  [&] { (void)cluster.rebuild(Survivors::ONLY, options); })) {
      return 3;
    }
    options.min_workers = cluster.num_workers() - static_cast<int>(victims.size());
  }
  const Rebuilt rebuilt = cluster.rebuild(Survivors::ONLY, options);
  if (!is_whole(rebuilt, cluster, victims, 5)) return 4;
  Trainer after(rebuilt.cluster);
  if (!after.steps(20)) return 5;
  rebuilt.cluster->barrier();
  // What is old is over.
  if (!throws<FailedPreconditionError>("is broken since", -1, [&] { (void)before.steps(1); }))
    return 6;
  if (!throws<OpError>("", -1, [&] { cluster.barrier(); })) return 7;
  return throws<FailedPreconditionError>("has been rebuilt", -1,
                                         [&] { (void)cluster.rebuild(Survivors::ONLY, options); })
             ? 0
             : 8;
}

/// In every epoch the chief dies, until two are left.
int lose_chief_after_chief(Cluster& first) {
  std::shared_ptr<Cluster> cluster = shared(first);
  while (cluster->num_workers() > 2) {
    Trainer trainer(cluster);
    if (!trainer.steps(3)) return 1;
    cluster->barrier();
    if (cluster->rank() == 0) ::kill(::getpid(), SIGKILL);
    if (!throws_or_is_missed<UnavailableError>("is gone", 0, [&] { (void)trainer.steps(1); })) {
      return 2;
    }
    const Rebuilt rebuilt = cluster->rebuild(Survivors::ONLY, {.timeout_seconds = 30});
    if (!is_whole(rebuilt, *cluster, {0}, 3)) return 3;
    cluster = rebuilt.cluster;
  }
  Trainer last(cluster);
  return last.steps(5) ? 0 : 4;
}

/// Hears that somebody has ended what this worker is in, without asking.
bool await_abort(Cluster& cluster, const std::string& text) {
  std::promise<void> news;
  const std::shared_ptr<void> listening =
      cluster.listen({.on_lost = nullptr, .on_abort = [&](const RankInfo&, const std::string& why) {
                        if (why.find(text) != std::string::npos) news.set_value();
                      }});
  return news.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready;
}

/// Nobody dies, but one is late; all go on, twice.
int go_on_with_all(Cluster& first) {
  std::shared_ptr<Cluster> cluster = shared(first);
  for (std::uint64_t round = 1; round <= 2; ++round) {
    Trainer trainer(cluster);
    if (!trainer.steps(4)) return 1;
    cluster->barrier();
    const auto step = [&] { (void)trainer.step(kTwoBeats); };
    if (cluster->rank() == 1) {
      if (!await_abort(*cluster, "called rebuild(ALL")) return 5;
      if (!throws<AbortedError>("called rebuild(ALL", -1, step)) return 6;
    } else if (!throws_or_is_missed<DeadlineExceededError>("rank 1", -1, step)) {
      return 2;
    }
    const Rebuilt rebuilt = cluster->rebuild(Survivors::ALL, {.timeout_seconds = 30});
    if (!is_whole(rebuilt, *cluster, {}, 4)) return 3;
    cluster = rebuilt.cluster;
  }
  Trainer last(cluster);
  return last.steps(5) ? 0 : 4;
}

/// A file by which the workers tell each other what no cluster of theirs can.
class Sign {
 public:
  Sign(const Cluster& cluster, const std::string& what)
      : path_(std::filesystem::temp_directory_path() /
              ("crossdevice-" + std::to_string(cluster.worker(0).pid) + "-" + what)) {}
  void give() const { std::ofstream(path_) << "x"; }
  [[nodiscard]] bool await() const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!std::filesystem::exists(path_)) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  void remove() const { std::filesystem::remove(path_); }

 private:
  std::filesystem::path path_;
};

/// What a worker that was left out must find, whatever it does.
int find_out(Cluster& cluster, Trainer& before) {
  if (!throws<AbortedError>("", -1, [&] { (void)before.steps(1); })) return 11;
  if (!throws<AbortedError>("epoch 2", -1, [&] {
        (void)cluster.rebuild(Survivors::ONLY, {.timeout_seconds = 30});
      })) {
    return 12;
  }
  return throws<AbortedError>("epoch 2", -1, [&] { cluster.barrier(); }) ? 0 : 13;
}

/// One worker is stopped; the others go on without it; then it is continued.
int stop(Cluster& cluster, int victim) {
  Trainer before(shared(cluster));
  const Sign is_over(cluster, "over");
  const std::int64_t pid = cluster.worker(victim).pid;
  if (!before.steps(5)) return 1;
  cluster.barrier();
  if (cluster.rank() == victim) {
    ::kill(::getpid(), SIGSTOP);
    const int result = find_out(cluster, before);
    is_over.give();
    return result;
  }
  if (!throws_or_is_missed<UnavailableError>("no heartbeat", victim,
                                             [&] { (void)before.steps(1); })) {
    return 2;
  }
  const Rebuilt rebuilt = cluster.rebuild(Survivors::ONLY, {.timeout_seconds = 30});
  if (!is_whole(rebuilt, cluster, {victim}, 5)) return 3;
  Trainer after(rebuilt.cluster);
  if (!after.steps(5)) return 4;
  if (after.cluster->rank() == 0) ::kill(static_cast<pid_t>(pid), SIGCONT);
  if (!after.steps(50)) return 5;  // it wakes up meanwhile, and changes nothing
  if (!is_over.await()) return 6;
  after.cluster->barrier();
  if (after.cluster->rank() == 0) is_over.remove();
  return after.steps(5) ? 0 : 7;
}

/// Until that process has stopped.
void await_stop(std::int64_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const auto state = [&] {
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return text.substr(std::min(text.rfind(')'), text.size()), 3);
  };
  while (state() != ") T") std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

/// The chief is stopped: the others hear soon after their deadline that it does not answer, long before they miss its heartbeats.
int miss_chief(Cluster& cluster) {
  Trainer trainer(shared(cluster));
  if (!trainer.steps(2)) return 1;
  cluster.barrier();
  if (cluster.rank() == 0) ::kill(::getpid(), SIGSTOP);
  await_stop(cluster.worker(0).pid);
  const bool is_told = throws<DeadlineExceededError>("", 0, [&] { (void)trainer.step(2); });
  await_the_others();
  return is_told ? 0 : 2;
}

/// One worker lives but does something else for too long.
int be_late(Cluster& cluster, int late) {
  Trainer before(shared(cluster));
  const Sign has_begun(cluster, "begun");
  const Sign is_over(cluster, "over");
  if (!before.steps(5)) return 1;
  cluster.barrier();
  if (cluster.rank() == late) {
    std::promise<void> rouse;
    std::promise<void> news;
    const std::shared_ptr<void> listening = cluster.listen(
        {.on_lost = nullptr, .on_abort = [&](const RankInfo&, const std::string& text) {
           if (text.find("called rebuild(ONLY") != std::string::npos) rouse.set_value();
           if (text.find("epoch 2 has begun with") != std::string::npos) news.set_value();
         }});
    if (!has_begun.await()) return 2;
    // It hears of both without asking.
    for (std::promise<void>* each : {&rouse, &news}) {
      if (each->get_future().wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
        return each == &rouse ? 8 : 9;
      }
    }
    const int result = find_out(cluster, before);
    is_over.give();
    return result;
  }
  if (!throws_or_is_missed<DeadlineExceededError>("", late,
                                                  [&] { (void)before.step(kTwoBeats); })) {
    return 3;
  }
  // After a second of them the late one is roused.
  const Rebuilt rebuilt =
      cluster.rebuild(Survivors::ONLY, {.timeout_seconds = 30, .patience_seconds = 4});
  if (!is_whole(rebuilt, cluster, {late}, 5)) return 4;
  Trainer after(rebuilt.cluster);
  if (!after.steps(5)) return 5;
  if (after.cluster->rank() == 0) has_begun.give();
  if (!after.steps(50) || !is_over.await()) return 6;
  after.cluster->barrier();
  if (after.cluster->rank() == 0) {
    has_begun.remove();
    is_over.remove();
  }
  return after.steps(5) ? 0 : 7;
}

/// The last worker waits without a deadline for the others, which have left it to make their cluster anew.
int wait_for_those_who_rebuild(Cluster& cluster, bool in_a_barrier) {
  Trainer before(shared(cluster));
  if (!before.steps(5)) return 1;
  cluster.barrier();
  if (cluster.rank() == cluster.num_workers() - 1) {
    const bool is_roused = throws<AbortedError>("called rebuild(ALL", -1, [&] {
      if (in_a_barrier) return cluster.barrier(0);
      (void)before.step(0);
    });
    if (!is_roused) return 2;
  }
  const Rebuilt rebuilt = cluster.rebuild(Survivors::ALL, {.timeout_seconds = 30});
  if (!is_whole(rebuilt, cluster, {}, 5)) return 3;
  Trainer after(rebuilt.cluster);
  return after.steps(5) ? 0 : 4;
}

/// So does the last one of a subgroup, and the chief that could tell it is dead.
int wait_in_a_subgroup(Cluster& cluster) {
  std::shared_ptr<Cluster> some;
  if (cluster.rank() > 0) some = cluster.subgroup({1, 2, 3});
  std::optional<Trainer> before;
  if (some) before.emplace(some);
  if (before && !before->steps(5)) return 1;
  cluster.barrier();
  if (cluster.rank() == 0) ::kill(::getpid(), SIGKILL);
  if (cluster.rank() == 3) {
    if (!throws<AbortedError>("called rebuild(ONLY", -1, [&] { (void)before->step(0); })) return 2;
  }
  const Rebuilt rebuilt = cluster.rebuild(Survivors::ONLY, {.timeout_seconds = 30});
  if (rebuilt.cluster->num_workers() != 3) return 3;
  Trainer after(rebuilt.cluster);
  return after.steps(5) ? 0 : 4;
}

/// The chief dies; of the others the one of rank 2, which is rank 1 of the new cluster, stops before it has come there.
int halt_on_the_way(Cluster& cluster) {
  cluster.barrier();
  if (cluster.rank() == 0) ::kill(::getpid(), SIGKILL);
  const std::shared_ptr<void> listening = cluster.listen(
      {.on_lost = nullptr, .on_abort = [&](const RankInfo&, const std::string& text) {
         const bool has_begun = text.find("epoch 2 has begun") != std::string::npos;
         if (has_begun && cluster.rank() == 2) ::kill(::getpid(), SIGSTOP);
       }});
  try {
    (void)cluster.rebuild(Survivors::ONLY, {.timeout_seconds = 8});
    return 1;
  } catch (const DeadlineExceededError& error) {
    // Rank 1 of the epoch that has not come together. Who hears of that just before its own deadline has tried the next one.
    const auto is_stopped = [](const RankInfo& each) { return each.rank == 2; };
    const bool says_why =
        std::string(error.what()).find("epoch 2 has not come together") != std::string::npos;
    if (!says_why && cluster.rank() == 1) return 3;  // its chief, whose own deadline ends it
    return std::any_of(error.culprits().begin(), error.culprits().end(), is_stopped) ? 0 : 2;
  }
}

/// Ranks 0 and 3 of five die at any moment, also while the others make a cluster without the other one; three go on.
int lose_at_any_moment(Cluster& first) {
  std::shared_ptr<Cluster> cluster = shared(first);
  cluster->barrier();
  std::thread death;
  if (cluster->rank() % 3 == 0) {
    // A moment that differs from run to run.
    const auto moment = std::chrono::milliseconds(::getpid() % 50);
    death = std::thread([moment] {
      std::this_thread::sleep_for(moment);
      ::kill(::getpid(), SIGKILL);
    });
  }
  for (;;) {
    try {
      Trainer trainer(cluster);
      while (cluster->num_workers() > 3) {
        if (!trainer.steps(1)) return 1;
      }
      return trainer.steps(20) ? 0 : 2;
    } catch (const OpError&) {
      const Rebuilt rebuilt = cluster->rebuild(Survivors::ONLY, {.timeout_seconds = 60});
      if (rebuilt.epoch <= cluster->epoch()) return 3;
      cluster = rebuilt.cluster;
    }
  }
}

const Works& works() {
  static const Works all = {
      {"lose 0", [](Cluster& cluster) { return lose(cluster, {0}); }},
      {"lose 1", [](Cluster& cluster) { return lose(cluster, {1}); }},
      {"lose 0 and 1",
       [](Cluster& cluster) {
         return lose(cluster, {0, 1});
       }},
      {"lose 1 and 3",
       [](Cluster& cluster) {
         return lose(cluster, {1, 3});
       }},
      {"lose 0, 2 and 4",
       [](Cluster& cluster) {
         return lose(cluster, {0, 2, 4});
       }},
      {"lose chief after chief", lose_chief_after_chief},
      {"lose at any moment", lose_at_any_moment},
      {"go on with all", go_on_with_all},
      {"miss chief", miss_chief},
      {"stop 0", [](Cluster& cluster) { return stop(cluster, 0); }},
      {"stop 1", [](Cluster& cluster) { return stop(cluster, 1); }},
      {"wait for a reduction",
       [](Cluster& cluster) { return wait_for_those_who_rebuild(cluster, false); }},
      {"wait for a barrier",
       [](Cluster& cluster) { return wait_for_those_who_rebuild(cluster, true); }},
      {"wait in a subgroup", wait_in_a_subgroup},
      {"halt on the way", halt_on_the_way},
      {"be late 0", [](Cluster& cluster) { return be_late(cluster, 0); }},
      {"be late 2", [](Cluster& cluster) { return be_late(cluster, 2); }},
  };
  return all;
}

/// How workers end of which those ranks are killed.
std::vector<int> all_well_but(int num_workers, const std::vector<int>& killed) {
  std::vector<int> results = all_well(num_workers);
  for (const int rank : killed) results[static_cast<std::size_t>(rank)] = -SIGKILL;
  return results;
}

TEST(CollectiveAllReduceRebuildTest, SurvivorsOfAKilledWorkerGoOn) {
  for (const int workers : {2, 3, 4, 5}) {
    EXPECT_EQ(run_workers("lose 1", workers), all_well_but(workers, {1}));
  }
  EXPECT_EQ(run_workers("lose 1 and 3", 5), all_well_but(5, {1, 3}));
}

TEST(CollectiveAllReduceRebuildTest, SurvivorsOfAKilledChiefGoOn) {
  for (const int workers : {2, 3, 4, 5}) {
    EXPECT_EQ(run_workers("lose 0", workers), all_well_but(workers, {0}));
  }
  EXPECT_EQ(run_workers("lose 0 and 1", 5), all_well_but(5, {0, 1}));
}

TEST(CollectiveAllReduceRebuildTest, AMinorityGoesOnOnlyIfItIsToldTo) {
  EXPECT_EQ(run_workers("lose 0 and 1", 3), all_well_but(3, {0, 1}));
  EXPECT_EQ(run_workers("lose 1 and 3", 4), all_well_but(4, {1, 3}));
  EXPECT_EQ(run_workers("lose 0, 2 and 4", 5), all_well_but(5, {0, 2, 4}));
}

TEST(CollectiveAllReduceRebuildTest, ChiefAfterChiefMayDie) {
  EXPECT_EQ(run_workers("lose chief after chief", 5), all_well_but(5, {0, 1, 2}));
}

TEST(CollectiveAllReduceRebuildTest, AllGoOnAfterADeadline) {
  for (const int workers : {2, 3, 5}) {
    EXPECT_EQ(run_workers("go on with all", workers), all_well(workers));
  }
}

TEST(CollectiveAllReduceRebuildTest, AStoppedChiefFindsItselfLeftOut) {
  EXPECT_EQ(run_workers("stop 0", 3), all_well(3));
  EXPECT_EQ(run_workers("stop 0", 4), all_well(4));
}

TEST(CollectiveAllReduceRebuildTest, ADeadlineEndsTheWaitForAStoppedChief) {
  for (const Machines machines : {Machines::ONE, Machines::ONE_EACH}) {
    std::vector<int> results = run_workers("miss chief", 3, /*stopped=*/0, machines);
    EXPECT_EQ(results, all_well_but(3, {0})) << to_string(machines);
  }
}

TEST(CollectiveAllReduceRebuildTest, AStoppedWorkerFindsItselfLeftOut) {
  EXPECT_EQ(run_workers("stop 1", 3), all_well(3));
}

TEST(CollectiveAllReduceRebuildTest, ALateWorkerFindsItselfLeftOut) {
  EXPECT_EQ(run_workers("be late 0", 3), all_well(3));
  EXPECT_EQ(run_workers("be late 2", 4), all_well(4));
}

TEST(CollectiveAllReduceRebuildTest, WhoWaitsForThoseWhoRebuildIsRoused) {
  for (const Machines machines : {Machines::ONE, Machines::ONE_EACH}) {
    EXPECT_EQ(run_workers("wait for a reduction", 3, -1, machines), all_well(3));
    EXPECT_EQ(run_workers("wait for a barrier", 3, -1, machines), all_well(3));
    EXPECT_EQ(run_workers("wait in a subgroup", 4, -1, machines), all_well_but(4, {0}));
  }
}

TEST(CollectiveAllReduceRebuildTest, ANewClusterThatDoesNotComeTogetherIsToldInOldRanks) {
  EXPECT_EQ(run_workers("halt on the way", 4, /*stopped=*/2),
            (std::vector<int>{-SIGKILL, 0, -SIGKILL, 0}));
}

TEST(CollectiveAllReduceRebuildTest, WorkersMayDieAtAnyMoment) {
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(run_workers("lose at any moment", 5), all_well_but(5, {0, 3}));
  }
}

TEST(CollectiveAllReduceRebuildTest, OnSeveralMachines) {
  const auto run = [](const char* work, int num_workers) {
    return run_workers(work, num_workers, -1, Machines::ONE_EACH);
  };
  EXPECT_EQ(run("lose 0", 3), all_well_but(3, {0}));
  EXPECT_EQ(run("lose 1", 4), all_well_but(4, {1}));
  EXPECT_EQ(run("lose chief after chief", 4), all_well_but(4, {0, 1}));
  EXPECT_EQ(run("go on with all", 3), all_well(3));
  EXPECT_EQ(run("stop 0", 3), all_well(3));
  EXPECT_EQ(run("stop 1", 3), all_well(3));
  EXPECT_EQ(run("be late 2", 3), all_well(3));
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(
      argc, argv, crossdevice::works(), [](const std::string& work) {
        return crossdevice::JoinOptions{
            .timeout_seconds = 60,
            .heartbeat_timeout_seconds = work.starts_with("stop") ? 3.0 : 10.0};
      });
}
