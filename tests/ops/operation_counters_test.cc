// SPDX-License-Identifier: Apache-2.0
// What ops count and show: exactly as many as were called, by kind and algorithm. Each test is a process of its own, or looks at differences.
#include <cstddef>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/counter.h"
#include "crossdevice/core/counters.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/memory_pool.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/values.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PerReplica value_of(std::size_t devices, std::size_t count) {
  return per_replica(std::vector<std::vector<float>>(devices, std::vector<float>(count, 1.0f)));
}

/// Each value holds the number of its replicas everywhere: the sum of their ones.
void expect_counts(const std::vector<PerReplica>& values) {
  for (const PerReplica& value : values) {
    for (const Tensor& component : value.values()) {
      EXPECT_THAT(elements(component), Each(static_cast<float>(value.size())));
    }
  }
}

/// How much `name` grows while `body` runs.
double growth(const std::string& name, const std::string& labels,
              const std::function<void()>& body) {
  const double before = counter_value(name, labels);
  body();
  return counter_value(name, labels) - before;
}

TEST(OperationCountersTest, CallsAndBytesAreExactByKind) {
  ReductionToOneDevice ops;
  const PerReplica value = value_of(2, 100);
  const PerReplica other = value_of(2, 100);
  constexpr int kCalls = 137;
  const auto call = [&] {
    for (int i = 0; i < kCalls; ++i) ops.reduce_into(ReduceOp::SUM, value, value);
    for (int i = 0; i < 3; ++i) (void)ops.broadcast(value.values()[0], value);
    for (int i = 0; i < 2; ++i) (void)ops.gather(value, "CPU:0", 0);
    ops.batch_reduce_into(ReduceOp::SUM, std::vector<PerReplica>{value, other});
  };
  EXPECT_EQ(growth("crossdevice_operations_total", "kind=\"reduce\"", call), kCalls);
  EXPECT_EQ(growth("crossdevice_operation_bytes_total", "kind=\"reduce\"", call), kCalls * 400);
  EXPECT_EQ(growth("crossdevice_operations_total", "kind=\"broadcast\"", call), 3);
  EXPECT_EQ(growth("crossdevice_operations_total", "kind=\"gather\"", call), 2);
  EXPECT_EQ(growth("crossdevice_operations_total", "kind=\"batch_reduce\"", call), 1);
  EXPECT_EQ(growth("crossdevice_operation_bytes_total", "kind=\"batch_reduce\"", call), 800);
  EXPECT_EQ(growth("crossdevice_operations_total", "", call), kCalls + 6);
  EXPECT_EQ(growth("crossdevice_operation_failures_total", "", call), 0);
  EXPECT_GT(growth("crossdevice_operation_seconds_total", "kind=\"reduce\"", call), 0);
}

TEST(OperationCountersTest, NothingIsCountedWhileCountersAreOff) {
  ReductionToOneDevice ops;
  const PerReplica value = value_of(2, 100);
  const PerReplica large = value_of(2, 100'000);  // large enough to be timed
  ops.reduce_into(ReduceOp::SUM, value, value);   // the counters are known from here on
  detail::counter_state = detail::CounterState::OFF;
  for (const std::string name :
       {"crossdevice_operations_total", "crossdevice_operation_bytes_total",
        "crossdevice_operation_seconds_total", "crossdevice_operation_failures_total",
        "crossdevice_reductions_total"}) {
    EXPECT_EQ(growth(name, "",
                     [&] {
                       ops.reduce_into(ReduceOp::SUM, value, value);
                       ops.reduce_into(ReduceOp::SUM, large, large);
                     }),
              0)
        << name;
  }
  detail::counter_state = detail::CounterState::ON;
}

TEST(OperationCountersTest, NothingIsLostAmongThreads) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 500;
  EXPECT_EQ(growth("crossdevice_operations_total", "kind=\"reduce\"",
                   [] {
                     std::vector<std::thread> threads;
                     threads.reserve(kThreads);
                     for (int t = 0; t < kThreads; ++t) {
                       threads.emplace_back([] {
                         ReductionToOneDevice ops;
                         const PerReplica value = value_of(2, 3);
                         for (int i = 0; i < kCalls; ++i) {
                           ops.reduce_into(ReduceOp::SUM, value, value);
                         }
                       });
                     }
                     for (std::thread& thread : threads) thread.join();
                   }),
            kThreads * kCalls);
}

TEST(OperationCountersTest, AsynchronousFormsAreCountedWhenTheyAreOver) {
  ReductionToOneDevice ops;
  const PerReplica value = value_of(2, 10);
  EXPECT_EQ(growth("crossdevice_operations_total", "kind=\"reduce\"",
                   [&] {
                     for (int i = 0; i < 20; ++i) {
                       ops.reduce_into_async(ReduceOp::SUM, value, value).wait();
                     }
                   }),
            20);
}

TEST(OperationCountersTest, AlgorithmsAreToldApart) {
  ReductionToOneDevice direct;
  HierarchicalCopyAllReduce hierarchical(1);
  const PerReplica value = value_of(4, 1000);
  const auto call = [&] {
    direct.reduce_into(ReduceOp::SUM, value, value);
    for (int i = 0; i < 5; ++i) hierarchical.reduce_into(ReduceOp::SUM, value, value);
  };
  EXPECT_EQ(growth("crossdevice_reductions_total", "algorithm=\"direct\"", call), 1);
  EXPECT_EQ(growth("crossdevice_reductions_total", "algorithm=\"hierarchical_copy\"", call), 5);
  EXPECT_EQ(growth("crossdevice_reduction_bytes_total", "algorithm=\"hierarchical_copy\"", call),
            5 * 4000);
}

TEST(OperationCountersTest, ABatchOnHostsIsOneReduction) {
  ReductionToOneDevice ops;
  const std::vector<PerReplica> values{value_of(2, 100), value_of(3, 7), value_of(2, 100'000)};
  const auto call = [&] { ops.batch_reduce_into(ReduceOp::SUM, values); };
  EXPECT_EQ(growth("crossdevice_reductions_total", "", call), 1);
  expect_counts(values);
}

/// Watches batches, and not their values.
class BatchesSeen : public ReductionToOneDevice {
 public:
  int num_batches = 0;

 protected:
  std::vector<Mirrored> batch_reduce_implementation(ReduceOp op,
                                                    std::span<const ValueDestinationPair> pairs,
                                                    const CommunicationOptions& options) override {
    ++num_batches;
    return batch_reduce_together(op, pairs, options);
  }
};

TEST(OperationCountersTest, ABatchOfADerivedClassIsOneReductionWhereItSaysSo) {
  BatchesSeen ops;
  const std::vector<PerReplica> values{value_of(2, 100), value_of(3, 7)};
  EXPECT_EQ(growth("crossdevice_reductions_total", "",
                   [&] { ops.batch_reduce_into(ReduceOp::SUM, values); }),
            1);
  EXPECT_EQ(ops.num_batches, 1);
  expect_counts(values);
}

/// An op whose hook fails.
class FailingOps : public ReductionToOneDevice {
 public:
  explicit FailingOps(std::function<void()> fail) : fail_(std::move(fail)) {}

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    fail_();
    return ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
  }

 private:
  std::function<void()> fail_;
};

TEST(OperationCountersTest, FailuresAndTimeoutsAreCountedOnce) {
  const PerReplica value = value_of(2, 10);
  FailingOps late([] { throw DeadlineExceededError("late"); });
  FailingOps wrong([] { throw std::runtime_error("wrong"); });
  const auto call = [&] {
    EXPECT_THROW(late.reduce_into(ReduceOp::SUM, value, value), DeadlineExceededError);
    EXPECT_THROW(late.reduce_into_async(ReduceOp::SUM, value, value).wait(), DeadlineExceededError);
    EXPECT_THROW(wrong.reduce_into(ReduceOp::SUM, value, value), std::runtime_error);
    // Refused before it was an operation.
    EXPECT_THROW((void)wrong.reduce(ReduceOp::SUM, value, "CPU:0", {.timeout_seconds = -1.0}),
                 ValueError);
  };
  EXPECT_EQ(growth("crossdevice_timeouts_total", "", call), 2);
  EXPECT_EQ(growth("crossdevice_operation_failures_total", "kind=\"reduce\"", call), 3);
  EXPECT_EQ(growth("crossdevice_operations_total", "kind=\"reduce\"", call), 3);
}

TEST(OperationCountersTest, PoolsSayWhatTheyHold) {
  const std::string labels = "device=\"CPU:5\"";
  const double before = counter_value("crossdevice_pool_bytes_in_use", labels);
  {
    const Tensor tensor = Tensor::empty(DType::FLOAT32, {1 << 20}, "CPU:5");
    EXPECT_GE(counter_value("crossdevice_pool_bytes_in_use", labels) - before, 4 << 20);
    EXPECT_GE(counter_value("crossdevice_pool_allocations_total", labels), 1);
  }
  EXPECT_EQ(counter_value("crossdevice_pool_bytes_in_use", labels), before);
  EXPECT_THAT(counters_text(), HasSubstr("# TYPE crossdevice_pool_bytes_in_use gauge\n"));
}

// ---------------------------------------------------------------------------------------------- spans

struct SeenSpan {
  std::string name;
  std::uint64_t sequence;
  std::uint64_t num_bytes;
  std::vector<std::string> tracks;
  std::size_t depth;
};
std::vector<SeenSpan> seen;
std::size_t depth = 0;

constexpr detail::SpanHook kHook{
    .push =
        [](const detail::TraceEvent& event) noexcept {
          const TraceArguments& about = event.arguments;
          seen.push_back(
              {event.name, about.sequence, about.num_bytes,
               about.tracks == nullptr ? std::vector<std::string>() : about.tracks->names,
               depth++});
        },
    .pop = []() noexcept { --depth; }};

TEST(OperationCountersTest, AnOperationIsASpanOnItsDevicesWithWhatItDoesInIt) {
  ReductionToOneDevice ops;
  const PerReplica value = value_of(2, 100);
  ops.reduce_into(ReduceOp::SUM, value, value);
  detail::set_span_hook(&kHook);
  ops.reduce_into(ReduceOp::SUM, value, value);
  detail::set_span_hook(nullptr);
  ops.reduce_into(ReduceOp::SUM, value, value);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].name, "reduce");
  EXPECT_EQ(seen[0].sequence, 2u);
  EXPECT_EQ(seen[0].num_bytes, 400u);
  EXPECT_THAT(seen[0].tracks, ElementsAre("CPU:0", "CPU:1"));
  EXPECT_EQ(seen[0].depth, 0u);
  EXPECT_EQ(seen[1].name, "communicate");
  EXPECT_EQ(seen[1].sequence, 2u);
  EXPECT_EQ(seen[1].num_bytes, 400u);
  EXPECT_THAT(seen[1].tracks, ElementsAre("CPU:0", "CPU:1"));
  EXPECT_EQ(seen[1].depth, 1u);
  EXPECT_EQ(depth, 0u);
}

}  // namespace
}  // namespace crossdevice
