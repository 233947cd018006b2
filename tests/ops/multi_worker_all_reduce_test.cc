// SPDX-License-Identifier: Apache-2.0
// MultiWorkerAllReduce in one process: every algorithm bit by bit as its schedule says, packing, limits, mixtures, and what it refuses.
#include "crossdevice/ops/multi_worker_all_reduce.h"

#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/ops/gradient_bucketer.h"
#include "crossdevice/ops/reduction_to_one_device.h"
#include "crossdevice/strategy/mirrored_strategy.h"

#include "ops/detail/worker_layout.h"
#include "support/reference_schedule.h"
#include "support/replicas.h"
#include "support/workers.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kAlgorithms[] = {"nccl",       "xring",      "rechd",
                                       "pscpu",      "psgpu",      "nccl/xring",
                                       "nccl/rechd", "nccl/pscpu", "pscpu/pscpu"};

MultiWorkerAllReduceOptions with(const char* algorithm, int shards = 1) {
  return {.all_reduce_spec = {algorithm, shards, -1}};
}

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  const auto* const data = static_cast<const std::byte*>(tensor.data());
  return {data, data + tensor.size_bytes()};
}

/// Small random numbers, different on every device.
PerReplica random_value(DType dtype, std::size_t count, const Devices& devices,
                        std::mt19937& random) {
  std::vector<Tensor> tensors;
  for (const Device& device : devices) {
    Tensor tensor = Tensor::empty(dtype, {count}, device);
    for (std::size_t i = 0; i < count; ++i) {
      const float value = std::uniform_real_distribution<float>(-4, 4)(random);
      if (dtype == DType::FLOAT32) store_element(tensor.data(), i, value);
      if (dtype == DType::BFLOAT16) store_element(tensor.data(), i, bfloat16(value));
      if (dtype == DType::FLOAT16) store_element(tensor.data(), i, float16(value));
    }
    tensors.push_back(std::move(tensor));
  }
  return PerReplica(tensors);
}

/// What the algorithm's schedule, executed step by step, gives.
std::vector<std::byte> expected_bytes(const AllReduceSpecTuple& algorithm, ReduceOp op,
                                      const Devices& workers, const PerReplica& value) {
  const auto layout = detail::make_worker_layout(workers, value.devices());
  const Schedule schedule =
      detail::make_worker_schedule(layout, {.algorithm = algorithm,
                                            .num_gpus_per_worker = 2,
                                            .num_elements = value.values()[0].num_elements()});
  std::vector<const void*> inputs;
  for (const Tensor& tensor : value.values()) inputs.push_back(tensor.data());
  return reference_execute(schedule, op, value.dtype(), inputs)[0];
}

TEST(MultiWorkerAllReduceTest, EveryAlgorithmHasTheBitsOfItsSchedule) {
  std::mt19937 random(7);
  for (const std::size_t num_workers : {1u, 2u, 3u, 4u}) {
    for (const std::size_t per_worker : {1u, 2u, 3u}) {
      const Devices devices = worker_devices(num_workers, per_worker);
      for (const char* const name : kAlgorithms) {
        for (const int shards : {1, 3}) {
          const AllReduceSpecTuple algorithm{name, shards, -1};
          MultiWorkerAllReduce ops(workers(num_workers), 2, with(name, shards));
          for (const DType dtype : {DType::FLOAT32, DType::BFLOAT16}) {
            for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::MEAN}) {
              const PerReplica value = random_value(dtype, 101, devices, random);
              const auto expected = expected_bytes(algorithm, op, workers(num_workers), value);
              const Mirrored result = ops.reduce(op, value, value);
              ASSERT_EQ(result.devices(), devices);
              for (const Tensor& tensor : result.values()) {
                ASSERT_EQ(bytes_of(tensor), expected)
                    << name << "#" << shards << ", " << num_workers << " x " << per_worker;
              }
              ops.reduce_into(op, value, value);
              for (const Tensor& tensor : value.values()) ASSERT_EQ(bytes_of(tensor), expected);
            }
          }
        }
      }
    }
  }
}

TEST(MultiWorkerAllReduceTest, DevicesOfWorkersMayStandInAnyOrder) {
  const Devices devices{worker_device(1, 0), worker_device(0, 3), worker_device(1, 2),
                        worker_device(2, 0), worker_device(0, 1)};
  const Devices back{devices[4], devices[2], devices[0], devices[1], devices[3]};
  const PerReplica value = value_on(devices, {{1, 2}, {4, 8}, {16, 32}, {64, 128}, {256, 512}});
  for (const char* const name : kAlgorithms) {
    MultiWorkerAllReduce ops(workers(3), 2, with(name, 2));
    expect_mirrored(ops.reduce(ReduceOp::SUM, value, back), back, {341, 682});
  }
}

TEST(MultiWorkerAllReduceTest, EveryOpAndPromotion) {
  const Devices devices = worker_devices(2, 2);
  const auto ints = value_on<std::int16_t>(devices, {{30000}, {30000}, {-7}, {2}});
  for (const char* const name : kAlgorithms) {
    MultiWorkerAllReduce ops(workers(2), 2, with(name, 2));
    EXPECT_EQ(elements<float>(ops.reduce(ReduceOp::MEAN, ints, ints).values()[3]),
              std::vector<float>{59995.0f / 4});
    EXPECT_EQ(elements<std::int16_t>(ops.reduce(ReduceOp::MIN, ints, ints).values()[1]),
              std::vector<std::int16_t>{-7});
    const PerReplica floats = value_on(devices, {{2}, {3}, {-5}, {0.5}});
    expect_mirrored(ops.reduce(ReduceOp::PROD, floats, floats), devices, {-15});
    expect_mirrored(ops.reduce(ReduceOp::MAX, floats, floats), devices, {3});
    expect_mirrored(ops.reduce(ReduceOp::MIN, floats, floats), devices, {-5});
  }
}

TEST(MultiWorkerAllReduceTest, DeterministicIsTheReplicaOrder) {
  std::mt19937 random(3);
  const Devices devices = worker_devices(3, 2);
  ReductionToOneDevice plain;
  for (const DType dtype : {DType::FLOAT32, DType::FLOAT16}) {
    const PerReplica value = random_value(dtype, 1000, devices, random);
    const Mirrored expected = plain.reduce(ReduceOp::MEAN, value, value);
    for (const char* const name : kAlgorithms) {
      MultiWorkerAllReduce ops(workers(3), 2, {.all_reduce_spec = {name, 2, -1}, .num_packs = 3});
      const CommunicationOptions options{.deterministic = true};
      const auto batch =
          ops.batch_reduce(ReduceOp::MEAN, {{value, value}, {value, value}}, options);
      for (const Mirrored& result :
           {batch[0], batch[1], ops.reduce(ReduceOp::MEAN, value, value, options)}) {
        for (const Tensor& tensor : result.values()) {
          EXPECT_EQ(bytes_of(tensor), bytes_of(expected.values()[0])) << name;
        }
      }
    }
  }
}

/// Exact sums: value i of a batch holds small integers that differ by replica and place.
std::vector<PerReplica> exact_batch(const Devices& devices, const std::vector<std::size_t>& sizes) {
  std::vector<PerReplica> values;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<std::vector<float>> components;
    for (std::size_t r = 0; r < devices.size(); ++r) {
      std::vector<float> component;
      for (std::size_t k = 0; k < sizes[i]; ++k) {
        component.push_back(static_cast<float>(1 + (i * 31 + k * 7 + r * 13) % 64));
      }
      components.push_back(std::move(component));
    }
    values.push_back(value_on(devices, components));
  }
  return values;
}

TEST(MultiWorkerAllReduceTest, EveryPackingGivesResultsInInputOrder) {
  const Devices devices = worker_devices(2, 3);
  const std::vector<std::size_t> sizes{200, 1, 0, 33, 2, 3000, 4, 5, 6, 1};
  const std::vector<PerReplica> values = exact_batch(devices, sizes);
  std::vector<ValueDestinationPair> pairs;
  for (const PerReplica& value : values) pairs.push_back({value, value});
  ReductionToOneDevice plain;
  const std::vector<Mirrored> expected = plain.batch_reduce(ReduceOp::SUM, pairs);

  const AllReduceSpec spec = "xring#2:16:pscpu:400:nccl/rechd#2:1k:pscpu/pscpu#2";
  const MultiWorkerAllReduceOptions packings[] = {
      {.all_reduce_spec = spec},
      {.all_reduce_spec = spec, .num_packs = 1},
      {.all_reduce_spec = spec, .num_packs = 7},
      {.all_reduce_spec = spec, .agg_small_grads_max_bytes = 100, .agg_small_grads_max_group = 10},
      {.all_reduce_spec = spec, .agg_small_grads_max_bytes = 1 << 20},
  };
  for (const MultiWorkerAllReduceOptions& packing : packings) {
    MultiWorkerAllReduce ops(workers(2), 2, packing);
    for (const int bytes_per_pack : {0, 1, 40, 5000}) {
      const auto results =
          ops.batch_reduce(ReduceOp::SUM, pairs, {.bytes_per_pack = bytes_per_pack});
      ASSERT_EQ(results.size(), sizes.size());
      for (std::size_t i = 0; i < results.size(); ++i) {
        expect_mirrored(results[i], devices, elements(expected[i].values()[0]));
      }
    }
  }
}

TEST(MultiWorkerAllReduceTest, ABatchMayMixEverything) {
  const Devices devices = worker_devices(2, 1);
  const Devices four = worker_devices(2, 2);
  const PerReplica small = value_on(devices, {{1}, {2}});
  const PerReplica large =
      value_on(devices, {std::vector<float>(500, 1), std::vector<float>(500, 2)});
  const PerReplica wide = value_on(four, {{1}, {2}, {3}, {4}});
  const PerReplica ints = value_on<std::int64_t>(devices, {{5}, {6}});
  const PerReplica sparse{slices_of({1, 2}, {1}, {5, 2}, devices[0]),
                          slices_of({3, 4, 5, 6}, {1, 3}, {5, 2}, devices[1])};
  const PerReplica elsewhere =
      per_replica({{7.0f}, {8.0f}});  // of no worker, reduced to one device
  MultiWorkerAllReduce ops(workers(2), 2,
                           {.all_reduce_spec = "xring:100:nccl/pscpu", .num_packs = 2});
  const std::vector<ValueDestinationPair> pairs{
      {large, large}, {sparse, sparse}, {small, small},  {elsewhere, "CPU:0"},
      {wide, wide},   {ints, ints},     {small, "CPU:3"}};
  for (int repetition = 0; repetition < 2; ++repetition) {
    const std::vector<Mirrored> sums = ops.batch_reduce(ReduceOp::SUM, pairs);
    ASSERT_EQ(sums.size(), pairs.size());
    expect_mirrored(sums[0], devices, std::vector<float>(500, 3));
    ASSERT_EQ(sums[1].devices(), devices);
    for (const IndexedSlices& slices : sums[1].slices()) {
      expect_slices(slices, {1, 2, 3, 4, 5, 6}, {1, 1, 3});
    }
    expect_mirrored(sums[2], devices, {3});
    expect_mirrored(sums[3], cpus(1), {15});
    expect_mirrored(sums[4], four, {10});
    EXPECT_EQ(elements<std::int64_t>(sums[5].values()[1]), std::vector<std::int64_t>{11});
    expect_mirrored(sums[6], cpu(3), {3});
  }
  EXPECT_TRUE(ops.batch_reduce(ReduceOp::SUM, {}).empty());
}

TEST(MultiWorkerAllReduceTest, InPlaceAndAsynchronousFormsGiveTheSame) {
  const Devices devices = worker_devices(2, 2);
  const std::vector<PerReplica> values = exact_batch(devices, {100, 3, 5000, 0, 1});
  std::vector<ValueDestinationPair> pairs;
  for (const PerReplica& value : values) pairs.push_back({value, value});
  MultiWorkerAllReduce ops(workers(2), 2,
                           {.all_reduce_spec = "rechd:1k:nccl/xring#2", .num_packs = 2});
  const std::vector<Mirrored> expected = ops.batch_reduce(ReduceOp::MEAN, pairs);

  PendingBatch pending = ops.batch_reduce_async(ReduceOp::MEAN, pairs, {.bytes_per_pack = 64});
  std::vector<std::size_t> completed;
  for (const std::size_t i : pending.in_completion_order()) completed.push_back(i);
  EXPECT_THAT(completed, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    expect_mirrored(pending.value(i), devices, elements(expected[i].values()[0]));
  }
  pending.wait();

  PendingBatch in_place = ops.batch_reduce_into_async(ReduceOp::MEAN, values);
  in_place.wait();
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (const Tensor& tensor : values[i].values()) {
      EXPECT_EQ(elements(tensor), elements(expected[i].values()[0]));
    }
  }
}

TEST(MultiWorkerAllReduceTest, ABucketerOverlapsIt) {
  const Devices devices = worker_devices(2, 2);
  const std::vector<PerReplica> values = exact_batch(devices, {50, 3, 700, 1, 9000});
  ReductionToOneDevice plain;
  std::vector<std::vector<float>> expected;
  for (const PerReplica& value : values) {
    expected.push_back(elements(plain.reduce(ReduceOp::SUM, value, value).values()[0]));
  }
  MultiWorkerAllReduce ops(workers(2), 2, {.all_reduce_spec = "xring#2:1k:nccl/rechd"});
  GradientBucketer bucketer(ops, values,
                            {.op = ReduceOp::SUM, .communication = {.bytes_per_pack = 256}});
  for (std::size_t i = values.size(); i-- > 0;) bucketer.ready(i);
  bucketer.wait();
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (const Tensor& tensor : values[i].values()) EXPECT_EQ(elements(tensor), expected[i]);
  }
}

// TF's in-graph replication: one strategy over the devices of several workers.
TEST(MultiWorkerAllReduceTest, AStrategyOverSeveralWorkersUsesIt) {
  for (const char* const name : kAlgorithms) {
    MirroredStrategy strategy(
        {.devices = worker_devices(2, 2),
         .cross_device_ops = std::make_shared<MultiWorkerAllReduce>(workers(2), 2, with(name))});
    const PerReplica sums = strategy.run([](ReplicaContext& context) {
      const std::size_t id = context.replica_id_in_sync_group();
      const Tensor mine = vector_of<float>({static_cast<float>(id), 1}, context.device());
      return context.all_reduce(ReduceOp::SUM, mine);
    });
    for (const Tensor& tensor : sums.values()) {
      EXPECT_EQ(elements(tensor), (std::vector<float>{6, 4})) << name;
    }
  }
}

TEST(MultiWorkerAllReduceTest, APassedDeadlineIsAnErrorAndTouchesNothing) {
  const Devices devices = worker_devices(2, 1);
  const PerReplica value = value_on(devices, {{1, 2, 3}, {4, 5, 6}});
  MultiWorkerAllReduce ops(workers(2), 1);
  try {
    ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 1e-9});
    FAIL() << "no deadline";
  } catch (const DeadlineExceededError& error) {
    EXPECT_TRUE(error.inputs_intact());
  }
  EXPECT_EQ(elements(value.values()[0]), (std::vector<float>{1, 2, 3}));
  ops.reduce_into(ReduceOp::SUM, value, value);
  EXPECT_EQ(elements(value.values()[0]), (std::vector<float>{5, 7, 9}));
}

TEST(MultiWorkerAllReduceTest, AValueOfNoWorkerIsRefusedBeforeAnythingIsWritten) {
  const Devices devices = worker_devices(2, 1);
  const PerReplica good = value_on(devices, {{1}, {2}});
  const PerReplica stranger = per_replica({{3.0f}, {4.0f}});
  MultiWorkerAllReduce ops(workers(2), 1);
  const std::vector<PerReplica> values{good, stranger};
  const char* const words = "component 0 is on /job:localhost/replica:0/task:0/device:CPU:0";
  EXPECT_THAT([&] { ops.reduce_into(ReduceOp::SUM, stranger, stranger); },
              ThrowsMessage<ValueError>(HasSubstr(words)));
  EXPECT_THAT([&] { ops.batch_reduce_into(ReduceOp::SUM, values); },
              ThrowsMessage<ValueError>(HasSubstr(words)));
  PendingBatch pending = ops.batch_reduce_into_async(ReduceOp::SUM, values);
  EXPECT_THAT([&] { pending.wait(); }, ThrowsMessage<ValueError>(HasSubstr(words)));
  EXPECT_EQ(elements(good.values()[0]), std::vector<float>{1});
  EXPECT_EQ(elements(stranger.values()[0]), std::vector<float>{3});
  ops.check();  // wait() has reported it
}

TEST(MultiWorkerAllReduceTest, TheNcclLevelIsAnnouncedOnce) {
  const CapturedLog log;
  MultiWorkerAllReduce silent(workers(2), 1);
  const PerReplica value = value_on(worker_devices(2, 1), {{1}, {2}});
  expect_mirrored(silent.reduce(ReduceOp::SUM, value, value), value.devices(), {3});
  const auto mentions_nccl = [&log] {
    std::size_t count = 0;
    for (const std::string& message : log.messages()) {
      if (message.find("NCCL") != std::string::npos) ++count;
    }
    return count;
  };
  EXPECT_EQ(mentions_nccl(), 0u);
  // Another test of this process may have announced it before.
  for (const char* const name : {"nccl", "nccl/xring", "nccl/rechd"}) {
    MultiWorkerAllReduce ops(workers(2), 1, with(name));
    expect_mirrored(ops.reduce(ReduceOp::SUM, value, value), value.devices(), {3});
  }
  EXPECT_LE(mentions_nccl(), 1u);
}

TEST(MultiWorkerAllReduceTest, ManyKindsOfBatchesReplaceEachOther) {
  const Devices devices = worker_devices(2, 1);
  MultiWorkerAllReduce ops(workers(2), 1, with("xring"));
  for (int repetition = 0; repetition < 2; ++repetition) {
    for (std::size_t count = 1; count <= 150; ++count) {
      const PerReplica value =
          value_on(devices, {std::vector<float>(count, 1), std::vector<float>(count, 2)});
      expect_mirrored(ops.reduce(ReduceOp::SUM, value, value), devices,
                      std::vector<float>(count, 3));
    }
  }
}

TEST(MultiWorkerAllReduceTest, EverythingIsCheckedAtConstruction) {
  const auto refuses = [](const Devices& worker_list, int num_gpus,
                          const MultiWorkerAllReduceOptions& options, const std::string& words) {
    EXPECT_THAT([&] { (void)MultiWorkerAllReduce(worker_list, num_gpus, options); },
                ThrowsMessage<ValueError>(HasSubstr(words)));
  };
  refuses({}, 1, {}, "worker_devices: expected at least one worker");
  refuses({"/job:worker/task:0", "/job:worker/replica:0/task:0"}, 1, {}, "stands in it twice");
  refuses({"/job:worker/task:0/GPU:0"}, 1, {}, "not the device");
  refuses({"/job:worker/task:0/CPU:1"}, 1, {}, "not the device");
  refuses(workers(1), -1, {}, "num_gpus_per_worker must be 0 or more, not -1");
  refuses(workers(1), 1, {.num_packs = -1}, "num_packs must be 0 or more, not -1");
  refuses(workers(1), 1, {.agg_small_grads_max_bytes = -1}, "agg_small_grads_max_bytes must be");
  refuses(workers(1), 1, {.agg_small_grads_max_group = -1}, "agg_small_grads_max_group must be");
  const MultiWorkerAllReduce ops(workers(1), 0);
  EXPECT_EQ(ops.all_reduce_spec(), (AllReduceSpec{"pscpu/pscpu", 2, -1}));
}

}  // namespace
}  // namespace crossdevice
