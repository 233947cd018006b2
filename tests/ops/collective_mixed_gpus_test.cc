// SPDX-License-Identifier: Apache-2.0
// Workers whose GPUs are of different age: what NCCL can only do on newer ones goes through the hosts on all of them.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/gpu_values.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

const bool kInstalled = [] {
  testing::install_emulated_gpus();
  testing::emulated_cuda().set_old_gpus(1);
  return true;
}();

using ClusterPtr = std::shared_ptr<Cluster>;

TEST(CollectiveMixedGpus, AllKnowWhatTheLeastOfThemCan) {
  const std::vector<std::string> errors = testing::run_clusters(2, [](const ClusterPtr& cluster) {
    const auto clique =
        detail::NcclClique::among(cluster, testing::gpu(static_cast<std::size_t>(cluster->rank())));
    EXPECT_EQ(clique->compute_capability(), 80);
  });
  EXPECT_EQ(errors, testing::no_errors(2));
}

/// Ones of both workers, and whether NCCL has added them.
template <class T>
void expect_sum(CollectiveAllReduce& ops, Cluster& cluster, bool by_nccl) {
  const std::size_t calls_before = testing::emulated_cuda().calls().count("nccl.all_reduce");
  cluster.barrier(60);
  const std::vector<T> ones(100, T(1.0F));
  const Tensor tensor = Tensor::copy_of(std::span<const T>(ones), {100},
                                        testing::gpu(static_cast<std::size_t>(cluster.rank())));
  ops.reduce_into(ReduceOp::SUM, tensor, PerReplica(tensor), {.timeout_seconds = 60});
  const Tensor result = copy_to_device(tensor, "CPU:0");
  for (const T each : result.span<const T>()) ASSERT_EQ(static_cast<float>(each), 2.0F);
  cluster.barrier(60);
  const std::size_t calls = testing::emulated_cuda().calls().count("nccl.all_reduce");
  EXPECT_EQ(calls > calls_before, by_nccl);
  cluster.barrier(60);
}

TEST(CollectiveMixedGpus, Float8GoesThroughTheHostsOfAll) {
  const std::vector<std::string> errors = testing::run_clusters(2, [](const ClusterPtr& cluster) {
    const Device device = testing::gpu(static_cast<std::size_t>(cluster->rank()));
    CollectiveAllReduce ops(device, 2, {}, cluster);
    expect_sum<float8_e4m3>(ops, *cluster, /*by_nccl=*/false);
    expect_sum<float8_e5m2>(ops, *cluster, /*by_nccl=*/false);
    expect_sum<float>(ops, *cluster, /*by_nccl=*/true);
    ops.check();
  });
  EXPECT_EQ(errors, testing::no_errors(2));
}

}  // namespace
}  // namespace crossdevice
