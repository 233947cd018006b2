// SPDX-License-Identifier: Apache-2.0
// TensorFlow's tests of its collective runtime (catalogue 8.10) that need one process, on host devices. Names are the catalogue's ids.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/values.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

class RuntimeConformance : public ::testing::TestWithParam<int> {
 protected:
  static std::shared_ptr<CrossDeviceOps> make(int kind) {
    if (kind == 0) return std::make_shared<ReductionToOneDevice>();
    if (kind == 1) return std::make_shared<HierarchicalCopyAllReduce>(1);
    return std::make_shared<NcclAllReduce>(1);
  }
  std::shared_ptr<CrossDeviceOps> ops = make(GetParam());
};

INSTANTIATE_TEST_SUITE_P(EveryOps, RuntimeConformance, ::testing::Values(0, 1, 2));

TEST_P(RuntimeConformance, RT1_ReduceGatherBroadcast) {
  const PerReplica one = per_replica({{1.0f}});
  expect_mirrored(ops->reduce(ReduceOp::SUM, one, one), cpus(1), {1});
  const PerReplica two = per_replica({{1.0f}, {1.0f}});
  expect_mirrored(ops->reduce(ReduceOp::SUM, two, two), cpus(2), {2});
  expect_mirrored(ops->gather(two, two, 0), cpus(2), {1, 1});
  std::vector<std::vector<float>> ranks;
  std::vector<float> in_order;
  for (int r = 0; r < 16; ++r) {
    ranks.push_back({static_cast<float>(r)});
    in_order.push_back(static_cast<float>(r));
  }
  const PerReplica sixteen = per_replica(ranks);
  expect_mirrored(ops->gather(sixteen, sixteen, 0), cpus(16), in_order);
  expect_mirrored(ops->broadcast(vector_of<float>({1, 2, 3}, cpu(0)), two), cpus(2), {1, 2, 3});
}

// Groups {1, 2} and {3, 4} -> 3 and 7; groups of sizes 2 and 3 at the same time.
TEST_P(RuntimeConformance, RT2_MultipleGroups) {
  const std::shared_ptr<CrossDeviceOps> others = make(GetParam());
  Mirrored first, second;
  std::thread thread([&] {
    const PerReplica value = per_replica({{3.0f}, {4.0f}, {5.0f}});
    for (int i = 0; i < 50; ++i) second = others->reduce(ReduceOp::SUM, value, value);
  });
  const PerReplica value = per_replica({{1.0f}, {2.0f}});
  for (int i = 0; i < 50; ++i) first = ops->reduce(ReduceOp::SUM, value, value);
  thread.join();
  expect_mirrored(first, cpus(2), {3});
  expect_mirrored(second, cpus(3), {12});
}

TEST_P(RuntimeConformance, RT3_GroupSizeOneIsTheIdentity) {
  const PerReplica value = per_replica({{1.5f, -2.0f}});
  for (const ReduceOp op : kAllReduceOps) {
    const Mirrored result = ops->reduce(op, value, value);
    expect_mirrored(result, cpus(1), {1.5f, -2.0f});
    EXPECT_NE(result.tensor().data(), value.values()[0].data()) << "a copy, not the same object";
  }
  expect_mirrored(ops->gather(value, value, 0), cpus(1), {1.5f, -2.0f});
}

// Results do not depend on how the work is cut.
TEST(RuntimePacking, RT4_SubdivisionsDoNotMatter) {
  std::vector<std::vector<float>> components(4, std::vector<float>(1001));
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (auto& component : components) {
    for (float& x : component) x = uniform(random);
  }
  const PerReplica value = per_replica(components);
  std::vector<float> expected;
  for (const int packs : {0, 1, 2, 7, 16, 2000}) {
    HierarchicalCopyAllReduce ops(packs);
    const auto results =
        ops.batch_reduce(ReduceOp::SUM, {{value, value}, {value, value}}, {.deterministic = true});
    if (expected.empty()) expected = elements(results[0].values()[0]);
    for (const Mirrored& result : results) expect_mirrored(result, cpus(4), expected);
  }
}

TEST(RuntimeFallback, RT9_NcclHintOnHostsWorksAndIsSaidOnce) {
  std::vector<std::string> messages;
  set_log_sink([&messages](LogSeverity, std::string_view text) { messages.emplace_back(text); });
  const PerReplica value = per_replica({{1.0f}, {2.0f}});
  ReductionToOneDevice to_one;
  expect_mirrored(to_one.reduce(ReduceOp::SUM, value, value,
                                {.implementation = CommunicationImplementation::NCCL}),
                  cpus(2), {3});
  for (int i = 0; i < 3; ++i) {
    NcclAllReduce nccl(1);
    expect_mirrored(nccl.reduce(ReduceOp::SUM, value, value), cpus(2), {3});
  }
  set_log_sink({});
  EXPECT_LE(messages.size(), 1u);  // another test of this program may have been first
  for (const std::string& message : messages) {
    EXPECT_THAT(message, ::testing::HasSubstr("NCCL reduces on GPUs, these are host devices"));
  }
}

TEST_P(RuntimeConformance, RT11_PythonCollectiveOps) {
  std::vector<std::vector<float>> tenths(2);
  std::vector<float> mean;
  for (int i = 0; i < 8; ++i) {
    tenths[0].push_back(0.1f + static_cast<float>(i));
    tenths[1].push_back(0.3f + static_cast<float>(i));
    mean.push_back((tenths[0].back() + tenths[1].back()) / 2);
  }
  const PerReplica value = per_replica(tenths);
  expect_mirrored(ops->reduce(ReduceOp::MEAN, value, value), cpus(2), mean);
  EXPECT_NEAR(mean[0], 0.2f, 1e-6f);
  EXPECT_NEAR(mean[7], 7.2f, 1e-6f);

  const PerReplica scalars{scalar_of(0.1f, cpu(0)), scalar_of(0.3f, cpu(1))};
  EXPECT_NEAR(elements(ops->reduce(ReduceOp::MEAN, scalars, "CPU:0").tensor())[0], 0.2f, 1e-6f);

  const PerReplica halves{scalar_of(float16(0.1f), cpu(0)), scalar_of(float16(0.3f), cpu(1))};
  const Mirrored half = ops->reduce(ReduceOp::MEAN, halves, "CPU:0");
  EXPECT_NEAR(static_cast<float>(elements<float16>(half.tensor())[0]), 0.2f, 1e-3f);

  const PerReplica order = per_replica({{1, 20, 3, 40, 5}, {10, 2, 30, 4, 50}});
  expect_mirrored(ops->reduce(ReduceOp::MAX, order, order), cpus(2), {10, 20, 30, 40, 50});
  expect_mirrored(ops->reduce(ReduceOp::MIN, order, order), cpus(2), {1, 2, 3, 4, 5});

  const PerReplica integers = per_replica<std::int32_t>({{1}, {3}});
  EXPECT_EQ(elements<double>(ops->reduce(ReduceOp::MEAN, integers, "CPU:0").tensor()),
            std::vector<double>{2.0});

  const bool flags[] = {true, false, true};
  const Mirrored copies = ops->broadcast(Tensor::view(std::span(flags), "CPU:0"), value);
  for (const Tensor& tensor : copies.values()) {
    EXPECT_THAT(tensor.span<const bool>(), ::testing::ElementsAre(true, false, true));
  }

  EXPECT_THROW((void)ops->gather({tensor_of<float>({1, 2}, {1, 2}, cpu(0)),
                                  tensor_of<float>({1, 2, 3}, {1, 3}, cpu(1))},
                                 "CPU:0", 0),
               ValueError);
}

/// Sum and mean of `devices` ranks with `count` elements each. Element i on rank d is 10^(d mod 3) i for floats, 10 d + i for integers: every sum
/// of theirs is an integer that float32 (the large row: float64) holds exactly, so there is one right answer.
template <class T>
void check_ring_row(CrossDeviceOps& ops, std::size_t devices, std::size_t count) {
  using W =
      std::conditional_t<std::is_same_v<T, double>, double, float>;  // what a mean is computed in
  constexpr double kMagnitudes[] = {1, 10, 100};
  std::vector<std::vector<T>> components(devices);
  std::vector<double> totals(count, 0.0);
  for (std::size_t d = 0; d < devices; ++d) {
    for (std::size_t i = 0; i < count; ++i) {
      const double value = std::is_integral_v<T> ? static_cast<double>(10 * d + i)
                                                 : kMagnitudes[d % 3] * static_cast<double>(i);
      const T element = static_cast<T>(static_cast<W>(value));
      components[d].push_back(element);
      totals[i] += static_cast<double>(static_cast<W>(element));
    }
  }
  const PerReplica value = per_replica<T>(components);
  std::vector<T> sums;
  std::vector<T> means;
  for (const double total : totals) {
    sums.push_back(static_cast<T>(static_cast<W>(total)));
    means.push_back(static_cast<T>(static_cast<W>(total) / static_cast<W>(devices)));
  }
  const Mirrored sum = ops.reduce(ReduceOp::SUM, value, value);
  for (const Tensor& tensor : sum.values()) {
    ASSERT_TRUE(elements<T>(tensor) == sums) << devices << " devices, " << count << " elements";
  }
  if constexpr (!std::is_integral_v<T>) {
    const Mirrored mean = ops.reduce(ReduceOp::MEAN, value, value);
    for (const Tensor& tensor : mean.values()) {
      ASSERT_TRUE(elements<T>(tensor) == means) << devices << " devices, " << count << " elements";
    }
  }
}

template <class T>
void check_ring_matrix(CrossDeviceOps& ops) {
  for (const std::size_t devices : {2u, 4u, 8u}) {
    for (const std::size_t count : {1u, 2u, 8u, 16u, 128u, 1001u, 4095u, 4096u, 9408u}) {
      check_ring_row<T>(ops, devices, count);
    }
  }
}

TEST_P(RuntimeConformance, RT13_RingReducerValueMatrix) {
  check_ring_matrix<double>(*ops);
  check_ring_matrix<float>(*ops);
  check_ring_matrix<bfloat16>(*ops);
  check_ring_matrix<std::int32_t>(*ops);
  check_ring_matrix<std::int64_t>(*ops);
  check_ring_row<double>(*ops, 8, 1045991);
  check_ring_row<double>(*ops, 16, 1045991);
}

// Every op on float and double tensors of shape (2, 3); element k on rank r is (k + 1) * 0.01 * 10^r.
template <class T>
void check_nccl_manager(CrossDeviceOps& ops, ReduceOp op, std::size_t ranks) {
  std::vector<Tensor> components;
  std::vector<T> expected;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<T> component;
    for (std::size_t k = 0; k < 6; ++k) {
      const T x = static_cast<T>(static_cast<double>(k + 1) * 0.01 *
                                 std::pow(10.0, static_cast<double>(r)));
      component.push_back(x);
      if (r == 0) {
        expected.push_back(x);
        continue;
      }
      if (op == ReduceOp::SUM) expected[k] += x;
      if (op == ReduceOp::PROD) expected[k] *= x;
      if (op == ReduceOp::MAX) expected[k] = std::max(expected[k], x);
      if (op == ReduceOp::MIN) expected[k] = std::min(expected[k], x);
    }
    components.push_back(tensor_of<T>(component, {2, 3}, cpu(r)));
  }
  const PerReplica value(components);
  const Mirrored result = ops.reduce(op, value, value);
  for (const Tensor& tensor : result.values()) {
    EXPECT_EQ(tensor.shape(), (Shape{2, 3}));
    const std::vector<T> actual = elements<T>(tensor);
    for (std::size_t k = 0; k < 6; ++k) {
      const T tolerance = 4 * std::numeric_limits<T>::epsilon() * std::abs(expected[k]);
      EXPECT_NEAR(actual[k], expected[k], tolerance) << to_string(op);
    }
  }
}

constexpr ReduceOp kManagerOps[] = {ReduceOp::SUM, ReduceOp::PROD, ReduceOp::MAX, ReduceOp::MIN};

TEST_P(RuntimeConformance, RT15_NcclManagerReductions) {
  for (const ReduceOp op : kManagerOps) {
    for (const std::size_t ranks : {1u, 2u, 4u}) {
      check_nccl_manager<float>(*ops, op, ranks);
      check_nccl_manager<double>(*ops, op, ranks);
    }
  }
}

// Ten collectives from threads of their own, again and again.
TEST_P(RuntimeConformance, RT15_NcclManagerMultipleCallers) {
  std::vector<std::thread> callers;
  for (unsigned caller = 0; caller < 10; ++caller) {
    callers.emplace_back([this, caller] {
      std::mt19937 random(caller);
      for (int i = 0; i < 50; ++i) {
        check_nccl_manager<float>(*ops, kManagerOps[random() % 4], 1 + random() % 4);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// {2, 4, 8} devices x {16, 128, 1048576} elements.
TEST_P(RuntimeConformance, RT19_CollectiveSizes) {
  for (const std::size_t devices : {2u, 4u, 8u}) {
    for (const std::size_t count : {16u, 128u, 1048576u}) {
      std::vector<Tensor> components;
      for (std::size_t d = 0; d < devices; ++d) {
        components.push_back(Tensor::empty(DType::FLOAT32, {count}, cpu(d)));
        const auto span = components.back().span<float>();
        for (std::size_t i = 0; i < count; ++i) span[i] = static_cast<float>((i + d) % 1000);
      }
      const PerReplica value(components);
      ops->reduce_into(ReduceOp::SUM, value, value);
      for (const Tensor& tensor : components) {
        const auto span = tensor.span<const float>();
        for (std::size_t i = 0; i < count; ++i) {
          float expected = 0;
          for (std::size_t d = 0; d < devices; ++d) expected += static_cast<float>((i + d) % 1000);
          ASSERT_EQ(span[i], expected) << "element " << i;
        }
      }
    }
  }
}

// float16, float32, int32, int64 and float64 tensors of shape (3, 4), devices in the orders [1, 2, 0] and [1, 0].
template <class T>
void check_nccl_ops(CrossDeviceOps& ops) {
  const auto on = [](std::size_t device, float x) {
    return tensor_of<T>(std::vector<T>(12, static_cast<T>(x)), {3, 4}, cpu(device));
  };
  const PerReplica three{on(1, 2), on(2, 4), on(0, 1)};
  const PerReplica two{on(1, 2), on(0, 1)};
  const auto expect_all = [](const Mirrored& result, const Devices& devices, float expected) {
    ASSERT_EQ(result.devices(), devices);
    for (const Tensor& tensor : result.values()) {
      EXPECT_EQ(elements<T>(tensor), std::vector<T>(12, static_cast<T>(expected)));
    }
  };
  struct Row {
    ReduceOp op;
    float of_three;
    float of_two;
  };
  for (const Row& row : {Row{ReduceOp::SUM, 7, 3}, Row{ReduceOp::PROD, 8, 2},
                         Row{ReduceOp::MIN, 1, 1}, Row{ReduceOp::MAX, 4, 2}}) {
    expect_all(ops.reduce(row.op, three, three), {cpu(1), cpu(2), cpu(0)}, row.of_three);
    expect_all(ops.reduce(row.op, two, two), {cpu(1), cpu(0)}, row.of_two);
  }
}

TEST_P(RuntimeConformance, RT20_EveryOpAndDTypeInTheCallersDeviceOrder) {
  check_nccl_ops<float16>(*ops);
  check_nccl_ops<float>(*ops);
  check_nccl_ops<std::int32_t>(*ops);
  check_nccl_ops<std::int64_t>(*ops);
  check_nccl_ops<double>(*ops);
}

TEST_P(RuntimeConformance, RT20_NoDevicesAreRefused) {
  EXPECT_THROW((void)ops->reduce(ReduceOp::SUM, PerReplica(), "CPU:0"), ValueError);
  const PerReplica one = per_replica({{1.0f}});
  EXPECT_THROW((void)ops->reduce(ReduceOp::SUM, one, PerReplica()), ValueError);
  EXPECT_THROW((void)ops->broadcast(one.values()[0], Devices()), ValueError);
}

TEST_P(RuntimeConformance, RT20_DestinationsNeedNotBeTheValuesDevices) {
  const Tensor on0 = tensor_of<float>(std::vector<float>(12, 1.0f), {3, 4}, cpu(0));
  const Tensor on1 = tensor_of<float>(std::vector<float>(12, 2.0f), {3, 4}, cpu(1));
  const Tensor on2 = tensor_of<float>(std::vector<float>(12, 4.0f), {3, 4}, cpu(2));
  const PerReplica three{on1, on2, on0};
  expect_mirrored(ops->reduce(ReduceOp::SUM, three, Devices({cpu(0), cpu(5)})),
                  Devices({cpu(0), cpu(5)}), std::vector<float>(12, 7.0f));
}

}  // namespace
}  // namespace crossdevice
