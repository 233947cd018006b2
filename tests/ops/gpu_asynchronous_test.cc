// SPDX-License-Identifier: Apache-2.0
// Asynchronous forms on emulated GPUs: what wait() waits for, and what it throws of that which goes wrong after everything was enqueued.
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/ops/gradient_bucketer.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/gpu_fixture.h"
#include "support/gpu_values.h"
#include "support/threaded_cluster.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

using ::testing::AllOf;
using testing::elements_on_gpu;
using testing::emulated_cuda;
using testing::gpu;
using testing::GpuStream;
using ::testing::HasSubstr;
using testing::run_clusters;
using testing::thrown;
using testing::vector_of;
using ClusterPtr = std::shared_ptr<Cluster>;

constexpr std::chrono::seconds kLong{60};

Deadline in_seconds(double seconds) { return Deadline::after_timeout_seconds(seconds); }

/// Ones on two GPUs, each on a stream of the program's, of which the second may be blocked.
class GpuAsynchronous : public testing::EmulatedGpuTest {
 protected:
  void SetUp() override {
    for (const Tensor& tensor : value_.values()) {
      copy(tensor, vector_of(std::vector<float>(64, 1), "CPU:0"));
    }
    ASSERT_TRUE(emulated_cuda().synchronize());
    emulated_cuda().calls().clear();
  }
  void block() const { emulated_cuda().block_stream(second_.get()); }
  void release() const {
    emulated_cuda().release_stream(second_.get());
    EXPECT_TRUE(emulated_cuda().synchronize());
  }
  /// By the watchdog, whose look is not to be waited for.
  static std::string thrown_by_check(CrossDeviceOps& ops) {
    const auto limit = std::chrono::steady_clock::now() + kLong;
    std::string text;
    while (text.empty() && std::chrono::steady_clock::now() < limit) {
      text = thrown<OpError>([&] { ops.check(); });
    }
    return text;
  }

  GpuStream first_{0};
  GpuStream second_{1};
  PerReplica value_{Tensor::empty(DType::FLOAT32, {64}, gpu(0), from_cuda(first_.get())),
                    Tensor::empty(DType::FLOAT32, {64}, gpu(1), from_cuda(second_.get()))};
};

struct Way {
  std::string name;
  std::function<std::unique_ptr<CrossDeviceOps>()> make;
};

const Way kWays[] = {
    {"Nccl", [] { return std::make_unique<NcclAllReduce>(1); }},
    {"Hierarchical", [] { return std::make_unique<HierarchicalCopyAllReduce>(1); }},
};

class GpuAsynchronousOf : public GpuAsynchronous, public ::testing::WithParamInterface<Way> {};

TEST_P(GpuAsynchronousOf, WaitEndsWhenTheGpusHaveComeToTheEnd) {
  const std::unique_ptr<CrossDeviceOps> ops = GetParam().make();
  ops->reduce_into(ReduceOp::MAX, value_, value_);  // communicators
  block();
  PendingBatch pending = ops->reduce_into_async(ReduceOp::SUM, value_, value_);
  pending.wait_until_enqueued();
  EXPECT_TRUE(pending.is_done());
  EXPECT_TRUE(pending.value(0).values()[1].is_same(value_.values()[1]));
  EXPECT_THAT(thrown<DeadlineExceededError>([&] { pending.wait(in_seconds(0.05)); }),
              AllOf(HasSubstr("CUDA device"), HasSubstr("the operation goes on")));
  emulated_cuda().release_stream(second_.get());
  pending.wait();
  // The host need not wait for anything else.
  EXPECT_EQ(emulated_cuda().stream_query(second_.get()), detail::CudaStatus::SUCCESS);
  for (const Tensor& tensor : value_.values()) {
    EXPECT_EQ(elements_on_gpu<float>(tensor), std::vector<float>(64, 2));
  }
  pending.wait();
  ops->check();
}

TEST_P(GpuAsynchronousOf, WaitThrowsTheDeadlineEveryTimeAndNobodyElseDoes) {
  const std::unique_ptr<CrossDeviceOps> ops = GetParam().make();
  ops->reduce_into(ReduceOp::MAX, value_, value_);
  block();
  PendingBatch pending =
      ops->reduce_into_async(ReduceOp::SUM, value_, value_, {.timeout_seconds = 0.3});
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(thrown<DeadlineExceededError>([&] { pending.wait(in_seconds(60)); }),
                AllOf(HasSubstr("reduce #2"), HasSubstr("timed out after 0.3 s: waiting for"),
                      HasSubstr("GPU:1")));
  }
  EXPECT_NE(thrown<DeadlineExceededError>([&] { pending.wait_until_enqueued(); }), "");
  ops->check();
  release();
}

TEST_P(GpuAsynchronousOf, WhatNobodyWaitedForIsThrownByCheckAndThenByWait) {
  const std::unique_ptr<CrossDeviceOps> ops = GetParam().make();
  ops->reduce_into(ReduceOp::MAX, value_, value_);
  block();
  PendingBatch pending =
      ops->reduce_into_async(ReduceOp::SUM, value_, value_, {.timeout_seconds = 0.1});
  EXPECT_THAT(thrown_by_check(*ops), HasSubstr("reduce #2"));
  ops->check();
  EXPECT_THAT(thrown<DeadlineExceededError>([&] { pending.wait(); }), HasSubstr("reduce #2"));
  release();
}

TEST_P(GpuAsynchronousOf, TheNextCallThrowsWhatNobodyElseHas) {
  const std::unique_ptr<CrossDeviceOps> ops = GetParam().make();
  ops->reduce_into(ReduceOp::MAX, value_, value_);
  block();
  {
    PendingBatch pending =
        ops->reduce_into_async(ReduceOp::SUM, value_, value_, {.timeout_seconds = 0.1});
    pending.wait_until_enqueued();  // not cancelled
  }
  const auto limit = std::chrono::steady_clock::now() + kLong;
  std::string text;
  while (text.empty() && std::chrono::steady_clock::now() < limit) {
    text =
        thrown<DeadlineExceededError>([&] { (void)ops->broadcast(value_.values()[0], "GPU:0"); });
  }
  EXPECT_THAT(text, HasSubstr("reduce #2"));
  release();
}

INSTANTIATE_TEST_SUITE_P(All, GpuAsynchronousOf, ::testing::ValuesIn(kWays),
                         [](const auto& way) { return way.param.name; });

TEST_F(GpuAsynchronous, WaitForResultsInNewMemoryOfEveryForm) {
  const PerReplica slices{testing::slices_of({1, 2}, {0, 1}, Shape({4, 1}), gpu(0)),
                          testing::slices_of({1, 2}, {2, 3}, Shape({4, 1}), gpu(1))};
  ReductionToOneDevice ops;
  ASSERT_TRUE(emulated_cuda().synchronize());
  const detail::CudaStream own = testing::gpu(Device("GPU:1")).own_stream();
  const std::vector<std::function<PendingBatch()>> forms = {
      [&] { return ops.reduce_async(ReduceOp::SUM, value_, "GPU:1"); },
      [&] {
        return ops.batch_reduce_async(ReduceOp::SUM,
                                      std::array{ValueDestinationPair{value_, "GPU:1"}});
      },
      [&] { return ops.broadcast_async(value_.values()[0], "GPU:1"); },
      [&] { return ops.gather_async(value_, "GPU:1", 0); },
      [&] { return ops.reduce_async(ReduceOp::SUM, slices, "GPU:1"); },
  };
  for (const auto& form : forms) {
    // The result has one of them.
    emulated_cuda().block_stream(own);
    block();
    PendingBatch pending = form();
    EXPECT_THAT(thrown<DeadlineExceededError>([&] { pending.wait(in_seconds(0.05)); }),
                HasSubstr("CUDA device 1"));
    emulated_cuda().release_stream(own);
    emulated_cuda().release_stream(second_.get());
    pending.wait();
  }
}

/// The abort that ends NCCL's kernels lets the streams go on, as if all were well.
TEST_F(GpuAsynchronous, WaitDoesNotTakeAnAbortForTheEnd) {
  std::string said;
  const std::vector<std::string> errors = run_clusters(2, [&](const ClusterPtr& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    CollectiveAllReduce ops(Devices(gpu(rank)), 2, {}, cluster);
    const PerReplica value(vector_of(std::vector<float>(100, 1), gpu(rank)));
    ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 60});
    cluster->barrier(60);
    if (rank == 0) {
      PendingBatch pending =
          ops.reduce_into_async(ReduceOp::SUM, value, value, {.timeout_seconds = 0.3});
      said = thrown<DeadlineExceededError>([&] { pending.wait(in_seconds(60)); });
    }
    (void)thrown<OpError>([&] { cluster->barrier(60); });  // rank 1 stays away from the call
  });
  EXPECT_EQ(errors, testing::no_errors(2));
  EXPECT_THAT(
      said, AllOf(HasSubstr("reduce #2"), HasSubstr("timed out after 0.3 s"), HasSubstr("rank 1")));
}

TEST_F(GpuAsynchronous, ABucketersHostRunsAhead) {
  HierarchicalCopyAllReduce ops(1);
  const std::array<PerReplica, 1> gradients = {value_};
  GradientBucketer bucketer(ops, gradients);
  block();
  for (int step = 0; step < 3; ++step) {
    bucketer.ready(0);
    bucketer.wait();
  }
  EXPECT_EQ(emulated_cuda().stream_query(second_.get()), detail::CudaStatus::NOT_READY);
  release();
  EXPECT_EQ(elements_on_gpu<float>(value_.values()[1]), std::vector<float>(64, 8));
  ops.check();
}

}  // namespace
}  // namespace crossdevice
