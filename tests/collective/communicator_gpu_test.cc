// SPDX-License-Identifier: Apache-2.0
// Communicator with tensors on emulated GPUs, of workers that are threads; on some of them on hosts.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/core/error.h"

#include "support/gpu_fixture.h"
#include "support/threaded_cluster.h"
#include "support/thrown.h"
#include "support/values.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

using testing::elements;
using testing::emulated_cuda;
using testing::no_errors;
using testing::run_clusters;
using testing::thrown;
using testing::vector_of;
using ClusterPtr = std::shared_ptr<Cluster>;

/// Rank r's; rank 1's is a host where they are mixed.
Device device_of(int rank, bool is_mixed) {
  return is_mixed && rank == 1 ? Device("CPU:1") : Device("GPU:" + std::to_string(rank));
}

std::vector<float> here(const Tensor& tensor) {
  return elements(tensor.device().is_host() ? tensor : copy_to_device(tensor, "CPU:0"));
}

class CommunicatorGpu : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(emulated_cuda().synchronize());
    EXPECT_THAT(emulated_cuda().violations(), ::testing::IsEmpty());
  }
};

void every_call(const ClusterPtr& cluster, bool is_mixed) {
  Communicator world(cluster);
  const auto n = static_cast<std::size_t>(world.num_workers());
  const auto rank = static_cast<std::size_t>(world.rank());
  const Device device = device_of(world.rank(), is_mixed);
  const auto mine = static_cast<float>(rank + 1);
  const auto sum = static_cast<float>(n * (n + 1)) / 2;
  for (const std::size_t count : {0U, 1U, 7U, 1000U}) {
    SCOPED_TRACE(count);
    const Tensor input = vector_of(std::vector<float>(count, mine), device);
    const Tensor output = vector_of(std::vector<float>(count, -1.0F), device);
    world.all_reduce(ReduceOp::SUM, input, output, {.timeout_seconds = 60});
    EXPECT_EQ(here(output), std::vector<float>(count, sum));
    EXPECT_EQ(here(input), std::vector<float>(count, mine));
    world.all_reduce(ReduceOp::MAX, output);
    EXPECT_EQ(here(output), std::vector<float>(count, sum));

    std::vector<float> by_rank;
    for (std::size_t r = 0; r < n; ++r) {
      by_rank.insert(by_rank.end(), count, static_cast<float>(r + 1));
    }
    const Tensor all = vector_of(std::vector<float>(n * count, -1.0F), device);
    world.all_gather(input, all);
    EXPECT_EQ(here(all), by_rank);
    world.reduce_scatter(ReduceOp::SUM, all, output);
    EXPECT_EQ(here(output), std::vector<float>(count, mine * static_cast<float>(n)));

    for (std::size_t root = 0; root < n; ++root) {
      const Tensor tensor = vector_of(std::vector<float>(count, mine), device);
      world.broadcast(tensor, static_cast<int>(root));
      EXPECT_EQ(here(tensor), std::vector<float>(count, static_cast<float>(root + 1)));
      const Tensor reduced = vector_of(std::vector<float>(count, -1.0F), device);
      world.reduce(ReduceOp::SUM, input, reduced, static_cast<int>(root));
      EXPECT_EQ(here(reduced), std::vector<float>(count, rank == root ? sum : -1.0F));
      const Tensor gathered = vector_of(std::vector<float>(n * count, -1.0F), device);
      world.gather(input, gathered, static_cast<int>(root));
      EXPECT_EQ(here(gathered), rank == root ? by_rank : std::vector<float>(n * count, -1.0F));
    }
  }
  world.barrier();
}

TEST_F(CommunicatorGpu, EveryCall) {
  for (const std::size_t num_workers : {1U, 2U, 3U, 5U}) {
    for (const bool is_mixed : {false, true}) {
      SCOPED_TRACE(std::to_string(num_workers) + (is_mixed ? " mixed" : ""));
      EXPECT_EQ(run_clusters(num_workers,
                             [&](const ClusterPtr& cluster) { every_call(cluster, is_mixed); }),
                no_errors(num_workers));
    }
  }
}

TEST_F(CommunicatorGpu, WhatIsWrongIsSaidBeforeAnythingIsSent) {
  EXPECT_EQ(run_clusters(
                2,
                [](const ClusterPtr& cluster) {
                  Communicator world(cluster);
                  const Tensor tensor =
                      vector_of(std::vector<float>(4, 1.0F), device_of(world.rank(), false));
                  const Tensor fixed = Tensor::view(static_cast<const void*>(tensor.data()),
                                                    DType::FLOAT32, {4}, tensor.device());
                  EXPECT_NE(
                      thrown<ValueError>([&] { world.all_reduce(ReduceOp::SUM, tensor, fixed); }),
                      "");
                  EXPECT_NE(thrown<ValueError>([&] {
                              world.all_gather(tensor, tensor);  // too short
                            }),
                            "");
                  world.all_reduce(ReduceOp::SUM, tensor);
                  EXPECT_EQ(here(tensor), std::vector<float>(4, 2.0F));
                }),
            no_errors(2));
}

}  // namespace
}  // namespace crossdevice
