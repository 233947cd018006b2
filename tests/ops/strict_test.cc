// SPDX-License-Identifier: Apache-2.0
// CROSSDEVICE_STRICT=1: what cannot be done as asked is an error instead of a fall-back, and nothing has been written then.
#include <cstdlib>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"

#include "support/workers.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The environment is read when it is first used, which no static object does.
const int kSet = setenv("CROSSDEVICE_STRICT", "1", /*overwrite=*/1);

TEST(StrictTest, NcclOnHostDevicesIsAnError) {
  ASSERT_EQ(kSet, 0);
  NcclAllReduce ops;
  const PerReplica value = per_replica({{1.0f}, {2.0f}});
  EXPECT_THAT([&] { ops.reduce_into(ReduceOp::SUM, value, value); },
              ThrowsMessage<FailedPreconditionError>(HasSubstr("(CROSSDEVICE_STRICT=1)")));
  EXPECT_EQ(elements(value.values()[0]), std::vector<float>{1});
}

TEST(StrictTest, OnlyTensorsWhoseAlgorithmHasNcclAreRefused) {
  MultiWorkerAllReduce ops(workers(2), 1, {.all_reduce_spec = "pscpu:8:nccl/xring"});
  const Devices devices = worker_devices(2, 1);
  const PerReplica small = value_on(devices, {{1, 2}, {3, 4}});
  const PerReplica large = value_on(devices, {{1, 2, 3}, {4, 5, 6}});
  expect_mirrored(ops.reduce(ReduceOp::SUM, small, small), devices, {4, 6});
  const std::vector<PerReplica> values{small, large};
  for (int repetition = 0; repetition < 2; ++repetition) {
    EXPECT_THAT([&] { ops.batch_reduce_into(ReduceOp::SUM, values); },
                ThrowsMessage<FailedPreconditionError>(HasSubstr("MultiWorkerAllReduce over")));
  }
  EXPECT_EQ(elements(small.values()[0]), (std::vector<float>{1, 2}));
  expect_mirrored(ops.reduce(ReduceOp::SUM, large, large, {.deterministic = true}), devices,
                  {5, 7, 9});
}

}  // namespace
}  // namespace crossdevice
