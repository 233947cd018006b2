// SPDX-License-Identifier: Apache-2.0
// Every op x dtype x packing x number of devices x size, out of place and in place, against the slow reference, bit by bit.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/reduce_cases.h"

namespace crossdevice {
namespace {

using crossdevice::testing::Elements;
using crossdevice::testing::has_bytes;
using crossdevice::testing::kReduceSizes;
using crossdevice::testing::ReduceCase;

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

class ReduceProperty
    : public ::testing::TestWithParam<std::tuple<Configuration, std::size_t /*devices*/>> {
 protected:
  /// All sizes of one dtype, and for SUM and MAX all dtypes mixed, as one batch.
  std::vector<ReduceCase> batch(ReduceOp op, const std::vector<DType>& dtypes) {
    const auto& [configuration, devices] = GetParam();
    std::vector<ReduceCase> cases;
    for (const std::size_t size : kReduceSizes) {
      for (const DType dtype : dtypes) {
        cases.emplace_back(op, dtype, size, devices, configuration.halves, Elements::ANY, random_);
      }
    }
    return cases;
  }

  void check_batch(ReduceOp op, std::vector<ReduceCase> cases) {
    const Configuration& configuration = std::get<0>(GetParam());
    const std::shared_ptr<CrossDeviceOps> ops = configuration.make();
    std::vector<ValueDestinationPair> pairs;
    std::vector<PerReplica> in_place;
    for (ReduceCase& c : cases) {
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
    for (const ReduceCase& c : cases) {
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
    std::vector<ReduceCase> cases;
    for (const std::size_t size : {std::size_t{200'003}, std::size_t{3}, std::size_t{262'144}}) {
      cases.emplace_back(ReduceOp::MEAN, dtype, size, devices, configuration.halves, Elements::ANY,
                         random_);
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
