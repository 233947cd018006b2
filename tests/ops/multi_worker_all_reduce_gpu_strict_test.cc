// SPDX-License-Identifier: Apache-2.0
// MultiWorkerAllReduce on emulated GPUs with CROSSDEVICE_STRICT=1: wherever NCCL was asked for and does not reduce, an error, before anything is written.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"

#include "support/gpu_values.h"
#include "support/multi_worker_gpus.h"
#include "support/strict_program.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;

/// The call's error, on every call; nothing is written.
std::string refusal(MultiWorkerAllReduce& ops, ReduceOp op, const PerReplica& value) {
  const PerReplica good = value_on(worker_gpus(2, 1), {{8}, {9}});  // of pscpu
  const std::vector<PerReplica> values{good, value};
  const std::vector<float> before = elements(value.values()[0]);
  std::string text;
  for (int repetition = 0; repetition < 2; ++repetition) {
    text = thrown<FailedPreconditionError>([&] { ops.batch_reduce_into(op, values); });
    EXPECT_EQ(thrown<FailedPreconditionError>([&] { ops.reduce_into(op, value, value); }), text);
  }
  EXPECT_EQ(elements(good.values()[0]), std::vector<float>{8});
  EXPECT_EQ(elements(value.values()[0]), before);
  return text;
}

TEST(MultiWorkerGpuStrict, NcclIsAnErrorWhereItCannot) {
  ASSERT_TRUE(kIsStrict);
  MultiWorkerAllReduce ops(workers(2), 1, {.all_reduce_spec = "pscpu:4:nccl"});
  const PerReplica value = value_on(worker_gpus(2, 1), {{1, 2}, {3, 4}});
  EXPECT_THAT(refusal(ops, ReduceOp::MAX, value),
              AllOf(HasSubstr("MultiWorkerAllReduce over [/job:worker"),
                    HasSubstr("NCCL has no MAX of float32"), HasSubstr("(CROSSDEVICE_STRICT=1)")));
  EXPECT_THAT(
      refusal(ops, ReduceOp::SUM, value_on({worker_gpu(0, 2), worker_gpu(1, 2)}, {{1, 2}, {3, 4}})),
      HasSubstr("several of these are on GPU 2"));
  EXPECT_THAT(refusal(ops, ReduceOp::SUM,
                      value_on({worker_gpu(0, 2), worker_device(1, 2)}, {{1, 2}, {3, 4}})),
              HasSubstr("some of these are host devices"));
  // What it can it does, and what it is not asked for may go any way.
  expect_mirrored(ops.reduce(ReduceOp::SUM, value, value), value.devices(), {4, 6});
  const PerReplica small = value_on(worker_gpus(2, 1), {{1}, {3}});
  expect_mirrored(ops.reduce(ReduceOp::MAX, small, small), value.devices(), {3});
  expect_mirrored(ops.reduce(ReduceOp::MAX, value, value, {.deterministic = true}), value.devices(),
                  {3, 4});
}

TEST(MultiWorkerGpuStrict, SoIsTheNcclLevelOfTwo) {
  MultiWorkerAllReduce ops(workers(2), 2, {.all_reduce_spec = "pscpu:4:nccl/xring"});
  const PerReplica value = value_on(worker_gpus(2, 2), {{1, 2}, {3, 4}, {5, 6}, {7, 8}});
  EXPECT_THAT(
      refusal(ops, ReduceOp::MAX, value),
      AllOf(HasSubstr("MultiWorkerAllReduce over [/job:worker/replica:0/task:0/device:GPU:0, "
                      "/job:worker/replica:0/task:0/device:GPU:1]"),
            HasSubstr("NCCL has no MAX of float32"), HasSubstr("(CROSSDEVICE_STRICT=1)")));
  EXPECT_THAT(refusal(ops, ReduceOp::SUM,
                      value_on({worker_gpu(0, 2), worker_device(1, 2)}, {{1, 2}, {3, 4}})),
              HasSubstr("some of these are host devices"));
  // What it can it does, and where each worker has one GPU nothing is asked of it.
  expect_mirrored(ops.reduce(ReduceOp::SUM, value, value), value.devices(), {16, 20});
  const PerReplica single = value_on(worker_gpus(2, 1), {{1, 2}, {3, 4}});
  expect_mirrored(ops.reduce(ReduceOp::MAX, single, single), single.devices(), {3, 4});
}

}  // namespace
}  // namespace crossdevice
