// SPDX-License-Identifier: Apache-2.0
// What a training step costs in memory once it has run before: nothing for in-place forms, only the results out of place.
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/device/memory_pool.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/allocation_counter.h"
#include "support/values.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

template <class Call>
std::size_t allocations_of(Call call) {
  call();  // the first time may allocate
  call();
  const std::size_t before = num_allocations_of_this_thread();
  call();
  return num_allocations_of_this_thread() - before;
}

class SteadyState : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_count_allocations()) GTEST_SKIP() << "a sanitizer replaces the heap";
  }
};

TEST_F(SteadyState, AnInPlaceReductionAllocatesNothing) {
  ReductionToOneDevice to_one;
  HierarchicalCopyAllReduce hierarchical(1);
  NcclAllReduce nccl(1);
  MultiWorkerAllReduce rings(Device("/job:localhost"), 2, {.all_reduce_spec = "rechd:1k:xring#2"});
  for (CrossDeviceOps* ops :
       std::initializer_list<CrossDeviceOps*>{&to_one, &hierarchical, &nccl, &rings}) {
    for (const std::size_t devices : {2u, 8u}) {
      for (const std::size_t count : {2u, 1000u, 1u << 20}) {
        const PerReplica value =
            per_replica(std::vector<std::vector<float>>(devices, std::vector<float>(count, 1.0f)));
        EXPECT_EQ(allocations_of([&] { ops->reduce_into(ReduceOp::SUM, value, value); }), 0u)
            << devices << " devices, " << count << " elements";
        EXPECT_EQ(allocations_of([&] { ops->reduce_into(ReduceOp::MEAN, value, value); }), 0u);
      }
    }
  }
}

TEST_F(SteadyState, AnInPlaceBatchAllocatesNothing) {
  ReductionToOneDevice to_one;
  HierarchicalCopyAllReduce hierarchical(2);
  NcclAllReduce unpacked(0);
  MultiWorkerAllReduce rings(Device("/job:localhost"), 2,
                             {.all_reduce_spec = "rechd:1k:xring#2", .num_packs = 3});
  for (CrossDeviceOps* ops :
       std::initializer_list<CrossDeviceOps*>{&to_one, &hierarchical, &unpacked, &rings}) {
    for (const std::size_t devices : {1u, 2u, 8u}) {
      std::vector<PerReplica> values;
      for (std::size_t i = 0; i < 50; ++i) {
        const std::vector<float> elements(1 + 100 * i, 1.0f);
        values.push_back(per_replica(std::vector<std::vector<float>>(devices, elements)));
      }
      std::vector<ValueOutputPair> pairs;
      for (const PerReplica& value : values) pairs.push_back({value, value});
      EXPECT_EQ(allocations_of([&] { ops->batch_reduce_into(ReduceOp::SUM, values); }), 0u);
      EXPECT_EQ(allocations_of([&] { ops->batch_reduce_into(ReduceOp::MEAN, pairs); }), 0u);
      const CommunicationOptions options{.bytes_per_pack = 10000};
      EXPECT_EQ(allocations_of([&] { ops->batch_reduce_into(ReduceOp::SUM, values, options); }), 0u)
          << devices << " devices";
    }
  }
}

TEST_F(SteadyState, NamingDevicesAndWrappingATensorAllocateNothing) {
  const Tensor tensor = vector_of<float>({1, 2}, cpu(0));
  EXPECT_EQ(allocations_of([&] {
              const PerReplica value{tensor};
              const Destinations by_name("CPU:1");
              const Destinations by_value(value);
              (void)by_name.devices();
              (void)by_value.devices();
            }),
            0u);
}

TEST_F(SteadyState, OutOfPlaceResultsComeFromThePool) {
  HierarchicalCopyAllReduce ops(1);
  const PerReplica value =
      per_replica({std::vector<float>(5000, 1.0f), std::vector<float>(5000, 2.0f)});
  EXPECT_EQ(allocations_of([&] { (void)ops.reduce(ReduceOp::SUM, value, value); }), 0u);
}

TEST_F(SteadyState, PeakMemoryOutOfPlaceIsInputsPlusOutputs) {
  constexpr std::size_t kCount = 1 << 20;
  HierarchicalCopyAllReduce ops(4);
  const PerReplica value{Tensor::zeros(DType::FLOAT32, {kCount}, cpu(20)),
                         Tensor::zeros(DType::FLOAT32, {kCount}, cpu(21))};
  for (std::size_t d = 20; d < 22; ++d) {
    MemoryPool& pool = MemoryPool::of(cpu(d));
    const std::size_t inputs = pool.statistics().bytes_in_use;
    pool.reset_peak();
    {
      const std::vector<Mirrored> result =
          ops.batch_reduce(ReduceOp::SUM, {{value, value}}, {.bytes_per_pack = 1 << 16});
      EXPECT_EQ(pool.statistics().peak_bytes_in_use, inputs + kCount * sizeof(float));
    }
    EXPECT_EQ(pool.statistics().bytes_in_use, inputs);
  }
}

}  // namespace
}  // namespace crossdevice
