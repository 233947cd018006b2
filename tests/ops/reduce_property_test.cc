// SPDX-License-Identifier: Apache-2.0
// Every op x dtype x packing x number of devices x size, out of place and in place, against the slow reference, bit by bit.
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/reference.h"

namespace crossdevice {
namespace {

using crossdevice::testing::reference_reduce;

struct Configuration {
  const char* name;
  std::shared_ptr<CrossDeviceOps> (*make)();
  CommunicationOptions options;
  bool halves;  // whether the two halves of the replicas are combined by themselves first
};

template <class Ops, int num_packs>
std::shared_ptr<CrossDeviceOps> packed() {
  return std::make_shared<Ops>(num_packs);
}
template <int num_packs, int aggregated_bytes>
std::shared_ptr<CrossDeviceOps> multi_worker() {
  // Algorithms that combine all replicas in one step, in their order.
  return std::make_shared<MultiWorkerAllReduce>(
      Device("/job:localhost"), 2,
      MultiWorkerAllReduceOptions{.all_reduce_spec = "psgpu#2:300:pscpu#3",
                                  .num_packs = num_packs,
                                  .agg_small_grads_max_bytes = aggregated_bytes});
}
std::shared_ptr<CrossDeviceOps> to_one_device() { return std::make_shared<ReductionToOneDevice>(); }

const Configuration kConfigurations[] = {
    {"ToOneDevice", to_one_device, {}, false},
    {"ToOneDevicePacked", to_one_device, {.bytes_per_pack = 1000}, false},
    {"Hierarchical0", packed<HierarchicalCopyAllReduce, 0>, {}, true},
    {"Hierarchical1", packed<HierarchicalCopyAllReduce, 1>, {}, true},
    {"Hierarchical3", packed<HierarchicalCopyAllReduce, 3>, {}, true},
    {"HierarchicalBytes", packed<HierarchicalCopyAllReduce, 2>, {.bytes_per_pack = 4096}, true},
    {"HierarchicalDeterministic",
     packed<HierarchicalCopyAllReduce, 5>,
     {.deterministic = true},
     false},
    {"Nccl2", packed<NcclAllReduce, 2>, {}, false},
    {"MultiWorker", multi_worker<0, 0>, {}, false},
    {"MultiWorker3", multi_worker<3, 0>, {}, false},
    {"MultiWorkerAggregated", multi_worker<0, 500>, {}, false},
    {"NcclBytes", packed<NcclAllReduce, 1>, {.bytes_per_pack = 1}, false},
};

/// Around vectors and pack edges; 0, 1 and primes among them.
constexpr std::size_t kSizes[] = {0, 1, 31, 64, 65, 250, 1021, 4099};
constexpr std::byte kPoison{0xA5};

/// Random bytes that are a valid element of the dtype; floats of moderate size, now and then a special one.
void fill(DType dtype, void* data, std::size_t count, std::mt19937& random) {
  auto* bytes = static_cast<std::uint8_t*>(data);
  if (dtype == DType::FLOAT32 || dtype == DType::COMPLEX64) {
    const std::size_t floats = count * size_in_bytes(dtype) / sizeof(float);
    for (std::size_t i = 0; i < floats; ++i) {
      const float value = std::uniform_real_distribution<float>(-8, 8)(random);
      std::memcpy(bytes + i * sizeof(float), &value, sizeof(float));
    }
    return;
  }
  if (dtype == DType::FLOAT64 || dtype == DType::COMPLEX128) {
    const std::size_t doubles = count * size_in_bytes(dtype) / sizeof(double);
    for (std::size_t i = 0; i < doubles; ++i) {
      const double value = std::uniform_real_distribution<double>(-8, 8)(random);
      std::memcpy(bytes + i * sizeof(double), &value, sizeof(double));
    }
    return;
  }
  for (std::size_t i = 0; i < count * size_in_bytes(dtype); ++i) {
    bytes[i] = static_cast<std::uint8_t>(random());
    if (dtype == DType::BOOL) bytes[i] &= 1;
  }
}

/// One value of a batch: the replicas' memory with a guard behind it, and what the result must be.
struct Case {
  Case(ReduceOp op, DType value_dtype, std::size_t elements, std::size_t num_replicas, bool halves,
       std::mt19937& random)
      : dtype(value_dtype), count(elements) {
    std::vector<const void*> inputs;
    for (std::size_t r = 0; r < num_replicas; ++r) {
      memory.emplace_back(count * size_in_bytes(dtype) + kGuard, kPoison);
      fill(dtype, memory.back().data(), count, random);
      inputs.push_back(memory.back().data());
    }
    const std::size_t first_group = halves && num_replicas > 1 ? num_replicas / 2 : 0;
    expected = reference_reduce(op, dtype, inputs, count, first_group);
  }
  PerReplica value() {
    std::vector<Tensor> components;
    for (std::size_t r = 0; r < memory.size(); ++r) {
      components.push_back(Tensor::view(static_cast<void*>(memory[r].data()), dtype, Shape{count},
                                        Device("CPU:" + std::to_string(r))));
    }
    return PerReplica(components);
  }
  void expect_guards_untouched() const {
    for (const auto& bytes : memory) {
      for (std::size_t i = bytes.size() - kGuard; i < bytes.size(); ++i)
        ASSERT_EQ(bytes[i], kPoison);
    }
  }

  static constexpr std::size_t kGuard = 64;
  DType dtype;
  std::size_t count;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte> expected;
};

::testing::AssertionResult has_bytes(const void* data, const std::vector<std::byte>& expected) {
  const auto* bytes = static_cast<const std::byte*>(data);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (bytes[i] != expected[i]) {
      return ::testing::AssertionFailure()
             << "byte " << i << " of " << expected.size() << " is " << static_cast<int>(bytes[i])
             << ", not " << static_cast<int>(expected[i]);
    }
  }
  return ::testing::AssertionSuccess();
}

class ReduceProperty
    : public ::testing::TestWithParam<std::tuple<Configuration, std::size_t /*devices*/>> {
 protected:
  /// All sizes of one dtype, and for SUM and MAX all dtypes mixed, as one batch.
  std::vector<Case> batch(ReduceOp op, const std::vector<DType>& dtypes) {
    const auto& [configuration, devices] = GetParam();
    std::vector<Case> cases;
    for (const std::size_t size : kSizes) {
      for (const DType dtype : dtypes) {
        cases.emplace_back(op, dtype, size, devices, configuration.halves, random_);
      }
    }
    return cases;
  }

  void check_batch(ReduceOp op, std::vector<Case> cases) {
    const Configuration& configuration = std::get<0>(GetParam());
    const std::shared_ptr<CrossDeviceOps> ops = configuration.make();
    std::vector<ValueDestinationPair> pairs;
    std::vector<PerReplica> in_place;
    for (Case& c : cases) {
      const PerReplica value = c.value();
      pairs.push_back({value, value});
      if (result_dtype(op, c.dtype) == c.dtype) in_place.push_back(value);
    }
    const std::vector<Mirrored> results = ops->batch_reduce(op, pairs, configuration.options);
    ASSERT_EQ(results.size(), cases.size());
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(std::string(to_string(cases[i].dtype)) + " " + std::to_string(cases[i].count));
      ASSERT_EQ(results[i].dtype(), result_dtype(op, cases[i].dtype));
      ASSERT_EQ(results[i].devices(), pairs[i].value.devices());
      for (const Tensor& tensor : results[i].values()) {
        ASSERT_TRUE(has_bytes(tensor.data(), cases[i].expected));
      }
    }
    ops->batch_reduce_into(op, in_place, configuration.options);
    for (const Case& c : cases) {
      SCOPED_TRACE(std::string(to_string(c.dtype)) + " " + std::to_string(c.count) + " in place");
      if (result_dtype(op, c.dtype) == c.dtype) {
        for (const auto& bytes : c.memory) ASSERT_TRUE(has_bytes(bytes.data(), c.expected));
      }
      c.expect_guards_untouched();
    }
  }

  std::mt19937 random_{20190517};
};

TEST_P(ReduceProperty, EqualsTheReferenceForEveryOpAndDType) {
  for (const ReduceOp op : kAllReduceOps) {
    for (const DType dtype : kAllDTypes) {
      if (!is_supported(op, dtype)) continue;
      SCOPED_TRACE(to_string(op));
      check_batch(op, batch(op, {dtype}));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ReduceProperty, EqualsTheReferenceForBatchesOfMixedDTypes) {
  for (const ReduceOp op : kAllReduceOps) {
    std::vector<DType> dtypes;
    for (const DType dtype : kAllDTypes) {
      if (is_supported(op, dtype)) dtypes.push_back(dtype);
    }
    SCOPED_TRACE(to_string(op));
    check_batch(op, batch(op, dtypes));
    if (HasFatalFailure()) return;
  }
}

TEST_P(ReduceProperty, EqualsTheReferenceForLargeTensors) {
  const auto& [configuration, devices] = GetParam();
  for (const DType dtype : {DType::FLOAT32, DType::BFLOAT16}) {
    std::vector<Case> cases;
    for (const std::size_t size : {std::size_t{200'003}, std::size_t{3}, std::size_t{262'144}}) {
      cases.emplace_back(ReduceOp::MEAN, dtype, size, devices, configuration.halves, random_);
    }
    check_batch(ReduceOp::MEAN, std::move(cases));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReduceProperty,
                         ::testing::Combine(::testing::ValuesIn(kConfigurations),
                                            ::testing::Values(1, 2, 3, 4, 5, 8)),
                         [](const auto& parameter) {
                           return std::string(std::get<0>(parameter.param).name) + "_" +
                                  std::to_string(std::get<1>(parameter.param)) + "devices";
                         });

}  // namespace
}  // namespace crossdevice
