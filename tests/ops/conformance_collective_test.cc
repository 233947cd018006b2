// SPDX-License-Identifier: Apache-2.0
// TensorFlow's own tests of CollectiveAllReduce and of its collective runtime (catalogue 8.1 to 8.3, 8.10), with processes. Names are the catalogue's ids,
// numbers are its rows'.
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/small_floats.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/thrown.h"
#include "support/values.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

std::shared_ptr<Cluster> borrowed(Cluster& cluster) {
  return {&cluster, [](Cluster*) {}};
}

/// Ops over CPU:0 .. CPU:n-1 of every worker, and which replicas are this worker's.
struct Group {
  Group(Cluster& all, std::size_t num_devices, const CommunicationOptions& options = {})
      : devices(cpus(num_devices)),
        first(num_devices * static_cast<std::size_t>(all.rank())),
        size(num_devices * static_cast<std::size_t>(all.num_workers())),
        ops(devices, static_cast<int>(size), options, borrowed(all)) {}

  /// Component r is make(replica id).
  template <class F>
  [[nodiscard]] PerReplica value(F make) const {
    std::vector<Tensor> components;
    components.reserve(devices.size());
    for (std::size_t d = 0; d < devices.size(); ++d) {
      components.push_back(vector_of(make(first + d), devices[d]));
    }
    return PerReplica(components);
  }
  /// The same of sparse values: make(replica id, device).
  template <class F>
  [[nodiscard]] PerReplica sparse(F make) const {
    std::vector<IndexedSlices> components;
    components.reserve(devices.size());
    for (std::size_t d = 0; d < devices.size(); ++d) {
      components.push_back(make(first + d, devices[d]));
    }
    return PerReplica(std::move(components));
  }

  Devices devices;
  std::size_t first;
  std::size_t size;
  CollectiveAllReduce ops;
};

/// Rows of several devices per worker, where these make up a group of the wanted size.
template <class F>
void in_groups_of(Cluster& cluster, std::size_t size, F check) {
  const auto workers = static_cast<std::size_t>(cluster.num_workers());
  if (size % workers != 0) return;
  Group group(cluster, size / workers);
  check(group);
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

/// Replica i of six holds {i + 1: row}; ragged: rows {1, 2}, {2}, {3}, {4}, {5, 6}, {6}.
void c14_7_v1_7(Cluster& cluster) {
  Group group(cluster, 2);
  const std::vector<std::vector<float>> rows = {{1, 2}, {3, 4}, {2, 1}, {0, 0}, {3, 1}, {2, 1}};
  const std::vector<std::vector<std::int64_t>> ragged = {{1, 2}, {2}, {3}, {4}, {5, 6}, {6}};
  std::vector<float> expected(20);
  std::vector<float> expected_ragged(20);
  for (std::size_t i = 0; i < 6; ++i) {
    for (std::size_t k = 0; k < 2; ++k) {
      expected[2 * (i + 1) + k] += rows[i][k];
      for (const std::int64_t row : ragged[i]) {
        expected_ragged[2 * static_cast<std::size_t>(row) + k] += rows[i][k];
      }
    }
  }
  const PerReplica value = group.sparse([&](std::size_t i, const Device& device) {
    return slices_of(rows[i], {static_cast<std::int64_t>(i) + 1}, {10, 2}, device);
  });
  const PerReplica longer = group.sparse([&](std::size_t i, const Device& device) {
    std::vector<float> repeated;
    for (std::size_t k = 0; k < ragged[i].size(); ++k) {
      repeated.insert(repeated.end(), rows[i].begin(), rows[i].end());
    }
    return slices_of(repeated, ragged[i], {10, 2}, device);
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
  for (const Mirrored& result : ones) expect_mirrored(result, cpus(1), {2});
  for (const Mirrored& result : twos) expect_mirrored(result, cpus(1), {4});
}

void c2_1(Cluster& cluster) {
  const auto check = [](float sum) {
    return [sum](Group& group) {
      const PerReplica value =
          group.value([](std::size_t r) { return std::vector<float>{static_cast<float>(r) + 1}; });
      expect_mirrored(group.ops.reduce(ReduceOp::SUM, value, value), group.devices, {sum});
      expect_mirrored(group.ops.reduce(ReduceOp::MEAN, value, value), group.devices,
                      {sum / static_cast<float>(group.size)});
    };
  };
  in_groups_of(cluster, 1, check(1));
  in_groups_of(cluster, 2, check(3));
  in_groups_of(cluster, 4, check(10));
}

void c2_2_c2_3(Cluster& cluster) {
  in_groups_of(cluster, 4, [](Group& group) {
    const std::vector<std::vector<float>> rows = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
    const std::vector<std::vector<std::int64_t>> indices = {{0, 1}, {1, 2}, {7, 8}, {3, 2}};
    const PerReplica value = group.sparse([&](std::size_t r, const Device& device) {
      return slices_of(rows[r], indices[r], {10, 1}, device);
    });
    for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::MEAN}) {
      const float f = op == ReduceOp::SUM ? 1.0F : 0.25F;
      const Mirrored result = group.ops.reduce(op, value, value);
      ASSERT_EQ(result.devices(), group.devices);
      for (const IndexedSlices& slices : result.slices()) {
        expect_slices(slices, {1 * f, 2 * f, 3 * f, 4 * f, 5 * f, 6 * f, 7 * f, 8 * f},
                      {0, 1, 1, 2, 7, 8, 3, 2});
      }
    }
  });
  in_groups_of(cluster, 2, [](Group& group) {
    const PerReplica value = group.sparse([](std::size_t r, const Device& device) {
      return r == 0 ? slices_of({1}, {0}, {10, 1}, device)
                    : slices_of({2, 3, 4}, {0, 1, 2}, {10, 1}, device);
    });
    for (const IndexedSlices& slices : group.ops.reduce(ReduceOp::SUM, value, value).slices()) {
      expect_slices(slices, {1, 2, 3, 4}, {0, 0, 1, 2});
    }
  });
}

void c2_4(Cluster& cluster) {
  in_groups_of(cluster, 4, [](Group& group) {
    const auto column = [&](std::size_t i) {
      return group.value(
          [i](std::size_t r) { return std::vector<float>{static_cast<float>(2 * r + i + 1)}; });
    };
    const PerReplica first = column(0);
    const PerReplica second = column(1);
    const auto sums = group.ops.batch_reduce(ReduceOp::SUM, {{first, first}, {second, second}});
    expect_mirrored(sums[0], group.devices, {16});
    expect_mirrored(sums[1], group.devices, {20});
    const auto means = group.ops.batch_reduce(ReduceOp::MEAN, {{first, first}, {second, second}});
    expect_mirrored(means[0], group.devices, {4});
    expect_mirrored(means[1], group.devices, {5});
  });
}

void c2_5_c2_6(Cluster& cluster) {
  in_groups_of(cluster, 2, [](Group& group) {
    const PerReplica first = group.sparse([](std::size_t r, const Device& device) {
      return r == 0 ? slices_of({1, 2}, {0, 1}, {10, 1}, device)
                    : slices_of({3}, {4}, {10, 1}, device);
    });
    const PerReplica second = group.sparse([](std::size_t r, const Device& device) {
      return r == 0 ? slices_of({5}, {6}, {8, 1}, device)
                    : slices_of({6, 7}, {1, 0}, {8, 1}, device);
    });
    const auto number = [&](float least) {
      return group.value(
          [least](std::size_t r) { return std::vector<float>{least + 2 * static_cast<float>(r)}; });
    };
    const PerReplica dense1 = number(1);
    const PerReplica dense2 = number(2);
    const auto results = group.ops.batch_reduce(
        ReduceOp::SUM, {{dense1, dense1}, {first, first}, {dense2, dense2}, {second, second}});
    expect_mirrored(results[0], group.devices, {4});
    expect_mirrored(results[2], group.devices, {6});
    for (const IndexedSlices& slices : results[1].slices()) {
      expect_slices(slices, {1, 2, 3}, {0, 1, 4});
    }
    for (const IndexedSlices& slices : results[3].slices()) {
      expect_slices(slices, {5, 6, 7}, {6, 1, 0});
    }
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

/// Only rank 0 takes part.
template <class F>
void times_out(Cluster& cluster, F call) {
  Group group(cluster, 1, {.timeout_seconds = 2});
  if (cluster.rank() == 0) {
    EXPECT_THAT(thrown<DeadlineExceededError>([&] { call(group); }), HasSubstr("rank 1"));
  }
  cluster.barrier();
}

void c2_14_to_17(Cluster& cluster) {
  const auto dense = [](Group& group) {
    return group.value([](std::size_t) { return std::vector<float>{1}; });
  };
  const auto sparse = [](Group& group) {
    return group.sparse([](std::size_t, const Device& device) {
      return slices_of({1}, {0}, {5, 1}, device);
    });
  };
  times_out(cluster,
            [&](Group& group) { (void)group.ops.reduce(ReduceOp::SUM, dense(group), "CPU:0"); });
  times_out(cluster, [&](Group& group) {
    (void)group.ops.batch_reduce(ReduceOp::SUM, {{dense(group), "CPU:0"}, {dense(group), "CPU:0"}});
  });
  times_out(cluster,
            [&](Group& group) { (void)group.ops.reduce(ReduceOp::SUM, sparse(group), "CPU:0"); });
  times_out(cluster, [&](Group& group) {
    (void)group.ops.batch_reduce(ReduceOp::SUM,
                                 {{sparse(group), "CPU:0"}, {sparse(group), "CPU:0"}});
  });
}

void rt1_rt3(Cluster& cluster) {
  Group group(cluster, 4);
  const PerReplica ranks =
      group.value([](std::size_t r) { return std::vector<float>{static_cast<float>(r)}; });
  std::vector<float> in_order;
  for (std::size_t r = 0; r < group.size; ++r) in_order.push_back(static_cast<float>(r));
  expect_mirrored(group.ops.gather(ranks, ranks, 0), group.devices, in_order);
  const PerReplica ones = group.value([](std::size_t) { return std::vector<float>{1}; });
  expect_mirrored(group.ops.reduce(ReduceOp::SUM, ones, ones), group.devices,
                  {static_cast<float>(group.size)});
  cluster.barrier();  // what follows ends what a slower one is still in
  // Another kind of call on one of them.
  EXPECT_THAT(thrown<InternalError>([&] {
                if (cluster.rank() == 0) {
                  (void)group.ops.gather(ones, ones, 0);
                } else {
                  (void)group.ops.reduce(ReduceOp::SUM, ones, ones);
                }
              }),
              HasSubstr("workers make different calls"));
  await_the_others();  // who is late is to hear of it, and not that this one has gone
}

/// Groups {1, 2} and {3, 4} -> 3 and 7, beside a group of all.
void rt2(Cluster& cluster) {
  const int pair = cluster.rank() / 2;
  const std::shared_ptr<Cluster> two = cluster.subgroup({2 * pair, 2 * pair + 1});
  Group small(*two, 1);
  Group all(cluster, 1);
  const PerReplica value{scalar_of(static_cast<float>(cluster.rank()) + 1, cpu(0))};
  for (int i = 0; i < 20; ++i) {
    expect_mirrored(small.ops.reduce(ReduceOp::SUM, value, value), cpus(1),
                    {pair == 0 ? 3.0F : 7.0F});
    expect_mirrored(all.ops.reduce(ReduceOp::SUM, value, value), cpus(1), {10});
  }
}

/// Groups of two and of three, at the same time.
void rt2_sizes(Cluster& cluster) {
  const bool in_first = cluster.rank() < 2;
  const std::shared_ptr<Cluster> part =
      in_first ? cluster.subgroup({0, 1}) : cluster.subgroup({2, 3, 4});
  Group group(*part, 1);
  const PerReplica one{scalar_of(1.0F, cpu(0))};
  for (int i = 0; i < 100; ++i) {
    expect_mirrored(group.ops.reduce(ReduceOp::SUM, one, one), cpus(1), {in_first ? 2.0F : 3.0F});
  }
}

/// An abort releases who waits, with its text; later calls fail at once.
void rt5(Cluster& cluster) {
  Group group(cluster, 1);
  const PerReplica one{vector_of<float>({1}, cpu(0))};
  cluster.barrier();  // all have their group
  if (cluster.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    cluster.abort_collective_ops("peer down");
  }
  EXPECT_THAT(thrown<OpError>([&] {
                for (;;) (void)group.ops.reduce(ReduceOp::SUM, one, one);
              }),
              HasSubstr("peer down"));
  EXPECT_THAT(thrown<OpError>([&] { (void)group.ops.gather(one, one, 0); }),
              HasSubstr("peer down"));
  EXPECT_THAT(thrown<AbortedError>([&] { cluster.barrier(); }), HasSubstr("peer down"));
  await_the_others();  // else they might hear that this one has gone
}

/// The same where the others are in the group's first meeting, and where they have not begun it.
void rt5_waiting(Cluster& cluster) {
  Group group(cluster, 1);
  const PerReplica one{vector_of<float>({1}, cpu(0))};
  std::promise<void> has_aborted;
  const std::shared_ptr<void> listening =
      cluster.listen({.on_lost = nullptr, .on_abort = [&](const RankInfo&, const std::string&) {
                        has_aborted.set_value();
                      }});
  cluster.barrier();  // all have their group
  if (cluster.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // they wait by then, most likely
    cluster.abort_collective_ops("peer down");
  } else {
    if (cluster.rank() == 1) has_aborted.get_future().wait();
    EXPECT_THAT(thrown<AbortedError>([&] { (void)group.ops.reduce(ReduceOp::SUM, one, one); }),
                HasSubstr("peer down"));
  }
  await_the_others();
}

/// Wrong arguments poison nothing.
void rt6_rt7(Cluster& cluster) {
  Group group(cluster, 1);
  const PerReplica one{scalar_of(1.0F, cpu(0))};
  EXPECT_THROW((void)group.ops.reduce(ReduceOp::SUM, PerReplica{}, "CPU:0"), ValueError);
  EXPECT_THROW((void)group.ops.reduce(ReduceOp::SUM, one, "GPU:99"), ValueError);
  EXPECT_THROW((void)group.ops.gather(one, "CPU:0", 0), ValueError);  // a scalar has no axis
  expect_mirrored(group.ops.reduce(ReduceOp::SUM, one, one), cpus(1),
                  {static_cast<float>(group.size)});
}

/// The deadline is kept, and a late peer fails at once even without one of its own.
void rt8(Cluster& cluster) {
  Group group(cluster, 1);
  const PerReplica one{scalar_of(1.0F, cpu(0))};
  if (cluster.rank() == 0) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(thrown<DeadlineExceededError>([&] {
                  (void)group.ops.reduce(ReduceOp::SUM, one, one, {.timeout_seconds = 2});
                }),
                HasSubstr("timed out: waiting for rank 1"));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  }
  cluster.barrier();
  if (cluster.rank() == 1) {
    EXPECT_THAT(
        thrown<DeadlineExceededError>([&] { (void)group.ops.reduce(ReduceOp::SUM, one, one); }),
        HasSubstr("given up"));
  }
  cluster.barrier();
}

void rt9(Cluster& cluster) {
  Group group(cluster, 2, {.implementation = CommunicationImplementation::NCCL});
  const PerReplica one = group.value([](std::size_t) { return std::vector<float>{1}; });
  expect_mirrored(group.ops.reduce(ReduceOp::SUM, one, one), cpus(2),
                  {static_cast<float>(group.size)});
}

/// The sum of element i of replica d: 10^(d mod 3) i, or smaller, so that every sum is exact.
template <class T>
void value_matrix(Group& group, std::size_t count) {
  const auto element = [](std::size_t replica, std::size_t i) {
    constexpr float kPowers[] = {1, 10, 100};
    if (sizeof(T) == 2) return static_cast<T>(static_cast<float>(replica % 3 + i % 4));
    return static_cast<T>(kPowers[replica % 3] * static_cast<float>(i % 64));
  };
  const PerReplica value = group.value([&](std::size_t r) {
    std::vector<T> made;
    made.reserve(count);
    for (std::size_t i = 0; i < count; ++i) made.push_back(element(r, i));
    return made;
  });
  const Mirrored sum = group.ops.reduce(ReduceOp::SUM, value, value);
  for (const Tensor& tensor : sum.values()) {
    const std::span<const T> got = tensor.span<const T>();
    ASSERT_EQ(got.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      float wanted = 0;
      for (std::size_t r = 0; r < group.size; ++r) wanted += static_cast<float>(element(r, i));
      ASSERT_EQ(static_cast<float>(got[i]), static_cast<float>(static_cast<T>(wanted)));
    }
  }
}

/// Which rows of the matrix (workers, devices, lengths) have this number of workers.
void rt13(Cluster& cluster) {
  struct Row {
    int workers;
    std::size_t devices;
    std::vector<std::size_t> lengths;
  };
  const std::vector<Row> rows = {{1, 2, {1, 2, 8, 16, 1001}},
                                 {2, 4, {128}},
                                 {2, 8, {1001, 4096, 9408, 4095, 1045991}},
                                 {4, 4, {1045991}}};
  for (const Row& row : rows) {
    if (row.workers != cluster.num_workers()) continue;
    Group group(cluster, row.devices);
    for (const std::size_t length : row.lengths) {
      value_matrix<double>(group, length);
      if (length > 10000) continue;
      value_matrix<bfloat16>(group, length);
      value_matrix<std::int32_t>(group, length);
      value_matrix<std::int64_t>(group, length);
    }
  }
}

/// RT-13's matrix, gathered: replicas in order.
void rt14(Cluster& cluster) {
  for (const auto& [devices, count] :
       std::vector<std::pair<std::size_t, std::size_t>>{{2, 1}, {2, 1001}, {4, 128}, {8, 9408}}) {
    Group group(cluster, devices);
    const auto element = [](std::size_t r, std::size_t i) {
      return static_cast<std::int32_t>(1000000 * r + i);
    };
    const PerReplica value = group.value([&, n = count](std::size_t r) {
      std::vector<std::int32_t> made;
      made.reserve(n);
      for (std::size_t i = 0; i < n; ++i) made.push_back(element(r, i));
      return made;
    });
    const Mirrored all = group.ops.gather(value, "CPU:0", 0);
    const std::vector<std::int32_t> got = elements<std::int32_t>(all.tensor());
    ASSERT_EQ(got.size(), group.size * count);
    for (std::size_t k = 0; k < got.size(); ++k) ASSERT_EQ(got[k], element(k / count, k % count));
  }
}

void rt11(Cluster& cluster) {
  // A group that is larger than the workers, and workers that disagree on it.
  EXPECT_THROW(CollectiveAllReduce(cpus(1), cluster.num_workers() + 1, {}, borrowed(cluster)),
               ValueError);
  Group group(cluster, 1);
  const auto rank = static_cast<float>(cluster.rank());
  const PerReplica five = group.value([&](std::size_t) {
    std::vector<float> made;
    for (float i = 1; i <= 5; ++i) made.push_back(rank == 0 ? i : 10 * i);
    return made;
  });
  expect_mirrored(group.ops.reduce(ReduceOp::MAX, five, five), cpus(1), {10, 20, 30, 40, 50});
  expect_mirrored(group.ops.reduce(ReduceOp::MIN, five, five), cpus(1), {1, 2, 3, 4, 5});
  const PerReplica other_shape =
      group.value([&](std::size_t r) { return std::vector<float>(r + 2, 1); });
  EXPECT_THAT(
      thrown<InternalError>([&] { (void)group.ops.reduce(ReduceOp::SUM, other_shape, "CPU:0"); }),
      HasSubstr("workers make different calls"));
}

/// Healthy; down; a name that nobody has.
void rt22(Cluster& cluster) {
  cluster.barrier();
  EXPECT_THROW((void)cluster.worker(99), ValueError);
  if (cluster.rank() == 1) std::_Exit(0);
  EXPECT_THAT(thrown<UnavailableError>([&] { cluster.barrier(); }), HasSubstr("rank 1"));
}

const Works& works() {
  static const Works all = {{"C14_6", c14_6_v1_6},  {"C14_7", c14_7_v1_7},
                            {"V1_9", v1_9_c2_12},   {"C2_1", c2_1},
                            {"C2_2", c2_2_c2_3},    {"C2_4", c2_4},
                            {"C2_5", c2_5_c2_6},    {"C2_10", c2_10},
                            {"C2_14", c2_14_to_17}, {"RT1", rt1_rt3},
                            {"RT2", rt2},           {"RT2 sizes", rt2_sizes},
                            {"RT5", rt5},           {"RT5 waiting", rt5_waiting},
                            {"RT6", rt6_rt7},       {"RT8", rt8},
                            {"RT9", rt9},           {"RT11", rt11},
                            {"RT13", rt13},         {"RT14", rt14},
                            {"RT22", rt22}};
  return all;
}

class CollectiveConformance : public ::testing::TestWithParam<Machines> {
 protected:
  static void expect_well(const std::string& row, std::initializer_list<int> workers) {
    for (const int n : workers) {
      EXPECT_EQ(run_workers(row, n, -1, GetParam()), all_well(n)) << n << " workers";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Workers, CollectiveConformance,
                         ::testing::Values(Machines::ONE, Machines::TWO, Machines::ONE_EACH),
                         [](const auto& tested) { return to_string(tested.param); });

TEST_P(CollectiveConformance, C14_6_V1_6_ReductionDistributed) {
  expect_well("C14_6", {1, 2, 3, 4, 5, 8});
}
TEST_P(CollectiveConformance, C14_7_V1_7_ReduceIndexedSlicesDistributed) {
  expect_well("C14_7", {3});
}
TEST_P(CollectiveConformance, V1_9_C2_12_MultiThread) { expect_well("V1_9", {2}); }
TEST_P(CollectiveConformance, C2_1_C14_8_V1_8_ReduceDense) {
  expect_well("C2_1", {1, 2, 3, 4, 5, 8});
}
TEST_P(CollectiveConformance, C2_2_C2_3_ReduceSparse) { expect_well("C2_2", {1, 2, 3, 4, 5, 8}); }
TEST_P(CollectiveConformance, C2_4_BatchReduceDense) { expect_well("C2_4", {1, 2, 3, 4, 5, 8}); }
TEST_P(CollectiveConformance, C2_5_C2_6_BatchReduceSparseAndMixed) {
  expect_well("C2_5", {1, 2, 3, 5, 8});
}
TEST_P(CollectiveConformance, C2_10_GatherSameShape) { expect_well("C2_10", {1, 2, 3, 4, 5, 8}); }
TEST_P(CollectiveConformance, C2_14_C2_15_C2_16_C2_17_Timeout) { expect_well("C2_14", {2}); }
TEST_P(CollectiveConformance, RT1_RT3_ReduceGatherAndDifferentCalls) {
  expect_well("RT1", {2, 3, 4, 5, 8});
}
TEST_P(CollectiveConformance, RT2_MultipleGroups) {
  expect_well("RT2", {4});
  expect_well("RT2 sizes", {5});
}
TEST_P(CollectiveConformance, RT5_Abort) {
  expect_well("RT5", {2, 3});
  expect_well("RT5 waiting", {3, 5});
}
TEST_P(CollectiveConformance, RT6_RT7_UnrelatedErrorsPoisonNothing) { expect_well("RT6", {2, 3}); }
TEST_P(CollectiveConformance, RT8_Timeout) { expect_well("RT8", {2}); }
TEST_P(CollectiveConformance, RT9_NcclHintOnHosts) { expect_well("RT9", {2}); }
TEST_P(CollectiveConformance, RT11_PythonCollectiveOps) { expect_well("RT11", {2}); }
TEST_P(CollectiveConformance, RT13_RingReducerValueMatrix) {
  expect_well("RT13", {1, 2, 3, 4, 5, 8});
}
TEST_P(CollectiveConformance, RT14_RingGathererMatrix) { expect_well("RT14", {1, 2, 3, 4, 5, 8}); }
TEST_P(CollectiveConformance, RT22_CheckHealth) { expect_well("RT22", {2, 3}); }

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::works());
}
