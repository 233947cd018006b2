// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

namespace crossdevice {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<float> elements(const Tensor& tensor) {
  const auto span = tensor.span<const float>();
  return {span.begin(), span.end()};
}

/// Waits inside its hook until it is let go, so that a test can look at an operation in flight; then fails if told to.
class GatedOps : public ReductionToOneDevice {
 public:
  void open() {
    open_.store(true);
    open_.notify_all();
  }
  void fail_next() { fail_.store(true); }
  /// Until an operation is in flight.
  void await_begin() const { has_begun_.wait(false); }
  std::vector<std::size_t> order;  // sizes of the values reduced, in order

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    has_begun_.store(true);
    has_begun_.notify_all();
    open_.wait(false);
    order.push_back(value.values()[0].num_elements());
    if (fail_.exchange(false)) throw UnavailableError("the link is down");
    return ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
  }

 private:
  std::atomic<bool> has_begun_{false};
  std::atomic<bool> open_{false};
  std::atomic<bool> fail_{false};
};

struct TwoVectors {
  explicit TwoVectors(std::size_t count) : a(count, 1.0f), b(count, 2.0f) {}
  PerReplica value() {
    return {Tensor::view(std::span(a), "CPU:0"), Tensor::view(std::span(b), "CPU:1")};
  }
  std::vector<float> a, b;
};

TEST(AsynchronousForms, ReturnBeforeTheWorkIsDoneAndDeliverItsResult) {
  GatedOps ops;
  TwoVectors data(5);
  PendingBatch pending = ops.reduce_async(ReduceOp::SUM, data.value(), "CPU:3");
  EXPECT_FALSE(pending.is_done());
  ops.open();
  EXPECT_EQ(elements(pending.value(0).tensor()), std::vector<float>(5, 3.0f));
  EXPECT_EQ(pending.value(0).devices(), Devices({"CPU:3"}));
  pending.wait();
  EXPECT_TRUE(pending.is_done());
}

TEST(AsynchronousForms, SpanWaitsForTheOperationThatWritesTheTensor) {
  GatedOps ops;
  TwoVectors data(7);
  const PerReplica value = data.value();
  PendingBatch pending = ops.reduce_into_async(ReduceOp::SUM, value, value);
  std::thread opener([&ops] {
    std::this_thread::yield();
    ops.open();
  });
  EXPECT_EQ(elements(value.values()[1]), std::vector<float>(7, 3.0f));
  opener.join();
  pending.wait();
  EXPECT_EQ(data.a, std::vector<float>(7, 3.0f));
}

TEST(AsynchronousForms, RunInTheOrderOfTheCallsWithBlockingOnesAmongThem) {
  GatedOps ops;
  ops.open();
  TwoVectors one(1), two(2), three(3);
  PendingBatch first = ops.reduce_async(ReduceOp::SUM, one.value(), "CPU:0");
  (void)ops.reduce(ReduceOp::SUM, two.value(), "CPU:0");
  PendingBatch third = ops.reduce_async(ReduceOp::SUM, three.value(), "CPU:0");
  first.wait();
  third.wait();
  EXPECT_THAT(ops.order, ::testing::ElementsAre(1, 2, 3));
}

TEST(AsynchronousForms, ThrowWhatWentWrongFromEveryWaitAndThenNoMore) {
  GatedOps ops;
  ops.fail_next();
  ops.open();
  TwoVectors data(4);
  PendingBatch pending = ops.reduce_async(ReduceOp::SUM, data.value(), "CPU:0");
  EXPECT_THAT([&] { pending.wait(); }, ThrowsMessage<UnavailableError>(HasSubstr("link is down")));
  EXPECT_THAT([&] { pending.wait(); }, ThrowsMessage<UnavailableError>(HasSubstr("link is down")));
  EXPECT_THROW((void)pending.value(0), UnavailableError);
  EXPECT_NO_THROW(ops.check());
  EXPECT_EQ(elements(ops.reduce(ReduceOp::SUM, data.value(), "CPU:0").tensor()),
            std::vector<float>(4, 3.0f));
}

TEST(AsynchronousForms, ThrowAnErrorNobodyWaitedForFromTheNextCall) {
  GatedOps ops;
  ops.fail_next();
  ops.open();
  TwoVectors data(4);
  {
    PendingBatch pending = ops.reduce_async(ReduceOp::SUM, data.value(), "CPU:0");
    while (!pending.is_done()) std::this_thread::yield();
  }
  EXPECT_THROW((void)ops.reduce(ReduceOp::SUM, data.value(), "CPU:0"), UnavailableError);
  EXPECT_NO_THROW((void)ops.reduce(ReduceOp::SUM, data.value(), "CPU:0"));
}

TEST(AsynchronousForms, ThrowAnErrorNobodyWaitedForFromCheck) {
  GatedOps ops;
  ops.fail_next();
  ops.open();
  TwoVectors data(4);
  {
    PendingBatch pending = ops.reduce_async(ReduceOp::SUM, data.value(), "CPU:0");
    while (!pending.is_done()) std::this_thread::yield();
  }
  EXPECT_THROW(ops.check(), UnavailableError);
  EXPECT_NO_THROW(ops.check());
}

TEST(AsynchronousForms, LeaveNoTensorMarkedAfterAFailure) {
  GatedOps ops;
  ops.fail_next();
  ops.open();
  TwoVectors data(4);
  const PerReplica value = data.value();
  PendingBatch pending = ops.reduce_into_async(ReduceOp::SUM, value, value);
  EXPECT_THROW(pending.wait(), UnavailableError);
  EXPECT_TRUE(value.values()[0].readiness().is_ready());
  EXPECT_TRUE(value.values()[1].readiness().is_ready());
}

TEST(AsynchronousForms, CancelWhatHasNotStarted) {
  GatedOps ops;
  TwoVectors first_data(1), second_data(2);
  const PerReplica second_value = second_data.value();
  PendingBatch first = ops.reduce_async(ReduceOp::SUM, first_data.value(), "CPU:0");
  PendingBatch second = ops.reduce_into_async(ReduceOp::SUM, second_value, second_value);
  second.cancel();
  EXPECT_THROW(second.wait(), CancelledError);
  ops.open();
  first.wait();
  (void)ops.reduce(ReduceOp::SUM, first_data.value(), "CPU:0");
  EXPECT_THAT(ops.order, ::testing::ElementsAre(1, 1));
  EXPECT_EQ(elements(second_value.values()[0]), std::vector<float>(2, 1.0f));
  EXPECT_NO_THROW(ops.check());
}

/// What is cancelled before its turn is over at once: the work, its tensors, its object's next calls, and its object.
TEST(AsynchronousForms, ThatAreCancelledBehindAnotherObjectsOperationLeaveNothingToWaitFor) {
  GatedOps slow;
  TwoVectors slow_data(1), data(2);
  PendingBatch other = slow.reduce_async(ReduceOp::SUM, slow_data.value(), "CPU:0");
  {
    ReductionToOneDevice ops;
    const PerReplica value = data.value();
    { PendingBatch dropped = ops.reduce_into_async(ReduceOp::SUM, value, value); }
    PendingBatch cancelled = ops.reduce_into_async(ReduceOp::SUM, value, value);
    cancelled.cancel();
    EXPECT_THROW(cancelled.wait(), CancelledError);
    EXPECT_EQ(elements(value.values()[0]), std::vector<float>(2, 1.0f));
    EXPECT_EQ(elements(ops.reduce(ReduceOp::SUM, value, "CPU:0").tensor()),
              std::vector<float>(2, 3.0f));
    PendingBatch last = ops.reduce_into_async(ReduceOp::SUM, value, value);
    last.cancel();
  }
  EXPECT_FALSE(other.is_done());
  slow.open();
  other.wait();
}

TEST(AsynchronousForms, ThatWaitForABlockingCallOfTheirObjectCanBeCancelled) {
  GatedOps ops;
  TwoVectors blocking_data(1), data(2);
  std::thread blocking([&] { (void)ops.reduce(ReduceOp::SUM, blocking_data.value(), "CPU:0"); });
  const PerReplica value = data.value();
  ops.await_begin();
  PendingBatch pending = ops.reduce_into_async(ReduceOp::SUM, value, value);
  // The progress thread waits for its turn by then, most likely.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  pending.cancel();
  EXPECT_TRUE(pending.is_done());
  EXPECT_EQ(elements(value.values()[0]), std::vector<float>(2, 1.0f));
  ops.open();
  blocking.join();
  (void)ops.reduce_async(ReduceOp::SUM, value, "CPU:0").value(0);
  EXPECT_THAT(ops.order, ::testing::ElementsAre(1, 2));
}

TEST(AsynchronousForms, CheckTheirArgumentsAtOnce) {
  ReductionToOneDevice ops;
  TwoVectors data(4);
  EXPECT_THROW((void)ops.reduce_async(ReduceOp::SUM, PerReplica(), "CPU:0"), ValueError);
  EXPECT_THROW((void)ops.reduce_async(ReduceOp::SUM, data.value(), "CPU:0", {.bytes_per_pack = -1}),
               ValueError);
  EXPECT_THROW((void)ops.broadcast_async(Tensor(), "CPU:0"), ValueError);
  EXPECT_THROW((void)ops.gather_async(data.value(), "CPU:0", 1), ValueError);
}

TEST(AsynchronousForms, WorkForAnEmptyBatch) {
  HierarchicalCopyAllReduce ops;
  PendingBatch pending = ops.batch_reduce_async(ReduceOp::SUM, {});
  EXPECT_EQ(pending.size(), 0u);
  for (std::size_t i : pending.in_completion_order()) FAIL() << "value " << i << " of none";
  pending.wait();
}

TEST(AsynchronousForms, BroadcastAndGather) {
  ReductionToOneDevice ops;
  TwoVectors data(3);
  const Tensor source = Tensor::view(std::span(data.a), "CPU:0");
  PendingBatch copies = ops.broadcast_async(source, Devices{"CPU:1", "CPU:2"});
  PendingBatch rows = ops.gather_async(data.value(), "CPU:5", 0);
  for (const Tensor& tensor : copies.value(0).values()) {
    EXPECT_EQ(elements(tensor), std::vector<float>(3, 1.0f));
    EXPECT_NE(tensor.data(), source.data());
  }
  EXPECT_EQ(elements(rows.value(0).tensor()), (std::vector<float>{1, 1, 1, 2, 2, 2}));
}

TEST(AsynchronousForms, DeliverSparseAndDenseValuesOfOneBatch) {
  HierarchicalCopyAllReduce ops;
  TwoVectors data(3);
  const float row[] = {1.0f};
  const std::int32_t index[] = {4};
  const IndexedSlices slices{Tensor::copy_of(std::span(row), {1, 1}, "CPU:0"),
                             Tensor::copy_of(std::span(index), {1}, "CPU:0"),
                             {9, 1}};
  const PerReplica sparse{slices, slices};
  const std::vector<ValueDestinationPair> pairs{{sparse, "CPU:0"}, {data.value(), "CPU:0"}};
  PendingBatch pending = ops.batch_reduce_async(ReduceOp::SUM, pairs);
  std::vector<std::size_t> seen;
  for (std::size_t i : pending.in_completion_order()) {
    seen.push_back(i);
    EXPECT_EQ(pending.value(i).is_sparse(), i == 0);
  }
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre(0, 1));
  EXPECT_EQ(elements(pending.value(0).slices()[0].values), (std::vector<float>{1, 1}));
  EXPECT_EQ(elements(pending.value(1).tensor()), std::vector<float>(3, 3.0f));
}

TEST(AsynchronousForms, AreWaitedForByABroadcastOfSlicesOverTheirResult) {
  GatedOps writer;
  ReductionToOneDevice reader;
  TwoVectors data(3);
  const PerReplica value = data.value();
  const std::int32_t indices[] = {4, 5, 6};
  const IndexedSlices slices{
      value.values()[0].reshape({3, 1}), Tensor::copy_of(std::span(indices), {3}, "CPU:0"), {9, 1}};
  PendingBatch pending = writer.reduce_into_async(ReduceOp::SUM, value, value);
  std::atomic<bool> copied{false};
  std::thread opener([&] {
    // Long enough for a broadcast that does not wait; one that waits is not disturbed by it.
    for (int i = 0; i < 2000 && !copied; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    writer.open();
  });
  const Mirrored copies = reader.broadcast(slices, Devices{"CPU:1"});
  copied = true;
  EXPECT_EQ(elements(copies.slices()[0].values), std::vector<float>(3, 3.0f));
  opener.join();
  pending.wait();
}

/// Calls an asynchronous form of its own object from inside a hook.
class SelfCallingOps : public ReductionToOneDevice {
 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    (void)broadcast(value.values()[0],
                    destinations);  // a blocking form is fine: it shares the turn
    EXPECT_THROW((void)broadcast_async(value.values()[0], destinations), FailedPreconditionError);
    return ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
  }
};

TEST(AsynchronousForms, AreRefusedInsideAHookOfTheSameObject) {
  SelfCallingOps ops;
  TwoVectors data(2);
  EXPECT_EQ(elements(ops.reduce(ReduceOp::SUM, data.value(), "CPU:0").tensor()),
            std::vector<float>(2, 3.0f));
}

/// Runs `inside` in its hook, once the gate is open, and keeps what it throws.
class OpsThatCall : public GatedOps {
 public:
  std::function<void()> inside;
  std::string text;

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    Mirrored result = GatedOps::reduce_implementation(op, value, destinations, options);
    try {
      inside();
    } catch (const FailedPreconditionError& error) {
      text = error.what();
    }
    return result;
  }
};

/// What a hook is told that waits, by `wait`, for an operation of `inner` that stands behind its own. Without the refusal: for ever.
template <class Wait>
std::string told_in_hook(Wait wait) {
  ReductionToOneDevice inner;
  OpsThatCall outer;
  TwoVectors data(2), behind(3);
  const PerReplica value = behind.value();
  PendingBatch first = outer.reduce_async(ReduceOp::SUM, data.value(), "CPU:0");
  PendingBatch second = inner.reduce_into_async(ReduceOp::SUM, value, value);
  outer.inside = [&] { wait(inner, second, value); };
  outer.open();
  first.wait();
  second.wait();
  EXPECT_EQ(behind.a, std::vector<float>(3, 3.0f));
  // With nothing behind it, a blocking form of another object is a call like any other.
  outer.inside = [&] { (void)inner.reduce(ReduceOp::SUM, value, "CPU:0"); };
  const std::string told = std::exchange(outer.text, "");
  outer.reduce_async(ReduceOp::SUM, data.value(), "CPU:0").wait();
  EXPECT_EQ(outer.text, "");
  return told;
}

TEST(AsynchronousForms, HooksAreRefusedAWaitForWhatStandsBehindThem) {
  const auto blocking = [](CrossDeviceOps& inner, PendingBatch&, const PerReplica&) {
    TwoVectors other(1);
    (void)inner.reduce(ReduceOp::SUM, other.value(), "CPU:0");
  };
  EXPECT_THAT(told_in_hook(blocking), HasSubstr("stand behind that one"));
  const auto handle = [](CrossDeviceOps&, PendingBatch& pending, const PerReplica&) {
    pending.wait();
  };
  EXPECT_THAT(told_in_hook(handle), HasSubstr("was waited for inside a hook"));
  const auto value = [](CrossDeviceOps&, PendingBatch& pending, const PerReplica&) {
    (void)pending.value(0);
  };
  EXPECT_THAT(told_in_hook(value), HasSubstr("was waited for inside a hook"));
  const auto order = [](CrossDeviceOps&, PendingBatch& pending, const PerReplica&) {
    for (const std::size_t item : pending.in_completion_order()) (void)item;
  };
  EXPECT_THAT(told_in_hook(order), HasSubstr("was waited for inside a hook"));
  const auto span = [](CrossDeviceOps&, PendingBatch&, const PerReplica& values) {
    (void)values.values()[0].span<const float>();
  };
  EXPECT_THAT(told_in_hook(span), HasSubstr("would wait for itself"));
}

TEST(AsynchronousForms, ABlockingHookIsRefusedAWaitForItsOwnObject) {
  OpsThatCall ops;
  ops.open();
  TwoVectors data(2), behind(3);
  std::optional<PendingBatch> pending;
  ops.inside = [&] {
    if (pending.has_value()) return;  // the operation behind
    std::thread([&] {
      pending.emplace(ops.reduce_async(ReduceOp::SUM, behind.value(), "CPU:0"));
    }).join();
    pending->wait();
  };
  (void)ops.reduce(ReduceOp::SUM, data.value(), "CPU:0");
  EXPECT_THAT(ops.text, HasSubstr("was waited for inside a hook"));
  EXPECT_EQ(elements(pending->value(0).tensor()), std::vector<float>(3, 3.0f));
}

TEST(AsynchronousForms, ASparseOperationDoesNotWaitForOneBehindItThatWritesWhatItReads) {
  GatedOps gate;
  ReductionToOneDevice ops;
  TwoVectors data(1), written(2);
  PendingBatch first = gate.reduce_async(ReduceOp::SUM, data.value(), "CPU:0");
  const PerReplica rows = written.value();
  std::vector<std::int64_t> both{0, 1};
  const Tensor indices = Tensor::view(std::span(both), "CPU:0");
  const PerReplica slices{IndexedSlices{.values = rows.values()[0], .indices = indices},
                          IndexedSlices{.values = rows.values()[1], .indices = indices}};
  PendingBatch sparse = ops.reduce_async(ReduceOp::SUM, slices, "CPU:0");
  PendingBatch behind = ops.reduce_into_async(ReduceOp::SUM, rows, rows);
  gate.open();
  EXPECT_EQ(elements(sparse.value(0).slices()[0].values), (std::vector<float>{1, 1, 2, 2}));
  behind.wait();
  first.wait();
  EXPECT_EQ(written.a, std::vector<float>(2, 3.0f));
}

TEST(AsynchronousForms, StressFromSeveralThreads) {
  ReductionToOneDevice ops;
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&ops, &wrong, t] {
      TwoVectors data(static_cast<std::size_t>(100 + t));
      for (int round = 0; round < 50; ++round) {
        PendingBatch pending = ops.reduce_async(ReduceOp::SUM, data.value(), "CPU:0");
        const Mirrored direct = ops.reduce(ReduceOp::MEAN, data.value(), "CPU:1");
        for (float x : direct.tensor().span<const float>()) wrong += x != 1.5f;
        if (round % 3 == 0) continue;  // ~PendingBatch cancels or waits
        for (float x : pending.value(0).tensor().span<const float>()) wrong += x != 3.0f;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_NO_THROW(ops.check());
}

}  // namespace
}  // namespace crossdevice
