// SPDX-License-Identifier: Apache-2.0
// TensorFlow's own tests of its multi-worker all-reduce (catalogue 8.1, 8.5, 8.6) and its known defects there (section 9), in one process.
// Names are the catalogue's ids.
#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"

#include "support/workers.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

/// Scalars r + offset on device r.
PerReplica scalars(const Devices& devices, float offset) {
  std::vector<Tensor> components;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    components.push_back(scalar_of(static_cast<float>(r) + offset, devices[r]));
  }
  return PerReplica(components);
}

MultiWorkerAllReduceOptions options_of(int number) {
  const AllReduceSpec shuffles = {"pscpu/pscpu", 2, -1};
  switch (number) {
    case 0:
      return {.all_reduce_spec = shuffles, .agg_small_grads_max_group = 0};
    case 1:
      return {.all_reduce_spec = shuffles, .num_packs = 1, .agg_small_grads_max_group = 0};
    case 2:
      return {.all_reduce_spec = shuffles,
              .agg_small_grads_max_bytes = 100,
              .agg_small_grads_max_group = 10};
    default:
      return {.all_reduce_spec = {{"pscpu/pscpu", 2, 100}, {"xring", 2, -1}},
              .agg_small_grads_max_group = 0};
  }
}

// C14-5: C14-1's matrix over two workers with one or two devices each.
TEST(MultiWorkerConformance, C14_5_ReductionAndBroadcast) {
  const Devices local{"/job:worker/task:0/CPU:0"};
  for (int number = 0; number < 4; ++number) {
    MultiWorkerAllReduce ops(workers(2), 2, options_of(number));
    for (const Devices& devices : {worker_devices(2, 1), worker_devices(2, 2),
                                   Devices{worker_device(0, 1), worker_device(1, 1)}}) {
      const auto n = static_cast<float>(devices.size());
      const PerReplica value = scalars(devices, 0);
      const PerReplica value2 = scalars(devices, 1);
      const float mean = (n - 1) / 2;
      const std::vector<Destinations> destinations{value, local, "/device:CPU:0"};
      for (const Destinations& destination : destinations) {
        expect_mirrored(ops.reduce(ReduceOp::MEAN, value, destination), destination.devices(),
                        {mean});
        expect_mirrored(ops.reduce(ReduceOp::SUM, value2, destination), destination.devices(),
                        {(mean + 1) * n});
        expect_mirrored(ops.broadcast(scalar_of(1.0f, cpu(0)), destination), destination.devices(),
                        {1.0f});
        for (const Destinations& other : destinations) {
          for (const ReduceOp op : {ReduceOp::MEAN, ReduceOp::SUM}) {
            const float factor = op == ReduceOp::MEAN ? 1 : n;
            const auto results = ops.batch_reduce(op, {{value, destination}, {value2, other}});
            expect_mirrored(results[0], destination.devices(), {factor * mean});
            expect_mirrored(results[1], other.devices(), {factor * (mean + 1)});
          }
        }
      }
    }
  }
}

struct Layout {
  std::size_t num_workers;
  std::size_t per_worker;
  std::vector<Int64> shape;
  int shards;
};

/// TF's inputs: element i of device d is i + 0.01 d. Every output must be the mean (TF: the sum of all outputs must be right).
void expect_means(const char* algorithm, const Layout& layout) {
  const Devices devices = worker_devices(layout.num_workers, layout.per_worker);
  std::int64_t count = 1;
  std::vector<std::int64_t> dims;
  for (const Int64 dim : layout.shape) {
    dims.push_back(dim.value());
    count *= dim.value();
  }
  const Shape shape{std::span<const std::int64_t>(dims)};
  std::vector<Tensor> components;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    std::vector<float> elements;
    for (std::int64_t i = 0; i < count; ++i) {
      elements.push_back(static_cast<float>(i) + 0.01f * static_cast<float>(d));
    }
    components.push_back(tensor_of(elements, shape, devices[d]));
  }
  MultiWorkerAllReduce ops(workers(layout.num_workers), static_cast<int>(layout.per_worker),
                           {.all_reduce_spec = {algorithm, layout.shards, -1}});
  const PerReplica value(components);
  const Mirrored means = ops.reduce(ReduceOp::MEAN, value, value);
  ASSERT_EQ(means.devices(), devices);
  for (const Tensor& tensor : means.values()) {
    EXPECT_EQ(tensor.shape(), shape);
    const std::vector<float> result = elements(tensor);
    for (std::size_t i = 0; i < result.size(); ++i) {
      const double expected =
          static_cast<double>(i) + 0.01 * (static_cast<double>(devices.size()) - 1) / 2;
      EXPECT_NEAR(result[i], expected, 1e-5 * (1 + expected)) << algorithm << ", element " << i;
    }
  }
}

TEST(MultiWorkerConformance, AR_4_RingAllReduce) {
  const Layout layouts[] = {{1, 2, {}, 1},       {1, 2, {8}, 1},    {1, 2, {4, 4}, 1},
                            {6, 1, {8}, 1},      {1, 8, {32}, 1},   {1, 8, {120}, 1},
                            {2, 8, {7, 13}, 1},  {2, 8, {8, 8}, 2}, {2, 8, {8, 8}, 4},
                            {4, 8, {8, 8, 2}, 4}};
  for (const Layout& layout : layouts) expect_means("xring", layout);
}

TEST(MultiWorkerConformance, AR_5_ShuffleAllReduce) {
  const Layout layouts[] = {{1, 2, {}, 1},     {1, 2, {8}, 1},    {1, 2, {4, 4}, 1},
                            {1, 8, {32}, 1},   {1, 8, {120}, 1},  {2, 8, {7, 13}, 3},
                            {2, 8, {8, 8}, 2}, {2, 8, {8, 8}, 4}, {4, 8, {8, 8, 2}, 4}};
  for (const Layout& layout : layouts) {
    expect_means("pscpu", layout);
    expect_means("psgpu", layout);
  }
}

TEST(MultiWorkerConformance, AR_6_RecursiveHalvingDoubling) {
  const Layout layouts[] = {{1, 2, {8}, 1},   {1, 2, {4, 4}, 1}, {1, 8, {32}, 1},
                            {1, 8, {120}, 1}, {2, 8, {8, 8}, 1}, {4, 8, {8, 8, 2}, 1},
                            {3, 5, {7}, 1}};
  for (const Layout& layout : layouts) expect_means("rechd", layout);
}

// TB-7: packed and unpacked, xring on 3 and on 2 devices.
TEST(MultiWorkerConformance, TB_7_AllReducePacked) {
  for (const std::size_t num_devices : {3u, 2u}) {
    const Devices devices = worker_devices(1, num_devices);
    std::vector<PerReplica> values;
    for (const std::size_t count : {8u, 9u, 12u, 125u}) {
      std::vector<std::vector<float>> components;
      for (std::size_t d = 0; d < num_devices; ++d) {
        components.emplace_back(count, static_cast<float>(count + 100 * d));
      }
      values.push_back(value_on(devices, components));
    }
    std::vector<ValueDestinationPair> pairs;
    for (const PerReplica& value : values) pairs.push_back({value, value});
    MultiWorkerAllReduce unpacked(workers(1), 3, {.all_reduce_spec = "xring"});
    MultiWorkerAllReduce packed(workers(1), 3,
                                {.all_reduce_spec = "xring", .agg_small_grads_max_bytes = 40});
    const auto expected = unpacked.batch_reduce(ReduceOp::SUM, pairs);
    const auto results = packed.batch_reduce(ReduceOp::SUM, pairs);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      expect_mirrored(results[i], devices, elements(expected[i].values()[0]));
    }
  }
}

TEST(MultiWorkerDefects, D2_ResultsOfSeveralSpecsAreInInputOrder) {
  const Devices devices = worker_devices(2, 1);
  const PerReplica large =
      value_on(devices, {std::vector<float>(200, 1), std::vector<float>(200, 2)});
  const PerReplica small = value_on(devices, {{10}, {20}});
  MultiWorkerAllReduce ops(workers(2), 1,
                           {.all_reduce_spec = {{"pscpu/pscpu", 2, 100}, {"xring", 2, -1}}});
  const auto sums = ops.batch_reduce(ReduceOp::SUM, {{large, large}, {small, small}});
  expect_mirrored(sums[0], devices, std::vector<float>(200, 3));
  expect_mirrored(sums[1], devices, {30});
}

// 3: a float32 tensor of 25 elements has 100 bytes. Which algorithm reduces it shows in the last bit: 1 + (2^24 - 2^24), in ring order or not.
TEST(MultiWorkerDefects, D3_LimitsAreBytes) {
  const Devices devices = worker_devices(1, 3);
  const auto value = [&](std::size_t count) {
    return value_on(devices, {std::vector<float>(count, 1), std::vector<float>(count, 16777216),
                              std::vector<float>(count, -16777216)});
  };
  MultiWorkerAllReduce ops(workers(1), 3,
                           {.all_reduce_spec = {{"pscpu", 1, 100}, {"xring", 1, -1}}});
  const PerReplica at_limit = value(25);
  const PerReplica beyond = value(26);
  const auto sums = ops.batch_reduce(ReduceOp::SUM, {{at_limit, at_limit}, {beyond, beyond}});
  expect_mirrored(sums[0], devices, std::vector<float>(25, 0));  // (1 + 2^24) - 2^24
  const std::vector<float> ring = elements(sums[1].values()[0]);
  EXPECT_EQ(ring[0], 1) << "segment 0 is summed as (b + c) + a";
  EXPECT_EQ(ring[25], 0) << "segment 2 is summed as (a + b) + c";
}

TEST(MultiWorkerDefects, D4_InterleavedTasksKeepTheirResults) {
  const Devices devices{worker_device(0, 0), worker_device(1, 0), worker_device(0, 1),
                        worker_device(1, 1)};
  const PerReplica value = value_on(devices, {{1}, {2}, {4}, {8}});
  for (const char* const name : {"nccl/xring", "nccl/rechd", "nccl/pscpu", "pscpu/pscpu"}) {
    MultiWorkerAllReduce ops(workers(2), 2, {.all_reduce_spec = name});
    std::vector<Tensor> outputs;
    for (const Device& device : devices) outputs.push_back(vector_of<float>({0}, device));
    ops.reduce_into(ReduceOp::SUM, value, PerReplica(outputs));
    for (const Tensor& output : outputs) EXPECT_EQ(elements(output), std::vector<float>{15});
  }
}

TEST(MultiWorkerDefects, D13_SmallTensorsOfEveryDtypeAreAggregated) {
  const Devices devices = worker_devices(2, 1);
  const auto doubles = value_on<double>(devices, {{1}, {2}});
  const auto floats = value_on<float>(devices, {{3}, {4}});
  MultiWorkerAllReduce ops(workers(2), 1,
                           {.agg_small_grads_max_bytes = 64, .agg_small_grads_max_group = 2});
  const auto sums = ops.batch_reduce(
      ReduceOp::SUM,
      {{doubles, doubles}, {floats, floats}, {doubles, doubles}, {doubles, doubles}});
  for (const std::size_t i : {0u, 2u, 3u}) {
    EXPECT_EQ(elements<double>(sums[i].values()[1]), std::vector<double>{3});
  }
  expect_mirrored(sums[1], devices, {7});
}

TEST(MultiWorkerDefects, D22_TheDefaultWorksWithOneWorkerAndRingsWithManyShards) {
  for (const std::size_t per_worker : {1u, 2u, 5u}) {
    const Devices devices = worker_devices(1, per_worker);
    const PerReplica value = scalars(devices, 1);
    const auto n = static_cast<float>(per_worker);
    MultiWorkerAllReduce ops(workers(1), 1);
    expect_mirrored(ops.reduce(ReduceOp::SUM, value, value), devices, {n * (n + 1) / 2});
    MultiWorkerAllReduce ring(workers(1), 1, {.all_reduce_spec = "nccl/xring#3"});
    expect_mirrored(ring.reduce(ReduceOp::MEAN, value, value), devices, {(n + 1) / 2});
  }
}

TEST(MultiWorkerDefects, D23_WorkersMayHaveDifferentNumbersOfDevices) {
  const Devices devices{worker_device(0, 0), worker_device(0, 1), worker_device(0, 2),
                        worker_device(1, 0)};
  const PerReplica value = scalars(devices, 1);
  for (const char* const name : {"xring#2", "rechd", "psgpu#2", "pscpu/pscpu"}) {
    MultiWorkerAllReduce ops(workers(2), 2, {.all_reduce_spec = name});
    expect_mirrored(ops.reduce(ReduceOp::SUM, value, value), devices, {10});
  }
}

TEST(MultiWorkerDefects, D47_BadShardsAreAValueError) {
  EXPECT_THROW((void)MultiWorkerAllReduce(workers(1), 1, {.all_reduce_spec = "nccl#x"}),
               ValueError);
}

}  // namespace
}  // namespace crossdevice
