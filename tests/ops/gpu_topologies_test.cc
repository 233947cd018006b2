// SPDX-License-Identifier: Apache-2.0
// The ops on emulated GPUs of which some do not reach each other's memory, and of which each is split into logical ones.
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/gpu_values.h"
#include "support/replicas.h"

namespace crossdevice {
namespace {

using crossdevice::testing::CapturedLog;
using crossdevice::testing::elements;
using crossdevice::testing::emulated_cuda;
using crossdevice::testing::vector_of;
using ::testing::HasSubstr;

constexpr int kNumGpus = 4;
constexpr int kLogicalPerGpu = 2;

/// GPU 0 and 1 reach each other, 2 reaches 3 but not the other way round, and no other pair does. GPU:2k and GPU:2k+1 are on GPU k.
bool install() {
  testing::install_emulated_gpus(kNumGpus);
  for (int a = 0; a < kNumGpus; ++a) {
    for (int b = 0; b < kNumGpus; ++b) {
      const bool can = (a < 2 && b < 2) || (a == 2 && b == 3);
      if (a != b) emulated_cuda().set_peers(a, b, can);
    }
  }
  set_logical_gpu_devices(kLogicalPerGpu);
  return true;
}
[[maybe_unused]] const bool kInstalled = install();

PerReplica value_on(const Devices& devices, std::size_t count) {
  std::vector<Tensor> components;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(i % 100) + 1000.0F * static_cast<float>(r);
    }
    components.push_back(vector_of(values, devices[r]));
  }
  return PerReplica(components);
}

std::vector<float> here(const Tensor& tensor) { return elements(copy_to_device(tensor, "CPU:0")); }

class GpuTopologies : public ::testing::TestWithParam<Devices> {
 protected:
  void TearDown() override {
    EXPECT_TRUE(emulated_cuda().synchronize());
    EXPECT_EQ(emulated_cuda().violations(), std::vector<std::string>());
  }
};

TEST_P(GpuTopologies, AllReduceToOneBroadcastAndGather) {
  const Devices& devices = GetParam();
  const auto n = static_cast<float>(devices.size());
  NcclAllReduce nccl(1);  // falls back: devices share GPUs, or there is nothing that NCCL needs
  HierarchicalCopyAllReduce hierarchical(1);
  ReductionToOneDevice to_one;
  for (const std::size_t count : {std::size_t{1}, std::size_t{257}, std::size_t{400'003}}) {
    std::vector<float> sum(count);
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] = n * static_cast<float>(i % 100) + 1000.0F * n * (n - 1) / 2;
    }
    for (CrossDeviceOps* ops : std::vector<CrossDeviceOps*>{&nccl, &hierarchical, &to_one}) {
      const PerReplica value = value_on(devices, count);
      const Mirrored result = ops->reduce(ReduceOp::SUM, value, devices);
      for (const Tensor& tensor : result.values()) EXPECT_EQ(here(tensor), sum);
      ops->reduce_into(ReduceOp::SUM, value, value);
      for (const Tensor& tensor : value.values()) EXPECT_EQ(here(tensor), sum);
    }
    const PerReplica value = value_on(devices, count);
    for (const Device& target : devices) {
      EXPECT_EQ(here(to_one.reduce(ReduceOp::SUM, value, target).tensor()), sum);
    }
    const Mirrored copies = to_one.broadcast(value.values().back(), devices);
    for (const Tensor& tensor : copies.values())
      EXPECT_EQ(here(tensor), here(value.values().back()));
    std::vector<float> rows;
    for (const Tensor& tensor : value.values()) {
      const std::vector<float> part = here(tensor);
      rows.insert(rows.end(), part.begin(), part.end());
    }
    for (const Tensor& tensor : to_one.gather(value, devices, 0).values()) {
      EXPECT_EQ(here(tensor), rows);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuTopologies,
                         ::testing::Values(Devices{"GPU:0", "GPU:1"},  // one GPU
                                           Devices{"GPU:0", "GPU:2"},  // two that reach each other
                                           Devices{"GPU:0", "GPU:4"},  // two that do not
                                           Devices{"GPU:6", "GPU:4"},  // one way
                                           Devices{"GPU:4", "GPU:6"},  // the other way
                                           Devices{"GPU:7", "GPU:0", "GPU:4",
                                                   "GPU:1"},  // odds and ends
                                           Devices{"GPU:0", "GPU:1", "GPU:2", "GPU:3", "GPU:4",
                                                   "GPU:5", "GPU:6", "GPU:7"}));

TEST(GpuFallback, NcclTakesEachGpuOnceAndThatIsSaidOnce) {
  CapturedLog log;
  for (int i = 0; i < 2; ++i) {
    NcclAllReduce ops(1);
    const PerReplica value = value_on({"GPU:2", "GPU:3"}, 3);
    (void)ops.reduce(ReduceOp::SUM, value, value);
    (void)ops.reduce(ReduceOp::SUM, value, value);
  }
  ASSERT_EQ(log.messages().size(), 1u);
  EXPECT_THAT(log.messages()[0], HasSubstr("several of these are on GPU 1"));
  EXPECT_THAT(log.messages()[0], HasSubstr("the library's own kernels reduce instead"));
}

}  // namespace
}  // namespace crossdevice
