// SPDX-License-Identifier: Apache-2.0
/// Workers that are processes, for what threads cannot do: they are killed, and stopped in the middle of a call. The second half of engine_conformance.h; a program
/// adds engine_works() to what its workers can be told to do, for each engine that several processes can have.
#pragma once

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <ostream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "collective/engine_fixture.h"
#include "support/sanitizers.h"
#include "support/tried_again.h"
#include "support/worker_processes.h"

namespace crossdevice::testing {

/// How long the others may take to hear of a death: a second on one host.
inline constexpr std::chrono::milliseconds kDeathTime{kIsSanitized ? 5000 : 1000};
/// How a worker ends that has heard the right thing, only later than that.
inline constexpr int kHasHeardLate = 3;
/// For how long a worker does calls before something happens to it.
inline constexpr std::chrono::milliseconds kCallsTime{150};
/// In seconds: the workers hear meanwhile what each of them does, by two heartbeats at least. So who is slow to say it at the end is not taken for stopped.
inline constexpr double kTwoBeats = 6;
inline constexpr std::size_t kProcessCount = std::size_t{1} << 20;

/// Sends itself that signal at a time that all know: one clock serves all processes of a machine.
class Blow {
 public:
  /// Collective.
  Blow(Cluster& cluster, int victim, int signal) {
    const auto now = std::chrono::steady_clock::now() + kCallsTime;
    const std::int64_t mine = now.time_since_epoch().count();
    const std::string said = cluster.broadcast_bytes(std::to_string(mine), victim);
    at_ = Clock::time_point(Clock::duration(std::stoll(said)));
    if (cluster.rank() != victim) return;
    hand_ = std::thread([this, signal] {
      std::this_thread::sleep_until(at_);
      ::kill(::getpid(), signal);
    });
  }
  ~Blow() {
    if (hand_.joinable()) hand_.join();
  }
  Blow(const Blow&) = delete;
  Blow& operator=(const Blow&) = delete;

  [[nodiscard]] std::chrono::nanoseconds since() const { return Clock::now() - at_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point at_;
  std::thread hand_;
};

/// All calls in turn, large and small ones, until one fails.
inline CallOutcome call_until_failure(CollectiveEngine& engine, const CallMemory& large,
                                      const CallMemory& small, double timeout_seconds) {
  return outcome_of_call([&] {
    for (;;) {
      for (const EngineCall& call : engine_calls()) {
        call.make(engine, request_within(timeout_seconds, call.name), large, 0);
        call.make(engine, request_within(timeout_seconds, call.name), small, 0);
      }
    }
  });
}

/// Returns to those that live only: 0 or kHasHeardLate.
inline int lose(Cluster& cluster, const EngineMaker& make, int victim) {
  const std::unique_ptr<CollectiveEngine> engine = make(shared(cluster));
  const auto ranks = static_cast<std::size_t>(cluster.num_workers());
  const auto rank = static_cast<std::size_t>(cluster.rank());
  const CallMemory large(kProcessCount, ranks, rank);
  const CallMemory small(10, ranks, rank);
  const Blow blow(cluster, victim, SIGKILL);
  const CallOutcome outcome = call_until_failure(*engine, large, small, kPatienceSeconds);
  const bool is_late = blow.since() >= kDeathTime;
  EXPECT_EQ(outcome.code, StatusCode::UNAVAILABLE) << outcome.text;
  EXPECT_THAT(outcome.text, ::testing::HasSubstr("is gone"));
  EXPECT_EQ(outcome.culprits, std::vector<int>{victim}) << outcome.text;
  EXPECT_TRUE(large.are_inputs(CallMemory::kBefore) && small.are_inputs(CallMemory::kBefore));
  await_the_others();  // else they might hear first that this one has gone
  return is_late && !::testing::Test::HasFailure() ? kHasHeardLate : 0;
}

/// All but the victim, who meet. Not through the cluster, whose chief a stopped member may be: each leaves a file.
class Survivors {
 public:
  Survivors(const Cluster& cluster, int victim) : cluster_(cluster), victim_(victim) {}
  /// When all have met.
  ~Survivors() {
    std::error_code ignored;
    std::filesystem::remove(file_of(cluster_.rank()), ignored);
  }
  Survivors(const Survivors&) = delete;
  Survivors& operator=(const Survivors&) = delete;

  void meet() const {
    std::ofstream(file_of(cluster_.rank())).put('.');
    const Deadline deadline = Deadline::after_timeout_seconds(kPatienceSeconds);
    for (int each = 0; each < cluster_.num_workers(); ++each) {
      if (each == victim_) continue;
      while (!std::filesystem::exists(file_of(each))) {
        if (deadline.has_passed()) return ADD_FAILURE() << "rank " << each << " is not over";
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

 private:
  [[nodiscard]] std::filesystem::path file_of(int rank) const {
    return std::filesystem::temp_directory_path() /
           ("crossdevice-survivor-" + std::to_string(cluster_.id()) + "-" + std::to_string(rank));
  }
  const Cluster& cluster_;
  const int victim_;
};

/// The victim is stopped in the middle of a call. Whoever has given up has its memory to itself; when all have, the victim goes on.
inline void stop(Cluster& cluster, const EngineMaker& make, int victim, CallMemory::From from) {
  const std::unique_ptr<CollectiveEngine> engine = make(shared(cluster));
  const auto ranks = static_cast<std::size_t>(cluster.num_workers());
  const auto rank = static_cast<std::size_t>(cluster.rank());
  CallMemory large(kProcessCount, ranks, rank, from);
  CallMemory small(10, ranks, rank, from);
  const Survivors survivors(cluster, victim);
  CallOutcome outcome;
  {
    const Blow blow(cluster, victim, SIGSTOP);
    outcome = call_until_failure(*engine, large, small, kTwoBeats);
  }
  if (cluster.rank() == victim) {
    EXPECT_NE(outcome.text, "");
    cluster.barrier(kPatienceSeconds);
    return;
  }
  EXPECT_EQ(outcome.code, StatusCode::DEADLINE_EXCEEDED) << outcome.text;
  EXPECT_EQ(outcome.culprits, std::vector<int>{victim}) << outcome.text;
  large.fill(CallMemory::kAfterwards);
  small.fill(CallMemory::kAfterwards);
  survivors.meet();  // or whoever is late hears from the victim, not of it
  ::kill(static_cast<pid_t>(cluster.worker(victim).pid), SIGCONT);
  cluster.barrier(kPatienceSeconds);  // it has heard of it, and returned from its call
  EXPECT_TRUE(large.is_all(CallMemory::kAfterwards) && small.is_all(CallMemory::kAfterwards));
}

/// An engine that processes can have, and where they are.
struct ProcessCase {
  const char* name;
  EngineMaker make;
  int num_workers = 3;
  Machines machines = Machines::ONE;
  friend std::ostream& operator<<(std::ostream& out, const ProcessCase& value) {
    return out << value.name;
  }
};

inline Works engine_works(const std::vector<ProcessCase>& cases) {
  Works works;
  for (const ProcessCase& each : cases) {
    const EngineMaker make = each.make;
    const std::string name = each.name;
    for (int victim = 0; victim < each.num_workers; ++victim) {
      const std::string whom = " " + std::to_string(victim) + " of " + name;
      works.emplace("lose" + whom, [=](Cluster& cluster) { return lose(cluster, make, victim); });
      works.emplace("stop" + whom,
                    [=](Cluster& cluster) { stop(cluster, make, victim, CallMemory::From::POOL); });
      works.emplace("stop foreign" + whom, [=](Cluster& cluster) {
        stop(cluster, make, victim, CallMemory::From::PROGRAM);
      });
    }
  }
  return works;
}

class EngineProcesses : public ::testing::TestWithParam<ProcessCase> {
 protected:
  static std::vector<int> run(const std::string& what, int victim) {
    return run_workers(what + " " + std::to_string(victim) + " of " + GetParam().name,
                       GetParam().num_workers, -1, GetParam().machines);
  }
};

TEST_P(EngineProcesses, AKilledWorkerIsNamedByAllWithinASecond) {
  for (int victim = 0; victim < GetParam().num_workers; ++victim) {
    std::vector<int> expected = all_well(GetParam().num_workers);
    expected[static_cast<std::size_t>(victim)] = -SIGKILL;
    SCOPED_TRACE("rank " + std::to_string(victim));
    expect_ends([&] { return run("lose", victim); }, expected, kHasHeardLate);
  }
}

TEST_P(EngineProcesses, AStoppedWorkerIsNamedAndWritesNothingWhenItGoesOn) {
  for (const int victim : {0, 1}) {
    for (const char* const what : {"stop", "stop foreign"}) {
      EXPECT_EQ(run(what, victim), all_well(GetParam().num_workers)) << what << " " << victim;
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EngineProcesses);

}  // namespace crossdevice::testing
