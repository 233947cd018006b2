// SPDX-License-Identifier: Apache-2.0
// CollectiveAllReduce among workers (threads here) with emulated GPUs of their own: values, and calls that differ. Built twice, the second time for
// CROSSDEVICE_STRICT=1, where calls are compared before they are made.
#include <chrono>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/gpu_values.h"
#include "support/strict_program.h"
#include "support/threaded_cluster.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

using ::testing::AllOf;
using testing::elements;
using testing::emulated_cuda;
using testing::emulated_nccl;
using testing::gpu;
using ::testing::HasSubstr;
using testing::kIsStrict;
using testing::no_errors;
using testing::run_clusters;
using testing::vector_of;
using ClusterPtr = std::shared_ptr<Cluster>;

Devices devices_of(const Cluster& cluster, std::size_t num_gpus) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < num_gpus; ++i) {
    devices.push_back(gpu(static_cast<std::size_t>(cluster.rank()) * num_gpus + i));
  }
  return Devices(std::span<const Device>(devices));
}

/// The component of global replica r holds base + r everywhere.
PerReplica value_on(const Cluster& cluster, std::size_t num_gpus, std::size_t count, float base) {
  std::vector<Tensor> components;
  std::size_t replica = static_cast<std::size_t>(cluster.rank()) * num_gpus;
  for (const Device& device : devices_of(cluster, num_gpus)) {
    components.push_back(
        vector_of(std::vector<float>(count, base + static_cast<float>(replica++)), device));
  }
  return PerReplica(components);
}

void expect_all(const PerReplica& value, float expected) {
  for (const Tensor& component : value.values()) {
    EXPECT_EQ(elements(copy_to_device(component, "CPU:0")),
              std::vector<float>(component.num_elements(), expected));
  }
}

class CollectiveGpu : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(emulated_cuda().synchronize());
    EXPECT_EQ(emulated_cuda().violations(), std::vector<std::string>());
  }
};

TEST_F(CollectiveGpu, ReducesOverAllWorkersGpus) {
  for (const std::size_t num_workers : {1U, 2U, 3U, 4U}) {
    for (const std::size_t num_gpus : {1U, 2U}) {
      SCOPED_TRACE(std::to_string(num_workers) + " workers of " + std::to_string(num_gpus));
      const std::size_t n = num_workers * num_gpus;
      const auto replicas = static_cast<float>(n);
      const float sum_of_ranks = replicas * (replicas - 1) / 2;
      const std::vector<std::string> errors =
          run_clusters(num_workers, [&](const ClusterPtr& cluster) {
            CollectiveAllReduce ops(devices_of(*cluster, num_gpus), static_cast<int>(n), {},
                                    cluster);
            const PerReplica one = value_on(*cluster, num_gpus, 1000, 1);
            ops.reduce_into(ReduceOp::SUM, one, one, {.timeout_seconds = 60});
            expect_all(one, replicas + sum_of_ranks);
            std::vector<PerReplica> batch;
            for (const std::size_t count : {1U, 0U, 100U, 7U, 1001U}) {
              batch.push_back(value_on(*cluster, num_gpus, count, 2));
            }
            ops.batch_reduce_into(ReduceOp::MEAN, batch,
                                  {.bytes_per_pack = 600, .timeout_seconds = 60});
            for (const PerReplica& value : batch) {
              expect_all(value, (2 * replicas + sum_of_ranks) / replicas);
            }
            ops.check();
            cluster->barrier(60);
          });
      EXPECT_EQ(errors, no_errors(num_workers));
    }
  }
  EXPECT_EQ(emulated_nccl().mismatches(), std::vector<std::string>());
}

TEST_F(CollectiveGpu, ManyCallsAreCompared) {
  const std::vector<std::string> errors = run_clusters(3, [](const ClusterPtr& cluster) {
    CollectiveAllReduce ops(devices_of(*cluster, 1), 3, {}, cluster);
    const PerReplica one = value_on(*cluster, 1, 10, 0);
    for (int i = 0; i < 300; ++i) ops.reduce_into(ReduceOp::MAX, one, one);
    ops.check();
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(3));
}

TEST_F(CollectiveGpu, WhoEndsFirstIsStillThereForTheOthersLastCalls) {
  const std::vector<std::string> errors = run_clusters(3, [](const ClusterPtr& cluster) {
    for (int i = 0; i < 20; ++i) {
      CollectiveAllReduce ops(devices_of(*cluster, 1), 3, {}, cluster);
      const PerReplica one = value_on(*cluster, 1, 10, 0);
      for (int call = 0; call < 3; ++call) ops.reduce_into(ReduceOp::MAX, one, one);
    }
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(3));
}

/// One call of a worker; `differs`: the one that is not like the others'.
using Call = std::function<void(CollectiveAllReduce& ops, const Cluster& cluster, bool differs)>;
struct Difference {
  std::string name;
  Call call;
  std::string text;  ///< of the worker that differs
  /// Not all go through NCCL: who is on hosts would wait there.
  bool is_on_hosts = false;
};

Tensor zeros_on(const Cluster& cluster, DType dtype, std::size_t count) {
  return Tensor::zeros(dtype, Shape{count}, gpu(static_cast<std::size_t>(cluster.rank())));
}

/// Rows `rank` and 3 of a tensor of 4 rows of 2 elements: ones.
PerReplica slices_on(const Cluster& cluster) {
  const Device device = gpu(static_cast<std::size_t>(cluster.rank()));
  return PerReplica(std::vector<IndexedSlices>{
      {testing::tensor_of(std::vector<float>(4, 1.0F), Shape{2, 2}, device),
       vector_of(std::vector<std::int64_t>{cluster.rank(), 3}, device), Shape{4, 2}}});
}

void reduce(CollectiveAllReduce& ops, ReduceOp op, const PerReplica& value,
            const CommunicationOptions& options = {}) {
  ops.reduce_into(op, value, value, options);
}

/// Calls that all go through NCCL.
std::vector<Difference> differences_within_nccl() {
  return {{"number of elements",
           [](auto& ops, auto& cluster, bool differs) {
             reduce(ops, ReduceOp::SUM, value_on(cluster, 1, differs ? 101 : 100, 1));
           },
           "SUM of 1 float32 value, 404 bytes"},
          {"op",
           [](auto& ops, auto& cluster, bool differs) {
             reduce(ops, differs ? ReduceOp::MEAN : ReduceOp::SUM, value_on(cluster, 1, 100, 1));
           },
           "MEAN of 1 float32 value"},
          {"dtype",
           [](auto& ops, auto& cluster, bool differs) {
             reduce(ops, ReduceOp::SUM,
                    zeros_on(cluster, differs ? DType::INT32 : DType::FLOAT32, 100));
           },
           "1 int32 value"},
          {"kind of call",
           [](auto& ops, auto& cluster, bool differs) {
             const std::vector<PerReplica> batch{value_on(cluster, 1, 100, 1)};
             if (differs) {
               ops.batch_reduce_into(ReduceOp::SUM, batch);
             } else {
               reduce(ops, ReduceOp::SUM, batch[0]);
             }
           },
           "batch_reduce"},
          {"sizes within a batch",
           [](auto& ops, auto& cluster, bool differs) {
             const std::vector<PerReplica> batch{value_on(cluster, 1, differs ? 40 : 60, 1),
                                                 value_on(cluster, 1, differs ? 60 : 40, 1)};
             ops.batch_reduce_into(ReduceOp::SUM, batch);
           },
           "2 float32 values, 400 bytes"},
          {"packs",
           [](auto& ops, auto& cluster, bool differs) {
             const std::vector<PerReplica> batch{value_on(cluster, 1, 60, 1),
                                                 value_on(cluster, 1, 40, 1)};
             ops.batch_reduce_into(ReduceOp::SUM, batch, {.bytes_per_pack = differs ? 240 : 400});
           },
           "2 float32 values, 400 bytes"}};
}

/// One value, in NCCL on some workers and on hosts on others.
std::vector<Difference> differences_of_way() {
  return {{"op that NCCL does not do",
           [](auto& ops, auto& cluster, bool differs) {
             reduce(ops, differs ? ReduceOp::MAX : ReduceOp::SUM, value_on(cluster, 1, 100, 1));
           },
           "reduce on hosts #2 MAX of 1 float32 value, 400 bytes", true},
          {"op that NCCL alone does",
           [](auto& ops, auto& cluster, bool differs) {
             reduce(ops, differs ? ReduceOp::SUM : ReduceOp::MAX, value_on(cluster, 1, 100, 1));
           },
           "reduce #2 SUM of 1 float32 value, 400 bytes", true},
          {"dtype that NCCL does not know",
           [](auto& ops, auto& cluster, bool differs) {
             reduce(ops, ReduceOp::SUM,
                    zeros_on(cluster, differs ? DType::INT16 : DType::FLOAT32, 100));
           },
           "reduce on hosts #2 SUM of 1 int16 value, 200 bytes", true},
          {"deterministic",
           [](auto& ops, auto& cluster, bool differs) {
             reduce(ops, ReduceOp::SUM, value_on(cluster, 1, 100, 1), {.deterministic = differs});
           },
           "reduce on hosts #2 SUM of 1 float32 value", true},
          {"RING",
           [](auto& ops, auto& cluster, bool differs) {
             reduce(ops, ReduceOp::SUM, value_on(cluster, 1, 100, 1),
                    {.implementation = differs ? CommunicationImplementation::RING
                                               : CommunicationImplementation::AUTO});
           },
           "reduce on hosts #2 SUM of 1 float32 value", true},
          {"gather",
           [](auto& ops, auto& cluster, bool differs) {
             const PerReplica one = value_on(cluster, 1, 100, 1);
             if (!differs) return reduce(ops, ReduceOp::SUM, one);
             (void)ops.gather(one, one.devices(), 0);
           },
           " gather #2", true},
          {"reduce among gathers",
           [](auto& ops, auto& cluster, bool differs) {
             const PerReplica one = value_on(cluster, 1, 100, 1);
             if (differs) return reduce(ops, ReduceOp::SUM, one);
             (void)ops.gather(one, one.devices(), 0);
           },
           " reduce #2 SUM of 1 float32 value", true},
          {"sparse",
           [](auto& ops, auto& cluster, bool differs) {
             const PerReplica one = value_on(cluster, 1, 100, 1);
             if (!differs) return reduce(ops, ReduceOp::SUM, one);
             (void)ops.reduce(ReduceOp::SUM, slices_on(cluster), one.devices());
           },
           "reduce sparse #2 SUM", true},
          {"two that hosts do",
           [](auto& ops, auto& cluster, bool differs) {
             const PerReplica one = value_on(cluster, 1, 100, 1);
             if (!differs) return reduce(ops, ReduceOp::MAX, one);
             (void)ops.gather(one, one.devices(), 0);
           },
           "gather #2", true}};
}

/// The same of batches.
std::vector<Difference> differences_of_way_in_batches() {
  return {{"batch of an op that NCCL does not do",
           [](auto& ops, auto& cluster, bool differs) {
             const std::vector<PerReplica> batch{value_on(cluster, 1, 60, 1),
                                                 value_on(cluster, 1, 40, 1)};
             ops.batch_reduce_into(differs ? ReduceOp::MAX : ReduceOp::SUM, batch);
           },
           "batch_reduce on hosts #2 MAX of 2 float32 values, 400 bytes", true},
          {"deterministic batch, of several packs",
           [](auto& ops, auto& cluster, bool differs) {
             const std::vector<PerReplica> batch{value_on(cluster, 1, 60, 1),
                                                 value_on(cluster, 1, 40, 1)};
             ops.batch_reduce_into(ReduceOp::SUM, batch,
                                   {.bytes_per_pack = 100, .deterministic = differs});
           },
           "batch_reduce on hosts #2 SUM of 2 float32 values", true},
          {"one of a batch is not for NCCL",
           [](auto& ops, auto& cluster, bool differs) {
             const std::vector<PerReplica> batch{
                 value_on(cluster, 1, 60, 1),
                 zeros_on(cluster, differs ? DType::INT16 : DType::FLOAT32, 40)};
             ops.batch_reduce_into(ReduceOp::SUM, batch);
           },
           "batch_reduce #2 SUM of 1 float32 value, 240 bytes", true},
          {"all of a mixed batch on hosts",
           [](auto& ops, auto& cluster, bool differs) {
             const std::vector<PerReplica> batch{value_on(cluster, 1, 60, 1),
                                                 zeros_on(cluster, DType::INT16, 40)};
             ops.batch_reduce_into(ReduceOp::SUM, batch, {.deterministic = differs});
           },
           "batch_reduce on hosts #2 SUM of 2 float32 values", true},
          {"a sparse value in a batch",
           [](auto& ops, auto& cluster, bool differs) {
             const PerReplica one = value_on(cluster, 1, 60, 1);
             const std::vector<ValueDestinationPair> batch{
                 {one, one.devices()}, {differs ? slices_on(cluster) : one, one.devices()}};
             (void)ops.batch_reduce(ReduceOp::SUM, batch);
           },
           "batch_reduce #2 SUM of 1 float32 value, 240 bytes", true}};
}

std::vector<Difference> differences() {
  std::vector<Difference> all = differences_within_nccl();
  for (const Difference& each : differences_of_way()) all.push_back(each);
  for (const Difference& each : differences_of_way_in_batches()) all.push_back(each);
  return all;
}

/// What comes of it: at once, or, where nothing was compared before, as soon as it is known.
void require_difference(CollectiveAllReduce& ops, const std::function<void()>& call,
                        const Difference& difference, int num_workers, int other) {
  try {
    call();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < limit) ops.check();
    ADD_FAILURE() << "nobody has found that the calls differ";
  } catch (const InternalError& error) {
    // By NCCL it has been enqueued.
    if (kIsStrict || !difference.is_on_hosts) {
      EXPECT_EQ(error.inputs_intact(), kIsStrict);
    }
    EXPECT_THAT(error.what(), AllOf(HasSubstr("workers make different calls: rank 0 "),
                                    HasSubstr("; rank " + std::to_string(num_workers - 1) + " "),
                                    HasSubstr(difference.text)));
    // Of two nobody can say who is right.
    ASSERT_EQ(error.culprits().size(), num_workers == 2 ? 2U : 1U);
    if (num_workers > 2) {
      EXPECT_EQ(error.culprits()[0].rank, other);
    }
  }
}

TEST_F(CollectiveGpu, CallsThatDifferAreAnErrorOnEveryWorkerThatSaysWhoAndHow) {
  testing::allow_mismatches();
  for (const Difference& difference : differences()) {
    for (const auto& [num_workers, other] : {std::pair(2, 1), std::pair(3, 2), std::pair(3, 0)}) {
      SCOPED_TRACE(difference.name + ", rank " + std::to_string(other) + " of " +
                   std::to_string(num_workers));
      std::latch have_heard(num_workers);
      const std::vector<std::string> errors = run_clusters(
          static_cast<std::size_t>(num_workers),
          [&, num_workers = num_workers, other = other](const ClusterPtr& cluster) {
            // For who would wait for ever.
            const CommunicationOptions options{.timeout_seconds = 20};
            CollectiveAllReduce ops(devices_of(*cluster, 1), num_workers, options, cluster);
            difference.call(ops, *cluster, false);
            const bool differs = cluster->rank() == other;
            std::string text = testing::thrown<OpError>([&] {
              require_difference(
                  ops, [&] { difference.call(ops, *cluster, differs); }, difference, num_workers,
                  other);
            });
            EXPECT_EQ(text, "");  // another error
            have_heard.arrive_and_wait();
            EXPECT_THROW(difference.call(ops, *cluster, false), OpError);
            // The communicators are broken; the job is not, unless somebody had to be called off.
            if (kIsStrict || !difference.is_on_hosts) cluster->barrier(60);
          });
      EXPECT_EQ(errors, no_errors(static_cast<std::size_t>(num_workers)));
    }
  }
}

TEST_F(CollectiveGpu, WhatIsCalledInTwoWaysIsWrittenNowhere) {
  for (const bool is_first_on_hosts : {false, true}) {
    std::latch have_looked(2);
    const std::vector<std::string> errors = run_clusters(2, [&](const ClusterPtr& cluster) {
      CollectiveAllReduce ops(devices_of(*cluster, 1), 2, {.timeout_seconds = 20}, cluster);
      const PerReplica mine = value_on(*cluster, 1, 1000, 5);
      const bool is_here = (cluster->rank() == 0) == is_first_on_hosts;
      EXPECT_THROW(
          {
            reduce(ops, ReduceOp::SUM, mine, {.deterministic = is_here});
            const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
            while (std::chrono::steady_clock::now() < limit) ops.check();
          },
          InternalError);
      expect_all(mine, 5 + static_cast<float>(cluster->rank()));
      have_looked.arrive_and_wait();
    });
    EXPECT_EQ(errors, no_errors(2));
  }
}

TEST_F(CollectiveGpu, ACallThatIsRefusedHereIsNotTakenForTheNext) {
  const std::vector<std::string> errors = run_clusters(2, [](const ClusterPtr& cluster) {
    CollectiveAllReduce ops(devices_of(*cluster, 1), 2, {.timeout_seconds = 60}, cluster);
    const PerReplica one = value_on(*cluster, 1, 10, 0);
    for (int i = 0; i < 50; ++i) {
      // By turns in NCCL and on hosts, with a wrong argument of one worker in between.
      if (cluster->rank() == i % 2) {
        EXPECT_THROW((void)ops.gather(one, "CPU:0", 1), ValueError);
      }
      reduce(ops, i % 2 == 0 ? ReduceOp::MAX : ReduceOp::SUM, one, {.deterministic = i % 3 == 0});
      (void)ops.gather(one, one.devices(), 0);
    }
    ops.check();
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_F(CollectiveGpu, WhoGivesUpOnHostsTellsWhoIsInNcclThen) {
  std::latch has_given_up(1);
  const std::vector<std::string> errors = run_clusters(2, [&](const ClusterPtr& cluster) {
    CollectiveAllReduce ops(devices_of(*cluster, 1), 2, {}, cluster);
    const PerReplica one = value_on(*cluster, 1, 10, 0);
    reduce(ops, ReduceOp::SUM, one);
    if (cluster->rank() == 0) {
      EXPECT_THROW(reduce(ops, ReduceOp::MAX, one, {.timeout_seconds = 2}), DeadlineExceededError);
      has_given_up.count_down();
      EXPECT_THROW(reduce(ops, ReduceOp::SUM, one), OpError);
      EXPECT_THROW((void)ops.gather(one, one.devices(), 0), OpError);
      return;
    }
    has_given_up.wait();
    // It has no deadline, and nobody comes.
    EXPECT_THROW(
        {
          reduce(ops, ReduceOp::SUM, one);
          const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
          while (std::chrono::steady_clock::now() < limit) ops.check();
        },
        OpError);
  });
  EXPECT_EQ(errors, no_errors(2));
}

/// What hosts do of values on GPUs, next to what NCCL does.
void require_values_by_hosts(const ClusterPtr& cluster, std::size_t num_gpus) {
  const std::size_t n = static_cast<std::size_t>(cluster->num_workers()) * num_gpus;
  const auto replicas = static_cast<float>(n);
  const float sum_of_ranks = replicas * (replicas - 1) / 2;
  const CommunicationOptions soon{.timeout_seconds = 60};
  CollectiveAllReduce ops(devices_of(*cluster, num_gpus), static_cast<int>(n), soon, cluster);
  const auto one = [&] { return value_on(*cluster, num_gpus, 1001, 1); };
  for (const CommunicationOptions& options :
       {CommunicationOptions{.implementation = CommunicationImplementation::RING},
        CommunicationOptions{.deterministic = true}, CommunicationOptions{}}) {
    const PerReplica value = one();
    reduce(ops, ReduceOp::SUM, value, options);
    expect_all(value, replicas + sum_of_ranks);
    const std::vector<PerReplica> batch{one(), value_on(*cluster, num_gpus, 7, 2)};
    ops.batch_reduce_into(ReduceOp::MEAN, batch, options);
    expect_all(batch[0], (replicas + sum_of_ranks) / replicas);
    expect_all(batch[1], (2 * replicas + sum_of_ranks) / replicas);
    const PerReplica largest = one();
    reduce(ops, ReduceOp::MAX, largest, options);
    expect_all(largest, replicas);
  }
  const PerReplica mine = value_on(*cluster, num_gpus, 2, 1);
  std::vector<float> everybodys;
  for (std::size_t r = 0; r < n; ++r) everybodys.insert(everybodys.end(), 2, 1 + float(r));
  const Mirrored gathered = ops.gather(mine, mine.devices(), 0);
  for (const Tensor& tensor : gathered.values()) {
    EXPECT_EQ(elements(copy_to_device(tensor, "CPU:0")), everybodys);
  }
  ops.check();
}

TEST_F(CollectiveGpu, HostsReduceWhatNcclIsNotToReduce) {
  for (const std::size_t num_workers : {2U, 3U}) {
    for (const std::size_t num_gpus : {1U, 2U}) {
      SCOPED_TRACE(std::to_string(num_workers) + " workers of " + std::to_string(num_gpus));
      const std::vector<std::string> errors =
          run_clusters(num_workers, [&](const ClusterPtr& cluster) {
            require_values_by_hosts(cluster, num_gpus);
            cluster->barrier(60);
          });
      EXPECT_EQ(errors, no_errors(num_workers));
    }
  }
}

/// The rows of slices_on() of all workers added up.
std::vector<float> sum_of_slices(int num_workers) {
  std::vector<float> sum(8, 0.0F);
  for (std::size_t rank = 0; std::cmp_less(rank, num_workers); ++rank) {
    for (const std::size_t row : {rank, std::size_t{3}}) {
      for (const std::size_t column : {0U, 1U}) sum[2 * row + column] += 1;
    }
  }
  return sum;
}

void expect_slices(const Mirrored& result, int num_workers) {
  for (const IndexedSlices& slices : result.slices()) {
    std::vector<float> sum(8, 0.0F);
    const std::vector<float> values = elements(copy_to_device(slices.values, "CPU:0"));
    const Tensor indices = copy_to_device(slices.indices, "CPU:0");
    const std::vector<std::int64_t> rows = elements<std::int64_t>(indices);
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum[2 * static_cast<std::size_t>(rows[i / 2]) + i % 2] += values[i];
    }
    EXPECT_EQ(sum, sum_of_slices(num_workers));
  }
}

TEST_F(CollectiveGpu, ABatchGoesPartlyThroughNcclAndPartlyThroughHosts) {
  for (const int num_workers : {2, 3}) {
    const std::vector<std::string> errors =
        run_clusters(static_cast<std::size_t>(num_workers), [&](const ClusterPtr& cluster) {
          const auto n = static_cast<float>(num_workers);
          const float sum_of_ranks = n * (n - 1) / 2;
          const auto rank = static_cast<std::size_t>(cluster->rank());
          CollectiveAllReduce ops(devices_of(*cluster, 1), num_workers, {.timeout_seconds = 60},
                                  cluster);
          for (const std::int64_t bytes_per_pack : {0, 64, 4000}) {
            const PerReplica first = value_on(*cluster, 1, 1001, 1);
            const PerReplica narrow = vector_of(
                std::vector<std::int16_t>(33, static_cast<std::int16_t>(rank + 1)), gpu(rank));
            const PerReplica whole = vector_of(
                std::vector<std::int32_t>(70, static_cast<std::int32_t>(rank + 2)), gpu(rank));
            const PerReplica sparse = slices_on(*cluster);
            const PerReplica last = value_on(*cluster, 1, 5, 3);
            std::vector<ValueDestinationPair> pairs;
            for (const PerReplica& value : {first, narrow, whole, sparse, last}) {
              pairs.push_back({value, value.devices()});
            }
            const std::vector<Mirrored> results =
                ops.batch_reduce(ReduceOp::SUM, pairs, {.bytes_per_pack = bytes_per_pack});
            const auto on_host = [&](std::size_t i) {
              return copy_to_device(results[i].values()[0], "CPU:0");
            };
            EXPECT_EQ(elements(on_host(0)), std::vector<float>(1001, n + sum_of_ranks));
            EXPECT_EQ(elements<std::int16_t>(on_host(1)),
                      std::vector<std::int16_t>(33, static_cast<std::int16_t>(n + sum_of_ranks)));
            EXPECT_EQ(
                elements<std::int32_t>(on_host(2)),
                std::vector<std::int32_t>(70, static_cast<std::int32_t>(2 * n + sum_of_ranks)));
            expect_slices(results[3], num_workers);
            EXPECT_EQ(elements(on_host(4)), std::vector<float>(5, 3 * n + sum_of_ranks));
            expect_slices(ops.reduce(ReduceOp::SUM, sparse, sparse.devices()), num_workers);
          }
          ops.check();
          cluster->barrier(60);
        });
    EXPECT_EQ(errors, no_errors(static_cast<std::size_t>(num_workers)));
  }
}

TEST_F(CollectiveGpu, WhatFailsOnOneBetweenTwoRoundsIsAnErrorOnAllAtOnce) {
  const std::vector<std::string> errors = run_clusters(2, [](const ClusterPtr& cluster) {
    CollectiveAllReduce ops(devices_of(*cluster, 1), 2, {}, cluster);
    // In packs of some ten values: each is copied together, reduced, and copied apart.
    std::vector<PerReplica> batch;
    batch.reserve(40);
    for (int i = 0; i < 40; ++i) batch.push_back(value_on(*cluster, 1, 10, 1));
    const CommunicationOptions packs{.bytes_per_pack = 400, .timeout_seconds = 600};
    ops.batch_reduce_into(ReduceOp::MEAN, batch, packs);
    cluster->barrier(60);
    if (cluster->rank() == 1) {
      emulated_cuda().calls().inject(
          {.function = "kernels.copy_ranges", .skip = 2, .status = 98, .device = 1});
    }
    cluster->barrier(60);
    // Of the other the call has returned, or hears of it while it is enqueued.
    const std::string text = testing::thrown<OpError>([&] {
      ops.batch_reduce_into(ReduceOp::MEAN, batch, packs);
      if (cluster->rank() == 1) return;
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (std::chrono::steady_clock::now() < limit) ops.check();
    });
    EXPECT_THAT(text, HasSubstr("the packing kernel"));
    EXPECT_THROW(ops.batch_reduce_into(ReduceOp::MEAN, batch, packs), OpError);
  });
  emulated_cuda().calls().clear_faults();
  EXPECT_EQ(errors, no_errors(2));
}

#ifdef CROSSDEVICE_TESTS_STRICT
TEST_F(CollectiveGpu, WhatDiffersIsNotLaunchedAndWhoDoesNotComeIsNamed) {
  std::latch is_missed(1);
  const std::vector<std::string> errors = run_clusters(2, [&](const ClusterPtr& cluster) {
    CollectiveAllReduce ops(devices_of(*cluster, 1), 2, {}, cluster);
    const PerReplica one = value_on(*cluster, 1, 10, 5);
    try {
      ops.reduce_into(cluster->rank() == 0 ? ReduceOp::SUM : ReduceOp::PROD, one, one);
      ADD_FAILURE() << "the calls differ";
    } catch (const InternalError& error) {
      EXPECT_TRUE(error.inputs_intact());
    }
    expect_all(one, 5 + static_cast<float>(cluster->rank()));
    cluster->barrier(60);
    CollectiveAllReduce again(devices_of(*cluster, 1), 2, {}, cluster);
    if (cluster->rank() == 0) {
      try {
        again.reduce_into(ReduceOp::SUM, one, one, {.timeout_seconds = 0.2});
        ADD_FAILURE() << "nobody else came";
      } catch (const DeadlineExceededError& error) {
        ASSERT_EQ(error.culprits().size(), 1U);
        EXPECT_EQ(error.culprits()[0].rank, 1);
      }
      expect_all(one, 5);
      is_missed.count_down();
    }
    is_missed.wait();
  });
  EXPECT_EQ(errors, no_errors(2));
}
#endif

}  // namespace
}  // namespace crossdevice
