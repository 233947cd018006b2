// SPDX-License-Identifier: Apache-2.0
// Ops of the program's own among workers: what is said of a call that fails in a hook which has handed a part of it on.
#include <cstddef>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/values.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

/// Reduces its batches in two parts.
class InTwoParts : public CollectiveAllReduce {
 public:
  using CollectiveAllReduce::CollectiveAllReduce;
  std::size_t first_part = 1;
  std::function<void()> between = [] {};

 protected:
  std::vector<Mirrored> batch_reduce_implementation(ReduceOp op,
                                                    std::span<const ValueDestinationPair> pairs,
                                                    const CommunicationOptions& options) override {
    auto results =
        CollectiveAllReduce::batch_reduce_implementation(op, pairs.first(first_part), options);
    between();
    for (Mirrored& each :
         CollectiveAllReduce::batch_reduce_implementation(op, pairs.subspan(first_part), options)) {
      results.push_back(std::move(each));
    }
    return results;
  }
};

/// Rank 1 gives up between the parts of a call in place, the first of which has `first_part` values: what rank 0 hears of its inputs.
int give_up_between_parts(Cluster& cluster, std::size_t first_part, bool is_intact) {
  InTwoParts ops({"CPU:0"}, cluster.num_workers(), {.timeout_seconds = 60}, shared(cluster));
  ops.first_part = first_part;
  ops.between = [&] {
    cluster.barrier(60.0);  // all have come to the end of the first part
    if (cluster.rank() == 1) throw std::runtime_error("no second part");
  };
  const std::vector<PerReplica> values = {PerReplica{vector_of<float>({1, 2, 3}, "CPU:0")},
                                          PerReplica{vector_of<float>({4, 5}, "CPU:0")}};
  int result = 1;
  try {
    ops.batch_reduce_into(ReduceOp::SUM, values);
  } catch (const AbortedError& error) {
    EXPECT_EQ(error.inputs_intact(), is_intact);
    EXPECT_EQ(elements(values[0].values()[0]),
              first_part == 0 ? std::vector<float>({1, 2, 3}) : std::vector<float>({2, 4, 6}));
    result = cluster.rank() == 0 ? 0 : 2;
  } catch (const std::runtime_error& error) {
    cluster.abort_collective_ops(error.what());
    result = cluster.rank() == 1 ? 0 : 3;
  }
  await_the_others();
  return result;
}

const Works& works() {
  static const Works all = {
      {"give up behind the first part",
       [](Cluster& cluster) { return give_up_between_parts(cluster, 1, false); }},
      {"give up before all",
       [](Cluster& cluster) { return give_up_between_parts(cluster, 0, true); }}};
  return all;
}

TEST(WorkerHooksTest, WhatAnEarlierPartHasWrittenIsNotIntact) {
  EXPECT_EQ(run_workers("give up behind the first part", 2), all_well(2));
}

TEST(WorkerHooksTest, WhatNoPartHasWrittenIsIntact) {
  EXPECT_EQ(run_workers("give up before all", 2), all_well(2));
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::works());
}
