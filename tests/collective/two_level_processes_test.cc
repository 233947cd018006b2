// SPDX-License-Identifier: Apache-2.0
/// Workers are processes that believe to be on several machines, and are killed or stopped.
#include <chrono>
#include <csignal>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/collective/two_level_collectives.h"
#include "crossdevice/comm/tcp_transport.h"
#include "crossdevice/core/error.h"

#include "support/check_error.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using testing::all_well;
using testing::check_error;
using testing::run_workers;

constexpr double kPatience = 60;

/// Reduces again and again, also nothing but a few elements; `victim` does away with itself in the middle, once or later.
template <class Error>
int reduce_until(Cluster& cluster, const std::string& text, int victim, int signal,
                 double timeout_seconds) {
  TwoLevelCollectives collectives(
      testing::shared(cluster), make_tcp_transport(testing::shared(cluster)), machines_of(cluster));
  const Tensor large = Tensor::zeros(DType::FLOAT32, {1 << 20}, "CPU:0");
  const Tensor small = Tensor::zeros(DType::FLOAT32, {10}, "CPU:0");
  std::thread killer;
  if (cluster.rank() == victim) {
    killer = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100 + ::getpid() % 50));
      ::kill(::getpid(), signal);
    });
  }
  const int result = check_error<Error>(text, {victim}, [&] {
    for (;;) {
      for (const Tensor& tensor : {large, small}) {
        const CollectiveValue value = {{&tensor, 1}, {&tensor, 1}};
        collectives.all_reduce({.kind = "test",
                                .sequence = 1,
                                .op = ReduceOp::SUM,
                                .deadline = Deadline::after_timeout_seconds(timeout_seconds)},
                               {&value, 1});
      }
    }
  });
  if (killer.joinable()) killer.join();
  testing::await_the_others();  // else they might hear first that this one has gone
  return result;
}

int lose(Cluster& cluster, int victim) {
  return reduce_until<UnavailableError>(cluster, "is gone", victim, SIGKILL, kPatience);
}
int stop(Cluster& cluster, int victim) {
  return reduce_until<DeadlineExceededError>(cluster, "timed out: waiting for", victim, SIGSTOP, 1);
}

class TwoLevelProcesses : public ::testing::TestWithParam<testing::Machines> {};
INSTANTIATE_TEST_SUITE_P(Machines, TwoLevelProcesses,
                         ::testing::Values(testing::Machines::TWO, testing::Machines::THREE),
                         [](const auto& tested) { return testing::to_string(tested.param); });

TEST_P(TwoLevelProcesses, AKilledWorkerIsNamedOnAll) {
  for (const int victim : {0, 1, 5}) {
    std::vector<int> results = all_well(6);
    results[static_cast<std::size_t>(victim)] = -SIGKILL;
    EXPECT_EQ(run_workers("lose " + std::to_string(victim), 6, -1, GetParam()), results);
  }
}

/// Seven workers: on two machines rank 3, on three rank 2 is in no column.
TEST_P(TwoLevelProcesses, SoItIsWhereAMachineHasMoreWorkers) {
  for (const int victim : {0, 2, 3, 6}) {
    std::vector<int> results = all_well(7);
    results[static_cast<std::size_t>(victim)] = -SIGKILL;
    EXPECT_EQ(run_workers("lose " + std::to_string(victim), 7, -1, GetParam()), results);
  }
}

void expect_named_where_stopped(int num_workers, int victim, testing::Machines machines) {
  std::vector<int> results = all_well(num_workers);
  results[static_cast<std::size_t>(victim)] = -SIGKILL;
  constexpr int kTries = 5;  // where others are not in time either, they are named, too
  std::vector<int> ends;
  for (int i = 0; i < kTries && ends != results; ++i) {
    ends = run_workers("stop " + std::to_string(victim), num_workers, victim, machines);
  }
  EXPECT_EQ(ends, results);
}

TEST_P(TwoLevelProcesses, AStoppedWorkerIsNamedOnAll) {
  const bool is_on_two = GetParam() == testing::Machines::TWO;
  expect_named_where_stopped(6, is_on_two ? 5 : 1, GetParam());
  expect_named_where_stopped(7, is_on_two ? 3 : 2, GetParam());
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  using crossdevice::Cluster;
  crossdevice::testing::Works works;
  for (const int victim : {0, 1, 2, 3, 5, 6}) {
    works.emplace("lose " + std::to_string(victim),
                  [victim](Cluster& cluster) { return crossdevice::lose(cluster, victim); });
    works.emplace("stop " + std::to_string(victim),
                  [victim](Cluster& cluster) { return crossdevice::stop(cluster, victim); });
  }
  return crossdevice::testing::worker_main(argc, argv, works);
}
