// SPDX-License-Identifier: Apache-2.0
// Every op x dtype x packing x number of GPUs x size on GPUs, emulated or devices of a real one, out of place and in place, on own and on the caller's streams, against the slow
// reference, bit by bit.
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/gpu_values.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kInstalled = (crossdevice::testing::install_gpus(8), true);

using crossdevice::testing::Elements;
using crossdevice::testing::expect_nothing_forbidden;
using crossdevice::testing::GpuStream;
using crossdevice::testing::has_bytes;
using crossdevice::testing::kReduceSizes;
using crossdevice::testing::on_gpus;
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
std::shared_ptr<CrossDeviceOps> to_one_device() { return std::make_shared<ReductionToOneDevice>(); }

const Configuration kConfigurations[] = {
    {"ToOneDevice", to_one_device, {}, false},
    {"Hierarchical1", packed<HierarchicalCopyAllReduce, 1>, {}, true},
    {"HierarchicalBytes", packed<HierarchicalCopyAllReduce, 2>, {.bytes_per_pack = 4096}, true},
    {"HierarchicalDeterministic",
     packed<HierarchicalCopyAllReduce, 5>,
     {.deterministic = true},
     false},
    {"Nccl0", packed<NcclAllReduce, 0>, {}, false},
    {"Nccl1", packed<NcclAllReduce, 1>, {}, false},
    {"Nccl3", packed<NcclAllReduce, 3>, {}, false},
    {"NcclBytes", packed<NcclAllReduce, 1>, {.bytes_per_pack = 3000}, false},
    {"NcclDeterministic", packed<NcclAllReduce, 1>, {.deterministic = true}, false},
};

struct Gpus {
  std::size_t count;
  bool has_streams;  // of the caller's
};

class GpuReduceProperty : public ::testing::TestWithParam<std::tuple<Configuration, Gpus>> {
 protected:
  void SetUp() override {
    const auto& [configuration, gpus] = GetParam();
    for (std::size_t i = 0; gpus.has_streams && i < gpus.count; ++i) {
      streams_.push_back(std::make_unique<GpuStream>(static_cast<int>(i)));
      handles_.push_back(streams_.back()->get());
    }
  }
  void TearDown() override { expect_nothing_forbidden(); }

  std::vector<ReduceCase> batch(ReduceOp op, const std::vector<DType>& dtypes) {
    const auto& [configuration, gpus] = GetParam();
    std::vector<ReduceCase> cases;
    for (const std::size_t size : kReduceSizes) {
      for (const DType dtype : dtypes) {
        cases.emplace_back(op, dtype, size, gpus.count, configuration.halves, Elements::EXACT,
                           random_);
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
      const PerReplica value = on_gpus(c, handles_);
      pairs.push_back({value, value});
      if (result_dtype(op, c.dtype) == c.dtype) in_place.push_back(value);
    }
    const std::vector<Mirrored> results = ops->batch_reduce(op, pairs, configuration.options);
    ASSERT_EQ(results.size(), cases.size());
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(std::string(to_string(cases[i].dtype)) + " " + std::to_string(cases[i].count));
      ASSERT_EQ(results[i].dtype(), result_dtype(op, cases[i].dtype));
      ASSERT_EQ(results[i].devices(), pairs[i].value.devices());
      ASSERT_EQ(results[i].values()[0].stream(), pairs[i].value.values()[0].stream());
      ASSERT_TRUE(has_bytes(results[i], cases[i].expected));
    }
    ops->batch_reduce_into(op, in_place, configuration.options);
    std::size_t next = 0;
    for (const ReduceCase& c : cases) {
      if (result_dtype(op, c.dtype) != c.dtype) continue;
      SCOPED_TRACE(std::string(to_string(c.dtype)) + " " + std::to_string(c.count) + " in place");
      ASSERT_TRUE(has_bytes(in_place[next++], c.expected));
    }
    ops->check();
  }

  std::mt19937 random_{20190517};
  std::vector<std::unique_ptr<GpuStream>> streams_;
  std::vector<detail::CudaStream> handles_;
};

TEST_P(GpuReduceProperty, EqualsTheReferenceForEveryOpAndDType) {
  for (const ReduceOp op : kAllReduceOps) {
    for (const DType dtype : kAllDTypes) {
      if (!is_supported(op, dtype)) continue;
      SCOPED_TRACE(to_string(op));
      check_batch(op, batch(op, {dtype}));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(GpuReduceProperty, EqualsTheReferenceForBatchesOfMixedDTypes) {
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

TEST_P(GpuReduceProperty, EqualsTheReferenceForLargeTensors) {
  const auto& [configuration, gpus] = GetParam();
  for (const DType dtype : {DType::FLOAT32, DType::BFLOAT16}) {
    std::vector<ReduceCase> cases;
    for (const std::size_t size : {std::size_t{300'007}, std::size_t{3}, std::size_t{262'144}}) {
      cases.emplace_back(ReduceOp::MEAN, dtype, size, gpus.count, configuration.halves,
                         Elements::EXACT, random_);
    }
    check_batch(ReduceOp::MEAN, std::move(cases));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuReduceProperty,
                         ::testing::Combine(::testing::ValuesIn(kConfigurations),
                                            ::testing::Values(Gpus{1, true}, Gpus{2, false},
                                                              Gpus{3, true}, Gpus{4, false},
                                                              Gpus{8, true})),
                         [](const auto& parameter) {
                           const Gpus& gpus = std::get<1>(parameter.param);
                           return std::string(std::get<0>(parameter.param).name) + "_" +
                                  std::to_string(gpus.count) + "gpus" +
                                  (gpus.has_streams ? "_callersStreams" : "");
                         });

}  // namespace
}  // namespace crossdevice
