// SPDX-License-Identifier: Apache-2.0
// In steady state the ops on emulated GPUs take nothing from the host's heap, from the GPUs' pools, or from CUDA.
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/comm/flight_record.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/allocation_counter.h"
#include "support/gpu_values.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

using testing::emulated_cuda;
using testing::gpus;
using testing::vector_of;

constexpr int kSteps = 20;

PerReplica value_on(const Devices& devices, std::size_t count) {
  std::vector<Tensor> components;
  for (const Device& device : devices) {
    components.push_back(vector_of(std::vector<float>(count, 1.0F), device));
  }
  return PerReplica(components);
}

/// Until the watchdog has let go of everything: operations hold their events until it has looked.
void await_watchdog() {
  EXPECT_TRUE(emulated_cuda().synchronize());
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto are_over = [] {
    for (const FlightEntry& entry : flight_record()) {
      if (entry.state != FlightState::COMPLETED) return false;
    }
    return true;
  };
  while (!are_over()) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit);
    std::this_thread::yield();
  }
}

/// What the calling thread allocates in kSteps calls, once everything has been made.
std::size_t allocations_of(const std::function<void()>& step) {
  for (int i = 0; i < 2 * kSteps; ++i) step();  // more in flight than later
  await_watchdog();
  step();
  await_watchdog();
  emulated_cuda().calls().clear();
  const std::size_t before = testing::num_allocations_of_this_thread();
  for (int i = 0; i < kSteps; ++i) {
    step();
    const testing::UncountedAllocations uncounted;
    EXPECT_TRUE(emulated_cuda().synchronize());  // so that no more is in flight than before
  }
  const std::size_t count = testing::num_allocations_of_this_thread() - before;
  for (const char* function : {"cuda.malloc_host", "cuda.event_create", "cuda.stream_create",
                               "cuda.malloc_from_pool_async", "nccl.comm_init_rank"}) {
    EXPECT_EQ(emulated_cuda().calls().count(function), 0U) << function;
  }
  return count;
}

struct Way {
  std::string name;
  std::function<std::shared_ptr<CrossDeviceOps>()> make;
};

class GpuSteadyState : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer owns the heap";
  }
};

TEST_P(GpuSteadyState, ReduceInto) {
  for (const std::size_t n : {1U, 2U, 4U, 8U}) {
    const std::shared_ptr<CrossDeviceOps> ops = GetParam().make();
    for (const std::size_t count : {1U, 1000U, 300'000U}) {
      const PerReplica value = value_on(gpus(n), count);
      for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::MEAN}) {
        EXPECT_EQ(allocations_of([&] { ops->reduce_into(op, value, value); }), 0U)
            << n << " GPUs, " << count << " elements, " << to_string(op);
      }
    }
  }
}

TEST_P(GpuSteadyState, BatchReduceInto) {
  for (const std::size_t n : {2U, 4U}) {
    const std::shared_ptr<CrossDeviceOps> ops = GetParam().make();
    std::vector<PerReplica> batch;
    for (const std::size_t count : {100U, 1U, 5000U, 17U, 300'000U, 64U, 100U}) {
      batch.push_back(value_on(gpus(n), count));
    }
    for (const Int64 bytes_per_pack : {0, 4096, 1 << 20}) {
      const CommunicationOptions options{.bytes_per_pack = bytes_per_pack, .timeout_seconds = 60};
      EXPECT_EQ(allocations_of([&] { ops->batch_reduce_into(ReduceOp::MEAN, batch, options); }), 0U)
          << n << " GPUs, " << bytes_per_pack.value() << " bytes to a pack";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GpuSteadyState,
    ::testing::Values(
        Way{"Nccl", [] { return std::make_shared<NcclAllReduce>(1); }},
        Way{"HierarchicalCopy", [] { return std::make_shared<HierarchicalCopyAllReduce>(1); }},
        Way{"ReductionToOneDevice", [] { return std::make_shared<ReductionToOneDevice>(); }}),
    [](const auto& way) { return way.param.name; });

}  // namespace
}  // namespace crossdevice
