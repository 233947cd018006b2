// SPDX-License-Identifier: Apache-2.0
// A worker that sums with the others, of whom one ends without a word; those that are left rebuild and sum again: for the tests of what they do over IPv6.
//
//   leaving_worker RANK      RANK: who ends
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "crossdevice/crossdevice.h"

namespace cd = crossdevice;

namespace {

constexpr std::array<std::size_t, 3> kCounts{1, 1000, 1'000'003};
constexpr double kTimeoutSeconds = 60;

cd::CollectiveAllReduce ops_of(const std::shared_ptr<cd::Cluster>& cluster) {
  return {{"CPU:0"}, cluster->num_workers(), {.timeout_seconds = kTimeoutSeconds}, cluster};
}

/// One call, with elements that differ by rank and index; returns how many are wrong.
std::size_t sum(cd::CollectiveAllReduce& ops, const cd::Cluster& cluster, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(static_cast<int>(i % 97) + cluster.rank());
  }
  const cd::PerReplica value{cd::Tensor::view(std::span(values), "CPU:0")};
  ops.reduce_into(cd::ReduceOp::SUM, value, value);
  const int n = cluster.num_workers();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int expected = n * static_cast<int>(i % 97) + n * (n - 1) / 2;
    wrong += values[i] != static_cast<float>(expected) ? 1U : 0U;
  }
  return wrong;
}

std::size_t sum_all(cd::CollectiveAllReduce& ops, const cd::Cluster& cluster) {
  std::size_t wrong = 0;
  for (const std::size_t count : kCounts) wrong += sum(ops, cluster, count);
  return wrong;
}

int run(int leaving_rank) {
  const std::shared_ptr<cd::Cluster> cluster =
      cd::Cluster::join({.timeout_seconds = kTimeoutSeconds});
  cd::CollectiveAllReduce ops = ops_of(cluster);
  const std::size_t wrong = sum_all(ops, *cluster);
  cluster->barrier(kTimeoutSeconds);  // all have their sums
  if (cluster->rank() == leaving_rank) {
    std::printf("%d workers: %zu wrong; leaves\n", cluster->num_workers(), wrong);
    std::fflush(stdout);
    std::_Exit(0);
  }
  try {
    (void)sum(ops, *cluster, 1000);
    throw std::runtime_error("nobody has left");
  } catch (const cd::OpError& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  const cd::Rebuilt rebuilt =
      cluster->rebuild(cd::Survivors::ONLY, {.timeout_seconds = kTimeoutSeconds, .min_workers = 1});
  cd::CollectiveAllReduce ops_left = ops_of(rebuilt.cluster);
  const std::size_t wrong_left = sum_all(ops_left, *rebuilt.cluster);
  std::printf("%d workers: %zu wrong; %d left: %zu wrong\n", cluster->num_workers(), wrong,
              rebuilt.cluster->num_workers(), wrong_left);
  rebuilt.cluster->barrier(kTimeoutSeconds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2) return run(std::stoi(argv[1]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
