// SPDX-License-Identifier: Apache-2.0
// Deadlines and aborts of calls over 1, 2, 3, 4 and 8 emulated GPUs: found and named, and a new object goes on.
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/gpu_fixture.h"
#include "support/gpu_values.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

using ::testing::AllOf;
using testing::elements_on_gpu;
using testing::emulated_cuda;
using testing::gpu;
using testing::gpus;
using ::testing::HasSubstr;
using testing::thrown;
using testing::vector_of;

constexpr std::chrono::seconds kLong{60};

struct Way {
  std::string name;
  bool is_nccl;
  std::function<std::unique_ptr<CrossDeviceOps>(std::size_t num_gpus)> make;
};

const Way kWays[] = {
    {"Nccl", true, [](std::size_t) { return std::make_unique<NcclAllReduce>(1); }},
    {"CollectiveAlone", true,
     [](std::size_t n) {
       return std::make_unique<CollectiveAllReduce>(gpus(n), static_cast<int>(n));
     }},
    {"Hierarchical", false,
     [](std::size_t) { return std::make_unique<HierarchicalCopyAllReduce>(1); }},
    {"ToOneDevice", false, [](std::size_t) { return std::make_unique<ReductionToOneDevice>(); }},
};

class GpuCounts : public testing::EmulatedGpuTest,
                  public ::testing::WithParamInterface<std::tuple<Way, std::size_t>> {
 protected:
  [[nodiscard]] static const Way& way() { return std::get<0>(GetParam()); }
  [[nodiscard]] static std::size_t num_gpus() { return std::get<1>(GetParam()); }
  [[nodiscard]] static std::unique_ptr<CrossDeviceOps> make() { return way().make(num_gpus()); }
  [[nodiscard]] static PerReplica ones() {
    std::vector<Tensor> components;
    for (std::size_t r = 0; r < num_gpus(); ++r) {
      components.push_back(vector_of(std::vector<float>(2000, 1), gpu(r)));
    }
    return PerReplica(components);
  }
  static void expect_sums(CrossDeviceOps& ops) {
    const PerReplica value = ones();
    ops.reduce_into(ReduceOp::SUM, value, value);
    for (const Tensor& component : value.values()) {
      EXPECT_EQ(elements_on_gpu<float>(component),
                std::vector<float>(2000, static_cast<float>(num_gpus())));
    }
    ops.check();
  }
  /// The watchdog's find.
  static std::string thrown_by_check(CrossDeviceOps& ops) {
    const auto limit = std::chrono::steady_clock::now() + kLong;
    std::string text;
    while (text.empty() && std::chrono::steady_clock::now() < limit) {
      text = thrown<OpError>([&] { ops.check(); });
    }
    return text;
  }
  static void release() {
    emulated_cuda().calls().clear_faults();
    emulated_cuda().release_everything();
    EXPECT_TRUE(emulated_cuda().synchronize());
  }
};

TEST_P(GpuCounts, ADeadlineNamesWhoHasNotEnded) {
  std::unique_ptr<CrossDeviceOps> ops = make();
  expect_sums(*ops);
  const PerReplica value = ones();
  ASSERT_TRUE(emulated_cuda().synchronize());
  emulated_cuda().block_stream(testing::gpu(gpu(num_gpus() - 1)).own_stream());
  if (num_gpus() == 1) {
    // The clock starts when a call comes to the head of its stream, and there is no other stream that could.
    PendingBatch pending =
        ops->reduce_into_async(ReduceOp::SUM, value, value, {.timeout_seconds = 0.2});
    EXPECT_THAT(
        thrown<DeadlineExceededError>([&] { pending.wait(Deadline::after_timeout_seconds(0.5)); }),
        HasSubstr("the operation goes on"));
    release();
    pending.wait();
    return expect_sums(*ops);
  }
  ops->reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 0.2});
  EXPECT_THAT(thrown_by_check(*ops),
              AllOf(HasSubstr("reduce #2"), HasSubstr("timed out after 0.2 s"),
                    HasSubstr("GPU:" + std::to_string(num_gpus() - 1))));
  release();
  if (way().is_nccl) ops = make();  // its communicators are gone
  expect_sums(*ops);
}

TEST_P(GpuCounts, AnAbortOfItsCommunicatorsEndsACall) {
  if (!way().is_nccl || num_gpus() == 1) GTEST_SKIP() << "no communicators: nothing to abort";
  std::unique_ptr<CrossDeviceOps> ops = make();
  expect_sums(*ops);
  const PerReplica value = ones();
  ASSERT_TRUE(emulated_cuda().synchronize());
  emulated_cuda().block_stream(testing::gpu(gpu(num_gpus() - 1)).own_stream());
  PendingBatch pending = ops->reduce_into_async(ReduceOp::SUM, value, value);
  pending.wait_until_enqueued();
  detail::NcclClique::of(gpus(num_gpus()))
      ->break_with(std::make_exception_ptr(AbortedError("enough")));
  EXPECT_THAT(thrown<AbortedError>([&] { pending.wait(); }), HasSubstr("enough"));
  EXPECT_NE(thrown<OpError>([&] { ops->reduce_into(ReduceOp::SUM, value, value); }), "");
  release();
  ops = make();
  expect_sums(*ops);
}

INSTANTIATE_TEST_SUITE_P(All, GpuCounts,
                         ::testing::Combine(::testing::ValuesIn(kWays),
                                            ::testing::Values(1, 2, 3, 4, 8)),
                         [](const auto& each) {
                           return std::get<0>(each.param).name + "On" +
                                  std::to_string(std::get<1>(each.param));
                         });

}  // namespace
}  // namespace crossdevice
