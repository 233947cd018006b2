// SPDX-License-Identifier: Apache-2.0
// Ops of the program's own: what a hook may do with its arguments, and what its results must be.
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/progress.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/values.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

/// How a hook hands single values of its batch on.
enum class HandOn { AS_SUBSPANS, AS_COPIES, AS_CALLS_OF_ITS_OWN_OBJECT };

/// Reduces its batches one value at a time, the last one first.
class LastFirst : public HierarchicalCopyAllReduce {
 public:
  explicit LastFirst(HandOn hand_on) : HierarchicalCopyAllReduce(1), hand_on_(hand_on) {}
  std::function<void(std::size_t)> after_value = [](std::size_t) {};

 protected:
  std::vector<Mirrored> batch_reduce_implementation(ReduceOp op,
                                                    std::span<const ValueDestinationPair> pairs,
                                                    const CommunicationOptions& options) override {
    if (is_inside_)
      return HierarchicalCopyAllReduce::batch_reduce_implementation(op, pairs, options);
    is_inside_ = true;
    std::vector<Mirrored> results(pairs.size());
    for (std::size_t i = pairs.size(); i-- > 0;) {
      results[i] = reduce_alone(op, pairs.subspan(i, 1), options);
      after_value(i);
    }
    is_inside_ = false;
    return results;
  }

 private:
  Mirrored reduce_alone(ReduceOp op, std::span<const ValueDestinationPair> pair,
                        const CommunicationOptions& options) {
    const std::vector<ValueDestinationPair> copies(pair.begin(), pair.end());
    if (hand_on_ == HandOn::AS_CALLS_OF_ITS_OWN_OBJECT) return batch_reduce(op, copies, options)[0];
    return HierarchicalCopyAllReduce::batch_reduce_implementation(
        op, hand_on_ == HandOn::AS_SUBSPANS ? pair : copies, options)[0];
  }

  HandOn hand_on_;
  bool is_inside_ = false;  // a call of its own object comes in by the same door
};

class HooksThatReorder : public ::testing::TestWithParam<HandOn> {};

TEST_P(HooksThatReorder, CompleteNoValueBeforeItIsReduced) {
  LastFirst ops(GetParam());
  const std::vector<PerReplica> values{per_replica({{1.0f}, {2.0f}}),
                                       per_replica({{3.0f, 4.0f}, {5.0f, 6.0f}}),
                                       per_replica({{7.0f}, {8.0f}})};
  std::vector<bool> first_was_ready;
  ops.after_value = [&](std::size_t value) {
    if (value > 0) first_was_ready.push_back(values[0].values()[0].readiness().is_ready());
  };
  PendingBatch pending = ops.batch_reduce_into_async(ReduceOp::SUM, values);
  pending.wait();
  EXPECT_EQ(first_was_ready, (std::vector<bool>{false, false}));
  expect_mirrored(pending.value(0), cpus(2), {3});
  expect_mirrored(pending.value(1), cpus(2), {8, 10});
  expect_mirrored(pending.value(2), cpus(2), {15});
}

TEST(HooksThatReorderSubspans, AnnounceEachValueAsSoonAsItIsReduced) {
  LastFirst ops(HandOn::AS_SUBSPANS);
  const std::vector<PerReplica> values{per_replica({{1.0f}, {2.0f}}),
                                       per_replica({{3.0f}, {4.0f}})};
  bool last_was_ready = false;
  ops.after_value = [&](std::size_t value) {
    if (value == 1) last_was_ready = values[1].values()[0].readiness().is_ready();
  };
  PendingBatch pending = ops.batch_reduce_into_async(ReduceOp::SUM, values);
  std::vector<std::size_t> order;
  for (const std::size_t i : pending.in_completion_order()) order.push_back(i);
  pending.wait();
  EXPECT_TRUE(last_was_ready);
  EXPECT_EQ(order, (std::vector<std::size_t>{1, 0}));
}

INSTANTIATE_TEST_SUITE_P(EveryWay, HooksThatReorder,
                         ::testing::Values(HandOn::AS_SUBSPANS, HandOn::AS_COPIES,
                                           HandOn::AS_CALLS_OF_ITS_OWN_OBJECT));

/// Calls its own object with a deadline that has passed, then does its work.
class ImpatientInside : public ReductionToOneDevice {
 public:
  int num_deadlines = 0;

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    try {
      (void)gather(value, "CPU:0", 0, {.timeout_seconds = 1e-9});
    } catch (const DeadlineExceededError&) {
      ++num_deadlines;
    }
    return ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
  }
};

TEST(Hooks, CallsOfTheirOwnObjectHaveTheirOwnDeadlines) {
  ImpatientInside ops;
  const PerReplica value = per_replica({{1.0f}, {2.0f}});
  expect_mirrored(ops.reduce(ReduceOp::SUM, value, value), cpus(2), {3});
  expect_mirrored(ops.reduce_async(ReduceOp::SUM, value, value).value(0), cpus(2), {3});
  EXPECT_EQ(ops.num_deadlines, 2);
}

/// Notes what it is asked to reduce.
class Noting : public ReductionToOneDevice {
 public:
  std::vector<const void*> seen;

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    seen.push_back(value.values()[0].data());
    return ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
  }
};

TEST(Hooks, OfADerivedReductionToOneDeviceSeeEveryValueOfABatchInOrder) {
  Noting ops;
  const std::vector<PerReplica> values{per_replica({{1.0f}, {2.0f}}), per_replica({{3.0f}, {4.0f}}),
                                       per_replica({{5.0f}, {6.0f}})};
  ops.batch_reduce_into(ReduceOp::SUM, values);
  EXPECT_THAT(ops.seen,
              ::testing::ElementsAre(values[0].values()[0].data(), values[1].values()[0].data(),
                                     values[2].values()[0].data()));
  expect_mirrored(values[0], cpus(2), {3});
  expect_mirrored(values[1], cpus(2), {7});
  expect_mirrored(values[2], cpus(2), {11});
}

/// Reduces, but ends after its deadline.
class Late : public ReductionToOneDevice {
 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    Mirrored result = ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
    while (!current_deadline().has_passed()) std::this_thread::yield();
    require_time_left();
    return result;
  }
};

TEST(Hooks, ThatMissTheirDeadlineLeaveInputsIntactThatAreNoOutputs) {
  Late ops;
  const PerReplica value = per_replica({{1.0f}, {2.0f}});
  const PerReplica apart = per_replica({{0.0f}, {0.0f}});
  const auto is_intact = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const DeadlineExceededError& error) {
      return error.inputs_intact();
    }
    throw InternalError("no deadline");
  };
  const CommunicationOptions options{.timeout_seconds = 1};
  const std::vector<ValueOutputPair> pairs{{value, apart}};
  EXPECT_TRUE(is_intact([&] { ops.reduce_into(ReduceOp::SUM, value, apart, options); }));
  EXPECT_TRUE(is_intact([&] { ops.batch_reduce_into(ReduceOp::SUM, pairs, options); }));
  EXPECT_FALSE(is_intact([&] { ops.reduce_into(ReduceOp::SUM, value, value, options); }));
}

class WithoutMemory : public ReductionToOneDevice {
 protected:
  Mirrored reduce_implementation(ReduceOp /*op*/, const PerReplica& /*value*/,
                                 const Destinations& /*destinations*/,
                                 const CommunicationOptions& /*options*/) override {
    throw std::bad_alloc();
  }
};

TEST(Hooks, ThatHaveNoMemoryFailAsTheLibraryDoes) {
  WithoutMemory ops;
  const PerReplica value = per_replica({{1.0f}, {2.0f}});
  try {
    (void)ops.reduce(ReduceOp::SUM, value, value);
    FAIL();
  } catch (const ResourceExhaustedError& error) {
    EXPECT_EQ(error.operation().kind, "reduce");
    EXPECT_TRUE(error.inputs_intact());
  }
  try {
    ops.reduce_into(ReduceOp::SUM, value, value);
    FAIL();
  } catch (const ResourceExhaustedError& error) {
    EXPECT_FALSE(error.inputs_intact());  // which are its outputs
  }
}

/// Keeps a handle on what it was given.
class Keeping : public ReductionToOneDevice {
 public:
  Tensor kept;

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    kept = value.values()[0];
    return ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
  }
};

TEST(Hooks, MayKeepTheTensorsTheyAreGiven) {
  Keeping ops;
  (void)ops.reduce_async(ReduceOp::SUM, per_replica({{5, 5, 5}, {1, 1, 1}}), "CPU:0").value(0);
  progress_stream().synchronize(Deadline::never());  // the operation has let go of everything
  const Tensor other = vector_of<float>({9, 9, 9}, cpu(0));  // takes what is free
  EXPECT_NE(other.data(), ops.kept.data());
  EXPECT_EQ(elements(ops.kept), (std::vector<float>{5, 5, 5}));
}

/// Returns rows where a tensor is due.
class SparseForDense : public ReductionToOneDevice {
 protected:
  Mirrored reduce_implementation(ReduceOp, const PerReplica&, const Destinations&,
                                 const CommunicationOptions&) override {
    return Mirrored(std::vector<IndexedSlices>{slices_of({1, 2}, {0, 1}, {2, 1}, cpu(0))});
  }
};

TEST(Hooks, ThatReturnSparseValuesForOutputBuffersAreRefused) {
  SparseForDense ops;
  const PerReplica value = per_replica({{1.0f, 1.0f}});
  EXPECT_THROW(ops.reduce_into(ReduceOp::SUM, value, value), InternalError);
  PendingBatch pending = ops.reduce_async(ReduceOp::SUM, value, value);
  EXPECT_THROW(pending.wait(), InternalError);
  EXPECT_EQ(elements(value.values()[0]), (std::vector<float>{1, 1}));
}

}  // namespace
}  // namespace crossdevice
