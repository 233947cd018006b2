// SPDX-License-Identifier: Apache-2.0
// MultiWorkerAllReduce on emulated GPUs: every algorithm against the same values on hosts, NCCL where it can and what stands in where it cannot, packs, mixtures
// with hosts, deadlines, captures, and what it refuses.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "ops/multi_worker_gpu_fixture.h"
#include "support/gpu_values.h"
#include "support/multi_worker_gpus.h"
#include "support/replicas.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kPrepared = testing::install_gpus_and_log_all();

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

/// All in which hosts have a part.
constexpr const char* kScheduled[] = {"xring",      "rechd",      "pscpu",      "psgpu",
                                      "nccl/xring", "nccl/rechd", "nccl/pscpu", "pscpu/pscpu"};

/// Random numbers whose sums depend on the order, one tensor for each of `count` replicas.
std::vector<Tensor> random_components(DType dtype, std::size_t num_elements, std::size_t count) {
  static std::mt19937 random(11);
  std::vector<Tensor> tensors;
  for (std::size_t r = 0; r < count; ++r) {
    Tensor tensor = Tensor::empty(dtype, {num_elements}, "CPU:0");
    for (std::size_t i = 0; i < num_elements; ++i) {
      const float value = std::uniform_real_distribution<float>(-4, 4)(random);
      if (dtype == DType::FLOAT32) store_element(tensor.data(), i, value);
      if (dtype == DType::BFLOAT16) store_element(tensor.data(), i, bfloat16(value));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

/// Component r on devices[r].
PerReplica placed(const std::vector<Tensor>& components, const Devices& devices) {
  std::vector<Tensor> tensors;
  for (std::size_t r = 0; r < components.size(); ++r) {
    tensors.push_back(copy_to_device(components[r], devices[r]));
  }
  return PerReplica(tensors);
}

class MultiWorkerGpu : public testing::MultiWorkerGpuTest {};

// ---------------------------------------------------------------------------------------------- bits

/// Those with NCCL's level too: the emulated NCCL adds in order, and with two GPUs it rounds as often as the host does.
TEST_F(MultiWorkerGpu, EveryScheduleHasTheBitsThatItHasOnHosts) {
  for (const std::size_t num_workers : {1U, 2U, 3U}) {
    for (const std::size_t per_worker : {1U, 2U}) {
      const std::size_t n = num_workers * per_worker;
      const Devices hosts = worker_devices(num_workers, per_worker);
      const Devices gpus_of_all = worker_gpus(num_workers, per_worker);
      for (const char* const name : kScheduled) {
        const int shards = per_worker == 1 ? 1 : 3;
        MultiWorkerAllReduce ops(workers(num_workers), 2, with(name, shards));
        const std::string what = std::string(name) + ", " + std::to_string(num_workers) + " x " +
                                 std::to_string(per_worker);
        for (const DType dtype : {DType::FLOAT32, DType::BFLOAT16}) {
          for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::MEAN, ReduceOp::MAX}) {
            const std::vector<Tensor> components = random_components(dtype, 101, n);
            const PerReplica there = placed(components, hosts);
            const PerReplica value = placed(components, gpus_of_all);
            const auto expected = bytes_of(ops.reduce(op, there, there).values()[0]);
            const Mirrored result = ops.reduce(op, value, value);
            ASSERT_EQ(result.devices(), gpus_of_all);
            expect_bytes(result, expected, what);
            expect_bytes(PerReplica(value.values()[0]), bytes_of(components[0]), what);  // intact
            ops.reduce_into(op, value, value);
            expect_bytes(value, expected, what + " in place");
          }
        }
      }
    }
  }
}

TEST_F(MultiWorkerGpu, SomeOnGpusAndSomeOnHosts) {
  const Devices hosts = worker_devices(2, 2);
  const Devices mixed{worker_gpu(0, 3), worker_device(0, 1), worker_device(1, 0), worker_gpu(1, 1)};
  const Devices back{mixed[2], mixed[3], mixed[1], mixed[0]};
  std::vector<const char*> names(std::begin(kScheduled), std::end(kScheduled));
  names.push_back("nccl");
  for (const char* const name : names) {
    MultiWorkerAllReduce ops(workers(2), 2, with(name, 2));
    const std::vector<Tensor> components = random_components(DType::FLOAT32, 77, 4);
    const PerReplica there = placed(components, hosts);
    const PerReplica value = placed(components, mixed);
    const auto expected = bytes_of(ops.reduce(ReduceOp::MEAN, there, there).values()[0]);
    const Mirrored result = ops.reduce(ReduceOp::MEAN, value, back);
    ASSERT_EQ(result.devices(), back);
    expect_bytes(result, expected, name);
    ops.reduce_into(ReduceOp::MEAN, value, value);
    expect_bytes(value, expected, name);
  }
}

TEST_F(MultiWorkerGpu, DeterministicIsTheReplicaOrder) {
  const Devices devices = worker_gpus(2, 2);
  const PerReplica value = placed(random_components(DType::FLOAT32, 300, 4), devices);
  ReductionToOneDevice plain;
  const auto expected = bytes_of(plain.reduce(ReduceOp::SUM, value, value).values()[0]);
  for (const char* const name : {"nccl", "xring", "nccl/rechd"}) {
    MultiWorkerAllReduce ops(workers(2), 2, with(name, 2));
    expect_bytes(ops.reduce(ReduceOp::SUM, value, value, {.deterministic = true}), expected, name);
  }
}

// ---------------------------------------------------------------------------------------------- NCCL

TEST_F(MultiWorkerGpu, NcclIsOneCallOnEachGpuAndNothingElse) {
  MultiWorkerAllReduce ops(workers(2), 2, with("nccl"));
  const Devices devices = worker_gpus(2, 2);
  const PerReplica value = exact_value(devices, 100'000, 1);
  ops.reduce_into(ReduceOp::SUM, value, value);  // makes the communicators
  const std::vector<float> before = elements(value.values()[0]);
  emulated_cuda().calls().clear();
  ops.reduce_into(ReduceOp::SUM, value, value);
  EXPECT_EQ(count("nccl.all_reduce"), 4U);
  EXPECT_EQ(count("kernels.reduce"), 0U);
  EXPECT_EQ(count("cuda.memcpy_async"), 0U);
  std::vector<float> expected = before;
  for (float& element : expected) element *= 4;
  expect_mirrored(value, devices, expected);
}

TEST_F(MultiWorkerGpu, NcclTakesThePacksOfTheOptions) {
  const Devices devices = worker_gpus(2, 1);
  std::vector<PerReplica> values;
  for (const std::size_t size : {100U, 50U, 1U, 0U, 700U, 20U}) {
    values.push_back(exact_value(devices, size, 3));
  }
  values.push_back(value_on<std::int32_t>(devices, {{5, 6}, {7, 8}}));
  std::vector<ValueDestinationPair> pairs;
  pairs.reserve(values.size() + 2);
  for (const PerReplica& value : values) pairs.push_back({value, value});
  ReductionToOneDevice plain;
  const std::vector<Mirrored> expected = plain.batch_reduce(ReduceOp::SUM, pairs);
  struct Case {
    MultiWorkerAllReduceOptions options;
    int bytes_per_pack;
    std::size_t num_packs;  // of float32 and of int32
  };
  const AllReduceSpec spec = "nccl#2";
  const std::vector<Case> cases{
      {{.all_reduce_spec = spec, .num_packs = 1}, 0, 2},
      {{.all_reduce_spec = spec, .num_packs = 2}, 0, 4},
      {{.all_reduce_spec = spec}, 1 << 20, 2},
      // {100, 50, 1, 0} and the two that are larger or alone
      {{.all_reduce_spec = spec, .agg_small_grads_max_bytes = 400, .agg_small_grads_max_group = 9},
       0,
       4},
  };
  MultiWorkerAllReduce first(workers(2), 1, with("nccl"));
  (void)first.reduce(ReduceOp::SUM, values[0], values[0]);  // makes the communicators
  for (const Case& each : cases) {
    MultiWorkerAllReduce ops(workers(2), 1, each.options);
    for (int repetition = 0; repetition < 2; ++repetition) {
      emulated_cuda().calls().clear();
      const std::vector<Mirrored> results =
          ops.batch_reduce(ReduceOp::SUM, pairs, {.bytes_per_pack = each.bytes_per_pack});
      EXPECT_EQ(count("nccl.all_reduce"), 2 * each.num_packs);
      EXPECT_EQ(count("kernels.reduce"), 0U);
      for (std::size_t i = 0; i < results.size(); ++i) {
        expect_bytes(results[i], bytes_of(expected[i].values()[0]), std::to_string(i));
      }
    }
  }
}

TEST_F(MultiWorkerGpu, WhatNcclCannotDoOurKernelsDoAndThatIsSaidOnce) {
  const CapturedLog log;
  const auto said = [&log](std::string_view words) {
    const std::vector<std::string> messages = log.messages();
    return std::count_if(messages.begin(), messages.end(), [&](const std::string& message) {
      return message.find(words) != std::string::npos;
    });
  };
  MultiWorkerAllReduce ops(workers(2), 1, with("nccl"));
  const PerReplica value = value_on<float16>(worker_gpus(2, 1), {{float16(1)}, {float16(3)}});
  (void)ops.reduce(ReduceOp::SUM, value, value);  // makes the communicators
  for (int repetition = 0; repetition < 2; ++repetition) {
    emulated_cuda().calls().clear();
    const Mirrored least = ops.reduce(ReduceOp::MIN, value, value);
    expect_bytes(least, bytes_of(value.values()[0]), "MIN");
    EXPECT_EQ(count("nccl.all_reduce"), 0U);
    EXPECT_GT(count("kernels.reduce"), 0U);
  }
  EXPECT_EQ(said("NCCL has no MIN of float16"), 1);
  // Two workers' names for one GPU.
  const PerReplica twice = value_on({worker_gpu(0, 0), worker_gpu(1, 0)}, {{1, 5}, {3, 2}});
  for (int repetition = 0; repetition < 2; ++repetition) {
    expect_mirrored(ops.reduce(ReduceOp::SUM, twice, twice), twice.devices(), {4, 7});
  }
  EXPECT_EQ(said("several of these are on GPU 0, and NCCL takes each GPU once; the library's own"),
            1);
  EXPECT_EQ(count("nccl.all_reduce"), 0U);
}

// ---------------------------------------------------------------------------------------------- batches

TEST_F(MultiWorkerGpu, EveryPackingGivesResultsInInputOrder) {
  const Devices on_gpus = worker_gpus(2, 2);
  const Devices on_hosts = worker_devices(2, 2);
  const Devices mixed{worker_gpu(0, 0), worker_device(0, 1), worker_gpu(1, 2), worker_gpu(1, 3)};
  const std::size_t sizes[] = {200, 1, 0, 33, 2, 3000, 4, 5, 6, 1, 40, 900};
  std::vector<PerReplica> values;
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    const Devices& devices = i % 4 == 1 ? on_hosts : i % 4 == 2 ? mixed : on_gpus;
    values.push_back(exact_value(devices, sizes[i], i));
  }
  values.push_back(value_on<std::int64_t>(on_gpus, {{1, 2}, {3, 4}, {5, 6}, {7, 8}}));
  std::vector<ValueDestinationPair> pairs;
  pairs.reserve(values.size() + 2);
  for (const PerReplica& value : values) pairs.push_back({value, value});
  const PerReplica elsewhere{vector_of<float>({7}, gpu(1)), vector_of<float>({8}, gpu(2))};
  pairs.push_back({elsewhere, "GPU:5"});  // of no worker, reduced to one device
  const PerReplica sparse{slices_of({1, 2}, {1}, {5, 2}, on_gpus[0]),
                          slices_of({3, 4}, {3}, {5, 2}, on_gpus[1])};
  pairs.push_back({sparse, sparse});
  ReductionToOneDevice plain;
  const std::vector<Mirrored> expected = plain.batch_reduce(ReduceOp::SUM, pairs);
  const auto expect_all = [&](const std::vector<Mirrored>& results) {
    ASSERT_EQ(results.size(), pairs.size());
    for (std::size_t i = 0; i + 1 < results.size(); ++i) {
      ASSERT_EQ(results[i].devices(), pairs[i].destinations.devices());
      expect_bytes(results[i], bytes_of(expected[i].values()[0]), "value " + std::to_string(i));
    }
    for (const IndexedSlices& slices : results.back().slices()) {
      expect_slices(copy_to_device(slices, "CPU:0"), {1, 2, 3, 4}, {1, 3});
    }
  };
  const AllReduceSpec spec = "xring#2:16:nccl:400:nccl/rechd#2:1k:psgpu#2";
  const std::vector<MultiWorkerAllReduceOptions> packings{
      {.all_reduce_spec = spec},
      {.all_reduce_spec = spec, .num_packs = 1},
      {.all_reduce_spec = spec, .num_packs = 7},
      {.all_reduce_spec = spec, .agg_small_grads_max_bytes = 100},
  };
  for (const MultiWorkerAllReduceOptions& packing : packings) {
    MultiWorkerAllReduce ops(workers(2), 2, packing);
    for (const int bytes_per_pack : {0, 1, 40, 5000}) {
      expect_all(ops.batch_reduce(ReduceOp::SUM, pairs, {.bytes_per_pack = bytes_per_pack}));
    }
    PendingBatch pending = ops.batch_reduce_async(ReduceOp::SUM, pairs);
    std::size_t num_completed = 0;
    for ([[maybe_unused]] const std::size_t i : pending.in_completion_order()) ++num_completed;
    EXPECT_EQ(num_completed, pairs.size());
    std::vector<Mirrored> results;
    for (std::size_t i = 0; i < pairs.size(); ++i) results.push_back(pending.value(i));
    pending.wait();
    expect_all(results);
  }
  MultiWorkerAllReduce ops(workers(2), 2, {.all_reduce_spec = spec, .num_packs = 3});
  ops.batch_reduce_into(ReduceOp::SUM, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    expect_bytes(values[i], bytes_of(expected[i].values()[0]), "in place " + std::to_string(i));
  }
}

// ---------------------------------------------------------------------------------------------- what is refused, and when

TEST_F(MultiWorkerGpu, AValueOfNoWorkerIsRefusedBeforeAnythingIsWritten) {
  const PerReplica good = value_on(worker_gpus(2, 1), {{1}, {2}});
  const PerReplica stranger{vector_of<float>({3}, gpu(2)), vector_of<float>({4}, gpu(3))};
  const std::vector<PerReplica> values{good, stranger};
  const char* const words =
      "component 0 is on /job:localhost/replica:0/task:0/device:GPU:2, expected a device of one of";
  for (const char* const name : {"nccl", "xring", "pscpu/pscpu"}) {
    MultiWorkerAllReduce ops(workers(2), 1, with(name));
    EXPECT_THAT(thrown<ValueError>([&] { ops.reduce_into(ReduceOp::SUM, stranger, stranger); }),
                HasSubstr(words));
    EXPECT_THAT(thrown<ValueError>([&] { ops.batch_reduce_into(ReduceOp::SUM, values); }),
                HasSubstr(words));
  }
  EXPECT_EQ(elements(stranger.values()[0]), std::vector<float>{3});
  EXPECT_EQ(elements(good.values()[0]), std::vector<float>{1});
  EXPECT_EQ(elements(good.values()[1]), std::vector<float>{2});
}

/// Of two workers with a GPU each, on streams of the application's.
PerReplica streamed_value(const GpuStream& first, const GpuStream& second) {
  PerReplica value{Tensor::empty(DType::FLOAT32, {64}, worker_gpu(0, 0), from_cuda(first.get())),
                   Tensor::empty(DType::FLOAT32, {64}, worker_gpu(1, 1), from_cuda(second.get()))};
  for (const Tensor& tensor : value.values()) {
    copy(tensor, vector_of(std::vector<float>(64, 1), "CPU:0"));
  }
  return value;
}

TEST_F(MultiWorkerGpu, TheHostWaitsForStreamsUntilTheDeadline) {
  const GpuStream first(0);
  const GpuStream second(1);
  const PerReplica value = streamed_value(first, second);
  MultiWorkerAllReduce ops(workers(2), 1, with("xring"));
  emulated_cuda().block_stream(second.get());
  try {
    ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 2});
    FAIL() << "no deadline";
  } catch (const DeadlineExceededError& error) {
    EXPECT_TRUE(error.inputs_intact());
    EXPECT_EQ(error.operation().kind, "reduce");
    EXPECT_THAT(error.what(),
                ::testing::AllOf(HasSubstr("timed out after 2 s: copy to the host from"),
                                 HasSubstr("GPU:1")));
  }
  emulated_cuda().release_stream(second.get());
  ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 60});
  expect_mirrored(value, value.devices(), std::vector<float>(64, 2));
}

TEST_F(MultiWorkerGpu, NcclReturnsBeforeAnythingHasRun) {
  const GpuStream first(0);
  const GpuStream second(1);
  const PerReplica value = streamed_value(first, second);
  MultiWorkerAllReduce ops(workers(2), 1, with("nccl"));
  (void)ops.reduce(ReduceOp::SUM, value, value);  // communicators
  ASSERT_TRUE(emulated_cuda().synchronize());
  emulated_cuda().block_stream(second.get());
  const Mirrored sum = ops.reduce(ReduceOp::SUM, value, value);
  EXPECT_EQ(emulated_cuda().stream_query(first.get()), detail::CudaStatus::NOT_READY);
  emulated_cuda().release_stream(second.get());
  expect_mirrored(sum, value.devices(), std::vector<float>(64, 2));
}

TEST_F(MultiWorkerGpu, WhatTheHostReducesIsNotCaptured) {
  const GpuStream first(0);
  const GpuStream second(1);
  const PerReplica value = streamed_value(first, second);
  const PerReplica in_between = exact_value(worker_gpus(2, 1), 3, 1);
  MultiWorkerAllReduce ops(workers(2), 1, {.all_reduce_spec = "nccl:16:xring"});
  (void)ops.reduce(ReduceOp::SUM, in_between, in_between);  // makes the communicators
  ASSERT_TRUE(emulated_cuda().synchronize());
  const std::vector<float> before = elements(in_between.values()[0]);
  const detail::CurrentCudaDevice current(emulated_cuda(), 0);
  ASSERT_EQ(emulated_cuda().begin_capture(first.get(), CaptureMode::THREAD_LOCAL),
            detail::CudaStatus::SUCCESS);
  const std::vector<PerReplica> values{in_between, value};
  EXPECT_THAT(
      thrown<FailedPreconditionError>([&] { ops.batch_reduce_into(ReduceOp::SUM, values); }),
      HasSubstr("is being captured into a graph, and the host"));
  EmulatedGraph graph = nullptr;
  ASSERT_EQ(emulated_cuda().end_capture(first.get(), &graph), detail::CudaStatus::SUCCESS);
  EXPECT_EQ(elements(in_between.values()[0]), before);
  ops.batch_reduce_into(ReduceOp::SUM, values);
  expect_mirrored(value, value.devices(), std::vector<float>(64, 2));
}

TEST_F(MultiWorkerGpu, AFailureSaysWhetherInputsAreIntact) {
  const Devices devices = worker_gpus(2, 1);
  const std::vector<PerReplica> values{exact_value(devices, 10, 1), exact_value(devices, 20, 2)};
  MultiWorkerAllReduce ops(workers(2), 1, with("rechd"));
  // Each value is two copies to the host and two back.
  for (const auto& [skip, are_intact] : {std::pair(1, true), std::pair(3, false), {5, false}}) {
    emulated_cuda().calls().clear();
    emulated_cuda().calls().inject(
        {.function = "cuda.memcpy_async", .skip = static_cast<std::size_t>(skip), .status = 98});
    try {
      ops.batch_reduce_into(ReduceOp::SUM, values);
      ADD_FAILURE() << "copy " << skip << " did not fail";
    } catch (const OpError& error) {
      EXPECT_EQ(error.inputs_intact(), are_intact) << skip;
    }
    emulated_cuda().calls().clear_faults();
  }
}

}  // namespace
}  // namespace crossdevice
