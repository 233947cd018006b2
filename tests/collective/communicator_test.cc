// SPDX-License-Identifier: Apache-2.0
// Workers are processes: on one machine, as if on two, with equal and unequal numbers, and as if each were on a machine of its own.
#include "crossdevice/collective/communicator.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/counter.h"
#include "crossdevice/core/counters.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/trace.h"

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

/// In place is this rank's place, or of a reduction the input itself; else input and output are apart.
int overlap(Cluster& joined) {
  Communicator world(shared(joined));
  const auto ranks = static_cast<std::size_t>(world.num_workers());
  const auto rank = static_cast<std::size_t>(world.rank());
  constexpr std::size_t kPart = 500;
  std::vector<float> row(kPart * (ranks + 1), static_cast<float>(rank));
  const auto at = [&](std::size_t begin, std::size_t count) {
    return Tensor::view(std::span(row).subspan(begin, count), "CPU:0");
  };
  const Tensor whole = at(0, kPart * ranks);
  for (const std::size_t begin :
       {rank * kPart + 1, kPart * ranks - 1, (rank + 1) % ranks * kPart}) {
    if (begin == rank * kPart) continue;  // there is but one rank
    const Tensor part = at(begin, kPart);
    EXPECT_THROW(world.all_gather(part, whole), ValueError) << begin;
    EXPECT_THROW(world.reduce_scatter(ReduceOp::SUM, whole, part), ValueError) << begin;
    if (rank != 0) continue;
    EXPECT_THROW(world.gather(part, whole, 0), ValueError) << begin;
  }
  const Tensor head = at(0, kPart);
  EXPECT_THROW(world.all_reduce(ReduceOp::SUM, head, at(1, kPart)), ValueError);
  EXPECT_THROW(world.all_reduce(ReduceOp::SUM, at(kPart - 1, kPart), head), ValueError);
  const Tensor halves =
      Tensor::view(row.data(), DType::INT16, Shape({static_cast<std::int64_t>(kPart)}), "CPU:0");
  EXPECT_THROW(world.all_reduce(ReduceOp::MEAN, halves, head), ValueError);
  if (rank == 0) {
    EXPECT_THROW(world.reduce(ReduceOp::SUM, head, at(1, kPart), 0), ValueError);
  }
  world.all_gather(at(rank * kPart, kPart), whole);
  for (std::size_t i = 0; i < kPart * ranks; ++i) {
    if (row[i] != static_cast<float>(i / kPart)) return 1;
  }
  world.reduce_scatter(ReduceOp::MAX, whole, at(rank * kPart, kPart));
  world.all_gather(at(rank * kPart, kPart), whole);
  world.gather(at(rank * kPart, kPart), whole, 0);
  for (std::size_t i = 0; i < kPart * ranks; ++i) {
    if (row[i] != static_cast<float>(i / kPart)) return 2;
  }
  // The last part alone, and on the root alone.
  const std::size_t begin = (ranks - 1) * kPart;
  world.reduce(ReduceOp::SUM, at(begin, kPart), at(begin, kPart), 0);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::size_t before = i < kPart * ranks ? i / kPart : rank;
    const bool is_reduced = rank == 0 && i / kPart == ranks - 1;
    if (row[i] != static_cast<float>(is_reduced ? before * ranks : before)) return 3;
  }
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

/// Bars of operations, in their order.
struct Operation {
  std::string name;
  std::uint64_t num_bytes;
  int num_around;

  friend bool operator==(const Operation&, const Operation&) = default;
};
std::vector<Operation> operations;
int num_open = 0;
constexpr detail::SpanHook kHook{
    .push =
        [](const detail::TraceEvent& event) noexcept {
          if (std::string(event.category) == "operation") {
            operations.push_back({event.name, event.arguments.num_bytes, num_open});
          }
          ++num_open;
        },
    .pop = []() noexcept { --num_open; }};

/// How much the counters have grown since.
class Growth {
 public:
  [[nodiscard]] double of(const std::string& name, const std::string& labels = {}) const {
    double before = 0;
    for (const CounterSample& each : before_) {
      if (each.name == name && (labels.empty() || each.labels == labels)) before += each.value;
    }
    return counter_value(name, labels) - before;
  }

 private:
  std::vector<CounterSample> before_ = counters();
};

/// `call` is one operation of `kind` with so many bytes, on the timeline and among the counters.
void expect_one(const std::string& kind, std::uint64_t num_bytes,
                const std::function<void()>& call) {
  const Growth growth;
  operations.clear();
  detail::set_span_hook(&kHook);
  call();
  detail::set_span_hook(nullptr);
  EXPECT_EQ(operations, (std::vector<Operation>{{kind, num_bytes, 0}}));
  const std::string labels = "kind=\"" + kind + "\"";
  EXPECT_EQ(growth.of("crossdevice_operations_total"), 1) << kind;
  EXPECT_EQ(growth.of("crossdevice_operations_total", labels), 1) << kind;
  EXPECT_EQ(growth.of("crossdevice_operation_bytes_total"), num_bytes) << kind;
  EXPECT_EQ(growth.of("crossdevice_operation_bytes_total", labels), num_bytes) << kind;
  EXPECT_GT(growth.of("crossdevice_operation_seconds_total", labels), 0) << kind;  // of the first
  EXPECT_EQ(growth.of("crossdevice_operation_failures_total"), 0) << kind;
}

void every_call_is_observed(Cluster& joined) {
  Communicator world(shared(joined));
  const auto ranks = static_cast<std::size_t>(world.num_workers());
  std::vector<float> part(100, 1);
  std::vector<float> row(100 * ranks, 1);
  const std::uint64_t row_bytes = 400 * ranks;
  expect_one("all_reduce", 400, [&] { world.all_reduce(ReduceOp::SUM, view(part)); });
  expect_one("reduce_scatter", row_bytes,
             [&] { world.reduce_scatter(ReduceOp::SUM, view(row), view(part)); });
  expect_one("all_gather", 400, [&] { world.all_gather(view(part), view(row)); });
  expect_one("broadcast", 400, [&] { world.broadcast(view(part), 0); });
  expect_one("reduce", 400, [&] { world.reduce(ReduceOp::SUM, view(part), view(part), 0); });
  expect_one("gather", 400, [&] { world.gather(view(part), view(row), 0); });
  expect_one("barrier", 0, [&] { world.barrier(); });

  const Growth growth;
  std::vector<float> wrong(100 * ranks + 1);
  EXPECT_THROW(world.all_gather(view(part), view(wrong)), ValueError);
  EXPECT_THROW(world.barrier({.timeout_seconds = -1.0}), ValueError);
  detail::counter_state = detail::CounterState::OFF;
  world.all_reduce(ReduceOp::SUM, view(part));
  world.broadcast(view(part), 0);
  detail::counter_state = detail::CounterState::ON;
  EXPECT_EQ(growth.of("crossdevice_operations_total"), 0);
}

/// Nobody else comes to rank 0's barrier.
void a_timeout_is_counted(Cluster& joined) {
  Communicator world(shared(joined));
  world.barrier();
  const Growth growth;
  if (world.rank() == 0) {
    EXPECT_THROW(world.barrier({.timeout_seconds = 0.05}), DeadlineExceededError);
    EXPECT_EQ(growth.of("crossdevice_operations_total", "kind=\"barrier\""), 1);
    EXPECT_EQ(growth.of("crossdevice_operation_failures_total", "kind=\"barrier\""), 1);
    EXPECT_EQ(growth.of("crossdevice_timeouts_total"), 1);
  }
  joined.barrier();
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

TEST_P(CommunicatorTest, InPlaceIsTheRanksOwnPlace) {
  EXPECT_EQ(run("overlap"), all_well(num_workers()));
}

TEST_P(CommunicatorTest, EveryCallIsABarAndIsCountedOnce) {
  EXPECT_EQ(run("every_call_is_observed"), all_well(num_workers()));
}

TEST_P(CommunicatorTest, ATimeoutIsCounted) {
  if (num_workers() == 1) return;
  EXPECT_EQ(run("a_timeout_is_counted"), all_well(num_workers()));
}

TEST_P(CommunicatorTest, DifferentCallsAreAnErrorOnAll) {
  if (num_workers() == 1) return;
  EXPECT_EQ(run("different_counts"), all_well(num_workers()));
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(
      argc, argv,
      {{"everything", crossdevice::everything},
       {"different_counts", crossdevice::different_counts},
       {"overlap", crossdevice::overlap},
       {"every_call_is_observed", crossdevice::every_call_is_observed},
       {"a_timeout_is_counted", crossdevice::a_timeout_is_counted}});
}
