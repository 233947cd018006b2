// SPDX-License-Identifier: Apache-2.0
// How CollectiveAllReduce tells its calls apart among workers that are processes: equal ones cost few bytes, a failed one is never taken for the next.
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

/// By all connections of this process.
std::uint64_t num_bytes_sent() {
  constexpr int kDescriptors = 1024;
  std::uint64_t num_bytes = 0;
  for (int descriptor = 0; descriptor < kDescriptors; ++descriptor) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
      num_bytes += info.tcpi_bytes_sent;
    }
  }
  return num_bytes;
}

/// Three kinds of calls in turn.
void make_equal_calls(Cluster& cluster) {
  constexpr int kNumTurns = 100;
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  std::array<float, 256> values{};
  values.fill(static_cast<float>(cluster.rank()));
  const Tensor tensor = Tensor::view(std::span(values), "CPU:0");
  const std::vector<PerReplica> batch{PerReplica{tensor}};
  const auto make_calls = [&] {
    ops.reduce_into(ReduceOp::MEAN, PerReplica{tensor}, PerReplica{tensor});
    ops.reduce_into(ReduceOp::MAX, PerReplica{tensor}, PerReplica{tensor});
    ops.batch_reduce_into(ReduceOp::MEAN, batch);
  };
  make_calls();
  const std::uint64_t before = num_bytes_sent();
  for (int turn = 0; turn < kNumTurns; ++turn) make_calls();
  const std::uint64_t per_call = (num_bytes_sent() - before) / (3 * kNumTurns);
  // A head has some 8 bytes, and a heartbeat comes here and there; an operation that is said has 56 bytes.
  EXPECT_GE(per_call, sizeof values);
  EXPECT_LT(per_call, sizeof values + 32);
  for (const float value : values) EXPECT_EQ(value, 0.5F);
  await_the_others();
}

TEST(CollectiveAllReduceCalls, EqualOnesSayOnceWhatTheyAre) {
  EXPECT_EQ(run_workers("make equal calls", 2, -1, Machines::ONE_EACH), all_well(2));
}

/// Rank 1 makes a call in vain, of which rank 0 hears nothing; then both make one.
void fail_alone(Cluster& cluster) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  std::vector<float> values(2, 1.0F);
  const std::vector<PerReplica> batch{PerReplica{Tensor::view(std::span(values), "CPU:0")}};
  ops.batch_reduce_into(ReduceOp::SUM, batch);
  EXPECT_EQ(values, std::vector<float>(2, 2.0F));
  if (cluster.rank() == 1) {
    EXPECT_THROW(ops.batch_reduce_into(ReduceOp::SUM, batch, {.timeout_seconds = 1e-9}),
                 DeadlineExceededError);
  }
  try {
    ops.batch_reduce_into(ReduceOp::SUM, batch);
    ADD_FAILURE() << "one worker's second call has been taken for the other's third";
  } catch (const OpError& error) {
    EXPECT_NE(std::string(error.what()).find("make different calls"), std::string::npos)
        << error.what();
    EXPECT_EQ(error.operation().kind, "batch_reduce");
    EXPECT_GT(error.operation().sequence, 0U);
  }
  EXPECT_EQ(values, std::vector<float>(2, 2.0F));
  await_the_others();
}

TEST(CollectiveAllReduceCalls, OneThatFailedOnAWorkerAloneIsNotTakenForTheNext) {
  for (const Machines machines : {Machines::ONE, Machines::ONE_EACH}) {
    EXPECT_EQ(run_workers("fail alone", 2, -1, machines), all_well(2)) << to_string(machines);
  }
}

IndexedSlices one_row(float& value) {
  static std::int64_t row = 0;
  return {.values = Tensor::view(&value, DType::FLOAT32, Shape({1, 1}), "CPU:0"),
          .indices = Tensor::view(&row, DType::INT64, Shape({1}), "CPU:0"),
          .dense_shape = {1, 1}};
}

/// Rank 0 reduces two sparse values in one batch, rank 1 each in a batch of its own: as many operations, of equal kinds and sizes.
void cut_batches_differently(Cluster& cluster) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  std::array<float, 2> values{1, 2};
  const std::vector<ValueDestinationPair> both{{PerReplica{one_row(values[0])}, "CPU:0"},
                                               {PerReplica{one_row(values[1])}, "CPU:0"}};
  const std::vector<Mirrored> sums = ops.batch_reduce(ReduceOp::SUM, both);
  ASSERT_EQ(sums.size(), both.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {  // a row of each worker
    const auto rows = sums[i].slices()[0].values.span<const float>();
    EXPECT_THAT(std::vector(rows.begin(), rows.end()),
                ::testing::ElementsAre(values[i], values[i]));
  }
  try {
    if (cluster.rank() == 0) {
      (void)ops.batch_reduce(ReduceOp::SUM, both);
    } else {
      for (const ValueDestinationPair& each : both) {
        (void)ops.batch_reduce(ReduceOp::SUM, std::span(&each, 1));
      }
    }
    ADD_FAILURE() << "a batch has been taken for another one";
  } catch (const OpError& error) {
    EXPECT_NE(std::string(error.what()).find("make different calls"), std::string::npos)
        << error.what();
    EXPECT_EQ(error.operation().kind, "batch_reduce");
    EXPECT_GT(error.operation().sequence, 0U);
  }
  await_the_others();
}

TEST(CollectiveAllReduceCalls, SparseValuesOfDifferentBatchesAreNotMixed) {
  for (const Machines machines : {Machines::ONE, Machines::ONE_EACH}) {
    EXPECT_EQ(run_workers("cut batches differently", 2, -1, machines), all_well(2))
        << to_string(machines);
  }
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(
      argc, argv,
      {{"make equal calls", crossdevice::make_equal_calls},
       {"fail alone", crossdevice::fail_alone},
       {"cut batches differently", crossdevice::cut_batches_differently}});
}
