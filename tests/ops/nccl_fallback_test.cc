// SPDX-License-Identifier: Apache-2.0
// NCCL is there, and cannot begin: NcclAllReduce says so once, and reduces all the same.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/ops/nccl_all_reduce.h"

#include "support/gpu_values.h"
#include "support/log_keeper.h"

namespace crossdevice {
namespace {

using testing::elements;
using testing::emulated_cuda;
using testing::gpu;
using ::testing::HasSubstr;
using testing::vector_of;

const bool kInstalled = (testing::install_emulated_gpus(), true);

/// A call of NCCL's by which communicators are made or tried, and what it returns.
struct Refusal {
  const char* function;
  int status;
};

std::size_t count_of(std::string_view part, const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

class NcclFallbackTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(NcclFallbackTest, ABeginningThatFailsIsSaidOnceAndKernelsReduce) {
  const testing::LogKeeper log;
  emulated_cuda().calls().inject({.function = GetParam().function, .status = GetParam().status});
  NcclAllReduce ops;
  for (float base = 1; base < 4; ++base) {
    const PerReplica value{vector_of(std::vector<float>(100, base), gpu(0)),
                           vector_of(std::vector<float>(100, 10), gpu(1))};
    ops.reduce_into(ReduceOp::SUM, value, value);
    for (const Tensor& each : value.values()) {
      EXPECT_EQ(elements(each), std::vector<float>(100, base + 10));
    }
  }
  ops.check();
  EXPECT_EQ(count_of("kernels reduce instead", log.texts()), 1U) << log.texts();
  EXPECT_THAT(log.texts(), HasSubstr("NcclAllReduce over [GPU:0, GPU:1]: "));
  EXPECT_THAT(log.texts(), HasSubstr(": nccl"));
  EXPECT_EQ(emulated_cuda().violations(), std::vector<std::string>());
}

// unhandled CUDA error, system error, internal error, invalid argument, invalid usage, remote error
INSTANTIATE_TEST_SUITE_P(
    EveryStatus, NcclFallbackTest,
    ::testing::Values(Refusal{"nccl.get_unique_id", 2}, Refusal{"nccl.get_unique_id", 3},
                      Refusal{"nccl.get_unique_id", 5}, Refusal{"nccl.comm_init_rank", 1},
                      Refusal{"nccl.comm_init_rank", 3}, Refusal{"nccl.comm_init_rank", 4},
                      Refusal{"nccl.comm_init_rank", 6}, Refusal{"nccl.group_end", 2},
                      Refusal{"nccl.all_reduce", 3}));

}  // namespace
}  // namespace crossdevice
