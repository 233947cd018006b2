// SPDX-License-Identifier: Apache-2.0
// CommunicationOptions::grouping_independent: eight replicas end with the same bits in one process and in 2, 4 and 8, on one machine and on several.
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/small_floats.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "ops/worker_group.h"
#include "support/machines_fixture.h"
#include "support/values.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kReplicas = 8;
constexpr std::size_t kCounts[] = {1, 7, 4097, 300'000};

template <class T>
std::vector<T> component(std::size_t replica, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(100 * count + replica));
  std::uniform_real_distribution<float> uniform(0.5, 1.5);
  std::vector<T> elements;
  elements.reserve(count);
  for (std::size_t i = 0; i < count; ++i) elements.push_back(static_cast<T>(uniform(random)));
  return elements;
}

template <class T>
PerReplica components(std::size_t first, const Devices& devices, std::size_t count) {
  std::vector<Tensor> tensors;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    tensors.push_back(vector_of(component<T>(first + d, count), devices[d]));
  }
  return PerReplica(tensors);
}

std::string bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.data()), tensor.size_bytes()};
}

/// What one process with all replicas has.
template <class T>
std::string in_one_process(ReduceOp op, std::size_t count) {
  const PerReplica all = components<T>(0, cpus(kReplicas), count);
  return bytes_of(
      ReductionToOneDevice().reduce(op, all, all, {.grouping_independent = true}).values()[0]);
}

template <class T>
void expect_bits_of_one_process(const Group& group, CollectiveAllReduce& ops) {
  for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::MEAN, ReduceOp::PROD}) {
    std::vector<PerReplica> values;
    std::vector<ValueDestinationPair> pairs;
    for (const std::size_t count : kCounts) {
      values.push_back(components<T>(group.first, group.devices, count));
    }
    pairs.reserve(values.size());
    for (const PerReplica& value : values) pairs.push_back({value, value});
    const CommunicationOptions options{.bytes_per_pack = 50'000, .grouping_independent = true};
    const std::vector<Mirrored> batch = ops.batch_reduce(op, pairs, options);
    for (std::size_t v = 0; v < values.size(); ++v) {
      const std::string expected = in_one_process<T>(op, kCounts[v]);
      const Mirrored alone = ops.reduce(op, values[v], values[v], options);
      for (std::size_t d = 0; d < group.devices.size(); ++d) {
        EXPECT_TRUE(bytes_of(batch[v].values()[d]) == expected)
            << to_string(op) << " of " << kCounts[v] << " in a batch";
        EXPECT_TRUE(bytes_of(alone.values()[d]) == expected)
            << to_string(op) << " of " << kCounts[v];
      }
      ops.reduce_into(op, values[v], values[v], options);
      EXPECT_TRUE(bytes_of(values[v].values()[0]) == expected)
          << to_string(op) << " of " << kCounts[v] << " in place";
    }
  }
}

void any_grouping(Cluster& cluster) {
  Group group(cluster, kReplicas / static_cast<std::size_t>(cluster.num_workers()));
  expect_bits_of_one_process<float>(group, group.ops);
  expect_bits_of_one_process<float16>(group, group.ops);
}

/// So what the others see is not what any order gives.
void grouping_matters(Cluster& cluster) {
  Group group(cluster, kReplicas / static_cast<std::size_t>(cluster.num_workers()));
  constexpr std::size_t kCount = 4097;
  const PerReplica value = components<float>(group.first, group.devices, kCount);
  const Mirrored sum = group.ops.reduce(ReduceOp::SUM, value, value, {.deterministic = true});
  EXPECT_FALSE(bytes_of(sum.values()[0]) == in_one_process<float>(ReduceOp::SUM, kCount));
}

const Works& works() {
  static const Works all = {{"any grouping", any_grouping}, {"grouping matters", grouping_matters}};
  return all;
}

class Grouping : public testing::MachinesTest {};
INSTANTIATE_TEST_SUITE_P(Workers, Grouping,
                         ::testing::Values(Machines::ONE, Machines::TWO, Machines::ONE_EACH),
                         testing::machines_name);

TEST_P(Grouping, EightReplicasHaveTheBitsOfOneProcess) {
  expect_well("any grouping", {1, 2, 4, 8});
}
TEST_P(Grouping, OtherwiseItMatters) { expect_well("grouping matters", {2, 4}); }

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::works());
}
