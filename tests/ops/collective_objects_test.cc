// SPDX-License-Identifier: Apache-2.0
// Several objects over the same emulated GPUs of several workers (threads here), called by threads that know nothing of each other, in another order on each worker.
// Emulated GPUs run kernels of NCCL's in the order of their launches, so that two workers which launch in different orders wait for each other for ever. Built
// twice: the second time with CROSSDEVICE_LAUNCH_ORDER=program, where that is what they do.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <latch>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/comm/job_news.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/gpu_fixture.h"
#include "support/gpu_values.h"
#include "support/threaded_cluster.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

#ifdef CROSSDEVICE_TESTS_PROGRAM_ORDER
constexpr bool kIsAgreed = false;
[[maybe_unused]] const int kIsSet =  // NOLINTNEXTLINE(concurrency-mt-unsafe): before main
    ::setenv("CROSSDEVICE_LAUNCH_ORDER", "program", /*overwrite=*/1);
#else
constexpr bool kIsAgreed = true;
#endif
[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

using testing::elements;
using testing::gpu;
using ::testing::HasSubstr;
using testing::no_errors;
using testing::run_clusters;
using testing::thrown;
using testing::vector_of;
using ClusterPtr = std::shared_ptr<Cluster>;

Device gpu_of(const Cluster& cluster) { return gpu(static_cast<std::size_t>(cluster.rank())); }
[[maybe_unused]] Device host_of(const Cluster& /*cluster*/) { return Device("CPU:0"); }

class CollectiveObjects : public ::testing::Test {
 protected:
  CollectiveObjects() : num_mismatches_(testing::emulated_nccl().mismatches().size()) {}
  void TearDown() override {
    EXPECT_TRUE(testing::emulated_cuda().synchronize());
    EXPECT_EQ(testing::emulated_cuda().violations(), std::vector<std::string>());
    EXPECT_TRUE(may_differ_ || testing::emulated_nccl().mismatches().size() == num_mismatches_);
  }

  std::size_t num_mismatches_;
  bool may_differ_ = false;  // calls that differ may come to NCCL
};

/// Sums over all workers, each of which has `base` + its rank; with pauses that differ by `seed`.
[[maybe_unused]] void call_often(CollectiveAllReduce& ops, const Cluster& cluster, int num_calls,
                                 float base, std::size_t seed) {
  const auto n = static_cast<float>(cluster.num_workers());
  std::minstd_rand random(static_cast<unsigned>(seed) + 1);
  for (int call = 0; call < num_calls; ++call) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    const float mine = base + static_cast<float>(cluster.rank() + call);
    const PerReplica value{vector_of(std::vector<float>(100, mine), gpu_of(cluster))};
    ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 60});
    const float sum = n * (base + static_cast<float>(call)) + n * (n - 1) / 2;
    EXPECT_EQ(elements(copy_to_device(value.values()[0], "CPU:0")), std::vector<float>(100, sum));
  }
  ops.check();
}

/// Two objects of two workers, of which each has a device.
std::vector<std::string> run_two(
    const std::function<void(const ClusterPtr& cluster, CollectiveAllReduce& first,
                             CollectiveAllReduce& second)>& work,
    const std::function<Device(const Cluster& cluster)>& device_of = gpu_of) {
  return run_clusters(2, [&](const ClusterPtr& cluster) {
    const Devices device(device_of(*cluster));
    CollectiveAllReduce first(device, 2, {}, cluster);
    CollectiveAllReduce second(device, 2, {}, cluster);
    work(cluster, first, second);
  });
}

/// Of two workers, each of which has begun one. Where they agree on an order, a call is not launched before the other worker makes it, too.
void await_early_calls() {
  if (kIsAgreed) return std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const Deadline limit = Deadline::after(std::chrono::seconds(30));
  while (testing::emulated_nccl().num_kernels() < 2 && !limit.has_passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Each worker calls the other one first, and is at it when the second one's call comes.
TEST_F(CollectiveObjects, AreCalledInAnotherOrderOnEachWorker) {
  const auto errors = run_two(
      [](const ClusterPtr& cluster, CollectiveAllReduce& first, CollectiveAllReduce& second) {
        const auto call = [&](CollectiveAllReduce& ops, bool is_early) {
          if (!is_early) await_early_calls();
          const PerReplica value{vector_of(std::vector<float>{1}, gpu_of(*cluster))};
          ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = kIsAgreed ? 60 : 1});
          (void)elements(copy_to_device(value.values()[0], "CPU:0"));  // waits
          ops.check();
        };
        std::string errors_of_first;
        std::thread other(
            [&] { errors_of_first = thrown<OpError>([&] { call(first, cluster->rank() == 0); }); });
        const std::string errors_of_second =
            thrown<OpError>([&] { call(second, cluster->rank() == 1); });
        other.join();
        if (kIsAgreed) {
          EXPECT_EQ(errors_of_first, "");
          EXPECT_EQ(errors_of_second, "");
          cluster->barrier();  // whoever leaves sooner may be missed by the other one's calls
        } else {
          EXPECT_NE(errors_of_first + errors_of_second, "") << "they waited for nobody";
        }
      });
  EXPECT_TRUE(!kIsAgreed || errors == no_errors(2)) << ::testing::PrintToString(errors);
}

#ifndef CROSSDEVICE_TESTS_PROGRAM_ORDER

/// What rebuild() is told has completed has done so: on GPUs a call returns before.
TEST_F(CollectiveObjects, AnOperationCountsWhenItIsOver) {
  const auto errors = run_clusters(2, [&](const ClusterPtr& cluster) {
    const auto completed = detail::last_completed(*cluster);
    const auto await = [&](std::uint64_t number) {
      const Deadline limit = Deadline::after(std::chrono::seconds(30));
      while (*completed != number && !limit.has_passed()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_EQ(*completed, number);
    };
    CollectiveAllReduce ops(Devices(gpu_of(*cluster)), 2, {}, cluster);
    const PerReplica value{vector_of(std::vector<float>(100, 1.0F), gpu_of(*cluster))};
    const auto call = [&] {
      ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 60});
    };
    EXPECT_EQ(*completed, 0U);
    call();
    await(1);
    const detail::CudaStream stream = testing::gpu(gpu_of(*cluster)).own_stream();
    testing::emulated_cuda().block_stream(stream);
    call();
    call();
    // As long as it would take by far if nothing were blocked.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_EQ(*completed, 1U);
    cluster->barrier(60);
    testing::emulated_cuda().release_stream(stream);
    await(3);
    // So does what NCCL has no part in.
    const Device other = gpu(static_cast<std::size_t>(cluster->rank()) + 2);
    (void)ops.broadcast(value.values()[0], Devices(other));
    await(4);
    call();
    await(5);
    ops.check();
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_F(CollectiveObjects, ManyCallsOfManyThreads) {
  for (const std::size_t num_workers : {2U, 3U}) {
    const auto errors = run_clusters(num_workers, [&](const ClusterPtr& cluster) {
      const Devices device(gpu_of(*cluster));
      const auto rank = static_cast<std::size_t>(cluster->rank());
      std::vector<std::unique_ptr<CollectiveAllReduce>> objects;
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < 3; ++i) {
        objects.push_back(std::make_unique<CollectiveAllReduce>(
            device, static_cast<int>(num_workers), CommunicationOptions{}, cluster));
      }
      for (std::size_t i = 0; i < 3; ++i) {
        threads.emplace_back([&, i] {
          call_often(*objects[i], *cluster, 30, static_cast<float>(100 * i), rank * 10 + i);
        });
      }
      for (std::thread& each : threads) each.join();
      cluster->barrier(60);
    });
    EXPECT_EQ(errors, no_errors(num_workers));
  }
}

/// NCCL launches and waits while communicators are made, too.
TEST_F(CollectiveObjects, OneIsMadeWhileAnotherIsCalled) {
  const auto errors = run_clusters(2, [](const ClusterPtr& cluster) {
    const Devices device(gpu_of(*cluster));
    const auto rank = static_cast<std::size_t>(cluster->rank());
    CollectiveAllReduce first(device, 2, {}, cluster);
    std::thread calls([&] { call_often(first, *cluster, 100, 0, rank); });
    for (int i = 0; i < 3; ++i) {
      CollectiveAllReduce other(device, 2, {}, cluster);
      call_often(other, *cluster, 10, 1000, rank + 2);
    }
    calls.join();
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(2));
}

/// A Communicator beside it, and subgroups of which no two have the same members.
TEST_F(CollectiveObjects, OfSubgroupsAndOfAll) {
  const auto errors = run_clusters(3, [](const ClusterPtr& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    const Devices device(gpu_of(*cluster));
    CollectiveAllReduce of_all(device, 3, {}, cluster);
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<Communicator>> pairs;
    for (int low = 0; low < 3; ++low) {
      const int high = (low + 1) % 3;
      if (cluster->rank() != low && cluster->rank() != high) continue;
      pairs.push_back(std::make_unique<Communicator>(cluster->subgroup({low, high}), device[0]));
      EXPECT_TRUE(pairs.back()->has_nccl());
    }
    for (const auto& pair : pairs) {
      threads.emplace_back([&] {
        for (int call = 0; call < 20; ++call) {
          const Tensor value = vector_of(std::vector<float>(10, 2), device[0]);
          pair->all_reduce(ReduceOp::SUM, value, value);
          EXPECT_EQ(elements(copy_to_device(value, "CPU:0")), std::vector<float>(10, 4));
        }
      });
    }
    call_often(of_all, *cluster, 30, 7, rank);
    for (std::thread& each : threads) each.join();
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(3));
}

/// Asynchronous calls of each object have a thread of their own: enqueued in another order on each worker, they wait for each other on none.
TEST_F(CollectiveObjects, AsynchronousCallsInAnotherOrderOnEachWorker) {
  for (const auto& device_of : {gpu_of, host_of}) {
    const auto work = [&](const ClusterPtr& cluster, CollectiveAllReduce& first,
                          CollectiveAllReduce& second) {
      const Device device = device_of(*cluster);
      std::vector<PerReplica> values;
      std::vector<PendingBatch> calls;
      for (int i = 0; i < 20; ++i) {
        CollectiveAllReduce& ops = (i + cluster->rank()) % 2 == 0 ? first : second;
        values.emplace_back(vector_of(std::vector<float>{1, 2}, device));
        calls.push_back(ops.reduce_into_async(ReduceOp::SUM, values.back(), values.back(),
                                              {.timeout_seconds = 60}));
      }
      for (PendingBatch& each : calls) each.wait();
      for (const PerReplica& each : values) {
        EXPECT_EQ(elements(copy_to_device(each.values()[0], "CPU:0")), (std::vector<float>{2, 4}));
      }
      cluster->barrier(60);
    };
    EXPECT_EQ(run_two(work, device_of), no_errors(2));
  }
}

/// What one object's call writes another one's call reads: it comes behind it, on whatever thread.
TEST_F(CollectiveObjects, AsynchronousCallsOfOneTensorAreInOrder) {
  for (const auto& device_of : {gpu_of, host_of}) {
    const auto work = [&](const ClusterPtr& cluster, CollectiveAllReduce& first,
                          CollectiveAllReduce& second) {
      const Device device = device_of(*cluster);
      ReductionToOneDevice alone;
      for (int i = 0; i < 20; ++i) {
        const PerReplica value{
            vector_of(std::vector<float>(30'000, static_cast<float>(cluster->rank())), device)};
        auto one = first.reduce_into_async(ReduceOp::SUM, value, value, {.timeout_seconds = 60});
        auto two = second.reduce_into_async(ReduceOp::SUM, value, value, {.timeout_seconds = 60});
        auto three = alone.reduce_async(ReduceOp::SUM, value, value);
        EXPECT_EQ(elements(copy_to_device(three.value(0).values()[0], "CPU:0")),
                  std::vector<float>(30'000, 2));
        auto four = first.reduce_into_async(ReduceOp::SUM, value, value, {.timeout_seconds = 60});
        four.wait();
        three.wait();
        two.wait();
        one.wait();
        EXPECT_EQ(elements(copy_to_device(value.values()[0], "CPU:0")),
                  std::vector<float>(30'000, 4));
      }
      cluster->barrier(60);
    };
    EXPECT_EQ(run_two(work, device_of), no_errors(2));
  }
}

/// What breaks one object leaves the other one alone, whose calls wait for nothing of the broken one's.
TEST_F(CollectiveObjects, OneThatIsBrokenDoesNotHoldTheOther) {
  const auto errors = run_clusters(2, [](const ClusterPtr& cluster) {
    const Devices device(gpu_of(*cluster));
    CollectiveAllReduce broken(device, 2, {}, cluster);
    const auto differ = [&] {
      const PerReplica value{vector_of(std::vector<float>{1}, device[0])};
      for (int i = 0; i < 1000; ++i) {  // compared beside the calls, so it takes a while
        broken.reduce_into(cluster->rank() == 0 ? ReduceOp::SUM : ReduceOp::PROD, value, value);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    EXPECT_THAT(thrown<OpError>(differ), HasSubstr("workers make different calls"));
    CollectiveAllReduce other(device, 2, {}, cluster);
    call_often(other, *cluster, 5, 1, 0);
    cluster->barrier(60);
  });
  EXPECT_EQ(errors, no_errors(2));
  may_differ_ = true;
  testing::allow_mismatches();
}

TEST_F(CollectiveObjects, WhoDoesNotComeIsNamedBeforeAnythingIsLaunched) {
  std::latch is_over(1);
  const auto errors = run_two(
      [&](const ClusterPtr& cluster, CollectiveAllReduce& /*first*/, CollectiveAllReduce& second) {
        cluster->barrier(60);
        if (cluster->rank() == 0) {
          const PerReplica value{vector_of(std::vector<float>{1}, gpu_of(*cluster))};
          const auto call = [&] {
            second.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 0.3});
          };
          EXPECT_THAT(thrown<DeadlineExceededError>(call), HasSubstr("waiting for rank 1"));
          EXPECT_EQ(elements(copy_to_device(value.values()[0], "CPU:0")), std::vector<float>{1});
          is_over.count_down();
        }
        is_over.wait();
      });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_F(CollectiveObjects, CallsThatDifferAreFoundBeforeTheyAreLaunched) {
  const auto errors = run_two(
      [](const ClusterPtr& cluster, CollectiveAllReduce& /*first*/, CollectiveAllReduce& second) {
        const PerReplica value{vector_of(std::vector<float>{1}, gpu_of(*cluster))};
        const auto call = [&] {
          second.reduce_into(cluster->rank() == 0 ? ReduceOp::SUM : ReduceOp::PROD, value, value,
                             {.timeout_seconds = 60});
        };
        EXPECT_THAT(thrown<InternalError>(call), HasSubstr("workers make different calls"));
        cluster->barrier(60);
        EXPECT_EQ(elements(copy_to_device(value.values()[0], "CPU:0")), std::vector<float>{1});
      });
  EXPECT_EQ(errors, no_errors(2));
}

/// What hosts reduce has its number among the calls, and no place among the launches.
TEST_F(CollectiveObjects, CallsOnHostsBetween) {
  const auto errors = run_two(
      [](const ClusterPtr& cluster, CollectiveAllReduce& first, CollectiveAllReduce& second) {
        const auto rank = static_cast<std::size_t>(cluster->rank());
        std::thread other([&] { call_often(first, *cluster, 20, 0, rank); });
        for (int call = 0; call < 20; ++call) {
          const PerReplica value{vector_of(std::vector<std::int16_t>{1, 2}, gpu_of(*cluster))};
          second.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 60});
          EXPECT_EQ(elements<std::int16_t>(copy_to_device(value.values()[0], "CPU:0")),
                    (std::vector<std::int16_t>{2, 4}));
          call_often(second, *cluster, 1, 5, rank + 1);
        }
        other.join();
        cluster->barrier(60);
      });
  EXPECT_EQ(errors, no_errors(2));
}

#endif

}  // namespace
}  // namespace crossdevice
