// SPDX-License-Identifier: Apache-2.0
// TensorFlow's own tests of cross-device ops (catalogue 8.1 to 8.3), in one process, on host devices. Names are the catalogue's ids.
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"
#include "crossdevice/ops/select_cross_device_ops.h"

#include "support/values.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

Tensor accumulate_n(std::span<const Tensor> parts) {
  std::vector<float> sum = elements(parts[0]);
  for (const Tensor& part : parts.subspan(1)) {
    const std::vector<float> addends = elements(part);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += addends[i];
  }
  return tensor_of(sum, parts[0].shape(), parts[0].device());
}

struct Kind {
  const char* name;
  std::function<std::shared_ptr<CrossDeviceOps>()> make;
};

const Kind kKinds[] = {
    {"ToOneDevice", [] { return std::make_shared<ReductionToOneDevice>(); }},
    {"ToCpu0",
     [] {
       return std::make_shared<ReductionToOneDevice>(
           ReductionToOneDeviceOptions{.reduce_to_device = "CPU:0"});
     }},
    {"AccumulateN",
     [] {
       return std::make_shared<ReductionToOneDevice>(
           ReductionToOneDeviceOptions{.accumulation_fn = accumulate_n});
     }},
    {"Nccl1", [] { return std::make_shared<NcclAllReduce>(1); }},
    {"Nccl0", [] { return std::make_shared<NcclAllReduce>(0); }},
    {"Hierarchical8", [] { return std::make_shared<HierarchicalCopyAllReduce>(8); }},
    {"Hierarchical0", [] { return std::make_shared<HierarchicalCopyAllReduce>(0); }},
    {"MultiWorkerDefault",
     [] { return std::make_shared<MultiWorkerAllReduce>(Device("/job:localhost"), 2); }},
    {"MultiWorkerRing",
     [] {
       return std::make_shared<MultiWorkerAllReduce>(
           Device("/job:localhost"), 2,
           MultiWorkerAllReduceOptions{.all_reduce_spec = "nccl:4:xring#2", .num_packs = 2});
     }},
};

class OpsConformance : public ::testing::TestWithParam<Kind> {
 protected:
  std::shared_ptr<CrossDeviceOps> ops = GetParam().make();
};

INSTANTIATE_TEST_SUITE_P(EveryKind, OpsConformance, ::testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

/// Scalars d + offset on device d.
PerReplica scalars(std::size_t devices, float offset) {
  std::vector<Tensor> components;
  for (std::size_t d = 0; d < devices; ++d) {
    components.push_back(scalar_of(static_cast<float>(d) + offset, cpu(d)));
  }
  return PerReplica(components);
}

// C14-1 and V1-1: reduce and batch_reduce, MEAN and SUM, to the same devices, to a Mirrored on one device, to a device string; broadcast to each.
TEST_P(OpsConformance, C14_1_V1_1_ReductionAndBroadcast) {
  for (const std::size_t n : {1u, 2u, 3u, 4u, 8u}) {
    const PerReplica value = scalars(n, 0);
    const PerReplica value2 = scalars(n, 1);
    const float mean = static_cast<float>(n - 1) / 2;
    const Mirrored on_cpu({scalar_of(1.0f, cpu(0))});
    const std::vector<Destinations> destinations{value, on_cpu, "/device:CPU:0"};
    for (const Destinations& destination : destinations) {
      const Devices& devices = destination.devices();
      expect_mirrored(ops->reduce(ReduceOp::MEAN, value, destination), devices, {mean});
      expect_mirrored(ops->reduce(ReduceOp::MEAN, value2, destination), devices, {mean + 1});
      expect_mirrored(ops->reduce(ReduceOp::SUM, value, destination), devices,
                      {mean * static_cast<float>(n)});
      expect_mirrored(ops->reduce(ReduceOp::SUM, value2, destination), devices,
                      {(mean + 1) * static_cast<float>(n)});
      expect_mirrored(ops->broadcast(scalar_of(1.0f, cpu(0)), destination), devices, {1.0f});
    }
    for (const Destinations& d1 : destinations) {
      for (const Destinations& d2 : destinations) {
        for (const ReduceOp op : {ReduceOp::MEAN, ReduceOp::SUM}) {
          const float factor = op == ReduceOp::MEAN ? 1.0f : static_cast<float>(n);
          const std::vector<Mirrored> results = ops->batch_reduce(op, {{value, d1}, {value2, d2}});
          ASSERT_EQ(results.size(), 2u);
          expect_mirrored(results[0], d1.devices(), {factor * mean});
          expect_mirrored(results[1], d2.devices(), {factor * (mean + 1)});
        }
      }
    }
  }
}

/// t0 = {1: [1, 2]}, t1 = {1: [3, 4], 3: [5, 6]} of shape (5, 2).
PerReplica two_slices() {
  return {slices_of({1, 2}, {1}, {5, 2}, cpu(0)), slices_of({3, 4, 5, 6}, {1, 3}, {5, 2}, cpu(1))};
}

// C14-3 and V1-3.
TEST_P(OpsConformance, C14_3_V1_3_SimpleReduceWithIndexedSlices) {
  const Mirrored sum = ops->reduce(ReduceOp::SUM, two_slices(), "/device:CPU:0");
  ASSERT_EQ(sum.size(), 1u);
  expect_slices(sum.slices()[0], {1, 2, 3, 4, 5, 6}, {1, 1, 3});
  expect_slices(sum_duplicates(sum.slices()[0]), {4, 6, 5, 6}, {1, 3});
}

// C14-4, C14-8, V1-4 and V1-8: through reduce and batch_reduce, destination = the value.
TEST_P(OpsConformance, C14_4_V1_4_IndexedSlicesAllReduce) {
  const PerReplica value = two_slices();
  for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::MEAN}) {
    const float f = op == ReduceOp::SUM ? 1.0f : 0.5f;
    std::vector<Mirrored> results = ops->batch_reduce(op, {{value, value}});
    results.push_back(ops->reduce(op, value, value));
    for (const Mirrored& result : results) {
      ASSERT_EQ(result.devices(), cpus(2));
      for (const IndexedSlices& slices : result.slices()) {
        expect_slices(slices, {1 * f, 2 * f, 3 * f, 4 * f, 5 * f, 6 * f}, {1, 1, 3});
        expect_slices(sum_duplicates(slices), {4 * f, 6 * f, 5 * f, 6 * f}, {1, 3});
        EXPECT_EQ(slices.dense_shape, (MaybeShape{5, 2}));
      }
    }
  }
}

// C14-8 and V1-8: 1-element vectors d and d + 1 on two devices of one process.
TEST_P(OpsConformance, C14_8_V1_8_ReductionLocal) {
  const PerReplica value = per_replica({{0.0f}, {1.0f}});
  const PerReplica value2 = per_replica({{1.0f}, {2.0f}});
  for (const int bytes_per_pack : {0, 1, 4}) {
    const CommunicationOptions options{.bytes_per_pack = bytes_per_pack,
                                       .implementation = CommunicationImplementation::RING};
    const auto means =
        ops->batch_reduce(ReduceOp::MEAN, {{value, value}, {value2, value2}}, options);
    expect_mirrored(means[0], cpus(2), {0.5f});
    expect_mirrored(means[1], cpus(2), {1.5f});
    const auto sums = ops->batch_reduce(ReduceOp::SUM, {{value, value}, {value2, value2}}, options);
    expect_mirrored(sums[0], cpus(2), {1.0f});
    expect_mirrored(sums[1], cpus(2), {3.0f});
  }
}

// V1-2, as far as hosts go: host devices get ReductionToOneDevice.
TEST(OpsChoice, V1_2_ChoosesReductionToOneDeviceForHosts) {
  const auto chosen = select_cross_device_ops({"CPU:0", "CPU:1"});
  EXPECT_NE(dynamic_cast<ReductionToOneDevice*>(chosen.get()), nullptr);
}

class PlainVariable : public Variable {
 public:
  explicit PlainVariable(PerReplica components)
      : Variable("v", std::move(components), VariableAggregation::SUM) {}
};

// V1-5 and VA-24: a variable as value and destination gives tensors of its own, not the variable.
TEST_P(OpsConformance, V1_5_VA24_ReduceDistributedVariable) {
  const PlainVariable variable(per_replica({{1.0f}, {1.0f}}));
  std::vector<Mirrored> results =
      ops->batch_reduce(ReduceOp::MEAN, {{variable.components(), variable}});
  results.push_back(ops->reduce(ReduceOp::MEAN, variable.components(), variable));
  for (const Mirrored& result : results) {
    expect_mirrored(result, cpus(2), {1.0f});
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_NE(result.values()[i].data(), variable.components().values()[i].data());
    }
  }
}

// V1-9 and C2-12: two threads, each a batch of two; no deadlock, right results.
TEST_P(OpsConformance, V1_9_C2_12_MultiThread) {
  const auto run = [this](float x, std::vector<Mirrored>& results) {
    const PerReplica value = per_replica({{x}, {x}});
    for (int i = 0; i < 20; ++i) {
      results = ops->batch_reduce(ReduceOp::SUM, {{value, value}, {value, value}});
    }
  };
  std::vector<Mirrored> first, second;
  std::thread other([&] { run(2.0f, second); });
  run(1.0f, first);
  other.join();
  for (const Mirrored& result : first) expect_mirrored(result, cpus(2), {2.0f});
  for (const Mirrored& result : second) expect_mirrored(result, cpus(2), {4.0f});
}

// C2-1: inputs 1, 2, 3, 4.
TEST_P(OpsConformance, C2_1_ReduceDense) {
  const auto group = [](std::size_t n) { return scalars(n, 1); };
  expect_mirrored(ops->reduce(ReduceOp::SUM, group(1), group(1)), cpus(1), {1});
  expect_mirrored(ops->reduce(ReduceOp::SUM, group(2), group(2)), cpus(2), {3});
  expect_mirrored(ops->reduce(ReduceOp::MEAN, group(2), group(2)), cpus(2), {1.5f});
  expect_mirrored(ops->reduce(ReduceOp::SUM, group(4), group(4)), cpus(4), {10});
  expect_mirrored(ops->reduce(ReduceOp::MEAN, group(4), group(4)), cpus(4), {2.5f});
}

// C2-2: concatenated in replica order, indices kept.
TEST_P(OpsConformance, C2_2_ReduceSparse) {
  const PerReplica value{
      slices_of({1, 2}, {0, 1}, {10, 1}, cpu(0)), slices_of({3, 4}, {1, 2}, {10, 1}, cpu(1)),
      slices_of({5, 6}, {7, 8}, {10, 1}, cpu(2)), slices_of({7, 8}, {3, 2}, {10, 1}, cpu(3))};
  for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::MEAN}) {
    const float f = op == ReduceOp::SUM ? 1.0f : 0.25f;
    const Mirrored result = ops->reduce(op, value, value);
    ASSERT_EQ(result.devices(), cpus(4));
    for (const IndexedSlices& slices : result.slices()) {
      expect_slices(slices, {1 * f, 2 * f, 3 * f, 4 * f, 5 * f, 6 * f, 7 * f, 8 * f},
                    {0, 1, 1, 2, 7, 8, 3, 2});
    }
  }
}

// C2-3.
TEST_P(OpsConformance, C2_3_ReduceSparseVariableLength) {
  const PerReplica value{slices_of({1}, {0}, {10, 1}, cpu(0)),
                         slices_of({2, 3, 4}, {0, 1, 2}, {10, 1}, cpu(1))};
  const Mirrored result = ops->reduce(ReduceOp::SUM, value, value);
  for (const IndexedSlices& slices : result.slices())
    expect_slices(slices, {1, 2, 3, 4}, {0, 0, 1, 2});
}

// C2-4: [1, 2], [3, 4], [5, 6], [7, 8].
TEST_P(OpsConformance, C2_4_BatchReduceDense) {
  const auto column = [](std::size_t i) {
    std::vector<std::vector<float>> components;
    for (std::size_t r = 0; r < 4; ++r) components.push_back({static_cast<float>(2 * r + i + 1)});
    return per_replica(components);
  };
  const PerReplica first = column(0);
  const PerReplica second = column(1);
  const auto sums = ops->batch_reduce(ReduceOp::SUM, {{first, first}, {second, second}});
  expect_mirrored(sums[0], cpus(4), {16});
  expect_mirrored(sums[1], cpus(4), {20});
  const auto means = ops->batch_reduce(ReduceOp::MEAN, {{first, first}, {second, second}});
  expect_mirrored(means[0], cpus(4), {4});
  expect_mirrored(means[1], cpus(4), {5});
}

// C2-5: two sparse values per replica, concatenated in order.
TEST_P(OpsConformance, C2_5_BatchReduceSparse) {
  const PerReplica first{slices_of({1, 2}, {0, 1}, {10, 1}, cpu(0)),
                         slices_of({3}, {4}, {10, 1}, cpu(1))};
  const PerReplica second{slices_of({5}, {6}, {5, 1}, cpu(0)),
                          slices_of({6, 7}, {1, 0}, {5, 1}, cpu(1))};
  const auto results = ops->batch_reduce(ReduceOp::SUM, {{first, first}, {second, second}});
  for (const IndexedSlices& slices : results[0].slices())
    expect_slices(slices, {1, 2, 3}, {0, 1, 4});
  for (const IndexedSlices& slices : results[1].slices())
    expect_slices(slices, {5, 6, 7}, {6, 1, 0});
}

// C2-6: order of results preserved.
TEST_P(OpsConformance, C2_6_BatchReduceMixedDenseAndSparse) {
  const PerReplica dense1 = per_replica({{1}, {3}});
  const PerReplica dense2 = per_replica({{2}, {4}});
  const PerReplica sparse1{slices_of({1}, {0}, {5, 1}, cpu(0)),
                           slices_of({2}, {1}, {5, 1}, cpu(1))};
  const PerReplica sparse2{slices_of({3}, {2}, {5, 1}, cpu(0)),
                           slices_of({4}, {3}, {5, 1}, cpu(1))};
  const auto results = ops->batch_reduce(
      ReduceOp::SUM, {{dense1, dense1}, {sparse1, sparse1}, {dense2, dense2}, {sparse2, sparse2}});
  expect_mirrored(results[0], cpus(2), {4});
  expect_mirrored(results[2], cpus(2), {6});
  for (const IndexedSlices& slices : results[1].slices()) expect_slices(slices, {1, 2}, {0, 1});
  for (const IndexedSlices& slices : results[3].slices()) expect_slices(slices, {3, 4}, {2, 3});
}

// C2-10: [[[1, 2], [1, 2]]] along every axis.
TEST_P(OpsConformance, C2_10_GatherSameShape) {
  for (const std::size_t n : {1u, 2u, 3u, 4u, 8u}) {
    std::vector<Tensor> components;
    for (std::size_t r = 0; r < n; ++r) {
      components.push_back(tensor_of<float>({1, 2, 1, 2}, {1, 2, 2}, cpu(r)));
    }
    const PerReplica value(components);
    std::vector<float> copies, along_2;
    for (std::size_t r = 0; r < n; ++r) copies.insert(copies.end(), {1, 2, 1, 2});
    for (std::size_t row = 0; row < 2; ++row) {
      for (std::size_t r = 0; r < n; ++r) along_2.insert(along_2.end(), {1, 2});
    }
    expect_mirrored(ops->gather(value, value, 0), cpus(n), copies);
    expect_mirrored(ops->gather(value, value, 1), cpus(n), copies);
    const Mirrored last = ops->gather(value, value, 2);
    expect_mirrored(last, cpus(n), along_2);
    EXPECT_EQ(last.shape(), (Shape{1, 2, 2 * n}));
  }
}

}  // namespace
}  // namespace crossdevice
