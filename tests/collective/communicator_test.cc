// SPDX-License-Identifier: Apache-2.0
// Workers are processes: on one machine, as if on two, with equal and unequal numbers, and as if each were on a machine of its own.
#include "crossdevice/collective/communicator.h"

#include <cstddef>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

template <class T>
Tensor view(std::vector<T>& values) {
  return Tensor::view(std::span(values), "CPU:0");
}

/// Whole numbers, so that sums are exact; different on every rank.
std::vector<float> numbers(std::size_t count, int rank) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 11);
  }
  return values;
}

std::vector<float> sums(std::size_t count, int num_workers) {
  std::vector<float> result(count);
  for (int rank = 0; rank < num_workers; ++rank) {
    const std::vector<float> theirs = numbers(count, rank);
    for (std::size_t i = 0; i < count; ++i) result[i] += theirs[i];
  }
  return result;
}

/// 0 if all is well, else a number that says what is not.
int everything(Cluster& joined) {
  // The harness gives a reference; a communicator shares.
  const std::shared_ptr<Cluster> cluster(&joined, [](Cluster*) {});
  Communicator world(cluster);
  const int n = world.num_workers();
  const int rank = world.rank();
  const auto ranks = static_cast<std::size_t>(n);
  for (const std::size_t part : {0UL, 1UL, 1000UL, 100'000UL}) {
    const std::size_t count = part * ranks;
    const std::vector<float> all = sums(count, n);
    const std::vector<float> own(all.begin() + static_cast<std::ptrdiff_t>(part) * rank,
                                 all.begin() + static_cast<std::ptrdiff_t>(part) * (rank + 1));
    std::vector<float> a = numbers(count, rank);
    std::vector<float> shard(part);
    world.reduce_scatter(ReduceOp::SUM, view(a), view(shard));
    if (shard != own) return 1;
    if (a != numbers(count, rank)) return 2;
    world.all_gather(view(shard), view(a));
    if (a != all) return 3;

    Tensor pooled =
        Tensor::copy_of(std::span(all), Shape({static_cast<std::int64_t>(count)}), "CPU:0");
    a = numbers(count, rank);
    world.all_reduce(ReduceOp::SUM, view(a));
    if (a != all) return 4;
    a = numbers(count, rank);
    world.all_reduce(ReduceOp::SUM, view(a), pooled);
    for (std::size_t i = 0; i < count; ++i) {
      if (pooled.span<float>()[i] != all[i]) return 5;
    }
    for (int root = 0; root < n; ++root) {
      std::vector<float> mine = numbers(part, rank);
      std::vector<float> result(part, -1);
      world.reduce(ReduceOp::SUM, view(mine), view(result), root);
      if (result != (rank == root ? sums(part, n) : std::vector<float>(part, -1))) return 6;
      std::vector<float> gathered(count, -1);
      world.gather(view(mine), view(gathered), root);
      for (int each = 0; each < n && rank == root; ++each) {
        const std::vector<float> theirs = numbers(part, each);
        const auto begin = gathered.begin() + static_cast<std::ptrdiff_t>(part) * each;
        if (!std::equal(theirs.begin(), theirs.end(), begin)) return 7;
      }
      world.broadcast(view(mine), root);
      if (mine != numbers(part, root)) return 8;
    }
    // In place: this rank's part of a longer tensor.
    if (part > 0) {
      std::vector<float> row = numbers(count, rank);
      const auto own_part = std::span(row).subspan(part * static_cast<std::size_t>(rank), part);
      world.reduce_scatter(ReduceOp::SUM, view(row), Tensor::view(own_part, "CPU:0"));
      if (!std::equal(own.begin(), own.end(), own_part.begin())) return 9;
      world.all_gather(Tensor::view(own_part, "CPU:0"), view(row));
      if (row != all) return 10;
    }
  }
  std::vector<std::int16_t> shorts(ranks, static_cast<std::int16_t>(rank));
  std::vector<float> mean(ranks);
  world.all_reduce(ReduceOp::MEAN, view(shorts), view(mean));
  if (mean[0] != static_cast<float>(n - 1) / 2) return 11;
  world.barrier();
  try {
    std::vector<float> wrong(ranks + 1);
    world.all_reduce(ReduceOp::SUM, view(mean), view(wrong));
    return 12;
  } catch (const ValueError&) {
  }
  world.barrier({.timeout_seconds = 30});
  return 0;
}

/// Rank 1 makes another call; everybody hears of it before anything is written.
int different_counts(Cluster& joined) {
  const std::shared_ptr<Cluster> cluster(&joined, [](Cluster*) {});
  Communicator world(cluster);
  const std::size_t part = world.rank() == 1 ? 500 : 1000;
  const auto ranks = static_cast<std::size_t>(world.num_workers());
  std::vector<float> in(part * ranks, 1);
  std::vector<float> out(part, -1);
  try {
    world.reduce_scatter(ReduceOp::SUM, view(in), view(out), {.timeout_seconds = 30});
    return 1;
  } catch (const InternalError& error) {
    if (std::string(error.what()).find("workers make different calls") == std::string::npos) {
      std::cerr << error.what() << '\n';
      return 2;
    }
  }
  return out == std::vector<float>(part, -1) ? 0 : 3;
}

class CommunicatorTest : public ::testing::TestWithParam<std::tuple<int, Machines>> {
 protected:
  [[nodiscard]] static int num_workers() { return std::get<0>(GetParam()); }
  [[nodiscard]] static std::vector<int> run(const std::string& work) {
    return run_workers(work, num_workers(), -1, std::get<1>(GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(Workers, CommunicatorTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5),
                                            ::testing::Values(Machines::ONE, Machines::TWO,
                                                              Machines::ONE_EACH)),
                         [](const auto& tested) {
                           return std::to_string(std::get<0>(tested.param)) +
                                  to_string(std::get<1>(tested.param));
                         });

TEST_P(CommunicatorTest, DoesEverything) { EXPECT_EQ(run("everything"), all_well(num_workers())); }

TEST_P(CommunicatorTest, DifferentCallsAreAnErrorOnAll) {
  if (num_workers() == 1) return;
  EXPECT_EQ(run("different_counts"), all_well(num_workers()));
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv,
                                           {{"everything", crossdevice::everything},
                                            {"different_counts", crossdevice::different_counts}});
}
