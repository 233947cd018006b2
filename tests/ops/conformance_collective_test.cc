// SPDX-License-Identifier: Apache-2.0
// TensorFlow's own tests of CollectiveAllReduce (catalogue 8.1 to 8.3), with processes. Names are the catalogue's ids, numbers are its rows', continued where a
// row is run by more workers than TensorFlow's.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "ops/worker_group.h"
#include "support/machines_fixture.h"
#include "support/thrown.h"
#include "support/values.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

/// Groups of these sizes, where so many devices can be shared out among the workers, and of one device per worker.
template <class F>
void in_groups_of(Cluster& cluster, std::set<std::size_t> sizes, F check) {
  const auto workers = static_cast<std::size_t>(cluster.num_workers());
  sizes.insert(workers);
  for (const std::size_t size : sizes) {
    if (size % workers != 0) continue;
    Group group(cluster, size / workers);
    check(group);
  }
}

/// Values d and d + 1 of device d on every worker; RING with bytes_per_pack 0, 1 and 4.
void c14_6_v1_6(Cluster& cluster) {
  const auto workers = static_cast<float>(cluster.num_workers());
  for (const std::size_t devices : {1U, 2U}) {
    for (const int bytes_per_pack : {0, 1, 4}) {
      Group group(
          cluster, devices,
          {.bytes_per_pack = bytes_per_pack, .implementation = CommunicationImplementation::RING});
      const auto n = static_cast<float>(devices);
      const auto local = [&](std::size_t replica, float offset) {
        return std::vector<float>{static_cast<float>(replica % devices) + offset};
      };
      const PerReplica value = group.value([&](std::size_t r) { return local(r, 0); });
      const PerReplica value2 = group.value([&](std::size_t r) { return local(r, 1); });
      const float mean = (n - 1) / 2;
      for (const Destinations& destination :
           {Destinations(value), Destinations("CPU:0"), Destinations(cpus(devices))}) {
        const Devices& on = destination.devices();
        expect_mirrored(group.ops.reduce(ReduceOp::MEAN, value, destination), on, {mean});
        expect_mirrored(group.ops.reduce(ReduceOp::SUM, value2, destination), on,
                        {(mean + 1) * n * workers});
        const auto batch =
            group.ops.batch_reduce(ReduceOp::MEAN, {{value, destination}, {value2, destination}});
        expect_mirrored(batch[0], on, {mean});
        expect_mirrored(batch[1], on, {mean + 1});
      }
      expect_mirrored(group.ops.broadcast(scalar_of(1.0F, cpu(0)), value), cpus(devices), {1});
    }
  }
}

/// Replica i of TensorFlow's six holds {i + 1: row}; ragged: rows {1, 2}, {2}, {3}, {4}, {5, 6}, {6}. More replicas begin again.
void c14_7_v1_7(Cluster& cluster) {
  Group group(cluster, 2);
  const std::vector<std::vector<float>> rows = {{1, 2}, {3, 4}, {2, 1}, {0, 0}, {3, 1}, {2, 1}};
  const std::vector<std::vector<std::int64_t>> ragged = {{1, 2}, {2}, {3}, {4}, {5, 6}, {6}};
  std::vector<float> expected(20);
  std::vector<float> expected_ragged(20);
  for (std::size_t i = 0; i < group.size; ++i) {
    for (std::size_t k = 0; k < 2; ++k) {
      expected[2 * (i % 6 + 1) + k] += rows[i % 6][k];
      for (const std::int64_t row : ragged[i % 6]) {
        expected_ragged[2 * static_cast<std::size_t>(row) + k] += rows[i % 6][k];
      }
    }
  }
  const PerReplica value = group.sparse([&](std::size_t i, const Device& device) {
    return slices_of(rows[i % 6], {static_cast<std::int64_t>(i % 6) + 1}, {10, 2}, device);
  });
  const PerReplica longer = group.sparse([&](std::size_t i, const Device& device) {
    std::vector<float> repeated;
    for (std::size_t k = 0; k < ragged[i % 6].size(); ++k) {
      repeated.insert(repeated.end(), rows[i % 6].begin(), rows[i % 6].end());
    }
    return slices_of(repeated, ragged[i % 6], {10, 2}, device);
  });
  const auto check = [](const Mirrored& result, const std::vector<float>& sum) {
    for (const IndexedSlices& slices : result.slices()) {
      EXPECT_EQ(elements(to_dense(slices)), sum);
    }
  };
  check(group.ops.reduce(ReduceOp::SUM, value, value), expected);
  check(group.ops.reduce(ReduceOp::SUM, longer, longer), expected_ragged);
  const auto batch = group.ops.batch_reduce(ReduceOp::SUM, {{value, value}, {longer, longer}});
  check(batch[0], expected);
  check(batch[1], expected_ragged);
}

/// Two threads with ops of their own, made in one order.
void v1_9_c2_12(Cluster& cluster) {
  Group first(cluster, 1);
  Group second(cluster, 1);
  const auto run = [](Group& group, float number, std::vector<Mirrored>& results) {
    const PerReplica value = group.value([&](std::size_t) { return std::vector<float>{number}; });
    for (int i = 0; i < 100; ++i) {
      results = group.ops.batch_reduce(ReduceOp::SUM, {{value, value}, {value, value}});
    }
  };
  std::vector<Mirrored> ones;
  std::vector<Mirrored> twos;
  std::thread other([&] {
    if (cluster.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    run(second, 2, twos);
  });
  run(first, 1, ones);
  other.join();
  const auto workers = static_cast<float>(cluster.num_workers());
  for (const Mirrored& result : ones) expect_mirrored(result, cpus(1), {workers});
  for (const Mirrored& result : twos) expect_mirrored(result, cpus(1), {2 * workers});
}

void c2_1(Cluster& cluster) {
  in_groups_of(cluster, {1, 2, 4}, [](Group& group) {
    const float sum = static_cast<float>(group.size * (group.size + 1)) / 2;
    const PerReplica value =
        group.value([](std::size_t r) { return std::vector<float>{static_cast<float>(r) + 1}; });
    expect_mirrored(group.ops.reduce(ReduceOp::SUM, value, value), group.devices, {sum});
    expect_mirrored(group.ops.reduce(ReduceOp::MEAN, value, value), group.devices,
                    {sum / static_cast<float>(group.size)});
  });
}

/// Rows 2r + 1 and 2r + 2 of replica r; of different lengths: 2r + 1 rows, numbered through.
void c2_2_c2_3(Cluster& cluster) {
  in_groups_of(cluster, {1, 2, 4}, [](Group& group) {
    const std::vector<std::vector<std::int64_t>> indices = {{0, 1}, {1, 2}, {7, 8}, {3, 2}};
    const auto row = [](std::size_t r) { return static_cast<float>(2 * r + 1); };
    const PerReplica value = group.sparse([&](std::size_t r, const Device& device) {
      return slices_of({row(r), row(r) + 1}, indices[r % 4], {10, 1}, device);
    });
    for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::MEAN}) {
      const float divisor = op == ReduceOp::SUM ? 1 : static_cast<float>(group.size);
      std::vector<float> rows;
      std::vector<std::int64_t> at;
      for (std::size_t r = 0; r < group.size; ++r) {
        rows.insert(rows.end(), {row(r) / divisor, (row(r) + 1) / divisor});
        at.insert(at.end(), indices[r % 4].begin(), indices[r % 4].end());
      }
      const Mirrored result = group.ops.reduce(op, value, value);
      ASSERT_EQ(result.devices(), group.devices);
      for (const IndexedSlices& slices : result.slices()) expect_slices(slices, rows, at);
    }
  });
  in_groups_of(cluster, {2}, [](Group& group) {
    const auto add = [](std::size_t r, std::vector<float>& rows, std::vector<std::int64_t>& at) {
      for (std::size_t i = 0; i < 2 * r + 1; ++i) {
        rows.push_back(static_cast<float>(r * r + i + 1));
        at.push_back(static_cast<std::int64_t>(i));
      }
    };
    std::vector<float> all_rows;
    std::vector<std::int64_t> all_at;
    for (std::size_t r = 0; r < group.size; ++r) add(r, all_rows, all_at);
    const PerReplica value = group.sparse([&](std::size_t r, const Device& device) {
      std::vector<float> rows;
      std::vector<std::int64_t> at;
      add(r, rows, at);
      return slices_of(rows, at, {20, 1}, device);
    });
    for (const IndexedSlices& slices : group.ops.reduce(ReduceOp::SUM, value, value).slices()) {
      expect_slices(slices, all_rows, all_at);
    }
  });
}

/// Column i of replica r is 2r + i + 1.
void c2_4(Cluster& cluster) {
  in_groups_of(cluster, {4}, [](Group& group) {
    const auto column = [&](std::size_t i) {
      return group.value(
          [i](std::size_t r) { return std::vector<float>{static_cast<float>(2 * r + i + 1)}; });
    };
    const auto n = static_cast<float>(group.size);
    const PerReplica first = column(0);
    const PerReplica second = column(1);
    const auto sums = group.ops.batch_reduce(ReduceOp::SUM, {{first, first}, {second, second}});
    expect_mirrored(sums[0], group.devices, {n * n});
    expect_mirrored(sums[1], group.devices, {n * (n + 1)});
    const auto means = group.ops.batch_reduce(ReduceOp::MEAN, {{first, first}, {second, second}});
    expect_mirrored(means[0], group.devices, {n});
    expect_mirrored(means[1], group.devices, {n + 1});
  });
}

/// What even and odd replicas hold of two sparse values; later ones have the same rows with larger numbers.
struct SparsePart {
  std::vector<float> rows;
  std::vector<std::int64_t> at;
};
SparsePart sparse_part(std::size_t replica, bool is_first) {
  const auto more = static_cast<float>(10 * (replica / 2));
  if (is_first) {
    return replica % 2 == 0 ? SparsePart{{1 + more, 2 + more}, {0, 1}}
                            : SparsePart{{3 + more}, {4}};
  }
  return replica % 2 == 0 ? SparsePart{{5 + more}, {6}} : SparsePart{{6 + more, 7 + more}, {1, 0}};
}

void expect_sparse(const Mirrored& result, std::size_t num_replicas, bool is_first) {
  SparsePart all;
  for (std::size_t r = 0; r < num_replicas; ++r) {
    const SparsePart part = sparse_part(r, is_first);
    all.rows.insert(all.rows.end(), part.rows.begin(), part.rows.end());
    all.at.insert(all.at.end(), part.at.begin(), part.at.end());
  }
  for (const IndexedSlices& slices : result.slices()) expect_slices(slices, all.rows, all.at);
}

void c2_5_c2_6(Cluster& cluster) {
  in_groups_of(cluster, {2}, [](Group& group) {
    const auto sparse = [&](bool is_first) {
      return group.sparse([is_first](std::size_t r, const Device& device) {
        const SparsePart part = sparse_part(r, is_first);
        return slices_of(part.rows, part.at, {is_first ? 10 : 8, 1}, device);
      });
    };
    const PerReplica first = sparse(true);
    const PerReplica second = sparse(false);
    const auto number = [&](float least) {
      return group.value(
          [least](std::size_t r) { return std::vector<float>{least + 2 * static_cast<float>(r)}; });
    };
    const PerReplica dense1 = number(1);
    const PerReplica dense2 = number(2);
    const auto sparse_ones =
        group.ops.batch_reduce(ReduceOp::SUM, {{first, first}, {second, second}});
    expect_sparse(sparse_ones[0], group.size, true);
    expect_sparse(sparse_ones[1], group.size, false);
    const auto mixed = group.ops.batch_reduce(
        ReduceOp::SUM, {{dense1, dense1}, {first, first}, {dense2, dense2}, {second, second}});
    const auto n = static_cast<float>(group.size);
    expect_mirrored(mixed[0], group.devices, {n * n});
    expect_mirrored(mixed[2], group.devices, {n * (n + 1)});
    expect_sparse(mixed[1], group.size, true);
    expect_sparse(mixed[3], group.size, false);
  });
}

void c2_10(Cluster& cluster) {
  Group group(cluster, 1);
  const PerReplica value{tensor_of<float>({1, 2, 1, 2}, {1, 2, 2}, cpu(0))};
  std::vector<float> copies;
  std::vector<float> along_2;
  for (std::size_t r = 0; r < group.size; ++r) copies.insert(copies.end(), {1, 2, 1, 2});
  for (std::size_t i = 0; i < 2 * group.size; ++i) along_2.insert(along_2.end(), {1, 2});
  expect_mirrored(group.ops.gather(value, value, 0), cpus(1), copies);
  expect_mirrored(group.ops.gather(value, value, 1), cpus(1), copies);
  expect_mirrored(group.ops.gather(value, value, 2), cpus(1), along_2);
}

/// Only rank 0 takes part. Its call alone has the limit: all make the group, which takes longer where the machine has other things to do.
template <class F>
void times_out(Cluster& cluster, F call) {
  Group group(cluster, 1);
  if (cluster.rank() == 0) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(thrown<DeadlineExceededError>([&] { call(group, {.timeout_seconds = 1}); }),
                HasSubstr("rank 1"));
    // The upper bound is for a call that forgets its limit, not for a busy machine.
    const auto elapsed = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(elapsed, std::chrono::seconds(1));
    EXPECT_LT(elapsed, std::chrono::seconds(60));
  }
  cluster.barrier();
}

void c2_14_to_17(Cluster& cluster) {
  using Options = CommunicationOptions;
  const auto dense = [](Group& group) {
    return group.value([](std::size_t) { return std::vector<float>{1}; });
  };
  const auto sparse = [](Group& group) {
    return group.sparse([](std::size_t, const Device& device) {
      return slices_of({1}, {0}, {5, 1}, device);
    });
  };
  times_out(cluster, [&](Group& group, const Options& options) {
    (void)group.ops.reduce(ReduceOp::SUM, dense(group), "CPU:0", options);
  });
  times_out(cluster, [&](Group& group, const Options& options) {
    (void)group.ops.batch_reduce(ReduceOp::SUM, {{dense(group), "CPU:0"}, {dense(group), "CPU:0"}},
                                 options);
  });
  times_out(cluster, [&](Group& group, const Options& options) {
    (void)group.ops.reduce(ReduceOp::SUM, sparse(group), "CPU:0", options);
  });
  times_out(cluster, [&](Group& group, const Options& options) {
    (void)group.ops.batch_reduce(ReduceOp::SUM,
                                 {{sparse(group), "CPU:0"}, {sparse(group), "CPU:0"}}, options);
  });
}

const Works& works() {
  static const Works all = {{"C14_6", c14_6_v1_6}, {"C14_7", c14_7_v1_7}, {"V1_9", v1_9_c2_12},
                            {"C2_1", c2_1},        {"C2_2", c2_2_c2_3},   {"C2_4", c2_4},
                            {"C2_5", c2_5_c2_6},   {"C2_10", c2_10},      {"C2_14", c2_14_to_17}};
  return all;
}

class CollectiveConformance : public testing::MachinesTest {};
INSTANTIATE_TEST_SUITE_P(Workers, CollectiveConformance,
                         ::testing::Values(Machines::ONE, Machines::TWO, Machines::ONE_EACH),
                         testing::machines_name);

TEST_P(CollectiveConformance, C14_6_V1_6_ReductionDistributed) {
  expect_well("C14_6", {1, 2, 3, 4, 5, 8});
}
TEST_P(CollectiveConformance, C14_7_V1_7_ReduceIndexedSlicesDistributed) {
  expect_well("C14_7", {1, 2, 3, 4, 5, 8});
}
TEST_P(CollectiveConformance, V1_9_C2_12_MultiThread) { expect_well("V1_9", {1, 2, 3, 4, 5, 8}); }
TEST_P(CollectiveConformance, C2_1_C14_8_V1_8_ReduceDense) {
  expect_well("C2_1", {1, 2, 3, 4, 5, 8});
}
TEST_P(CollectiveConformance, C2_2_C2_3_ReduceSparse) { expect_well("C2_2", {1, 2, 3, 4, 5, 8}); }
TEST_P(CollectiveConformance, C2_4_BatchReduceDense) { expect_well("C2_4", {1, 2, 3, 4, 5, 8}); }
TEST_P(CollectiveConformance, C2_5_C2_6_BatchReduceSparseAndMixed) {
  expect_well("C2_5", {1, 2, 3, 4, 5, 8});
}
TEST_P(CollectiveConformance, C2_10_GatherSameShape) { expect_well("C2_10", {1, 2, 3, 4, 5, 8}); }
TEST_P(CollectiveConformance, C2_14_C2_15_C2_16_C2_17_Timeout) {
  expect_well_at_once("C2_14", {2, 3, 4, 5, 8});
}
}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::works());
}
