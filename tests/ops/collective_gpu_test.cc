// SPDX-License-Identifier: Apache-2.0
// CollectiveAllReduce among workers (threads here) with emulated GPUs of their own: values, and calls that differ. Built twice, the second time for
// CROSSDEVICE_STRICT=1, where calls are compared before they are made.
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <string>
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
};

std::vector<Difference> differences() {
  const auto reduce = [](CollectiveAllReduce& ops, ReduceOp op, const PerReplica& value) {
    ops.reduce_into(op, value, value);
  };
  return {{"number of elements",
           [=](auto& ops, auto& cluster, bool differs) {
             reduce(ops, ReduceOp::SUM, value_on(cluster, 1, differs ? 101 : 100, 1));
           },
           "SUM of 1 float32 value, 404 bytes"},
          {"op",
           [=](auto& ops, auto& cluster, bool differs) {
             reduce(ops, differs ? ReduceOp::MEAN : ReduceOp::SUM, value_on(cluster, 1, 100, 1));
           },
           "MEAN of 1 float32 value"},
          {"dtype",
           [=](auto& ops, auto& cluster, bool differs) {
             reduce(ops, ReduceOp::SUM,
                    PerReplica(Tensor::zeros(differs ? DType::INT32 : DType::FLOAT32, {100},
                                             gpu(static_cast<std::size_t>(cluster.rank())))));
           },
           "1 int32 value"},
          {"kind of call",
           [=](auto& ops, auto& cluster, bool differs) {
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

/// What comes of it: at once, or, where nothing was compared before, as soon as it is known.
void require_difference(CollectiveAllReduce& ops, const std::function<void()>& call,
                        const Difference& difference, int num_workers) {
  bool is_told_at_once = false;
  try {
    call();
    is_told_at_once = false;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < limit) ops.check();
    ADD_FAILURE() << "nobody has found that the calls differ";
  } catch (const InternalError& error) {
    is_told_at_once = error.inputs_intact();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("workers make different calls: rank 0 "),
                                    HasSubstr("; rank " + std::to_string(num_workers - 1) + " "),
                                    HasSubstr(difference.text)));
    ASSERT_EQ(error.culprits().size(), 1U);
    EXPECT_EQ(error.culprits()[0].rank, num_workers - 1);
  }
  EXPECT_EQ(is_told_at_once, kIsStrict);
}

TEST_F(CollectiveGpu, CallsThatDifferAreAnErrorOnEveryWorkerThatSaysWhoAndHow) {
  for (const Difference& difference : differences()) {
    for (const int num_workers : {2, 3}) {
      SCOPED_TRACE(difference.name + ", " + std::to_string(num_workers) + " workers");
      const std::vector<std::string> errors =
          run_clusters(static_cast<std::size_t>(num_workers), [&](const ClusterPtr& cluster) {
            CollectiveAllReduce ops(devices_of(*cluster, 1), num_workers, {}, cluster);
            difference.call(ops, *cluster, false);
            const bool differs = cluster->rank() == num_workers - 1;
            require_difference(
                ops, [&] { difference.call(ops, *cluster, differs); }, difference, num_workers);
            // The communicators are broken, the job is not.
            EXPECT_THROW(difference.call(ops, *cluster, false), OpError);
            cluster->barrier(60);
          });
      EXPECT_EQ(errors, no_errors(static_cast<std::size_t>(num_workers)));
    }
  }
}

TEST_F(CollectiveGpu, WhatFailsOnOneBetweenTwoRoundsIsAnErrorOnAllAtOnce) {
  const std::vector<std::string> errors = run_clusters(2, [](const ClusterPtr& cluster) {
    CollectiveAllReduce ops(devices_of(*cluster, 1), 2, {}, cluster);
    // In packs of some ten values: each is copied together, reduced, and copied apart.
    std::vector<PerReplica> batch;
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
