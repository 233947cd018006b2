// SPDX-License-Identifier: Apache-2.0
/// Workers are threads that believe to be on several machines, each with a cluster and an in-process transport of its own.
#include "crossdevice/collective/two_level_collectives.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/in_process_transport.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/reduce_kernel.h"

#include "support/check_error.h"
#include "support/sanitizers.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using testing::check_error;
using testing::no_errors;
using testing::run_clusters;

constexpr double kPatience = 60;

CollectiveRequest request_of(ReduceOp op, double timeout_seconds = kPatience) {
  return {.kind = "test",
          .sequence = 1,
          .op = op,
          .deadline = Deadline::after_timeout_seconds(timeout_seconds)};
}

/// Which machine each rank is on.
struct Placement {
  const char* name;
  std::vector<int> machines;
  [[nodiscard]] std::size_t num_ranks() const { return machines.size(); }
};
const std::vector<Placement>& placements() {
  static const std::vector<Placement> all = {
      {"2x2", {0, 0, 1, 1}},
      {"2x2InTurns", {0, 1, 0, 1}},
      {"2x3", {0, 0, 0, 1, 1, 1}},
      {"3x2", {0, 0, 1, 1, 2, 2}},
      {"2x4", {7, 7, 7, 7, 3, 3, 3, 3}},
      {"4x2Mixed", {0, 1, 2, 3, 3, 2, 1, 0}},
      {"2And1", {0, 0, 1}},
      {"3And4", {0, 0, 0, 1, 1, 1, 1}},
      {"2And1And2Mixed", {4, 1, 0, 0, 4}},
  };
  return all;
}

/// Runs `work` on every rank.
std::vector<std::string> run(const Placement& placement,
                             const std::function<void(TwoLevelCollectives&, Cluster&)>& work) {
  std::vector<std::unique_ptr<Transport>> transports =
      make_in_process_transports(static_cast<int>(placement.num_ranks()));
  return run_clusters(placement.num_ranks(), [&](const std::shared_ptr<Cluster>& cluster) {
    TwoLevelCollectives collectives(
        cluster, std::move(transports[static_cast<std::size_t>(cluster->rank())]),
        placement.machines);
    work(collectives, *cluster);
  });
}

/// A value of a batch that keeps its tensors.
struct Value {
  std::vector<Tensor> inputs{};
  std::vector<Tensor> outputs{};
  [[nodiscard]] CollectiveValue view() const { return {inputs, outputs}; }
};
std::vector<CollectiveValue> views(const std::vector<Value>& values) {
  std::vector<CollectiveValue> result;
  result.reserve(values.size());
  for (const Value& value : values) result.push_back(value.view());
  return result;
}

/// Small whole numbers (bool: some of them), so that sums and products are exact in any order and every dtype; different on every rank.
Tensor numbers(DType dtype, std::size_t count, std::size_t rank, std::size_t replica) {
  const Tensor tensor = Tensor::empty(dtype, {count}, "CPU:0");
  auto* const bytes = static_cast<std::byte*>(tensor.data());
  const auto fill = [&]<class T>(std::type_identity<T>) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t number = (i * 7 + rank * 3 + replica * 5) % 3;
      const T value = static_cast<T>(static_cast<float>(number));
      std::memcpy(bytes + i * sizeof value, &value, sizeof value);
    }
  };
  switch (dtype) {
    case DType::BOOL:
      fill(std::type_identity<bool>{});
      break;
    case DType::INT8:
    case DType::UINT8:
      fill(std::type_identity<std::uint8_t>{});
      break;
    case DType::INT16:
    case DType::UINT16:
      fill(std::type_identity<std::uint16_t>{});
      break;
    case DType::INT32:
    case DType::UINT32:
      fill(std::type_identity<std::uint32_t>{});
      break;
    case DType::INT64:
    case DType::UINT64:
      fill(std::type_identity<std::uint64_t>{});
      break;
    case DType::FLOAT8_E4M3:
      fill(std::type_identity<float8_e4m3>{});
      break;
    case DType::FLOAT8_E5M2:
      fill(std::type_identity<float8_e5m2>{});
      break;
    case DType::FLOAT16:
      fill(std::type_identity<float16>{});
      break;
    case DType::BFLOAT16:
      fill(std::type_identity<bfloat16>{});
      break;
    case DType::FLOAT32:
      fill(std::type_identity<float>{});
      break;
    case DType::FLOAT64:
      fill(std::type_identity<double>{});
      break;
    case DType::COMPLEX64:
    case DType::COMPLEX128: {
      const DType part = dtype == DType::COMPLEX64 ? DType::FLOAT32 : DType::FLOAT64;
      const Tensor parts = numbers(part, 2 * count, rank, replica);
      if (count > 0) std::memcpy(bytes, parts.data(), parts.size_bytes());
      break;
    }
  }
  return tensor;
}

/// All ranks' inputs in one pass: exact, as the numbers are small.
Tensor expected(ReduceOp op, DType dtype, std::size_t count, std::size_t num_ranks,
                std::size_t num_replicas) {
  const Tensor result = Tensor::empty(result_dtype(op, dtype), {count}, "CPU:0");
  std::vector<Tensor> all;
  std::vector<const void*> inputs;
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    for (std::size_t replica = 0; replica < num_replicas; ++replica) {
      all.push_back(numbers(dtype, count, rank, replica));
      inputs.push_back(all.back().data());
    }
  }
  void* const outputs[] = {result.data()};
  const ReducePass pass{.op = op, .dtype = dtype, .inputs = inputs, .outputs = outputs};
  if (count > 0) find_reduce_kernel(op, dtype)(pass, 0, count);
  return result;
}

/// In 8 bits sums and products of many numbers are rounded in between; and the sign of a zero in a product of complex numbers depends on the order.
bool is_exact(ReduceOp op, DType dtype, std::size_t num_values) {
  const bool is_tiny = dtype == DType::FLOAT8_E5M2 || dtype == DType::FLOAT8_E4M3;
  if (op == ReduceOp::MIN || op == ReduceOp::MAX) return true;
  if (op == ReduceOp::PROD && is_complex(dtype)) return false;
  return !is_tiny || num_values <= 4;
}

bool equal(const Tensor& a, const Tensor& b) {
  return a.size_bytes() == b.size_bytes() &&
         (a.size_bytes() == 0 || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

class TwoLevelCollectivesTest : public ::testing::TestWithParam<Placement> {
 protected:
  static std::size_t num_ranks() { return GetParam().num_ranks(); }
};
INSTANTIATE_TEST_SUITE_P(Placements, TwoLevelCollectivesTest,
                         ::testing::ValuesIn(testing::kIsSanitized
                                                 ? std::vector{placements()[1], placements()[3],
                                                               placements()[8]}
                                                 : placements()),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(TwoLevelCollectivesTest, BatchesOfAllDTypesAndOps) {
  const std::size_t n = num_ranks();
  for (const ReduceOp op : kAllReduceOps) {
    for (const std::size_t replicas : {1UL, 2UL}) {
      std::vector<std::vector<std::size_t>> batches = {{0}, {1}, {0, 3, 1}, {n + 1, 0, 2999, 1}};
      if (!testing::kIsSanitized) batches.push_back({97, 70'000, 3});
      for (const std::vector<std::size_t>& counts : batches) {
        struct Expected {
          DType dtype;
          std::size_t count;
          Tensor tensor;
        };
        std::vector<Expected> all;
        for (const std::size_t count : counts) {
          for (const DType dtype : kAllDTypes) {
            if (!is_supported(op, dtype) || !is_exact(op, dtype, n * replicas)) continue;
            if (op == ReduceOp::MEAN && is_integer(dtype)) continue;  // below
            all.push_back({dtype, count, expected(op, dtype, count, n, replicas)});
          }
        }
        EXPECT_EQ(
            run(GetParam(),
                [&](TwoLevelCollectives& collectives, Cluster& cluster) {
                  const auto rank = static_cast<std::size_t>(cluster.rank());
                  std::vector<Value> values;
                  for (const Expected& each : all) {
                    Value value;
                    for (std::size_t i = 0; i < replicas; ++i) {
                      value.inputs.push_back(numbers(each.dtype, each.count, rank, i));
                    }
                    // In place, in one other place, nowhere, in two places.
                    const std::size_t form = values.size() % 4;
                    if (form == 0) value.outputs = value.inputs;
                    for (std::size_t i = form; i % 2 == 1 && i > 0; i = i == 3 ? 1 : 0) {
                      value.outputs.push_back(Tensor::zeros(each.dtype, {each.count}, "CPU:0"));
                    }
                    values.push_back(std::move(value));
                  }
                  collectives.all_reduce(request_of(op), views(values));
                  for (std::size_t i = 0; i < values.size(); ++i) {
                    for (const Tensor& output : values[i].outputs) {
                      EXPECT_TRUE(equal(output, all[i].tensor))
                          << to_string(op) << " of " << all[i].count << " "
                          << to_string(all[i].dtype) << ", " << replicas << " replicas";
                    }
                  }
                }),
            no_errors(n));
      }
    }
  }
}

TEST_P(TwoLevelCollectivesTest, MeansOfFloatsAndIntegersTogether) {
  const std::size_t n = num_ranks();
  for (const std::size_t count : {1UL, 5UL, 40'000UL}) {
    const Tensor floats = expected(ReduceOp::MEAN, DType::FLOAT32, count, n, 2);
    const Tensor ints = expected(ReduceOp::MEAN, DType::INT16, count, n, 2);
    EXPECT_EQ(
        run(GetParam(),
            [&](TwoLevelCollectives& collectives, Cluster& cluster) {
              const auto rank = static_cast<std::size_t>(cluster.rank());
              const auto value_of = [&](DType dtype) {
                return Value{{numbers(dtype, count, rank, 0), numbers(dtype, count, rank, 1)},
                             {Tensor::zeros(DType::FLOAT32, {count}, "CPU:0")}};
              };
              const std::vector<Value> values = {value_of(DType::FLOAT32), value_of(DType::INT16)};
              collectives.all_reduce(request_of(ReduceOp::MEAN), views(values));
              EXPECT_TRUE(equal(values[0].outputs[0], floats)) << count;
              EXPECT_TRUE(equal(values[1].outputs[0], ints)) << count;
            }),
        no_errors(n));
  }
}

TEST_P(TwoLevelCollectivesTest, AllRanksGetTheSameBits) {
  const std::size_t n = num_ranks();
  for (const std::size_t count : {3UL, 1000UL, 50'001UL}) {
    std::vector<std::vector<float>> results(n);
    EXPECT_EQ(run(GetParam(),
                  [&](TwoLevelCollectives& collectives, Cluster& cluster) {
                    const auto rank = static_cast<std::size_t>(cluster.rank());
                    std::vector<float>& mine = results[rank];  // memory that is not from the pool
                    mine.resize(count);
                    for (std::size_t i = 0; i < count; ++i) {
                      mine[i] = 1.0F / static_cast<float>(1 + (i * 31 + rank * 17) % 1009);
                    }
                    const Tensor tensor = Tensor::view(std::span(mine), "CPU:0");
                    const std::vector<Value> values = {{{tensor}, {tensor}}};
                    collectives.all_reduce(request_of(ReduceOp::SUM), views(values));
                  }),
              no_errors(n));
    for (std::size_t rank = 1; rank < n; ++rank) EXPECT_EQ(results[rank], results[0]) << count;
  }
}

TEST_P(TwoLevelCollectivesTest, ManyValuesAndNothingBeyondThem) {
  if (testing::kIsSanitized) return;
  const std::size_t n = num_ranks();
  constexpr std::size_t kCount = 5000;  // more than are shown at once
  EXPECT_EQ(run(GetParam(),
                [&](TwoLevelCollectives& collectives, Cluster& cluster) {
                  const auto rank = static_cast<float>(cluster.rank());
                  std::vector<float> memory(kCount * 3);
                  std::vector<Value> values;
                  for (std::size_t i = 0; i < kCount; ++i) {
                    memory[3 * i] = memory[3 * i + 1] = rank + static_cast<float>(i % 7);
                    memory[3 * i + 2] = -1;  // belongs to nobody
                    const Tensor tensor =
                        Tensor::view(std::span(memory).subspan(3 * i, 2), "CPU:0");
                    values.push_back({{tensor}, {tensor}});
                  }
                  collectives.all_reduce(request_of(ReduceOp::SUM), views(values));
                  for (std::size_t i = 0; i < kCount; ++i) {
                    const auto sum = static_cast<float>(n * (n - 1) / 2 + n * (i % 7));
                    ASSERT_EQ(memory[3 * i], sum) << i;
                    ASSERT_EQ(memory[3 * i + 1], sum) << i;
                    ASSERT_EQ(memory[3 * i + 2], -1) << i;
                  }
                }),
            no_errors(n));
}

TEST(TwoLevelCollectives, MoreThanOneSegment) {
  if (testing::kIsSanitized) return;
  constexpr std::size_t kCount = 20'000'003;  // of 4 bytes: two
  EXPECT_EQ(run(placements()[0],
                [&](TwoLevelCollectives& collectives, Cluster& cluster) {
                  const Tensor tensor = Tensor::empty(DType::INT32, {kCount}, "CPU:0");
                  const std::span<std::int32_t> elements = tensor.span<std::int32_t>();
                  for (std::size_t i = 0; i < kCount; ++i) {
                    elements[i] = static_cast<std::int32_t>(i) + cluster.rank();
                  }
                  const std::vector<Value> values = {{{tensor}, {tensor}}};
                  collectives.all_reduce(request_of(ReduceOp::SUM), views(values));
                  for (std::size_t i = 0; i < kCount; ++i) {
                    ASSERT_EQ(elements[i], 4 * static_cast<std::int32_t>(i) + 6) << i;
                  }
                }),
            no_errors(4));
}

struct Traffic {
  std::size_t bytes_sent = 0;
  std::size_t bytes_received = 0;
};

/// Of each rank, in an all-reduce of so many floats.
std::vector<Traffic> traffic_of(const Placement& placement, std::size_t count) {
  std::vector<Traffic> traffic(placement.num_ranks());
  EXPECT_EQ(run(placement,
                [&](TwoLevelCollectives& collectives, Cluster& cluster) {
                  const auto rank = static_cast<std::size_t>(cluster.rank());
                  const Tensor tensor = numbers(DType::FLOAT32, count, rank, 0);
                  const std::vector<Value> values = {{{tensor}, {tensor}}};
                  const TransportCounters before = collectives.counters();
                  collectives.all_reduce(request_of(ReduceOp::SUM), views(values));
                  const TransportCounters after = collectives.counters();
                  traffic[rank] = {after.bytes_sent - before.bytes_sent,
                                   after.bytes_received - before.bytes_received};
                }),
            no_errors(placement.num_ranks()));
  return traffic;
}

TEST(TwoLevelCollectives, SendsNoMoreThanItsPart) {
  constexpr std::size_t kCount = 300'000;
  for (const Traffic& each : traffic_of(placements()[2], kCount)) {
    // 2 (H - 1)/H of a third, with two machines.
    EXPECT_EQ(each.bytes_sent, kCount / 3 * sizeof(float));
    EXPECT_EQ(each.bytes_received, kCount / 3 * sizeof(float));
  }
}

TEST(TwoLevelCollectives, WhereAMachineHasMoreWorkersItsLastOnesSendNothing) {
  constexpr std::size_t kCount = 300'000;
  const std::vector<Traffic> traffic = traffic_of(placements()[7], kCount);
  ASSERT_EQ(traffic.size(), 7U);
  for (std::size_t rank = 0; rank < traffic.size(); ++rank) {
    // As with three workers on both, and a word for the seventh.
    const std::size_t part = rank < 6 ? kCount / 3 * sizeof(float) : 0;
    EXPECT_EQ(traffic[rank].bytes_sent, part + (rank == 0 ? 1 : 0)) << rank;
    EXPECT_EQ(traffic[rank].bytes_received, part + (rank == 6 ? 1 : 0)) << rank;
  }
  EXPECT_EQ(run(placements()[7],
                [](TwoLevelCollectives& collectives, Cluster&) {
                  EXPECT_THAT(collectives.explain_all_reduce(1U << 20U),
                              ::testing::StartsWith("3 to 4 workers on each of 2 machines: shared "
                                                    "memory, then 3 columns: "));
                }),
            no_errors(7));
}

/// More machines than a mesh has: columns talk to their neighbours alone.
TEST(TwoLevelCollectives, ManyMachinesOfOneOrTwoWorkers) {
  Placement placement{"17", {}};
  for (int machine = 0; machine < 17; ++machine) {
    placement.machines.insert(placement.machines.end(), machine % 2 == 0 ? 2 : 1, machine);
  }
  const std::size_t n = placement.num_ranks();
  for (const std::size_t count : {10UL, 30'000UL}) {
    const Tensor sum = expected(ReduceOp::SUM, DType::INT32, count, n, 1);
    EXPECT_EQ(run(placement,
                  [&](TwoLevelCollectives& collectives, Cluster& cluster) {
                    const auto rank = static_cast<std::size_t>(cluster.rank());
                    const Tensor tensor = numbers(DType::INT32, count, rank, 0);
                    const std::vector<Value> values = {{{tensor}, {tensor}}};
                    collectives.all_reduce(request_of(ReduceOp::SUM), views(values));
                    EXPECT_TRUE(equal(tensor, sum)) << count;
                    cluster.barrier(kPatience);
                    // Who is in no column waits for a broadcast, the others reduce.
                    CollectiveRequest request = request_of(ReduceOp::SUM);
                    request.deadline = Deadline::never();
                    EXPECT_THROW(rank == 1 ? collectives.broadcast(request, tensor, 5)
                                           : collectives.all_reduce(request, views(values)),
                                 InternalError);
                    cluster.barrier(kPatience);
                  }),
              no_errors(n));
  }
}

TEST(TwoLevelCollectives, SaysHowItWould) {
  EXPECT_EQ(run(placements()[0],
                [&](TwoLevelCollectives& collectives, Cluster&) {
                  for (const std::size_t bytes : {8UL, 1UL << 20U}) {
                    const std::string text = collectives.explain_all_reduce(bytes);
                    EXPECT_THAT(text, ::testing::StartsWith("2 workers on each of 2 machines: "
                                                            "shared memory, then 2 columns: "));
                    EXPECT_THAT(text, ::testing::HasSubstr("us expected"));
                    EXPECT_THAT(text, ::testing::HasSubstr("instead, all by messages: "));
                  }
                  // A machine's pack is one of a column for each of its workers.
                  const std::vector<PackCandidate> packs = collectives.rank_pack_sizes();
                  ASSERT_FALSE(packs.empty());
                  EXPECT_GE(packs[0].size_bytes, 2 * kMinPackBytes);
                  EXPECT_LE(packs[0].size_bytes, 2 * kMaxPackBytes);
                }),
            no_errors(4));
}

TEST(TwoLevelCollectives, NeedsSeveralWorkersOnSeveralMachinesOfSimilarSize) {
  EXPECT_FALSE(has_two_levels({}));
  const auto has = [](const std::vector<int>& machines) { return has_two_levels(machines); };
  EXPECT_FALSE(has({0}));
  EXPECT_FALSE(has({0, 0, 0, 0}));
  EXPECT_FALSE(has({0, 1, 2, 3}));
  EXPECT_FALSE(has({0, 0, 0, 1}));
  EXPECT_FALSE(has({0, 0, 1, 2, 2, 2}));
  EXPECT_FALSE(has({0, 0, 1, 2}));
  EXPECT_TRUE(has({0, 0, 1}));
  EXPECT_TRUE(has({0, 0, 1, 1, 2}));
  EXPECT_TRUE(has({0, 0, 1, 1}));
  EXPECT_TRUE(has({5, 2, 2, 5}));
  EXPECT_TRUE(has({0, 0, 1, 1, 2, 2}));
  std::vector<std::unique_ptr<Transport>> transports = make_in_process_transports(1);
  EXPECT_EQ(run_clusters(1,
                         [&](const std::shared_ptr<Cluster>& cluster) {
                           const int machines[] = {0};
                           EXPECT_THROW(
                               TwoLevelCollectives(cluster, std::move(transports[0]), machines),
                               ValueError);
                         }),
            no_errors(1));
}

// ---------------------------------------------------------------------------------------------- failures

TEST_P(TwoLevelCollectivesTest, DifferentCallsTouchNothingOnAnyRank) {
  const std::size_t n = num_ranks();
  for (const std::size_t differing : {0UL, n - 1}) {
    for (const std::size_t count : {1UL, 3000UL}) {
      EXPECT_EQ(run(GetParam(),
                    [&](TwoLevelCollectives& collectives, Cluster& cluster) {
                      const auto rank = static_cast<std::size_t>(cluster.rank());
                      const Tensor tensor = numbers(DType::FLOAT32, count, rank, 0);
                      const std::vector<Value> values = {{{tensor}, {tensor}}};
                      try {
                        collectives.all_reduce(
                            request_of(rank == differing ? ReduceOp::MAX : ReduceOp::SUM),
                            views(values));
                        ADD_FAILURE() << "no error";
                      } catch (const InternalError& error) {
                        EXPECT_THAT(error.what(), ::testing::HasSubstr(" MAX of 1 float32 value"));
                        EXPECT_TRUE(error.inputs_intact());
                      }
                      cluster.barrier(kPatience);  // who is late hears of it, too
                      EXPECT_TRUE(equal(tensor, numbers(DType::FLOAT32, count, rank, 0)));
                      EXPECT_THROW(collectives.barrier(request_of(ReduceOp::SUM)),
                                   FailedPreconditionError);
                      EXPECT_THROW(collectives.all_reduce(request_of(ReduceOp::SUM), views(values)),
                                   FailedPreconditionError);
                    }),
                no_errors(n));
    }
  }
}

/// Some wait for those beside them, others for messages, and nobody for a deadline.
TEST_P(TwoLevelCollectivesTest, CallsOfDifferentLevelsAreToldApart) {
  const std::size_t n = num_ranks();
  // Of a broadcast from elsewhere a worker begins by waiting.
  for (std::size_t which = 0; which < 4 * n; ++which) {
    const std::size_t differing = which / 4;
    const bool all_reduce_is_rare = which % 2 == 1;
    const bool is_broadcast = which % 4 > 1;
    {
      EXPECT_EQ(run(GetParam(),
                    [&](TwoLevelCollectives& collectives, Cluster& cluster) {
                      const auto rank = static_cast<std::size_t>(cluster.rank());
                      const Tensor tensor = numbers(DType::FLOAT32, 5000, rank, 0);
                      const std::vector<Value> values = {{{tensor}, {tensor}}};
                      CollectiveRequest request = request_of(ReduceOp::SUM);
                      request.deadline = Deadline::never();
                      EXPECT_THROW(
                          {
                            if ((rank == differing) != all_reduce_is_rare) {
                              if (is_broadcast) {
                                collectives.broadcast(request, tensor,
                                                      static_cast<int>((differing + 1) % n));
                              } else {
                                collectives.barrier(request);
                              }
                            } else {
                              collectives.all_reduce(request, views(values));
                            }
                          },
                          InternalError);
                      cluster.barrier(kPatience);
                      EXPECT_TRUE(equal(tensor, numbers(DType::FLOAT32, 5000, rank, 0)));
                    }),
                no_errors(n));
    }
  }
}

TEST_P(TwoLevelCollectivesTest, WhoDoesNotComeIsNamedOnAllThatWait) {
  constexpr int kTries = 10;  // a machine so busy that others do not come in time names them, too
  const std::size_t n = num_ranks();
  for (const std::size_t missing : {0UL, n - 1}) {
    for (const std::size_t count : {1UL, 50'000UL}) {
      std::atomic<int> num_wrong{1};
      for (int i = 0; i < kTries && num_wrong.load() > 0; ++i) {
        num_wrong = 0;
        EXPECT_EQ(run(GetParam(),
                      [&](TwoLevelCollectives& collectives, Cluster& cluster) {
                        const auto rank = static_cast<std::size_t>(cluster.rank());
                        const Tensor tensor = numbers(DType::FLOAT32, count, rank, 0);
                        const std::vector<Value> values = {{{tensor}, {tensor}}};
                        cluster.barrier(kPatience);
                        if (rank != missing) {
                          num_wrong += check_error<DeadlineExceededError>(
                              "timed out: waiting for rank " + std::to_string(missing),
                              {static_cast<int>(missing)}, [&] {
                                collectives.all_reduce(request_of(ReduceOp::SUM, 0.2),
                                                       views(values));
                              });
                          EXPECT_TRUE(equal(tensor, numbers(DType::FLOAT32, count, rank, 0)));
                        }
                        cluster.barrier(kPatience);
                      }),
                  no_errors(n));
      }
      EXPECT_EQ(num_wrong.load(), 0);
    }
  }
}

TEST_P(TwoLevelCollectivesTest, AnAbortEndsTheWaitOfAll) {
  const std::size_t n = num_ranks();
  for (const std::size_t aborting : {0UL, n - 1}) {
    std::atomic<std::size_t> num_waiting{n - 1};
    EXPECT_EQ(
        run(GetParam(),
            [&](TwoLevelCollectives& collectives, Cluster& cluster) {
              const auto rank = static_cast<std::size_t>(cluster.rank());
              if (rank == aborting) {
                cluster.abort_collective_ops("that is enough");
                while (num_waiting.load() > 0) std::this_thread::yield();
                return;
              }
              const Tensor tensor = numbers(DType::FLOAT32, 5000, rank, 0);
              const std::vector<Value> values = {{{tensor}, {tensor}}};
              EXPECT_EQ(
                  check_error<AbortedError>(
                      "that is enough", {static_cast<int>(aborting)},
                      [&] { collectives.all_reduce(request_of(ReduceOp::SUM), views(values)); }),
                  0);
              --num_waiting;
            }),
        no_errors(n));
  }
}

}  // namespace
}  // namespace crossdevice
