// SPDX-License-Identifier: Apache-2.0
// What NcclAllReduce is like after something has failed: the same object, and new ones.
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"

#include "comm/detail/nccl_reaper.h"
#include "support/gpu_fixture.h"
#include "support/gpu_values.h"
#include "support/log_keeper.h"
#include "support/threaded_cluster.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

using crossdevice::testing::elements;
using crossdevice::testing::emulated_cuda;
using crossdevice::testing::gpu;
using crossdevice::testing::thrown;
using crossdevice::testing::vector_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

[[maybe_unused]] const bool kInstalled = (crossdevice::testing::install_emulated_gpus(), true);

constexpr int kOutOfMemory = 2;

class NcclFailures : public testing::EmulatedGpuTest {
 protected:
  /// `count` values of 100 floats on two GPUs: replica r of value i holds 2 * (i + r).
  static std::vector<PerReplica> batch_of(std::size_t count) {
    std::vector<PerReplica> batch;
    for (std::size_t i = 0; i < count; ++i) {
      const auto base = static_cast<float>(2 * i);
      batch.push_back({vector_of(std::vector<float>(100, base), gpu(0)),
                       vector_of(std::vector<float>(100, base + 2), gpu(1))});
    }
    return batch;
  }
  static void expect_means(const std::vector<PerReplica>& batch) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::vector<float> expected(100, static_cast<float>(2 * i + 1));
      for (const Tensor& each : batch[i].values()) EXPECT_EQ(elements(each), expected) << i;
    }
  }
};

// The stage has two buffers on each of the GPUs, so the memory ends at each of four places.
TEST_F(NcclFailures, PacksForWhichThereIsNoMemoryLeaveSmallerOnesWorking) {
  for (std::size_t skip = 0; skip < 4; ++skip) {
    NcclAllReduce ops(1);
    std::vector<PerReplica> small = batch_of(3);
    ops.batch_reduce_into(ReduceOp::MEAN, small, {.bytes_per_pack = 1000});
    expect_means(small);
    std::vector<PerReplica> large = batch_of(300);
    const CommunicationOptions options{.bytes_per_pack = std::size_t{64} << 10};
    ASSERT_TRUE(emulated_cuda().synchronize());
    emulated_cuda().calls().inject({.function = "cuda.malloc_from_pool_async",
                                    .skip = skip,
                                    .count = 1000,
                                    .status = kOutOfMemory});
    EXPECT_THAT(thrown<ResourceExhaustedError>(
                    [&] { ops.batch_reduce_into(ReduceOp::MEAN, large, options); }),
                HasSubstr("GPU:"))
        << skip;
    emulated_cuda().calls().clear_faults();
    small = batch_of(3);
    ops.batch_reduce_into(ReduceOp::MEAN, small, {.bytes_per_pack = 1000});
    expect_means(small);
    ops.batch_reduce_into(ReduceOp::MEAN, large, options);  // the failure has changed nothing of it
    expect_means(large);
    ops.check();
  }
}

/// Each launch of a batch of many packs takes a part of the time that the call has.
TEST_F(NcclFailures, AllLaunchesOfACallHaveOneDeadline) {
  NcclAllReduce ops(1);
  std::vector<PerReplica> batch = batch_of(40);
  ops.batch_reduce_into(ReduceOp::MEAN, batch, {.bytes_per_pack = 1000});  // 14 of them
  ASSERT_TRUE(emulated_cuda().synchronize());
  emulated_cuda().calls().clear();
  emulated_cuda().calls().inject({.function = "nccl.group_end",
                                  .kind = testing::FaultKind::DELAY_CALL,
                                  .count = 1000,
                                  .delay = std::chrono::milliseconds(400)});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(thrown<DeadlineExceededError>([&] {
                ops.batch_reduce_into(ReduceOp::MEAN, batch,
                                      {.bytes_per_pack = 1000, .timeout_seconds = 1});
              }),
              AllOf(HasSubstr("batch_reduce #2 (40 values, "), HasSubstr("timed out after 1 s")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_LE(emulated_cuda().calls().count("nccl.group_end"), 4U);
  emulated_cuda().calls().clear_faults();
  batch = batch_of(40);
  NcclAllReduce again(1);
  again.batch_reduce_into(ReduceOp::MEAN, batch, {.bytes_per_pack = 1000});
  expect_means(batch);
}

/// An operation on two GPUs times out behind a stream that is blocked, so that NCCL does not come back from the abort.
class NcclStuckAbort : public NcclFailures {
 protected:
  void SetUp() override {
    detail::set_nccl_grace(std::chrono::milliseconds(200));
    NcclAllReduce ops(1);
    const PerReplica value{Tensor::empty(DType::FLOAT32, {64}, gpu(0)),
                           Tensor::empty(DType::FLOAT32, {64}, gpu(1), from_cuda(blocked_.get()))};
    emulated_cuda().block_stream(blocked_.get());
    ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 0.1});
    ASSERT_TRUE(log_.await("only the process's end is safe", Deadline::after(kLong)));
    emulated_cuda().calls().clear();
  }
  void TearDown() override {
    detail::set_nccl_grace(std::chrono::seconds(10));
    NcclFailures::TearDown();
  }
  static constexpr std::chrono::seconds kLong{30};
  const testing::LogKeeper log_;
  const testing::GpuStream blocked_{1};
};

TEST_F(NcclStuckAbort, IsNoReasonToReduceWithoutNccl) {
  const std::vector<PerReplica> batch = batch_of(3);
  for (int i = 0; i < 2; ++i) {  // also where the same object is asked again
    NcclAllReduce ops(1);
    for (int k = 0; k < 2; ++k) {
      EXPECT_THAT(
          thrown<FailedPreconditionError>([&] { ops.batch_reduce_into(ReduceOp::MEAN, batch); }),
          AllOf(HasSubstr("CUDA device 0"), HasSubstr("only the process's end is safe")));
    }
  }
  EXPECT_EQ(emulated_cuda().calls().count("kernels.reduce"), 0U);
  EXPECT_EQ(emulated_cuda().calls().count("kernels.reduce_many"), 0U);
  EXPECT_THAT(log_.texts(), Not(HasSubstr("kernels reduce instead")));
  emulated_cuda().release_stream(blocked_.get());
  ASSERT_TRUE(log_.await("came back late", Deadline::after(kLong)));
  NcclAllReduce ops(1);
  ops.batch_reduce_into(ReduceOp::MEAN, batch);
  expect_means(batch);
  EXPECT_EQ(emulated_cuda().calls().count("kernels.reduce_many"), 0U);
}

TEST_F(NcclStuckAbort, IsAnErrorForEveryWorkerOfACollective) {
  const std::vector<std::string> errors =
      testing::run_clusters(2, [](const std::shared_ptr<Cluster>& cluster) {
        const Device own = gpu(static_cast<std::size_t>(cluster->rank()) + 1);  // GPU:2 is well
        CollectiveAllReduce ops(Devices(own), 2, {}, cluster);
        const PerReplica value(vector_of(std::vector<float>(100, 1), own));
        ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 60});
      });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 0 "), HasSubstr("CUDA device 1"),
                                 HasSubstr("only the process's end is safe"))));
  EXPECT_THAT(log_.texts(), Not(HasSubstr("instead")));
}

}  // namespace
}  // namespace crossdevice
