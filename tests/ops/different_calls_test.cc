// SPDX-License-Identifier: Apache-2.0
/// Calls that differ in what a fingerprint alone stands for: every worker is told how. Workers are processes; rank 1 calls otherwise than the others.
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr double kLimit = 30;

Tensor zeros(std::size_t count) { return Tensor::zeros(DType::FLOAT32, {count}, "CPU:0"); }

/// What `call` throws on this worker.
template <class Call>
std::string said(Call call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another kind of error: ") + error.what();
  }
  return "no error";
}

/// Of `call(ops, is_other)`, with new ops.
template <class Call>
std::string said_of_ops(Cluster& cluster, Call call) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {.timeout_seconds = kLimit},
                          shared(cluster));
  std::string text = said([&] { call(ops, cluster.rank() == 1); });
  cluster.barrier();
  return text;
}
template <class Call>
std::string said_of_communicator(Cluster& cluster, Call call) {
  Communicator world(shared(cluster));
  std::string text = said([&] { call(world, cluster.rank() == 1); });
  cluster.barrier();
  return text;
}

std::string regex_of(const std::string& of_others, const std::string& of_rank_1) {
  return "workers make different calls: rank 0 " + of_others + "; rank 1 " + of_rank_1 +
         "(; rank 2 " + of_others + ")?";
}

void differ(Cluster& cluster) {
  const CommunicatorOptions limit{.timeout_seconds = kLimit};
  EXPECT_THAT(said_of_communicator(cluster,
                                   [&](Communicator& world, bool is_other) {
                                     const Tensor value = zeros(8);
                                     world.reduce(ReduceOp::SUM, value, value, is_other ? 1 : 0,
                                                  limit);
                                   }),
              MatchesRegex(regex_of("reduce #1 SUM of 1 float32 value, 32 bytes, root 0",
                                    "reduce #1 SUM of 1 float32 value, 32 bytes, root 1")));
  EXPECT_THAT(said_of_communicator(cluster,
                                   [&](Communicator& world, bool is_other) {
                                     if (is_other) return world.barrier(limit);
                                     world.broadcast(zeros(8), 0, limit);
                                   }),
              MatchesRegex(regex_of("broadcast #1 of 1 float32 value, 32 bytes", "barrier #1")));
  EXPECT_THAT(said_of_ops(cluster,
                          [&](CollectiveAllReduce& ops, bool is_other) {
                            const Tensor value = Tensor::zeros(DType::FLOAT32, {2, 2}, "CPU:0");
                            (void)ops.gather(PerReplica{value}, "CPU:0", is_other ? 1 : 0);
                          }),
              MatchesRegex(regex_of("gather #1, axis 0", "gather #1, axis 1")));
  EXPECT_THAT(
      said_of_ops(cluster,
                  [&](CollectiveAllReduce& ops, bool is_other) {
                    const PerReplica value{zeros(100)};
                    CommunicationOptions options;
                    if (is_other) options.deterministic = true;
                    ops.reduce_into(ReduceOp::SUM, value, value, options);
                  }),
      MatchesRegex(regex_of("reduce #1 SUM of 1 float32 value, 400 bytes, not deterministic",
                            "reduce #1 SUM of 1 float32 value, 400 bytes, deterministic")));
}

void differ_in_batches(Cluster& cluster) {
  const auto reduce = [](CollectiveAllReduce& ops, std::vector<std::size_t> counts,
                         const CommunicationOptions& options) {
    std::vector<PerReplica> values;
    values.reserve(counts.size());
    for (const std::size_t each : counts) values.push_back(PerReplica{zeros(each)});
    ops.batch_reduce_into(ReduceOp::SUM, values, options);
  };
  const auto order = said_of_ops(cluster, [&](CollectiveAllReduce& ops, bool is_other) {
    if (is_other) return reduce(ops, {7, 500, 1000, 9}, {});
    reduce(ops, {7, 1000, 500, 9}, {});
  });
  EXPECT_THAT(order,
              MatchesRegex(regex_of("batch_reduce #1 SUM of [^,]*, [^,]*, value 1: 1000 float32",
                                    "batch_reduce #1 SUM of [^,]*, [^,]*, value 1: 500 float32")));
  const auto packs = said_of_ops(cluster, [&](CollectiveAllReduce& ops, bool is_other) {
    reduce(ops, {1000, 1000}, {.bytes_per_pack = is_other ? 4000 : 8000});
  });
  // Who has ended a pack of another size is in none that could be compared; then the two that have met in one tell their calls, as each knows them.
  EXPECT_THAT(packs, ::testing::AnyOf(
                         AllOf(HasSubstr(", bytes_per_pack 4000"),
                               HasSubstr(", bytes_per_pack 8000"), Not(HasSubstr("fingerprint"))),
                         HasSubstr("members make different calls: rank ")));
}

const Works& works() {
  static const Works all = {{"differ", differ}, {"differ in batches", differ_in_batches}};
  return all;
}

class DifferentCallsTest : public ::testing::TestWithParam<Machines> {};

INSTANTIATE_TEST_SUITE_P(Workers, DifferentCallsTest,
                         ::testing::Values(Machines::ONE, Machines::TWO, Machines::ONE_EACH),
                         [](const auto& tested) { return to_string(tested.param); });

TEST_P(DifferentCallsTest, EveryWorkerIsToldHowTheyDiffer) {
  for (const int workers : {2, 3}) {
    EXPECT_EQ(run_workers("differ", workers, -1, GetParam()), all_well(workers));
    EXPECT_EQ(run_workers("differ in batches", workers, -1, GetParam()), all_well(workers));
  }
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::works());
}
