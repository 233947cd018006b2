// SPDX-License-Identifier: Apache-2.0
// Small all-reduces among processes, many and of all kinds: each is checked and compared as the first one is, and costs no memory.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/counters.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/allocation_counter.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kNumRepetitions = 40;
constexpr double kLong = 60;  // seconds
constexpr double kShort = 0.3;

CollectiveAllReduce make_ops(Cluster& cluster, const CommunicationOptions& options = {}) {
  return CollectiveAllReduce(Device("CPU:0"), cluster.num_workers(), options,
                             testing::shared(cluster));
}

template <class T>
Tensor make_tensor(const std::vector<T>& elements) {
  return Tensor::copy_of(std::span<const T>(elements), Shape({elements.size()}), "CPU:0");
}

/// rank + 1, rank + 2, ...
template <class T>
Tensor make_tensor(const Cluster& cluster, std::size_t count) {
  std::vector<T> elements(count);
  for (std::size_t i = 0; i < count; ++i) {
    elements[i] = static_cast<T>(static_cast<std::size_t>(cluster.rank()) + 1 + i);
  }
  return make_tensor(elements);
}

/// SUM and MAX of make_tensor(), in place and beside; how many results are wrong.
template <class T>
int count_wrong(CollectiveAllReduce& ops, const Cluster& cluster, std::size_t count) {
  const auto n = static_cast<std::size_t>(cluster.num_workers());
  int wrong = 0;
  for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::MAX}) {
    const PerReplica value(make_tensor<T>(cluster, count));
    const PerReplica beside(make_tensor<T>(cluster, count));
    ops.reduce_into(op, value, beside);
    const Mirrored made = ops.reduce(op, value, "CPU:0");
    ops.reduce_into(op, value, value);
    for (std::size_t i = 0; i < count; ++i) {
      const auto expected = static_cast<T>(op == ReduceOp::SUM ? n * (n + 1) / 2 + n * i : n + i);
      for (const Tensor& result : {value.values()[0], beside.values()[0], made.values()[0]}) {
        if (result.span<const T>()[i] != expected) ++wrong;
      }
    }
  }
  return wrong;
}

/// From one call to the next the dtype differs, the size, the op, the form, or nothing.
int change_from_call_to_call(Cluster& cluster) {
  CollectiveAllReduce ops = make_ops(cluster);
  int wrong = 0;
  for (std::size_t round = 0; round < kNumRepetitions; ++round) {
    // The head's first line and the rest of it, up to the last byte; the slot; and beyond.
    for (const std::size_t count : {2U, 1U, 12U, 13U, 30U, 31U, 60U, 61U, 1000U, 0U}) {
      wrong += count_wrong<float>(ops, cluster, count);
      wrong += count_wrong<std::int32_t>(ops, cluster, count);
      wrong += count_wrong<double>(ops, cluster, count);
    }
  }
  return wrong;
}

/// After many equal calls the last worker makes another: all refuse it, nothing is written.
int differ_after_many(Cluster& cluster, const Tensor& other, ReduceOp other_op) {
  CollectiveAllReduce ops = make_ops(cluster);
  const PerReplica value(make_tensor<float>({1, 2}));
  for (std::size_t i = 0; i < kNumRepetitions; ++i) ops.reduce_into(ReduceOp::MAX, value, value);
  const bool is_last = cluster.rank() == cluster.num_workers() - 1;
  const PerReplica mine(is_last ? other : value.values()[0]);
  const std::vector<std::byte> before(
      static_cast<const std::byte*>(mine.values()[0].data()),
      static_cast<const std::byte*>(mine.values()[0].data()) + mine.values()[0].size_bytes());
  try {
    ops.reduce_into(is_last ? other_op : ReduceOp::MAX, mine, mine);
  } catch (const InternalError& error) {
    await_the_others();  // who is late is to hear of it, and not that this one has gone
    if (std::string(error.what()).find("different calls") == std::string::npos) return 2;
    if (error.culprits().empty() || !error.inputs_intact()) return 3;
    return std::memcmp(before.data(), mine.values()[0].data(), before.size()) == 0 ? 0 : 4;
  }
  return 1;
}

/// After many calls what cannot be is refused as at first, and is no call: the others do not hear of it.
int refuse_after_many(Cluster& cluster) {
  CollectiveAllReduce ops = make_ops(cluster);
  std::vector<float> elements{1, 2, 3, 4};
  const PerReplica value(Tensor::view(std::span<float>(elements).first(2), "CPU:0"));
  for (std::size_t i = 0; i < kNumRepetitions; ++i) ops.reduce_into(ReduceOp::MAX, value, value);
  const auto is_refused = [&](const PerReplica& from, const PerReplica& to,
                              const CommunicationOptions& options = {}) {
    try {
      ops.reduce_into(ReduceOp::MAX, from, to, options);
    } catch (const ValueError&) {
      return elements == std::vector<float>{1, 2, 3, 4};
    }
    return false;
  };
  const PerReplica overlapping(Tensor::view(std::span<float>(elements).subspan(1, 2), "CPU:0"));
  const PerReplica longer(Tensor::view(std::span<float>(elements), "CPU:0"));
  const PerReplica integers(make_tensor<std::int32_t>({1, 2}));
  const PerReplica elsewhere(Tensor::zeros(DType::FLOAT32, {2}, "CPU:1"));
  int wrong = 0;
  if (!is_refused(value, PerReplica(value.values()[0].as_read_only()))) ++wrong;
  if (!is_refused(value, overlapping)) ++wrong;
  if (!is_refused(value, longer)) ++wrong;
  if (!is_refused(value, integers)) ++wrong;
  if (!is_refused(elsewhere, elsewhere)) ++wrong;
  if (!is_refused(value, value, {.timeout_seconds = -1.0})) ++wrong;
  if (!is_refused(value, value, {.timeout_seconds = std::numeric_limits<double>::quiet_NaN()})) {
    ++wrong;
  }
  ops.reduce_into(ReduceOp::MAX, value, value);  // the objects of all are still in step
  return wrong;
}

template <class Call>
std::size_t allocations_of(const Call& call) {
  for (std::size_t i = 0; i < kNumRepetitions; ++i) call();
  const std::size_t before = num_allocations_of_this_thread();
  for (std::size_t i = 0; i < kNumRepetitions; ++i) call();
  return num_allocations_of_this_thread() - before;
}

int allocate_nothing(Cluster& cluster) {
  if (!can_count_allocations()) return 0;
  CollectiveAllReduce ops = make_ops(cluster);
  const PerReplica value(make_tensor<float>({1, 2}));
  const PerReplica beside(make_tensor<float>({0, 0}));
  EXPECT_EQ(allocations_of([&] { ops.reduce_into(ReduceOp::SUM, value, value); }), 0U);
  EXPECT_EQ(allocations_of([&] { ops.reduce_into(ReduceOp::MAX, value, beside); }), 0U);
  EXPECT_EQ(allocations_of([&] { (void)ops.reduce(ReduceOp::MIN, value, "CPU:0"); }), 0U);
  return 0;
}

int count_every_call(Cluster& cluster) {
  CollectiveAllReduce ops = make_ops(cluster);
  const PerReplica value(make_tensor<float>({1, 2}));
  const auto read = [] {
    return std::vector<double>{
        counter_value("crossdevice_operations_total", "kind=\"reduce\""),
        counter_value("crossdevice_operation_bytes_total", "kind=\"reduce\""),
        counter_value("crossdevice_reductions_total", "algorithm=\"shared_memory\""),
        counter_value("crossdevice_reduction_bytes_total", "algorithm=\"shared_memory\"")};
  };
  const std::vector<double> before = read();
  for (std::size_t i = 0; i < kNumRepetitions; ++i) ops.reduce_into(ReduceOp::SUM, value, value);
  const std::vector<double> after = read();
  int wrong = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (after[i] - before[i] != kNumRepetitions * (i % 2 == 0 ? 1.0 : 8.0)) ++wrong;
  }
  return wrong;
}

/// The object's own timeout counts where a call names none, the call's where it does; the last worker does not come.
int miss_one(Cluster& cluster, const CommunicationOptions& own, const CommunicationOptions& call) {
  CollectiveAllReduce ops = make_ops(cluster, own);
  const PerReplica value(make_tensor<float>({1, 2}));
  for (std::size_t i = 0; i < kNumRepetitions; ++i) {
    ops.reduce_into(ReduceOp::MAX, value, value, {.timeout_seconds = kLong});
  }
  const int last = cluster.num_workers() - 1;
  int result = 0;
  if (cluster.rank() != last) {
    try {
      ops.reduce_into(ReduceOp::MAX, value, value, call);
      result = 1;
    } catch (const DeadlineExceededError& error) {
      const bool is_named = error.culprits().size() == 1 && error.culprits()[0].rank == last;
      result = is_named && error.inputs_intact() ? 0 : 2;
    }
  }
  (void)cluster.all_gather_bytes("", 60);  // nobody leaves before
  return result;
}

TEST(SmallAllReduceTest, EveryCallIsItsOwn) {
  EXPECT_EQ(run_workers("change from call to call", 2), all_well(2));
  EXPECT_EQ(run_workers("change from call to call", 3), all_well(3));
}

TEST(SmallAllReduceTest, WhoMakesAnotherCallAfterManyEqualOnesIsNamed) {
  for (const char* const what : {"another dtype", "another shape", "another op"}) {
    EXPECT_EQ(run_workers(what, 2), all_well(2)) << what;
    EXPECT_EQ(run_workers(what, 3), all_well(3)) << what;
  }
}

TEST(SmallAllReduceTest, BadInputIsRefusedAfterManyGoodCalls) {
  EXPECT_EQ(run_workers("refuse after many", 2), all_well(2));
}

TEST(SmallAllReduceTest, InSteadyStateNothingIsAllocated) {
  EXPECT_EQ(run_workers("allocate nothing", 2), all_well(2));
}

TEST(SmallAllReduceTest, EveryCallIsCounted) {
  EXPECT_EQ(run_workers("count every call", 2), all_well(2));
}

TEST(SmallAllReduceTest, EveryTimeoutCounts) {
  for (const char* const what : {"timeout of the object", "timeout of the call", "shorter call"}) {
    EXPECT_EQ(run_workers(what, 2), all_well(2)) << what;
  }
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  using crossdevice::Cluster;
  using crossdevice::kLong;
  using crossdevice::kShort;
  using crossdevice::ReduceOp;
  return crossdevice::testing::worker_main(
      argc, argv,
      {{"change from call to call", crossdevice::change_from_call_to_call},
       {"another dtype",
        [](Cluster& cluster) {
          return crossdevice::differ_after_many(
              cluster, crossdevice::make_tensor<std::int32_t>({1, 2}), ReduceOp::MAX);
        }},
       {"another shape",
        [](Cluster& cluster) {
          return crossdevice::differ_after_many(cluster, crossdevice::make_tensor<float>({1, 2, 3}),
                                                ReduceOp::MAX);
        }},
       {"another op",
        [](Cluster& cluster) {
          return crossdevice::differ_after_many(cluster, crossdevice::make_tensor<float>({1, 2}),
                                                ReduceOp::MIN);
        }},
       {"refuse after many", crossdevice::refuse_after_many},
       {"allocate nothing", crossdevice::allocate_nothing},
       {"count every call", crossdevice::count_every_call},
       {"timeout of the object",
        [](Cluster& cluster) {
          return crossdevice::miss_one(cluster, {.timeout_seconds = kShort}, {});
        }},
       {"timeout of the call",
        [](Cluster& cluster) {
          return crossdevice::miss_one(cluster, {}, {.timeout_seconds = kShort});
        }},
       {"shorter call", [](Cluster& cluster) {
          return crossdevice::miss_one(cluster, {.timeout_seconds = kLong},
                                       {.timeout_seconds = kShort});
        }}});
}
