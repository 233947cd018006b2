// SPDX-License-Identifier: Apache-2.0
// Calls on a real GPU: that the host never waits, what a graph repeats, what steady state takes, deadlines; NCCL on one GPU, our kernels on four devices of it.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/comm/flight_record.h"
#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/interop_cuda.h"
#include "crossdevice/device/memory_pool.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/gpu_values.h"
#include "support/multi_worker_gpus.h"
#include "support/spinning_kernel.h"
#include "support/threaded_cluster.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

constexpr int kNumDevices = 4;
[[maybe_unused]] const bool kInstalled = [] {
  // A queue of the GPU's for each stream: of two streams in one, the second would stand still with the first.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
  (void)::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  testing::install_gpus(kNumDevices);
  return true;
}();

using testing::elements;
using testing::gpu;
using testing::gpus;
using testing::GpuStream;
using ::testing::HasSubstr;
using testing::no_errors;
using testing::run_clusters;
using testing::SpinningKernel;
using testing::thrown;
using testing::vector_of;
using ClusterPtr = std::shared_ptr<Cluster>;

constexpr std::chrono::seconds kLong{60};
const std::vector<std::size_t> kCounts = {100, 1, 5000, 17, 300'000, 64, 100, 2'000'003};

#define ASSERT_CUDA(call) ASSERT_EQ(cudaGetErrorString(call), cudaGetErrorString(cudaSuccess))

struct Way {
  std::string name;
  std::function<std::shared_ptr<CrossDeviceOps>()> make;
  std::size_t num_devices;
};

const Way kWays[] = {
    {"NcclOnOneGpu", [] { return std::make_shared<NcclAllReduce>(2); }, 1},
    {"NcclWhichCannot", [] { return std::make_shared<NcclAllReduce>(2); }, kNumDevices},
    {"Hierarchical", [] { return std::make_shared<HierarchicalCopyAllReduce>(2); }, kNumDevices},
    {"ToOneDevice", [] { return std::make_shared<ReductionToOneDevice>(); }, kNumDevices},
};

/// Component r of a value on GPU:r, in the order of a stream of its own.
class GpuCalls : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    ops_ = GetParam().make();
    for (std::size_t r = 0; r < size(); ++r) {
      streams_.push_back(std::make_unique<GpuStream>(static_cast<int>(r)));
    }
    for (const std::size_t count : kCounts) {
      std::vector<Tensor> components;
      for (std::size_t r = 0; r < size(); ++r) {
        components.push_back(
            Tensor::empty(DType::FLOAT32, Shape{count}, gpu(r), from_cuda(stream(r))));
      }
      batch_.emplace_back(std::span<const Tensor>(components));
    }
    fill(1);
    // Communicators, staging buffers, streams.
    ops_->batch_reduce_into(ReduceOp::MEAN, batch_, options_);
    synchronize();
  }
  void TearDown() override { synchronize(); }

  [[nodiscard]] std::size_t size() const { return GetParam().num_devices; }
  [[nodiscard]] cudaStream_t stream(std::size_t r) const { return streams_[r]->get(); }
  void synchronize() const {
    for (const auto& each : streams_) testing::wait_for_stream(each->get());
  }
  /// Replica r of value i holds base + r + i everywhere.
  void fill(float base) const {
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      for (std::size_t r = 0; r < size(); ++r) {
        testing::write_elements(batch_[i].values()[r],
                                std::vector<float>(kCounts[i], base + static_cast<float>(r + i)));
      }
    }
    synchronize();
  }
  void expect_means(float base) const {
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      const float mean = base + static_cast<float>(i) + static_cast<float>(size() - 1) / 2;
      for (const Tensor& component : batch_[i].values()) {
        EXPECT_EQ(elements(component), std::vector<float>(kCounts[i], mean)) << i;
      }
    }
  }
  /// `to` goes on when `from` has come so far.
  void pass(std::size_t from, std::size_t to) const {
    cudaEvent_t event = nullptr;
    ASSERT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    ASSERT_CUDA(cudaEventRecord(event, stream(from)));
    ASSERT_CUDA(cudaStreamWaitEvent(stream(to), event, 0));
    ASSERT_CUDA(cudaEventDestroy(event));
  }

  CommunicationOptions options_{.bytes_per_pack = 1 << 20};
  std::shared_ptr<CrossDeviceOps> ops_;
  std::vector<std::unique_ptr<GpuStream>> streams_;
  std::vector<PerReplica> batch_;
};

TEST_P(GpuCalls, ReturnWhileTheirStreamsStandStill) {
  fill(3);
  {
    SpinningKernel kernel(stream(0));
    ops_->batch_reduce_into(ReduceOp::MEAN, batch_, options_);
    EXPECT_EQ(cudaStreamQuery(stream(0)), cudaErrorNotReady);
    kernel.open();
  }
  expect_means(3);
  ops_->check();
}

TEST_P(GpuCalls, AreRepeatedByAGraphWithNewValues) {
  for (const cudaStreamCaptureMode mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
        cudaStreamCaptureModeRelaxed}) {
    ASSERT_CUDA(cudaStreamBeginCapture(stream(0), mode));
    for (std::size_t r = 1; r < size(); ++r) pass(0, r);
    ops_->batch_reduce_into(ReduceOp::MEAN, batch_, options_);
    for (std::size_t r = 1; r < size(); ++r) pass(r, 0);
    cudaGraph_t graph = nullptr;
    ASSERT_CUDA(cudaStreamEndCapture(stream(0), &graph));
    cudaGraphExec_t executable = nullptr;
    ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    for (const float base : {10.0F, 20.0F, 30.0F}) {
      fill(base);
      ASSERT_CUDA(cudaGraphLaunch(executable, stream(0)));
      synchronize();
      expect_means(base);
    }
    // What is called outside goes on beside it.
    fill(40);
    ops_->batch_reduce_into(ReduceOp::MEAN, batch_, options_);
    expect_means(40);
    ASSERT_CUDA(cudaGraphExecDestroy(executable));
    ASSERT_CUDA(cudaGraphDestroy(graph));
  }
  ops_->check();
}

/// The host's heap is watched on emulated GPUs (gpu_steady_state_test): CUDA and NCCL take from it as they like.
TEST_P(GpuCalls, TakeNothingFromTheGpuInSteadyState) {
  const auto step = [this] {
    ops_->batch_reduce_into(ReduceOp::MEAN, batch_, options_);
    ops_->reduce_into(ReduceOp::SUM, batch_[4], batch_[4], options_);
  };
  const auto await_watchdog = [] {
    const auto limit = std::chrono::steady_clock::now() + kLong;
    const auto are_over = [] {
      for (const FlightEntry& entry : flight_record()) {
        if (entry.state < FlightState::COMPLETED) return false;
      }
      return true;
    };
    while (!are_over() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(are_over());
    // The watchdog lets go of what it has seen the end of a moment later.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  for (int i = 0; i < 40; ++i) step();
  synchronize();
  await_watchdog();
  std::size_t free_before = 0;
  std::size_t free_after = 0;
  std::size_t total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&free_before, &total));
  const std::size_t reserved = MemoryPool::of("GPU:0").statistics().bytes_reserved;
  for (int i = 0; i < 20; ++i) {
    step();
    synchronize();
    await_watchdog();
  }
  EXPECT_EQ(MemoryPool::of("GPU:0").statistics().bytes_reserved, reserved);
  ASSERT_CUDA(cudaMemGetInfo(&free_after, &total));
  EXPECT_EQ(free_after, free_before);
}

/// Its clock starts when it comes to the head of its stream: on a GPU that several of its devices share, when all of their streams have come to it.
TEST_P(GpuCalls, TheDeadlineOfACallBehindAKernelThatSpinsDoesNotRun) {
  CommunicationOptions options = options_;
  options.timeout_seconds = 0.5;
  for (const std::size_t held : std::set<std::size_t>{0, size() - 1}) {
    fill(5);
    SpinningKernel kernel(stream(held));
    ops_->batch_reduce_into(ReduceOp::MEAN, batch_, options);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (std::chrono::steady_clock::now() < limit) {
      ASSERT_NO_THROW(ops_->check());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(cudaStreamQuery(stream(held)), cudaErrorNotReady);
    kernel.open();
    expect_means(5);
    ops_->check();
  }
}

/// With most of the GPU's memory, which takes it many times longer than the deadline to reduce.
TEST_P(GpuCalls, ADeadlineThatPassesInTheMiddleIsFoundAndANewObjectGoesOn) {
  batch_.clear();
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  ASSERT_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  const std::size_t count = free_bytes / 4 * 3 / (2 * size()) / sizeof(float);
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  for (std::size_t r = 0; r < size(); ++r) {
    inputs.push_back(Tensor::empty(DType::FLOAT32, Shape{count}, gpu(r), from_cuda(stream(r))));
    outputs.push_back(Tensor::empty(DType::FLOAT32, Shape{count}, gpu(r), from_cuda(stream(r))));
  }
  synchronize();
  const PerReplica from{std::span<const Tensor>(inputs)};
  const PerReplica to{std::span<const Tensor>(outputs)};
  std::string said;
  try {
    ops_->reduce_into(ReduceOp::SUM, from, to, {.timeout_seconds = 0.001});
    const auto limit = std::chrono::steady_clock::now() + kLong;
    while (std::chrono::steady_clock::now() < limit) {
      ops_->check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const DeadlineExceededError& error) {
    said = error.what();
    EXPECT_TRUE(error.inputs_intact());
  }
  EXPECT_THAT(said, HasSubstr("timed out after 0.001 s: waiting for GPU:0"));
  synchronize();
  inputs.clear();
  outputs.clear();
  const std::shared_ptr<CrossDeviceOps> next = GetParam().make();
  const PerReplica value = [&] {
    std::vector<Tensor> components;
    for (std::size_t r = 0; r < size(); ++r) {
      components.push_back(vector_of(std::vector<float>(1000, 3), gpu(r)));
    }
    return PerReplica{std::span<const Tensor>(components)};
  }();
  next->reduce_into(ReduceOp::MEAN, value, value, {.timeout_seconds = 60});
  for (const Tensor& component : value.values()) {
    EXPECT_EQ(elements(component), std::vector<float>(1000, 3));
  }
  next->check();
}

INSTANTIATE_TEST_SUITE_P(All, GpuCalls, ::testing::ValuesIn(kWays),
                         [](const auto& way) { return way.param.name; });

/// Two values on a stream, small enough to go through the staging buffers, which the calls of an object use one after the other, on whatever streams.
std::vector<PerReplica> staged_values(const GpuStream& stream, float element) {
  std::vector<PerReplica> values;
  for (const std::size_t count : {1000U, 700U}) {
    values.emplace_back(
        Tensor::empty(DType::FLOAT32, Shape{count}, gpu(0), from_cuda(stream.get())));
    testing::write_elements(values.back().values()[0], std::vector<float>(count, element));
  }
  testing::wait_for_stream(stream.get());
  return values;
}

/// A call that has come to the head of its stream, and stands behind one that has not.
TEST(GpuDeadlineTest, ACallThatHasBegunAndIsHeldByAKernelThatSpinsIsFoundAndANewObjectGoesOn) {
  CROSSDEVICE_SKIP_WITHOUT_NCCL();
  auto ops = std::make_unique<NcclAllReduce>(1);
  // Communicators, the staging buffers and their stream, kernels: before anything spins.
  ops->batch_reduce_into(ReduceOp::SUM, staged_values(GpuStream(0), 1));
  const GpuStream held(0);
  const GpuStream free(0);
  const std::vector<PerReplica> behind = staged_values(held, 2);
  const std::vector<PerReplica> begun = staged_values(free, 3);
  SpinningKernel kernel(held.get());
  ops->batch_reduce_into(ReduceOp::SUM, behind, {.timeout_seconds = 0.1});  // does not run
  ops->batch_reduce_into(ReduceOp::SUM, begun, {.timeout_seconds = 0.5});
  EXPECT_EQ(cudaStreamQuery(held.get()), cudaErrorNotReady);
  const auto limit = std::chrono::steady_clock::now() + kLong / 2;
  std::string said;
  while (said.empty() && std::chrono::steady_clock::now() < limit) {
    said = thrown<DeadlineExceededError>([&] { ops->check(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kernel.open();  // before CUDA is asked anything: NCCL's abort may wait for it inside
  EXPECT_THAT(said, HasSubstr("#3 (2 values, "));
  EXPECT_THAT(said, HasSubstr("timed out after 0.5 s: waiting for GPU:0"));
  EXPECT_NE(thrown<OpError>([&] { ops->batch_reduce_into(ReduceOp::SUM, begun); }), "");
  ops = nullptr;
  NcclAllReduce next(1);
  for (const GpuStream* const stream : {&held, &free}) {
    const std::vector<PerReplica> values = staged_values(*stream, 4);
    next.batch_reduce_into(ReduceOp::SUM, values, {.timeout_seconds = 60});
    for (const PerReplica& each : values) {
      const Tensor& tensor = each.values()[0];
      EXPECT_EQ(elements(tensor), std::vector<float>(tensor.num_elements(), 4));
    }
  }
  next.check();
}

// ---------------------------------------------------------------------------------------------- workers

TEST(GpuWorkersTest, ACommunicatorOfOneGoesThroughNccl) {
  CROSSDEVICE_SKIP_WITHOUT_NCCL();
  const std::vector<std::string> errors = run_clusters(1, [](const ClusterPtr& cluster) {
    Communicator world(cluster, "GPU:0", meeting_deadline(60));
    ASSERT_TRUE(world.has_nccl());
    const Tensor tensor = vector_of(std::vector<float>(100'003, 2.5F), "GPU:0");
    const Tensor other = Tensor::zeros(DType::FLOAT32, {100'003}, "GPU:0");
    const auto expect_and_clear = [&](const char* what) {
      EXPECT_EQ(elements(other), std::vector<float>(100'003, 2.5F)) << what;
      testing::write_elements(other, std::vector<float>(100'003, 0));
    };
    for (const ReduceOp op : kAllReduceOps) {
      world.all_reduce(op, tensor, other);
      expect_and_clear("all_reduce");
      world.reduce(op, tensor, other, 0);
      expect_and_clear("reduce");
      world.reduce_scatter(op, tensor, other);
      expect_and_clear("reduce_scatter");
    }
    world.all_gather(tensor, other);
    expect_and_clear("all_gather");
    world.gather(tensor, other, 0);
    expect_and_clear("gather");
    world.broadcast(tensor, 0);
    EXPECT_EQ(elements(tensor), std::vector<float>(100'003, 2.5F));
    world.barrier();
    world.check();
  });
  EXPECT_EQ(errors, no_errors(1));
}

TEST(GpuWorkersTest, AWorkerReducesWhatLiesOnItsDevices) {
  const std::vector<std::string> errors = run_clusters(1, [](const ClusterPtr& cluster) {
    for (const std::size_t n : {std::size_t{1}, std::size_t{kNumDevices}}) {
      CollectiveAllReduce ops(gpus(n), static_cast<int>(n), {}, cluster);
      std::vector<Tensor> components;
      for (std::size_t r = 0; r < n; ++r) {
        components.push_back(vector_of(std::vector<float>(70'001, static_cast<float>(r)), gpu(r)));
      }
      const PerReplica value{std::span<const Tensor>(components)};
      ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 60});
      const std::size_t sum = n * (n - 1) / 2;
      for (const Tensor& component : value.values()) {
        EXPECT_EQ(elements(component), std::vector<float>(70'001, static_cast<float>(sum)));
      }
      ops.check();
    }
  });
  EXPECT_EQ(errors, no_errors(1));
}

/// All workers' devices in one process, two on each of two workers: whichever algorithm, by way of pinned memory, since NCCL takes no GPU twice.
TEST(GpuWorkersTest, MultiWorkerAllReduceOfDevicesOfOneGpu) {
  const Devices devices = testing::worker_gpus(2, 2);
  for (const char* const name : {"nccl", "xring", "nccl/rechd", "pscpu/pscpu", "psgpu"}) {
    MultiWorkerAllReduce ops(testing::workers(2), 2, {.all_reduce_spec = {name, 2, -1}});
    std::vector<PerReplica> values;
    std::vector<std::vector<float>> sums;
    for (const std::size_t count : kCounts) {
      values.push_back(testing::exact_value(devices, count, count));
      std::vector<float> sum(count);
      for (const Tensor& component : values.back().values()) {
        const std::vector<float> each = elements(component);
        for (std::size_t i = 0; i < count; ++i) sum[i] += each[i];
      }
      sums.push_back(std::move(sum));
    }
    const Mirrored one = ops.reduce(ReduceOp::SUM, values[2], values[2]);
    EXPECT_EQ(elements(one.values()[3]), sums[2]) << name;
    ops.batch_reduce_into(ReduceOp::SUM, values, {.bytes_per_pack = 100'000});
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (const Tensor& component : values[i].values()) {
        ASSERT_EQ(elements(component), sums[i]) << name << ", " << kCounts[i] << " elements";
      }
    }
    ops.check();
  }
}

TEST(GpuWorkersTest, OneGpuInTwoWorkersIsRefusedOnBoth) {
  const std::vector<std::string> errors = run_clusters(2, [](const ClusterPtr& cluster) {
    Communicator world(cluster, gpu(static_cast<std::size_t>(cluster->rank())),
                       meeting_deadline(60));
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("one GPU is in two workers"));
  }
}

}  // namespace
}  // namespace crossdevice
