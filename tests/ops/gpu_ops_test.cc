// SPDX-License-Identifier: Apache-2.0
// The ops on emulated GPUs: what is called and in which order, streams, mixtures with hosts, GPUs that do not reach each other, graphs, deadlines.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/flight_record.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"
#include "crossdevice/ops/select_cross_device_ops.h"

#include "ops/detail/staged_value.h"
#include "support/gpu_fixture.h"
#include "support/gpu_values.h"
#include "support/threaded_cluster.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kInstalled = (crossdevice::testing::install_emulated_gpus(), true);

using crossdevice::testing::cpu;
using crossdevice::testing::elements;
using crossdevice::testing::emulated_cuda;
using crossdevice::testing::EmulatedCall;
using crossdevice::testing::gpu;
using crossdevice::testing::gpus;
using crossdevice::testing::GpuStream;
using crossdevice::testing::slices_of;
using crossdevice::testing::thrown;
using crossdevice::testing::vector_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> here(const Tensor& tensor) {
  return elements(tensor.device().is_host() ? tensor : copy_to_device(tensor, "CPU:0"));
}

void expect_values(const DistributedValues& value, const Devices& devices,
                   const std::vector<float>& expected) {
  ASSERT_EQ(value.devices(), devices);
  for (const Tensor& tensor : value.values()) EXPECT_EQ(here(tensor), expected);
}

/// `count` floats on each GPU: replica r holds r + 1 everywhere.
PerReplica ones_and_twos(std::size_t num_gpus, std::size_t count) {
  std::vector<Tensor> components;
  for (std::size_t r = 0; r < num_gpus; ++r) {
    components.push_back(vector_of(std::vector<float>(count, static_cast<float>(r + 1)), gpu(r)));
  }
  return PerReplica(components);
}

/// The calls but those that only ask, order, or allocate.
std::vector<std::string> work_of(const std::vector<EmulatedCall>& calls) {
  std::vector<std::string> work;
  for (const EmulatedCall& call : calls) {
    const std::string name(call.function);
    if (name.starts_with("cuda.event") || name == "cuda.stream_wait_event") continue;
    work.push_back(name);
  }
  return work;
}

class GpuOps : public testing::EmulatedGpuTest {};

// ---------------------------------------------------------------------------------------------- what is called

TEST_F(GpuOps, WhatIsNotPutBackWholeLeavesInputsChangedWhereItIsInPlace) {
  const PerReplica value = ones_and_twos(2, 10);
  const Mirrored result(value.values());
  const auto queue = std::make_shared<detail::OperationQueue>(std::nullopt);
  for (const bool is_in_place : {true, false}) {
    const detail::ActiveOperation active(
        *queue, {detail::kReduce, 1, 40, is_in_place, value.devices()}, {});
    const detail::StagedValue staged(value, result, "CPU:0", active);
    emulated_cuda().calls().inject({.function = "cuda.memcpy_async", .skip = 1, .status = 98});
    try {
      staged.put_back(result, active);
      ADD_FAILURE() << "no copy failed";
    } catch (const OpError& error) {
      EXPECT_EQ(error.inputs_intact(), !is_in_place);
    }
    emulated_cuda().calls().clear_faults();
  }
}

// V1-2, the GPUs of it.
TEST_F(GpuOps, V1_2_NcclAllReduceIsChosenWhereAllAreGpus) {
  const auto for_gpus = select_cross_device_ops(gpus(2));
  EXPECT_NE(dynamic_cast<NcclAllReduce*>(for_gpus.get()), nullptr);
  const auto for_mixture = select_cross_device_ops({"GPU:0", "CPU:0"});
  EXPECT_NE(dynamic_cast<ReductionToOneDevice*>(for_mixture.get()), nullptr);
}

TEST_F(GpuOps, TheSumOfOneLargeTensorIsOneNcclCallOnEachGpuAndNothingElse) {
  NcclAllReduce ops(1);
  const PerReplica value = ones_and_twos(4, 100'000);
  ops.reduce_into(ReduceOp::SUM, value, value);  // makes the communicators
  ASSERT_TRUE(emulated_cuda().synchronize());
  emulated_cuda().calls().clear();
  ops.reduce_into(ReduceOp::SUM, value, value);
  EXPECT_THAT(work_of(emulated_cuda().calls().list()),
              ElementsAre("nccl.group_start", "nccl.all_reduce", "nccl.all_reduce",
                          "nccl.all_reduce", "nccl.all_reduce", "nccl.group_end"));
  expect_values(value, gpus(4), std::vector<float>(100'000, 40));
}

TEST_F(GpuOps, AMeanAddsOneKernelOnEachGpu) {
  NcclAllReduce ops(1);
  const PerReplica value = ones_and_twos(2, 1000);
  ops.reduce_into(ReduceOp::MEAN, value, value);
  ASSERT_TRUE(emulated_cuda().synchronize());
  emulated_cuda().calls().clear();
  ops.reduce_into(ReduceOp::MEAN, value, value);
  EXPECT_THAT(work_of(emulated_cuda().calls().list()),
              ElementsAre("nccl.group_start", "nccl.all_reduce", "nccl.all_reduce",
                          "nccl.group_end", "kernels.copy_ranges", "kernels.copy_ranges"));
  expect_values(value, gpus(2), std::vector<float>(1000, 1.5));
}

TEST_F(GpuOps, APackIsFilledWhileTheOneBeforeIsReduced) {
  NcclAllReduce ops(1);
  std::vector<PerReplica> gradients;
  for (int i = 0; i < 12; ++i) gradients.push_back(ones_and_twos(2, 100));
  const CommunicationOptions options{.bytes_per_pack = 1000};  // three tensors to a pack
  ops.batch_reduce_into(ReduceOp::MEAN, gradients, options);
  ASSERT_TRUE(emulated_cuda().synchronize());
  emulated_cuda().calls().clear();
  ops.batch_reduce_into(ReduceOp::MEAN, gradients, options);

  // On each GPU: pack 0, NCCL 0, pack 1, NCCL 1, unpack 0, pack 2, NCCL 2, unpack 1, pack 3, NCCL 3, unpack 2, unpack 3.
  std::string order;
  std::vector<const void*> nccl_streams;
  std::vector<const void*> kernel_streams;
  for (const EmulatedCall& call : emulated_cuda().calls().list()) {
    if (call.device != 0) continue;
    if (call.function == "kernels.copy_ranges") {
      order += 'k';
      kernel_streams.push_back(call.stream);
    }
    if (call.function == "nccl.all_reduce") {
      order += 'N';
      nccl_streams.push_back(call.stream);
    }
  }
  EXPECT_EQ(order, "kNkNkkNkkNkk");
  for (const void* stream : nccl_streams) {
    EXPECT_EQ(stream, nccl_streams[0]);
    EXPECT_NE(stream, kernel_streams[0]);  // beside the packing, not behind it
  }
  for (const PerReplica& gradient : gradients) {
    expect_values(gradient, gpus(2), std::vector<float>(100, 1.5));
  }
}

/// What a GPU reduces of a batch, shares of large tensors among them, is given to our kernels together.
TEST_F(GpuOps, ABatchIsOneCallOfOurKernelsOnEachGpuForEachDType) {
  constexpr std::size_t kLarge = 200'000;
  std::vector<PerReplica> gradients;
  for (const std::size_t count : {std::size_t{100}, std::size_t{7}, kLarge, std::size_t{0},
                                  std::size_t{1}, std::size_t{31}}) {
    gradients.push_back(ones_and_twos(2, count));
  }
  for (int i = 0; i < 4; ++i) {
    gradients.emplace_back(PerReplica{vector_of(std::vector<std::int32_t>{5, 6}, gpu(0)),
                                      vector_of(std::vector<std::int32_t>{10, 20}, gpu(1))});
  }
  const auto launches_of = [&](CrossDeviceOps& ops) {
    emulated_cuda().calls().clear();
    ops.batch_reduce_into(ReduceOp::SUM, gradients);
    EXPECT_TRUE(emulated_cuda().synchronize());
    std::vector<std::string> launches;
    for (const EmulatedCall& call : emulated_cuda().calls().list()) {
      const std::string name(call.function);
      if (name.starts_with("kernels."))
        launches.push_back(name + " " + std::to_string(call.device));
    }
    return launches;
  };
  HierarchicalCopyAllReduce hierarchical(1);
  EXPECT_THAT(launches_of(hierarchical),
              ElementsAre("kernels.reduce_many 0", "kernels.reduce_many 1",
                          "kernels.reduce_many 1"));  // small tensors go where least is to be done
  expect_values(gradients[2], gpus(2), std::vector<float>(kLarge, 3));
  expect_values(gradients[5], gpus(2), std::vector<float>(31, 3));
  ReductionToOneDevice to_one_device;
  EXPECT_THAT(launches_of(to_one_device),
              ElementsAre("kernels.reduce_many 0", "kernels.reduce_many 0"));
  expect_values(gradients[2], gpus(2), std::vector<float>(kLarge, 6));
  for (const Tensor& tensor : gradients[9].values()) {
    EXPECT_THAT(elements<std::int32_t>(copy_to_device(tensor, "CPU:0")), ElementsAre(30, 52));
  }
}

/// As the strategy of several workers has it that runs as one.
TEST_F(GpuOps, ACollectiveOfOneWorkerGoesThroughNccl) {
  CollectiveAllReduce ops(gpus(2), 2);
  const PerReplica value = ones_and_twos(2, 100);
  std::vector<PerReplica> batch;
  for (const std::size_t count : {5U, 300U, 2U}) batch.push_back(ones_and_twos(2, count));
  const auto reduce_all = [&](const CommunicationOptions& options) {
    ASSERT_TRUE(emulated_cuda().synchronize());
    emulated_cuda().calls().clear();
    ops.reduce_into(ReduceOp::SUM, value, value, options);
    ops.batch_reduce_into(ReduceOp::MEAN, batch, options);
    ASSERT_TRUE(emulated_cuda().synchronize());
  };
  const auto count = [](const char* name) { return emulated_cuda().calls().count(name); };
  reduce_all({});  // makes the communicators
  reduce_all({});
  EXPECT_EQ(count("nccl.all_reduce"), 4U);  // on two GPUs: one tensor, one pack
  EXPECT_EQ(count("kernels.reduce"), 0U);
  expect_values(value, gpus(2), std::vector<float>(100, 6));
  for (const PerReplica& each : batch) {
    expect_values(each, gpus(2), std::vector<float>(each.values()[0].num_elements(), 1.5));
  }
  for (const CommunicationOptions& options :
       {CommunicationOptions{.implementation = CommunicationImplementation::RING},
        CommunicationOptions{.deterministic = true}}) {
    reduce_all(options);
    EXPECT_EQ(count("nccl.all_reduce"), 0U);
    EXPECT_EQ(count("kernels.reduce") + count("kernels.reduce_many"), 3U);  // small: one GPU each
  }
  expect_values(value, gpus(2), std::vector<float>(100, 24));
  ops.check();
}

TEST_F(GpuOps, TheCurrentDeviceStaysAsItWas) {
  ASSERT_EQ(emulated_cuda().set_device(3), detail::CudaStatus::SUCCESS);
  NcclAllReduce ops(1);
  ReductionToOneDevice to_one;
  const PerReplica value = ones_and_twos(2, 100);
  ops.reduce_into(ReduceOp::MEAN, value, value);
  (void)to_one.reduce(ReduceOp::MAX, value, "GPU:1");
  (void)ops.gather(value, "GPU:0", 0);
  (void)ops.broadcast(value.values()[0], gpus(3));
  int device = -1;
  ASSERT_EQ(emulated_cuda().get_device(&device), detail::CudaStatus::SUCCESS);
  EXPECT_EQ(device, 3);
  ASSERT_EQ(emulated_cuda().set_device(0), detail::CudaStatus::SUCCESS);
}

// ---------------------------------------------------------------------------------------------- order

TEST_F(GpuOps, ReturnsBeforeAnythingHasRunAndOrdersTheCallersStreams) {
  const GpuStream first(0);
  const GpuStream second(1);
  std::vector<Tensor> components;
  for (const auto& [device, stream] : {std::pair(0, first.get()), std::pair(1, second.get())}) {
    Tensor component = Tensor::empty(DType::FLOAT32, {5}, gpu(static_cast<std::size_t>(device)),
                                     from_cuda(stream));
    copy(component, vector_of(std::vector<float>(5, 1.0f), cpu(0)));
    components.push_back(component);
  }
  const PerReplica value(components);
  for (const auto& make :
       {+[]() -> std::shared_ptr<CrossDeviceOps> { return std::make_shared<NcclAllReduce>(1); },
        +[]() -> std::shared_ptr<CrossDeviceOps> {
          return std::make_shared<HierarchicalCopyAllReduce>(1);
        }}) {
    const std::shared_ptr<CrossDeviceOps> ops = make();
    (void)ops->reduce(ReduceOp::SUM, value, value);  // communicators
    emulated_cuda().block_stream(
        second.get());  // whatever made the second component takes its time
    const Mirrored sum = ops->reduce(ReduceOp::SUM, value, value);
    EXPECT_EQ(emulated_cuda().stream_query(first.get()), detail::CudaStatus::NOT_READY);
    EXPECT_EQ(sum.values()[0].stream(), from_cuda(first.get()));
    emulated_cuda().release_stream(second.get());
    expect_values(sum, gpus(2), std::vector<float>(5, 2));
  }
}

TEST_F(GpuOps, InputsAndOutputsOfDifferentStreamsOfAGpu) {
  const GpuStream inputs(0);
  const GpuStream outputs(0);
  const Tensor from = Tensor::empty(DType::FLOAT32, {7}, "GPU:0", from_cuda(inputs.get()));
  copy(from, vector_of(std::vector<float>(7, 3.0f), cpu(0)));
  const Tensor to = Tensor::empty(DType::FLOAT32, {7}, "GPU:0", from_cuda(outputs.get()));
  ReductionToOneDevice ops;
  emulated_cuda().block_stream(inputs.get());
  ops.reduce_into(ReduceOp::SUM, PerReplica(from), Mirrored(std::vector<Tensor>{to}));
  EXPECT_EQ(emulated_cuda().stream_query(outputs.get()), detail::CudaStatus::NOT_READY);
  emulated_cuda().release_stream(inputs.get());
  EXPECT_EQ(here(to), std::vector<float>(7, 3));
}

// ---------------------------------------------------------------------------------------------- where components lie

TEST_F(GpuOps, ReducesToOneDeviceAndFromOthers) {
  NcclAllReduce nccl(1);
  HierarchicalCopyAllReduce hierarchical(1);
  ReductionToOneDevice to_one;
  const PerReplica value = ones_and_twos(3, 50);
  for (CrossDeviceOps* ops : std::vector<CrossDeviceOps*>{&nccl, &hierarchical, &to_one}) {
    expect_values(ops->reduce(ReduceOp::SUM, value, "GPU:2"), gpu(2), std::vector<float>(50, 6));
    expect_values(ops->reduce(ReduceOp::SUM, value, "GPU:5"), gpu(5), std::vector<float>(50, 6));
    expect_values(ops->reduce(ReduceOp::MEAN, value, "CPU:1"), cpu(1), std::vector<float>(50, 2));
    expect_values(ops->reduce(ReduceOp::MAX, value, gpus(2)), gpus(2), std::vector<float>(50, 3));
  }
}

TEST_F(GpuOps, MixesGpusAndHosts) {
  const PerReplica value{vector_of({1, 2, 3}, cpu(0)), vector_of({10, 20, 30}, gpu(1)),
                         vector_of({100, 200, 300}, cpu(2))};
  NcclAllReduce nccl(2);
  ReductionToOneDevice to_one;
  ReductionToOneDevice on_host({.reduce_to_device = Device("CPU:0")});
  for (CrossDeviceOps* ops : std::vector<CrossDeviceOps*>{&nccl, &to_one, &on_host}) {
    expect_values(ops->reduce(ReduceOp::SUM, value, value), value.devices(), {111, 222, 333});
    expect_values(ops->reduce(ReduceOp::MEAN, value, "GPU:3"), gpu(3), {37, 74, 111});
    const std::vector<Mirrored> batch =
        ops->batch_reduce(ReduceOp::SUM, {{value, value}, {value, "CPU:1"}});
    expect_values(batch[0], value.devices(), {111, 222, 333});
    expect_values(batch[1], cpu(1), {111, 222, 333});
    expect_values(ops->gather(value, "GPU:0", 0), gpu(0), {1, 2, 3, 10, 20, 30, 100, 200, 300});
    expect_values(ops->gather(value, "CPU:3", 0), cpu(3), {1, 2, 3, 10, 20, 30, 100, 200, 300});
    expect_values(ops->broadcast(value.values()[1], Devices{"CPU:0", "GPU:0", "GPU:2"}),
                  {"CPU:0", "GPU:0", "GPU:2"}, {10, 20, 30});
    expect_values(ops->broadcast(value.values()[0], Devices{"CPU:0", "GPU:0"}), {"CPU:0", "GPU:0"},
                  {1, 2, 3});
  }
}

TEST_F(GpuOps, GathersAlongEveryAxis) {
  const Tensor a = testing::tensor_of<float>({1, 2, 3, 4}, {2, 2}, gpu(0));
  const Tensor b = testing::tensor_of<float>({5, 6}, {2, 1}, gpu(1));
  const Tensor c = testing::tensor_of<float>({7, 8}, {1, 2}, gpu(2));
  ReductionToOneDevice ops;
  const Mirrored columns = ops.gather(PerReplica{a, b}, Devices{"GPU:1", "GPU:3"}, 1);
  EXPECT_EQ(columns.shape(), Shape({2, 3}));
  expect_values(columns, {"GPU:1", "GPU:3"}, {1, 2, 5, 3, 4, 6});
  expect_values(ops.gather(PerReplica{a, c}, "GPU:2", 0), gpu(2), {1, 2, 3, 4, 7, 8});
}

TEST_F(GpuOps, SparseValues) {
  const IndexedSlices a = slices_of({1, 2, 3, 4}, {0, 3}, Shape{5, 2}, gpu(0));
  const IndexedSlices b = slices_of({5, 6}, {3}, Shape{5, 2}, gpu(1));
  NcclAllReduce ops(1);
  for (const Destinations& to :
       {Destinations("GPU:1"), Destinations(gpus(2)), Destinations("CPU:0")}) {
    const Mirrored sum = ops.reduce(ReduceOp::SUM, PerReplica{a, b}, to);
    ASSERT_EQ(sum.devices(), to.devices());
    for (const IndexedSlices& slices : sum.slices()) {
      testing::expect_slices(copy_to_device(slices, "CPU:0"), {1, 2, 3, 4, 5, 6}, {0, 3, 3});
    }
    const Mirrored mean = ops.reduce(ReduceOp::MEAN, PerReplica{a, b}, to);
    EXPECT_EQ(here(mean.slices()[0].values), std::vector<float>({0.5, 1, 1.5, 2, 2.5, 3}));
  }
  EXPECT_EQ(here(to_dense(a)), std::vector<float>({1, 2, 0, 0, 0, 0, 3, 4, 0, 0}));
  const IndexedSlices both = concatenate(std::vector<IndexedSlices>{a, b}, gpu(2));
  const IndexedSlices summed = sum_duplicates(both);
  EXPECT_EQ(summed.device(), gpu(2));
  EXPECT_EQ(here(summed.values), std::vector<float>({1, 2, 8, 10}));
}

TEST_F(GpuOps, AnAccumulationFunctionSumsAndTheLibraryDivides) {
  ReductionToOneDevice ops({.accumulation_fn = [](std::span<const Tensor> parts) {
    ReductionToOneDevice plain;
    return plain.reduce(ReduceOp::SUM, PerReplica(parts), parts[0].device()).tensor();
  }});
  const PerReplica value = ones_and_twos(3, 9);
  expect_values(ops.reduce(ReduceOp::SUM, value, value), gpus(3), std::vector<float>(9, 6));
  expect_values(ops.reduce(ReduceOp::MEAN, value, value), gpus(3), std::vector<float>(9, 2));
}

TEST_F(GpuOps, AsynchronousForms) {
  NcclAllReduce ops(1);
  const PerReplica value = ones_and_twos(4, 300);
  PendingBatch pending = ops.reduce_async(ReduceOp::SUM, value, value);
  expect_values(pending.value(0), gpus(4), std::vector<float>(300, 10));
  pending.wait();
  std::vector<PerReplica> gradients{ones_and_twos(2, 3), ones_and_twos(2, 4000)};
  PendingBatch batch = ops.batch_reduce_into_async(ReduceOp::MEAN, gradients);
  batch.wait();
  for (const PerReplica& gradient : gradients) {
    expect_values(gradient, gpus(2), std::vector<float>(gradient.values()[0].num_elements(), 1.5));
  }
}

// ---------------------------------------------------------------------------------------------- when it goes wrong

TEST_F(GpuOps, ADeadlineIsFoundByCheckAndByTheNextCall) {
  const GpuStream first(0);
  const GpuStream second(1);
  const PerReplica value{Tensor::empty(DType::FLOAT32, {64}, "GPU:0", from_cuda(first.get())),
                         Tensor::empty(DType::FLOAT32, {64}, "GPU:1", from_cuda(second.get()))};
  auto ops = std::make_unique<NcclAllReduce>(1);
  ops->reduce_into(ReduceOp::SUM, value, value);
  ASSERT_TRUE(emulated_cuda().synchronize());
  ops->check();
  emulated_cuda().block_stream(second.get());
  ops->reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 1});  // returns at once
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::string text;
  while (text.empty() && std::chrono::steady_clock::now() < limit) {
    text = thrown<DeadlineExceededError>([&] { ops->check(); });
  }
  EXPECT_THAT(text, HasSubstr("reduce #2"));
  EXPECT_THAT(text, HasSubstr("timed out after 1 s"));
  EXPECT_THAT(text, HasSubstr("GPU:1"));
  // The communicators are gone: the object says so from now on.
  EXPECT_NE(thrown<OpError>([&] { ops->reduce_into(ReduceOp::SUM, value, value); }), "");
  EXPECT_NE(thrown<FailedPreconditionError>([&] { ops->reduce_into(ReduceOp::SUM, value, value); }),
            "");
  emulated_cuda().release_everything();
  ASSERT_TRUE(emulated_cuda().synchronize());
  ops = nullptr;
  // A new one has new communicators.
  NcclAllReduce again(1);
  copy(value.values()[0], vector_of(std::vector<float>(64, 1.0f), cpu(0)));
  copy(value.values()[1], vector_of(std::vector<float>(64, 2.0f), cpu(0)));
  again.reduce_into(ReduceOp::SUM, value, value);
  expect_values(value, gpus(2), std::vector<float>(64, 3));
}

/// Which waits for another worker, when NCCL connects to it.
TEST_F(GpuOps, ALaunchAmongWorkersThatDoesNotComeBackIsADeadline) {
  emulated_cuda().calls().clear();
  std::thread releaser([] {
    EXPECT_TRUE(
        emulated_cuda().calls().await_count("nccl.comm_abort", 1, std::chrono::seconds(60)));
    emulated_cuda().calls().release_hangs();
  });
  std::array<std::string, 2> said;
  const std::vector<std::string> errors =
      testing::run_clusters(2, [&](const std::shared_ptr<Cluster>& cluster) {
        const auto rank = static_cast<std::size_t>(cluster->rank());
        CollectiveAllReduce ops(Devices(gpu(rank)), 2, {}, cluster);
        const PerReplica value(vector_of(std::vector<float>(100, 1), gpu(rank)));
        ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 60});
        cluster->barrier(60);
        if (rank == 0) {
          emulated_cuda().calls().inject(
              {.function = "nccl.group_end", .kind = testing::FaultKind::HANG_CALL});
        }
        cluster->barrier(60);
        said[rank] = thrown<OpError>([&] {
          ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 0.3});
          const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
          while (std::chrono::steady_clock::now() < limit) ops.check();
        });
      });
  releaser.join();
  EXPECT_EQ(errors, testing::no_errors(2));
  EXPECT_THAT(said, Contains(HasSubstr("timed out after 0.3 s: waiting for NCCL to launch it")));
}

TEST_F(GpuOps, ABlockedStreamWithoutNcclIsADeadlineTooAndNothingElseBreaks) {
  const GpuStream first(0);
  const GpuStream second(1);
  const PerReplica value{Tensor::empty(DType::FLOAT32, {64}, "GPU:0", from_cuda(first.get())),
                         Tensor::empty(DType::FLOAT32, {64}, "GPU:1", from_cuda(second.get()))};
  HierarchicalCopyAllReduce ops(1);
  (void)ops.reduce(ReduceOp::SUM, value, value);
  ASSERT_TRUE(emulated_cuda().synchronize());
  emulated_cuda().block_stream(second.get());
  ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 1});
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::string text;
  while (text.empty() && std::chrono::steady_clock::now() < limit) {
    text = thrown<DeadlineExceededError>([&] { ops.check(); });
  }
  EXPECT_THAT(text, HasSubstr("reduce #2"));
  emulated_cuda().release_stream(second.get());
  ops.reduce_into(ReduceOp::SUM, value, value);
  ASSERT_TRUE(emulated_cuda().synchronize());
  ops.check();
}

TEST_F(GpuOps, MemoryThatIsNotThereIsAnErrorAndTheNextCallWorks) {
  ReductionToOneDevice ops;
  const PerReplica value = ones_and_twos(2, 1000);
  (void)ops.reduce(ReduceOp::SUM, value, value);
  emulated_cuda().calls().inject(
      {.function = "cuda.malloc_from_pool_async", .count = 100, .status = 2 /* out of memory */});
  EXPECT_NE(thrown<ResourceExhaustedError>([&] { (void)ops.reduce(ReduceOp::SUM, value, value); }),
            "");
  emulated_cuda().calls().clear_faults();
  expect_values(ops.reduce(ReduceOp::SUM, value, value), gpus(2), std::vector<float>(1000, 3));
}

TEST_F(GpuOps, AKernelThatCannotBeLaunchedIsAnError) {
  ReductionToOneDevice ops;
  const PerReplica value = ones_and_twos(2, 1000);
  emulated_cuda().calls().inject({.function = "kernels.reduce", .status = 98});
  EXPECT_THAT(thrown<InternalError>([&] { (void)ops.reduce(ReduceOp::SUM, value, value); }),
              HasSubstr("kernel"));
  const FlightEntry last = flight_record().back();
  EXPECT_EQ(last.state, FlightState::FAILED);
  EXPECT_EQ(last.operation.kind, "reduce");
  EXPECT_EQ(last.devices, Devices({"GPU:0", "GPU:1"}));
  EXPECT_THAT(last.error, HasSubstr("kernel"));
  expect_values(ops.reduce(ReduceOp::SUM, value, value), gpus(2), std::vector<float>(1000, 3));
}

/// What the call's own error, or the one that is found later, says of its inputs.
bool inputs_intact_after(CrossDeviceOps& ops, const std::function<void()>& call) {
  try {
    call();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < limit) ops.check();
  } catch (const OpError& error) {
    return error.inputs_intact();
  }
  ADD_FAILURE() << "nothing went wrong";
  return false;
}

TEST_F(GpuOps, ErrorsSayWhetherInputsAreIntact) {
  const auto fail = [](const char* function, std::size_t skip) {
    emulated_cuda().calls().clear_faults();
    emulated_cuda().calls().inject({.function = function, .skip = skip, .status = 98});
  };
  NcclAllReduce nccl(1);
  HierarchicalCopyAllReduce kernels(1);
  const PerReplica value = ones_and_twos(2, 100'000);  // of our kernels each GPU takes a share
  const std::vector<PerReplica> batch{ones_and_twos(2, 100), ones_and_twos(2, 50)};
  const CommunicationOptions packs{.bytes_per_pack = 1000};
  kernels.reduce_into(ReduceOp::SUM, value, value);
  nccl.batch_reduce_into(ReduceOp::SUM, batch, packs);

  const auto in_place = [&] { kernels.reduce_into(ReduceOp::SUM, value, value); };
  fail("cuda.event_record", 0);  // before anything is launched
  EXPECT_TRUE(inputs_intact_after(kernels, in_place));
  fail("kernels.reduce", 0);  // the first launch is refused
  EXPECT_TRUE(inputs_intact_after(kernels, in_place));
  fail("kernels.reduce", 1);  // one GPU has its share done
  EXPECT_FALSE(inputs_intact_after(kernels, in_place));
  fail("kernels.reduce", 1);  // into other memory
  EXPECT_TRUE(
      inputs_intact_after(kernels, [&] { (void)kernels.reduce(ReduceOp::SUM, value, value); }));

  const auto packed = [&] { nccl.batch_reduce_into(ReduceOp::MEAN, batch, packs); };
  fail("kernels.copy_ranges", 1);  // packing reads only
  EXPECT_TRUE(inputs_intact_after(nccl, packed));
  fail("kernels.copy_ranges", 3);  // the second GPU's unpacking
  EXPECT_FALSE(inputs_intact_after(nccl, packed));
  emulated_cuda().calls().clear_faults();
}

/// The batch is two calls of the kernels, one for each dtype.
TEST_F(GpuOps, ABatchThatIsRefusedInTheMiddleHasChangedInputs) {
  HierarchicalCopyAllReduce ops(1);
  const auto run_with = [&](std::size_t skip) {
    const std::vector<PerReplica> batch{
        ones_and_twos(1, 10), ones_and_twos(1, 20),
        PerReplica(vector_of(std::vector<std::int32_t>{1}, gpu(0))),
        PerReplica(vector_of(std::vector<std::int32_t>{2}, gpu(0)))};
    emulated_cuda().calls().inject({.function = "kernels.reduce_many", .skip = skip, .status = 98});
    const bool is_intact =
        inputs_intact_after(ops, [&] { ops.batch_reduce_into(ReduceOp::SUM, batch); });
    emulated_cuda().calls().clear_faults();
    return is_intact;
  };
  EXPECT_TRUE(run_with(0));
  EXPECT_FALSE(run_with(1));
}

TEST_F(GpuOps, ADeadlineLeavesTheInputsOfWhatIsNotInPlaceIntact) {
  for (const bool is_in_place : {true, false}) {
    const GpuStream first(0);
    const GpuStream second(1);
    const PerReplica value{Tensor::empty(DType::FLOAT32, {64}, "GPU:0", from_cuda(first.get())),
                           Tensor::empty(DType::FLOAT32, {64}, "GPU:1", from_cuda(second.get()))};
    HierarchicalCopyAllReduce ops(1);
    (void)ops.reduce(ReduceOp::SUM, value, value);
    ASSERT_TRUE(emulated_cuda().synchronize());
    emulated_cuda().block_stream(second.get());
    const CommunicationOptions options{.timeout_seconds = 1};
    EXPECT_EQ(inputs_intact_after(ops,
                                  [&] {
                                    if (is_in_place) {
                                      ops.reduce_into(ReduceOp::SUM, value, value, options);
                                    } else {
                                      (void)ops.reduce(ReduceOp::SUM, value, value, options);
                                    }
                                  }),
              !is_in_place);
    emulated_cuda().release_stream(second.get());
    ASSERT_TRUE(emulated_cuda().synchronize());
  }
}

}  // namespace
}  // namespace crossdevice
