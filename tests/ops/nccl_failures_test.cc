// SPDX-License-Identifier: Apache-2.0
// What NcclAllReduce is like after something has failed: the same object, and new ones.
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/nccl_all_reduce.h"

#include "support/gpu_fixture.h"
#include "support/gpu_values.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

using crossdevice::testing::elements;
using crossdevice::testing::emulated_cuda;
using crossdevice::testing::gpu;
using crossdevice::testing::thrown;
using crossdevice::testing::vector_of;
using ::testing::HasSubstr;

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
    EXPECT_THAT(thrown<ResourceExhaustedError>([&] {
                  ops.batch_reduce_into(ReduceOp::MEAN, large, options);
                }),
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

}  // namespace
}  // namespace crossdevice
