// SPDX-License-Identifier: Apache-2.0
// Calls that copy between hosts and GPUs wait for streams: behind one that stands still they end by their own deadline, when they are cancelled, and with the
// job of their workers, and leave the object as it was.
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/gpu_fixture.h"
#include "support/gpu_values.h"
#include "support/threaded_cluster.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

// Long: where a copy knew this one only, texts would say so.
[[maybe_unused]] const bool kInstalled =
    (::setenv("CROSSDEVICE_DEFAULT_TIMEOUT", "20", 1), testing::install_emulated_gpus(), true);

using ::testing::AllOf;
using testing::elements;
using testing::emulated_cuda;
using testing::gpu;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_clusters;
using testing::slices_of;
using testing::thrown;
using testing::vector_of;
using ClusterPtr = std::shared_ptr<Cluster>;

const CommunicationOptions kSoon{.timeout_seconds = 1};
const CommunicationOptions kLate{.timeout_seconds = 60};

PerReplica ones_on_gpus(std::size_t count) {
  return PerReplica{vector_of(std::vector<float>(count, 1), gpu(0)),
                    vector_of(std::vector<float>(count, 1), gpu(1))};
}

PerReplica ones_on_hosts(std::size_t count) {
  return PerReplica{vector_of(std::vector<float>(count, 1), "CPU:0"),
                    vector_of(std::vector<float>(count, 1), "CPU:1")};
}

std::vector<float> here(const Tensor& tensor) {
  return elements(tensor.device().is_host() ? tensor : copy_to_device(tensor, "CPU:0"));
}

void expect_all(const Tensor& tensor, float expected) {
  EXPECT_EQ(here(tensor), std::vector<float>(tensor.num_elements(), expected));
}

using Call = std::function<void(CrossDeviceOps& ops, const CommunicationOptions& options)>;

/// A call over values that exist already, the GPU whose stream stands still then, and the one for whose stream the host waits.
struct MixedCall {
  std::string name;
  std::size_t blocked;
  std::size_t named;
  std::function<Call()> make;
  std::string reduce_to_device{};  ///< empty: of NcclAllReduce
};

Call reduce_to(const Device& destination, const PerReplica& value) {
  return [=](CrossDeviceOps& ops, const CommunicationOptions& options) {
    expect_all(ops.reduce(ReduceOp::SUM, value, destination, options).tensor(), 2);
  };
}

Call gather_to(const Device& destination, const PerReplica& value) {
  return [=](CrossDeviceOps& ops, const CommunicationOptions& options) {
    const Tensor all = ops.gather(value, destination, 0, options).tensor();
    EXPECT_EQ(all.num_elements(), 2 * value.shape().num_elements());
    expect_all(all, 1);
  };
}

Call reduce_batch_to(const Device& destination, const PerReplica& value) {
  return [=](CrossDeviceOps& ops, const CommunicationOptions& options) {
    const std::vector<Mirrored> sums =
        ops.batch_reduce(ReduceOp::SUM, {{value, destination}, {value, destination}}, options);
    for (const Mirrored& sum : sums) expect_all(sum.tensor(), 2);
  };
}

Call reduce_slices_to(const Device& destination, const PerReplica& value) {
  return [=](CrossDeviceOps& ops, const CommunicationOptions& options) {
    const Mirrored all = ops.reduce(ReduceOp::SUM, value, destination, options);
    EXPECT_EQ(here(all.slices()[0].values), (std::vector<float>{1, 2, 1, 2}));
  };
}

const MixedCall kCalls[] = {
    {"ReduceToAHost", 1, 1, [] { return reduce_to("CPU:0", ones_on_gpus(100)); }},
    {"ReduceFromHosts", 0, 0, [] { return reduce_to("GPU:0", ones_on_hosts(100)); }},
    {"ReduceABatchToAHost", 1, 1, [] { return reduce_batch_to("CPU:0", ones_on_gpus(100)); }},
    // What is waited for is the GPU that reduces, behind the other one.
    {"ReduceOnAGpuToAHost", 1, 0, [] { return reduce_to("CPU:0", ones_on_gpus(100)); }, "GPU:0"},
    {"ReduceABatchOnAGpuToAHost", 1, 0, [] { return reduce_batch_to("CPU:0", ones_on_gpus(100)); },
     "GPU:0"},
    {"GatherToAHost", 1, 1, [] { return gather_to("CPU:0", ones_on_gpus(10)); }},
    {"GatherFromHosts", 0, 0, [] { return gather_to("GPU:0", ones_on_hosts(10)); }},
    {"ReduceSlicesToAHost", 1, 1,
     [] {
       return reduce_slices_to("CPU:0",
                               PerReplica{slices_of({1, 2}, {0, 1}, Shape({4, 1}), gpu(0)),
                                          slices_of({1, 2}, {2, 3}, Shape({4, 1}), gpu(1))});
     }},
    {"ReduceSlicesFromHosts", 0, 0,
     [] {
       return reduce_slices_to("GPU:0",
                               PerReplica{slices_of({1, 2}, {0, 1}, Shape({4, 1}), "CPU:0"),
                                          slices_of({1, 2}, {2, 3}, Shape({4, 1}), "CPU:1")});
     }},
};

class MixedDeadline : public testing::EmulatedGpuTest {
 protected:
  static void block(std::size_t index) {
    emulated_cuda().block_stream(testing::gpu(gpu(index)).own_stream());
  }
  static void release(std::size_t index) {
    emulated_cuda().release_stream(testing::gpu(gpu(index)).own_stream());
    EXPECT_TRUE(emulated_cuda().synchronize());
  }
};

std::unique_ptr<CrossDeviceOps> ops_of(const MixedCall& call) {
  if (call.reduce_to_device.empty()) return std::make_unique<NcclAllReduce>(1);
  return std::make_unique<ReductionToOneDevice>(
      ReductionToOneDeviceOptions{.reduce_to_device = Device(call.reduce_to_device)});
}

class MixedCalls : public MixedDeadline, public ::testing::WithParamInterface<MixedCall> {};

TEST_P(MixedCalls, EndByTheirDeadlineAndTheObjectGoesOn) {
  const std::unique_ptr<CrossDeviceOps> made = ops_of(GetParam());
  CrossDeviceOps& ops = *made;
  const Call call = GetParam().make();
  call(ops, kLate);
  ASSERT_TRUE(emulated_cuda().synchronize());
  block(GetParam().blocked);
  EXPECT_THAT(thrown<DeadlineExceededError>([&] { call(ops, kSoon); }),
              AllOf(HasSubstr(" #2 ("), HasSubstr("timed out after 1 s: copy "),
                    HasSubstr("on GPU:" + std::to_string(GetParam().named))));
  release(GetParam().blocked);
  call(ops, kLate);  // nothing is left of what the one before has thrown
  ASSERT_TRUE(emulated_cuda().synchronize());
  ops.check();
}

INSTANTIATE_TEST_SUITE_P(All, MixedCalls, ::testing::ValuesIn(kCalls),
                         [](const auto& call) { return call.param.name; });

/// Has no options; its deadline is its object's.
TEST_F(MixedDeadline, OfABroadcastIsTheObjects) {
  const Tensor source = vector_of(std::vector<float>(10, 3), gpu(0));
  CollectiveAllReduce ops(testing::gpus(1), 1, kSoon);
  ASSERT_TRUE(emulated_cuda().synchronize());
  block(0);
  EXPECT_THAT(thrown<DeadlineExceededError>([&] { (void)ops.broadcast(source, "CPU:0"); }),
              AllOf(HasSubstr("broadcast #1"), HasSubstr("timed out after 1 s: copy to the host"),
                    HasSubstr("on GPU:0")));
  release(0);
  expect_all(ops.broadcast(source, "CPU:0").tensor(), 3);
}

TEST_F(MixedDeadline, WhatOneOfABatchHasChangedIsSaid) {
  const PerReplica first{vector_of({1, 1}, "CPU:0"), vector_of({1, 1}, gpu(0))};
  const PerReplica second{vector_of({1, 1}, "CPU:0"), vector_of({1, 1}, gpu(0))};
  ReductionToOneDevice ops;
  emulated_cuda().calls().clear();
  // The copies of the first: one in, one back.
  emulated_cuda().calls().inject({.function = "cuda.memcpy_async", .skip = 2, .status = 98});
  const std::array<PerReplica, 2> values = {first, second};
  try {
    ops.batch_reduce_into(ReduceOp::SUM, values);
    ADD_FAILURE() << "no copy failed";
  } catch (const OpError& error) {
    EXPECT_FALSE(error.inputs_intact());
  }
  emulated_cuda().calls().clear_faults();
  expect_all(first.values()[0], 2);
}

TEST_F(MixedDeadline, ACopyEndsWhenItsCallIsCancelled) {
  NcclAllReduce ops(1);
  const PerReplica value = ones_on_gpus(10);
  (void)ops.reduce(ReduceOp::SUM, value, "CPU:0");
  ASSERT_TRUE(emulated_cuda().synchronize());
  block(1);
  emulated_cuda().calls().clear();
  PendingBatch pending = ops.reduce_async(ReduceOp::SUM, value, "CPU:0");
  EXPECT_TRUE(
      emulated_cuda().calls().await_count("cuda.memcpy_async", 1, std::chrono::seconds(60)));
  pending.cancel();
  EXPECT_THAT(thrown<CancelledError>([&] { pending.wait(); }), HasSubstr("cancelled"));
  release(1);
}

// ---------------------------------------------------------------------------------------------- workers

/// Values of two workers' GPUs that meet on hosts, because the options say so.
class MixedWorkers : public MixedDeadline {
 protected:
  /// `work` of each worker; worker 0's stream stands still when `blocked` lets it go on.
  using Work = std::function<void(CollectiveAllReduce& ops, const ClusterPtr& cluster,
                                  const PerReplica& value)>;
  static CommunicationOptions through_hosts(std::optional<double> timeout_seconds) {
    return {.timeout_seconds = timeout_seconds,
            .implementation = CommunicationImplementation::RING};
  }
  /// A call that succeeds, then `work` with worker 0's stream blocked.
  static void run(const Work& work) {
    const std::vector<std::string> errors = run_clusters(2, [&](const ClusterPtr& cluster) {
      const auto rank = static_cast<std::size_t>(cluster->rank());
      CollectiveAllReduce ops(Devices(gpu(rank)), 2, {}, cluster);
      const PerReplica value(vector_of(std::vector<float>(100, 1), gpu(rank)));
      ops.reduce_into(ReduceOp::SUM, value, value, through_hosts(60));
      expect_all(value.values()[0], 2);
      if (rank == 0) block(0);
      cluster->barrier(60);
      work(ops, cluster, value);
    });
    EXPECT_EQ(errors, testing::no_errors(2));
    release(0);
  }
};

TEST_F(MixedWorkers, ADeadlineIsKnownOnBothAndBreaksTheObject) {
  std::array<std::string, 2> said;
  std::array<std::string, 2> then;
  run([&](CollectiveAllReduce& ops, const ClusterPtr& cluster, const PerReplica& value) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    said[rank] =
        thrown<OpError>([&] { ops.reduce_into(ReduceOp::SUM, value, value, through_hosts(0.5)); });
    then[rank] =
        thrown<OpError>([&] { ops.reduce_into(ReduceOp::SUM, value, value, through_hosts(0.5)); });
  });
  EXPECT_THAT(said[0], AllOf(HasSubstr("reduce #2"), HasSubstr("timed out after 0.5 s"),
                             HasSubstr("copy to the host from"), HasSubstr("on GPU:0")));
  EXPECT_THAT(said[1], HasSubstr("rank 0"));
  EXPECT_NE(then[0], "");
  EXPECT_NE(then[1], "");
}

TEST_F(MixedWorkers, AnAbortEndsACopy) {
  std::string said;
  run([&](CollectiveAllReduce& ops, const ClusterPtr& cluster, const PerReplica& value) {
    if (cluster->rank() == 1) return cluster->abort_collective_ops("enough");
    said = thrown<AbortedError>(
        [&] { ops.reduce_into(ReduceOp::SUM, value, value, through_hosts(std::nullopt)); });
  });
  EXPECT_THAT(said, AllOf(HasSubstr("rank 1"), HasSubstr("aborted: enough")));
}

TEST_F(MixedWorkers, APeersEndEndsACopy) {
  std::string said;
  run([&](CollectiveAllReduce& ops, const ClusterPtr& cluster, const PerReplica& value) {
    if (cluster->rank() == 1) return;  // leaves
    said = thrown<UnavailableError>(
        [&] { (void)ops.gather(value, "CPU:0", 0, through_hosts(std::nullopt)); });
  });
  EXPECT_THAT(said, AllOf(HasSubstr("rank 1"), HasSubstr("is gone")));
}

/// Worker 1 has its result and goes; worker 0 has its own too, but not yet where it belongs.
TEST_F(MixedWorkers, WhoLeavesBehindACallIsNotMissedWhileItsResultIsCopied) {
  const std::vector<std::string> errors = run_clusters(2, [](const ClusterPtr& cluster) {
    Communicator world(cluster, meeting_deadline(60));  // on hosts
    const Tensor mine = vector_of({1, 2, 3}, "CPU:0");
    if (cluster->rank() == 1) {
      world.all_reduce(ReduceOp::SUM, mine, mine, {.timeout_seconds = 60});
      return;  // leaves
    }
    const Tensor result = vector_of({0, 0, 0}, gpu(0));
    ASSERT_TRUE(emulated_cuda().synchronize());
    block(0);
    std::promise<void> gone;
    const std::shared_ptr<void> listening = cluster->listen(
        {.on_lost = [&gone](const RankInfo&, const std::string&) { gone.set_value(); },
         .on_abort = {},
         .on_post = {}});
    std::thread releaser([&gone] {
      EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // which who waits looks in
      release(0);
    });
    EXPECT_NO_THROW(world.all_reduce(ReduceOp::SUM, mine, result, {.timeout_seconds = 60}));
    releaser.join();
    EXPECT_EQ(here(result), (std::vector<float>{2, 4, 6}));
  });
  EXPECT_EQ(errors, testing::no_errors(2));
}

TEST_F(MixedWorkers, ACommunicatorsCopiesEndByItsDeadlineAndWithTheJob) {
  std::string late;
  std::string aborted;
  const std::vector<std::string> errors = run_clusters(2, [&](const ClusterPtr& cluster) {
    Communicator world(cluster, meeting_deadline(60));  // on hosts
    const Tensor tensor = vector_of({1, 2, 3}, gpu(static_cast<std::size_t>(cluster->rank())));
    world.all_reduce(ReduceOp::SUM, tensor, tensor, {.timeout_seconds = 60});
    if (cluster->rank() == 0) {
      block(0);
      late = thrown<DeadlineExceededError>(
          [&] { world.all_reduce(ReduceOp::SUM, tensor, tensor, {.timeout_seconds = 1}); });
    }
    cluster->barrier(60);
    if (cluster->rank() == 1) return cluster->abort_collective_ops("enough");
    aborted = thrown<AbortedError>(
        [&] { world.all_reduce(ReduceOp::SUM, tensor, tensor, {.timeout_seconds = 60}); });
  });
  EXPECT_EQ(errors, testing::no_errors(2));
  EXPECT_THAT(late, AllOf(HasSubstr("copy to the host from"), HasSubstr("on GPU:0"),
                          Not(HasSubstr("CROSSDEVICE_DEFAULT_TIMEOUT"))));
  EXPECT_THAT(aborted, HasSubstr("aborted: enough"));
  release(0);
}

}  // namespace
}  // namespace crossdevice
