// SPDX-License-Identifier: Apache-2.0
// nccl/xring, nccl/rechd and nccl/pscpu on emulated GPUs: NCCL within each worker, the host among them. Values of every layout, what is called and what goes over
// the bus, where the host does both levels, failures, deadlines.
#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/error.h"
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
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kAlgorithms[] = {"nccl/xring", "nccl/rechd", "nccl/pscpu"};
constexpr double kLong = 60;
/// float32 that NCCL reduces where they lie: the others go through its staging buffers.
constexpr std::size_t kUnstaged = 300'000;

/// gpus_of_workers[w] GPUs of worker w, dealt out in turns, so that workers' components lie between each other's.
Devices dealt(std::vector<std::size_t> gpus_of_workers) {
  std::vector<Device> devices;
  for (bool has_dealt = true; has_dealt;) {
    has_dealt = false;
    for (std::size_t w = 0; w < gpus_of_workers.size(); ++w) {
      if (gpus_of_workers[w] == 0) continue;
      --gpus_of_workers[w];
      devices.push_back(worker_gpu(w, devices.size()));
      has_dealt = true;
    }
  }
  return Devices(std::span<const Device>(devices));
}

/// Integers of 0 to `largest` that differ by replica and place: whatever the order, sums and products of a few are exact.
template <class T>
PerReplica small_integers(const Devices& devices, std::size_t count, std::size_t largest) {
  std::vector<Tensor> tensors;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    Tensor tensor = Tensor::empty(dtype_of<T>, {count}, "CPU:0");
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t number = (k * 7 + r * 13 + k / 5) % (largest + 1);
      store_element(tensor.data(), k, static_cast<T>(static_cast<float>(number)));
    }
    tensors.push_back(copy_to_device(tensor, devices[r]));
  }
  return PerReplica(tensors);
}

std::size_t times_said(const CapturedLog& log, std::string_view words) {
  const std::vector<std::string> messages = log.messages();
  return static_cast<std::size_t>(std::count_if(
      messages.begin(), messages.end(),
      [&](const std::string& message) { return message.find(words) != std::string::npos; }));
}

class NcclThenHosts : public testing::MultiWorkerGpuTest {
 protected:
  static std::size_t bytes_over_the_bus() {
    std::size_t sum = 0;
    for (const EmulatedCall& call : emulated_cuda().calls().list()) {
      if (call.function == "cuda.memcpy_async") sum += call.size_bytes;
    }
    return sum;
  }
  static std::size_t num_nccl_calls() {
    return count("nccl.all_reduce") + count("nccl.reduce") + count("nccl.broadcast");
  }
};

// ---------------------------------------------------------------------------------------------- values

/// Every op that T has, out of place with the results in another order, and in place.
template <class T>
void expect_values(const Devices& devices, std::size_t num_workers, std::size_t num_elements) {
  constexpr ReduceOp kOps[] = {ReduceOp::SUM, ReduceOp::MEAN, ReduceOp::MIN, ReduceOp::MAX,
                               ReduceOp::PROD};
  std::vector<Device> reversed(devices.begin(), devices.end());
  std::reverse(reversed.begin(), reversed.end());
  const Devices elsewhere{std::span<const Device>(reversed)};
  ReductionToOneDevice plain;
  for (const ReduceOp op : kOps) {
    if (!is_supported(op, dtype_of<T>)) continue;
    const std::size_t largest = dtype_of<T> == DType::BOOL ? 1 : op == ReduceOp::PROD ? 2 : 60;
    const PerReplica value = small_integers<T>(devices, num_elements, largest);
    const std::vector<std::byte> expected = bytes_of(plain.reduce(op, value, value).values()[0]);
    for (const char* const name : kAlgorithms) {
      const std::string what = std::string(to_string(op)) + " of " +
                               std::string(to_string(dtype_of<T>)) + ", " + name + ", " +
                               std::to_string(num_elements) + " elements";
      MultiWorkerAllReduce ops(workers(num_workers), 2, with(name, 2));
      const PerReplica before = small_integers<T>(devices, num_elements, largest);
      const Mirrored result = ops.reduce(op, value, elsewhere, {.timeout_seconds = kLong});
      ASSERT_EQ(result.devices(), elsewhere);
      expect_bytes(result, expected, what);
      for (std::size_t r = 0; r < devices.size(); ++r) {
        EXPECT_EQ(bytes_of(value.values()[r]), bytes_of(before.values()[r])) << what << ", intact";
      }
      if (result.dtype() != value.dtype()) continue;
      ops.reduce_into(op, before, before, {.timeout_seconds = kLong});
      expect_bytes(before, expected, what + ", in place");
      ops.check();
    }
  }
}

TEST_F(NcclThenHosts, EveryLayoutAndReductionHasItsValues) {
  const std::vector<std::vector<std::size_t>> layouts{{2, 2},       {3, 3}, {2, 2, 2}, {4},
                                                      {1, 1, 1, 1}, {2, 3}, {1, 3}};
  for (const std::vector<std::size_t>& layout : layouts) {
    const Devices devices = dealt(layout);
    for (const std::size_t num_elements : {0U, 1U, 5U, 1'001U}) {
      expect_values<float>(devices, layout.size(), num_elements);
      expect_values<float16>(devices, layout.size(), num_elements);
      expect_values<std::int32_t>(devices, layout.size(), num_elements);
      expect_values<bool>(devices, layout.size(), num_elements);
      expect_values<std::complex<float>>(devices, layout.size(), num_elements);
    }
  }
  expect_values<float>(dealt({2, 3}), 2, kUnstaged);
}

/// The emulated NCCL rounds behind each addition.
TEST_F(NcclThenHosts, SmallFloatsAreRoundedByNcclAndThenByTheHostAndDividedOnce) {
  const std::vector<float> components{1, 1.0F / 256, 1.0F / 256, 3};  // 1 + 1/256 is a tie
  const Devices devices = worker_gpus(2, 2);
  const PerReplica value = value_on<bfloat16>(devices, {{bfloat16(components[0])},
                                                        {bfloat16(components[1])},
                                                        {bfloat16(components[2])},
                                                        {bfloat16(components[3])}});
  MultiWorkerAllReduce ops(workers(2), 2, with("nccl/xring"));
  const bfloat16 first(components[0] + components[1]);
  const bfloat16 second(components[2] + components[3]);
  const bfloat16 sum(static_cast<float>(first) + static_cast<float>(second));
  const bfloat16 mean(static_cast<float>(sum) / 4);
  for (const Tensor& tensor : ops.reduce(ReduceOp::SUM, value, value).values()) {
    EXPECT_EQ(static_cast<float>(elements<bfloat16>(tensor)[0]), static_cast<float>(sum));
  }
  for (const Tensor& tensor : ops.reduce(ReduceOp::MEAN, value, value).values()) {
    EXPECT_EQ(static_cast<float>(elements<bfloat16>(tensor)[0]), static_cast<float>(mean));
  }
}

TEST_F(NcclThenHosts, WorkersMayNameOneGpu) {
  // Two cliques that share a GPU.
  const Devices devices{worker_gpu(0, 0), worker_gpu(0, 1), worker_gpu(1, 1), worker_gpu(1, 2)};
  const PerReplica value = exact_value(devices, 40, 5);
  ReductionToOneDevice plain;
  const auto expected = bytes_of(plain.reduce(ReduceOp::SUM, value, value).values()[0]);
  MultiWorkerAllReduce ops(workers(2), 2, with("nccl/rechd"));
  emulated_cuda().calls().clear();
  ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = kLong});
  expect_bytes(value, expected, "shared");
  EXPECT_EQ(count("nccl.reduce"), 4U);
}

/// NCCL's root is a rank, and these are not numbered as the worker's devices are.
TEST_F(NcclThenHosts, CommunicatorsOfTheProgramsInAnotherOrder) {
  const Devices devices{worker_gpu(0, 4), worker_gpu(0, 5), worker_gpu(0, 3), worker_gpu(1, 6)};
  const Devices adopted{devices[0], devices[1], devices[2]};
  const int ranks[] = {1, 2, 0};
  std::vector<detail::NcclComm> comms(3);
  detail::NcclUniqueId id;
  ASSERT_EQ(emulated_nccl().get_unique_id(&id), detail::NcclStatus::SUCCESS);
  ASSERT_EQ(emulated_nccl().group_start(), detail::NcclStatus::SUCCESS);
  for (std::size_t i = 0; i < comms.size(); ++i) {
    const detail::CurrentCudaDevice current(emulated_cuda(),
                                            detail::GpuDevice::of(adopted[i]).ordinal());
    ASSERT_EQ(emulated_nccl().comm_init_rank(&comms[i], 3, id, ranks[i], "mine"),
              detail::NcclStatus::SUCCESS);
  }
  ASSERT_EQ(emulated_nccl().group_end(), detail::NcclStatus::SUCCESS);
  (void)detail::NcclClique::adopt(adopted, comms);
  ReductionToOneDevice plain;
  for (const std::size_t num_elements : {std::size_t{40}, kUnstaged}) {
    std::vector<PerReplica> values{exact_value(devices, num_elements, 5),
                                   exact_value(devices, 9, 1)};
    std::vector<std::vector<std::byte>> expected;
    expected.reserve(values.size());
    for (const PerReplica& value : values) {
      expected.push_back(bytes_of(plain.reduce(ReduceOp::SUM, value, value).values()[0]));
    }
    MultiWorkerAllReduce ops(workers(2), 2, with("nccl/xring"));
    ops.batch_reduce_into(ReduceOp::SUM, values,
                          {.bytes_per_pack = 1 << 20, .timeout_seconds = kLong});
    for (std::size_t i = 0; i < values.size(); ++i) expect_bytes(values[i], expected[i], "adopted");
  }
  ASSERT_TRUE(emulated_cuda().synchronize());
  detail::NcclClique::end_adoption(adopted);
  ASSERT_EQ(emulated_nccl().group_start(), detail::NcclStatus::SUCCESS);
  for (const detail::NcclComm each : comms) {
    EXPECT_EQ(emulated_nccl().comm_destroy(each), detail::NcclStatus::SUCCESS);
  }
  ASSERT_EQ(emulated_nccl().group_end(), detail::NcclStatus::SUCCESS);
}

// ---------------------------------------------------------------------------------------------- what is called

TEST_F(NcclThenHosts, OneReductionAndOneBroadcastInEachWorkerAndTheWorkersSumsOverTheBus) {
  const Devices devices = worker_gpus(2, 3);
  for (const std::size_t num_elements : {std::size_t{100}, kUnstaged}) {
    for (const char* const name : kAlgorithms) {
      MultiWorkerAllReduce ops(workers(2), 3, with(name));
      const PerReplica value = exact_value(devices, num_elements, 1);
      ops.reduce_into(ReduceOp::SUM, value, value);  // makes the communicators
      ASSERT_TRUE(emulated_cuda().synchronize());
      emulated_cuda().calls().clear();
      ops.reduce_into(ReduceOp::SUM, value, value);
      EXPECT_EQ(count("nccl.reduce"), 6U);
      EXPECT_EQ(count("nccl.broadcast"), 6U);
      EXPECT_EQ(num_nccl_calls(), 12U);
      EXPECT_EQ(count("kernels.reduce"), 0U);
      EXPECT_EQ(bytes_over_the_bus(), sizeof(float) * 2 * 2 * num_elements);
    }
  }
}

TEST_F(NcclThenHosts, PacksOfTheOptions) {
  const Devices devices = dealt({2, 2});
  std::vector<PerReplica> values;
  for (const std::size_t size : {100U, 50U, 1U, 0U, 700U, 20U}) {
    values.push_back(exact_value(devices, size, 3));
  }
  values.push_back(value_on<std::int32_t>(devices, {{5, 6}, {7, 8}, {9, 10}, {11, 12}}));
  values.push_back(value_on<std::int16_t>(devices, {{5}, {7}, {9}, {11}}));  // NCCL has none
  std::vector<ValueDestinationPair> pairs;
  pairs.reserve(values.size());
  for (const PerReplica& value : values) pairs.push_back({value, value});
  ReductionToOneDevice plain;
  const std::vector<Mirrored> expected = plain.batch_reduce(ReduceOp::SUM, pairs);
  struct Case {
    MultiWorkerAllReduceOptions options;
    int bytes_per_pack;
    std::size_t num_packs;  // of float32 and of int32
  };
  const AllReduceSpec spec = "nccl/xring#2";
  const std::vector<Case> cases{
      {{.all_reduce_spec = spec, .num_packs = 1}, 0, 2},
      {{.all_reduce_spec = spec, .num_packs = 2}, 0, 4},
      {{.all_reduce_spec = spec, .num_packs = 7}, 0, 8},  // of the two int32, none in six packs
      {{.all_reduce_spec = spec}, 1 << 20, 2},
      {{.all_reduce_spec = spec}, 1, 6},
      {{.all_reduce_spec = spec, .agg_small_grads_max_bytes = 400, .agg_small_grads_max_group = 9},
       0,
       4},
  };
  MultiWorkerAllReduce first(workers(2), 1, with("nccl/xring"));
  (void)first.reduce(ReduceOp::SUM, values[0], values[0]);  // makes the communicators
  for (const Case& each : cases) {
    MultiWorkerAllReduce ops(workers(2), 1, each.options);
    for (int repetition = 0; repetition < 2; ++repetition) {
      emulated_cuda().calls().clear();
      const std::vector<Mirrored> results =
          ops.batch_reduce(ReduceOp::SUM, pairs, {.bytes_per_pack = each.bytes_per_pack});
      EXPECT_EQ(count("nccl.reduce"), 4 * each.num_packs);
      EXPECT_EQ(count("nccl.broadcast"), 4 * each.num_packs);
      for (std::size_t i = 0; i < results.size(); ++i) {
        expect_bytes(results[i], bytes_of(expected[i].values()[0]), std::to_string(i));
      }
    }
    PendingBatch pending = ops.batch_reduce_async(ReduceOp::SUM, pairs);
    std::size_t num_completed = 0;
    for ([[maybe_unused]] const std::size_t i : pending.in_completion_order()) ++num_completed;
    EXPECT_EQ(num_completed, pairs.size());
    pending.wait();
  }
}

TEST_F(NcclThenHosts, OneWorkerAloneIsNccl) {
  MultiWorkerAllReduce ops(workers(1), 3, with("nccl/rechd"));
  const PerReplica value = exact_value(worker_gpus(1, 3), 10, 1);
  (void)ops.reduce(ReduceOp::MEAN, value, value);  // makes the communicators
  ASSERT_TRUE(emulated_cuda().synchronize());
  emulated_cuda().calls().clear();
  (void)ops.reduce(ReduceOp::MEAN, value, value);
  EXPECT_EQ(count("nccl.all_reduce"), 3U);
  EXPECT_EQ(num_nccl_calls(), 3U);
  EXPECT_EQ(bytes_over_the_bus(), 0U);
}

// ---------------------------------------------------------------------------------------------- where the host does both levels

TEST_F(NcclThenHosts, OneGpuInEachWorkerLeavesNothingToNccl) {
  const CapturedLog log;
  MultiWorkerAllReduce ops(workers(4), 1, with("nccl/xring"));
  // A list of devices that no other test has, as the log says things once.
  const Devices devices{worker_gpu(0, 7), worker_gpu(1, 6), worker_gpu(2, 5), worker_gpu(3, 4)};
  const PerReplica value = exact_value(devices, 10, 1);
  emulated_cuda().calls().clear();
  (void)ops.reduce(ReduceOp::SUM, value, value);
  EXPECT_EQ(num_nccl_calls(), 0U);
  EXPECT_EQ(times_said(log, "nccl/xring by the host, through pinned memory"), 1U);
  EXPECT_EQ(times_said(log, "instead"), 0U);
}

TEST_F(NcclThenHosts, WhatNcclCannotReduceTheHostDoesAndThatIsSaidOnce) {
  const CapturedLog log;
  MultiWorkerAllReduce ops(workers(2), 2, with("nccl/rechd"));
  // A dtype that no other test has, as the log says things once.
  const PerReplica value = small_integers<double>(worker_gpus(2, 2), 33, 60);
  (void)ops.reduce(ReduceOp::SUM, value, value);  // makes the communicators
  ReductionToOneDevice plain;
  const auto expected = bytes_of(plain.reduce(ReduceOp::MIN, value, value).values()[0]);
  for (int repetition = 0; repetition < 2; ++repetition) {
    emulated_cuda().calls().clear();
    const Mirrored least = ops.reduce(ReduceOp::MIN, value, value);
    EXPECT_EQ(num_nccl_calls(), 0U);
    EXPECT_EQ(bytes_over_the_bus(), sizeof(double) * 2 * 4 * 33);
    expect_bytes(least, expected, "MIN");
  }
  EXPECT_EQ(times_said(log,
                       "NCCL has no MIN of float64 with the arithmetic of this library; the host "
                       "reduces instead"),
            1U);
  // One worker's on hosts.
  const Devices mixed{worker_gpu(0, 0), worker_gpu(0, 1), worker_device(1, 0), worker_device(1, 1)};
  const PerReplica apart = exact_value(mixed, 9, 2);
  for (int repetition = 0; repetition < 2; ++repetition) {
    emulated_cuda().calls().clear();
    (void)ops.reduce(ReduceOp::SUM, apart, apart);
    EXPECT_EQ(num_nccl_calls(), 0U);
  }
  EXPECT_EQ(times_said(log, "some of these are host devices; the host reduces instead"), 1U);
}

/// NCCL serves the first worker and not the second one.
TEST_F(NcclThenHosts, AWorkerThatNcclDoesNotServeIsSaidOnceAndTheHostDoesAll) {
  const CapturedLog log;
  emulated_cuda().calls().clear();
  emulated_cuda().calls().inject({.function = "nccl.get_unique_id", .skip = 1, .status = 3});
  MultiWorkerAllReduce ops(workers(2), 2, with("nccl/xring"));
  const Devices devices{worker_gpu(0, 4), worker_gpu(0, 5), worker_gpu(1, 6), worker_gpu(1, 7)};
  const PerReplica value = value_on(devices, {{1}, {2}, {3}, {4}});
  for (const float expected : {10.0F, 40.0F}) {
    ops.reduce_into(ReduceOp::SUM, value, value);
    expect_mirrored(value, devices, {expected});
  }
  EXPECT_EQ(count("nccl.reduce"), 0U);
  EXPECT_EQ(times_said(log, "the host reduces instead"), 1U);
  EXPECT_EQ(times_said(log, "MultiWorkerAllReduce over [/job:worker/replica:0/task:1/device:GPU:6"),
            1U);
}

TEST_F(NcclThenHosts, DeterministicTakesNeither) {
  MultiWorkerAllReduce ops(workers(2), 2, with("nccl/xring"));
  const PerReplica value = exact_value(worker_gpus(2, 2), 33, 2);
  emulated_cuda().calls().clear();
  (void)ops.reduce(ReduceOp::SUM, value, value, {.deterministic = true});
  EXPECT_EQ(num_nccl_calls(), 0U);
  EXPECT_GT(count("kernels.reduce"), 0U);
}

// ---------------------------------------------------------------------------------------------- failures

struct Outcome {
  std::string text;
  bool inputs_intact = true;
};

/// What the call throws, an OpError.
template <class Call>
Outcome failure_of(Call call) {
  try {
    call();
  } catch (const OpError& error) {
    return {error.what(), error.inputs_intact()};
  }
  ADD_FAILURE() << "no error";
  return {};
}

void reduce(MultiWorkerAllReduce& ops, ReduceOp op, const PerReplica& value, bool is_in_place) {
  if (is_in_place) return ops.reduce_into(op, value, value);
  (void)ops.reduce(op, value, value);
}

TEST_F(NcclThenHosts, AReductionThatFailsLeavesTheInputsAndBreaksTheObject) {
  const PerReplica value = exact_value(worker_gpus(2, 2), 20, 1);
  const std::vector<std::byte> before = bytes_of(value.values()[3]);
  for (const std::size_t skip : {0U, 1U, 2U, 3U}) {
    MultiWorkerAllReduce ops(workers(2), 2, with("nccl/xring"));
    (void)ops.reduce(ReduceOp::SUM, value, value);  // makes the communicators
    emulated_cuda().calls().inject({.function = "nccl.reduce", .skip = skip, .status = 3});
    const Outcome outcome = failure_of([&] { ops.reduce_into(ReduceOp::SUM, value, value); });
    EXPECT_THAT(outcome.text, HasSubstr("ncclReduce"));
    EXPECT_TRUE(outcome.inputs_intact) << skip;
    EXPECT_EQ(bytes_of(value.values()[3]), before);
    emulated_cuda().calls().clear_faults();
    EXPECT_THAT(failure_of([&] { ops.reduce_into(ReduceOp::SUM, value, value); }).text,
                HasSubstr("a launch of NCCL's was given up half way"));
    EXPECT_EQ(bytes_of(value.values()[3]), before);
    // A new object makes new communicators, once the old ones are gone.
    const auto& devices = value.devices();
    for (const std::size_t w : {0U, 1U}) {
      const Devices own{devices[2 * w], devices[2 * w + 1]};
      const auto clique = detail::NcclClique::of(own);
      EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(std::chrono::seconds(60))));
    }
  }
}

TEST_F(NcclThenHosts, ABroadcastThatFailsHasChangedWhatLiesInPlace) {
  const Devices devices = worker_gpus(2, 2);
  for (const bool is_in_place : {false, true}) {
    const PerReplica value = exact_value(devices, 20, 1);
    MultiWorkerAllReduce ops(workers(2), 2, with("nccl/xring"));
    (void)ops.reduce(ReduceOp::SUM, value, value);  // makes the communicators
    emulated_cuda().calls().inject({.function = "nccl.broadcast", .skip = 1, .status = 3});
    const Outcome outcome = failure_of([&] { reduce(ops, ReduceOp::SUM, value, is_in_place); });
    EXPECT_THAT(outcome.text, HasSubstr("ncclBroadcast"));
    EXPECT_EQ(outcome.inputs_intact, !is_in_place);
    emulated_cuda().calls().clear_faults();
  }
}

TEST_F(NcclThenHosts, ADivisionThatFailsHasChangedWhatLiesInPlace) {
  const PerReplica value = exact_value(worker_gpus(2, 2), 20, 1);
  MultiWorkerAllReduce ops(workers(2), 2, with("nccl/xring"));
  (void)ops.reduce(ReduceOp::MEAN, value, value);  // makes the communicators
  for (const bool is_in_place : {false, true}) {
    emulated_cuda().calls().inject({.function = "kernels.copy_ranges", .status = 98});
    const Outcome outcome = failure_of([&] { reduce(ops, ReduceOp::MEAN, value, is_in_place); });
    EXPECT_THAT(outcome.text, HasSubstr("the division's kernel"));
    EXPECT_EQ(outcome.inputs_intact, !is_in_place);
    emulated_cuda().calls().clear_faults();
  }
}

TEST_F(NcclThenHosts, ACopyThatFailsSaysWhetherInputsAreIntact) {
  const Devices devices = worker_gpus(2, 2);
  // One copy from each worker, and one to each.
  for (const auto& [skip, are_intact] : {std::pair(0U, true), std::pair(1U, true), {3U, false}}) {
    const PerReplica value = exact_value(devices, 20, 1);
    MultiWorkerAllReduce ops(workers(2), 2, with("nccl/rechd"));
    (void)ops.reduce(ReduceOp::SUM, value, value);  // makes the communicators
    ASSERT_TRUE(emulated_cuda().synchronize());
    emulated_cuda().calls().inject({.function = "cuda.memcpy_async", .skip = skip, .status = 98});
    EXPECT_EQ(failure_of([&] { ops.reduce_into(ReduceOp::SUM, value, value); }).inputs_intact,
              are_intact)
        << skip;
    emulated_cuda().calls().clear_faults();
  }
}

/// What NCCL has begun and an abort has ended is no sum: it must not become a result.
TEST_F(NcclThenHosts, WhatAnAbortEndsIsAnErrorAndNoResult) {
  const Devices devices = worker_gpus(2, 2);
  const PerReplica value = exact_value(devices, 20, 1);
  const std::vector<std::byte> before = bytes_of(value.values()[0]);
  MultiWorkerAllReduce ops(workers(2), 2, with("nccl/xring"));
  (void)ops.reduce(ReduceOp::SUM, value, value);  // makes the communicators
  ASSERT_TRUE(emulated_cuda().synchronize());
  emulated_cuda().calls().clear();
  emulated_cuda().calls().inject(
      {.function = "nccl.reduce", .kind = FaultKind::HANG_OPERATION, .device = 3});
  std::future<Outcome> outcome = std::async(std::launch::async, [&] {
    return failure_of([&] { ops.reduce_into(ReduceOp::SUM, value, value); });
  });
  EXPECT_TRUE(emulated_cuda().calls().await_count("nccl.reduce", 4, std::chrono::seconds(60)));
  const auto clique = detail::NcclClique::of({devices[2], devices[3]});
  emulated_nccl().set_async_error(clique->communicator(1), detail::NcclStatus::REMOTE_ERROR,
                                  "the link is down");
  const Outcome failed = outcome.get();
  EXPECT_THAT(failed.text, HasSubstr("the link is down"));
  EXPECT_TRUE(failed.inputs_intact);
  EXPECT_EQ(bytes_of(value.values()[0]), before);
  emulated_cuda().release_everything();
  EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(std::chrono::seconds(60))));
}

TEST_F(NcclThenHosts, ABlockedStreamMeetsTheDeadlineAndBreaksNothing) {
  const GpuStream blocked(1);  // not that of a worker's first GPU
  const Devices devices = worker_gpus(2, 2);
  PerReplica value = exact_value(devices, 64, 1);
  std::vector<Tensor> tensors(value.values().begin(), value.values().end());
  tensors[1] = Tensor::empty(DType::FLOAT32, {64}, devices[1], from_cuda(blocked.get()));
  copy(tensors[1], value.values()[1]);
  value = PerReplica(tensors);
  ReductionToOneDevice plain;
  const auto expected = bytes_of(plain.reduce(ReduceOp::SUM, value, value).values()[0]);
  MultiWorkerAllReduce ops(workers(2), 2, with("nccl/pscpu"));
  (void)ops.reduce(ReduceOp::SUM, value, value);  // makes the communicators
  ASSERT_TRUE(emulated_cuda().synchronize());
  emulated_cuda().block_stream(blocked.get());
  try {
    ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 2});
    FAIL() << "no deadline";
  } catch (const DeadlineExceededError& error) {
    EXPECT_TRUE(error.inputs_intact());
    EXPECT_EQ(error.operation().kind, "reduce");
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("the host, which reduces it, waits for "), HasSubstr("GPU:1")));
  }
  emulated_cuda().release_stream(blocked.get());
  ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = kLong});
  expect_bytes(value, expected, "after the deadline");
}

TEST_F(NcclThenHosts, NcclThatHangsMeetsTheDeadline) {
  const Devices devices = worker_gpus(2, 2);
  const PerReplica value = exact_value(devices, 20, 1);
  const std::vector<std::byte> before = bytes_of(value.values()[0]);
  MultiWorkerAllReduce ops(workers(2), 2, with("nccl/xring"));
  (void)ops.reduce(ReduceOp::SUM, value, value);  // makes the communicators
  emulated_cuda().calls().inject(
      {.function = "nccl.reduce", .kind = FaultKind::HANG_OPERATION, .device = 0});
  try {
    ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 1});
    ADD_FAILURE() << "no deadline";
  } catch (const DeadlineExceededError& error) {
    EXPECT_TRUE(error.inputs_intact());
    EXPECT_THAT(error.what(), HasSubstr("timed out after 1 s"));
  }
  emulated_cuda().release_everything();
  EXPECT_EQ(bytes_of(value.values()[0]), before);
  const auto clique = detail::NcclClique::of({devices[0], devices[1]});
  EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(std::chrono::seconds(60))));
}

TEST_F(NcclThenHosts, WhatIsCapturedIsRefusedBeforeAnythingIsWritten) {
  const GpuStream stream(0);
  const Devices devices = worker_gpus(2, 2);
  PerReplica value = exact_value(devices, 8, 1);
  std::vector<Tensor> tensors(value.values().begin(), value.values().end());
  tensors[0] = Tensor::empty(DType::FLOAT32, {8}, devices[0], from_cuda(stream.get()));
  copy(tensors[0], value.values()[0]);
  value = PerReplica(tensors);
  const PerReplica other = exact_value(devices, 3, 1);
  const std::vector<float> before = elements(other.values()[0]);
  MultiWorkerAllReduce ops(workers(2), 2, with("nccl/xring"));
  const detail::CurrentCudaDevice current(emulated_cuda(), 0);
  ASSERT_TRUE(emulated_cuda().synchronize());
  ASSERT_EQ(emulated_cuda().begin_capture(stream.get(), CaptureMode::THREAD_LOCAL),
            detail::CudaStatus::SUCCESS);
  const std::vector<PerReplica> values{other, value};
  EXPECT_THAT(
      thrown<FailedPreconditionError>([&] { ops.batch_reduce_into(ReduceOp::SUM, values); }),
      HasSubstr("is being captured into a graph, and the host"));
  EmulatedGraph graph = nullptr;
  ASSERT_EQ(emulated_cuda().end_capture(stream.get(), &graph), detail::CudaStatus::SUCCESS);
  EXPECT_EQ(elements(other.values()[0]), before);
}

}  // namespace
}  // namespace crossdevice
