// SPDX-License-Identifier: Apache-2.0
/// The in-process engine against the slow reference: every op and dtype, in place and not, with packs, observers and limits.
#include "crossdevice/collective/direct_reduce.h"

#include <chrono>
#include <cstddef>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/device/host_thread_pool.h"

#include "collective/direct_reduce_fixture.h"

namespace crossdevice {
namespace {

using ::testing::ElementsAre;
using testing::Outputs;
using testing::RecordingObserver;
using testing::TestBatch;

constexpr auto kCompleted = DirectReduceOutcome::COMPLETED;

void expect_reduces(const TestBatch& batch, const std::vector<Pack>& packs = {}) {
  DirectReduceRequest request = batch.request();
  request.packs = packs;
  EXPECT_EQ(direct_reduce(request), kCompleted);
  batch.expect_reduced();
}

std::vector<std::size_t> counting_up_to(std::size_t count) {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(i);
  return result;
}

// --- shares

TEST(DirectReduceTest, TheSharesOfSeveralProcessesAreTheWhole) {
  for (const std::size_t shares : {1u, 2u, 3u, 8u}) {
    for (const bool is_single_threaded : {false, true}) {
      TestBatch batch(ReduceOp::SUM);
      for (const std::size_t count : {0u, 1u, 17u, 5000u, 300007u}) {
        batch.add(DType::FLOAT32, count, 3, {.fresh = 1, .in_place = {0, 2}});
      }
      std::vector<std::thread> processes;
      for (std::size_t index = 0; index < shares; ++index) {
        processes.emplace_back([&batch, index, shares, is_single_threaded] {
          DirectReduceRequest request = batch.request();
          request.share = {
              .index = index, .count = shares, .is_single_threaded = is_single_threaded};
          EXPECT_EQ(direct_reduce(request), kCompleted);
        });
      }
      for (std::thread& process : processes) process.join();
      batch.expect_reduced();
    }
  }
}

// --- values

TEST(DirectReduceTest, EveryOpAndDTypeOutOfPlace) {
  for (const ReduceOp op : kAllReduceOps) {
    TestBatch batch(op);
    for (const DType dtype : kAllDTypes) {
      if (!is_supported(op, dtype)) continue;
      for (const std::size_t inputs : {1u, 2u, 3u, 9u}) {
        for (const std::size_t count : {0u, 1u, 15u, 16u, 17u, 1009u}) {
          batch.add(dtype, count, inputs, {.fresh = inputs});
        }
      }
    }
    expect_reduces(batch);
  }
}

TEST(DirectReduceTest, EveryOpAndDTypeInPlace) {
  for (const ReduceOp op : kAllReduceOps) {
    TestBatch batch(op);
    for (const DType dtype : kAllDTypes) {
      if (!is_supported(op, dtype) || result_dtype(op, dtype) != dtype) continue;
      for (const std::size_t inputs : {1u, 2u, 3u, 9u}) {
        for (const std::size_t count : {0u, 1u, 15u, 16u, 17u, 1009u}) {
          batch.add(dtype, count, inputs, {.in_place = counting_up_to(inputs)});
        }
      }
    }
    expect_reduces(batch);
  }
}

TEST(DirectReduceTest, OutputsMayBeSomeOfTheInputsAndOthers) {
  for (const std::size_t count : {5u, 1009u, 30'007u, 500'001u}) {
    TestBatch batch(ReduceOp::SUM);
    batch.add(DType::FLOAT32, count, 4, {.in_place = {2}});
    batch.add(DType::FLOAT32, count, 4, {.in_place = {3, 0}});
    batch.add(DType::FLOAT32, count, 4, {.fresh = 2, .in_place = {1}});
    expect_reduces(batch);
  }
}

TEST(DirectReduceTest, FewerAndMoreOutputsThanInputs) {
  for (const std::size_t count : {3u, 20'003u, 150'001u}) {
    TestBatch batch(ReduceOp::MEAN);
    batch.add(DType::FLOAT32, count, 5, {.fresh = 1});
    batch.add(DType::INT16, count, 2, {.fresh = 7});
    batch.add(DType::BFLOAT16, count, 17, {.fresh = 3});
    expect_reduces(batch);
  }
}

TEST(DirectReduceTest, OneInputIsCopiedToEveryOutput) {
  for (const std::size_t count : {1u, 4099u, 2'000'001u}) {
    TestBatch batch(ReduceOp::SUM);
    batch.add(DType::UINT8, count, 1, {.fresh = 3});
    batch.add(DType::UINT8, count, 1, {.fresh = 2, .in_place = {0}});
    batch.add(DType::UINT8, count, 1, {.in_place = {0}});
    expect_reduces(batch);
  }
}

TEST(DirectReduceTest, TheFirstGroupIsCombinedOnItsOwn) {
  for (const std::size_t count : {33u, 100'009u}) {
    TestBatch batch(ReduceOp::SUM, /*first_group=*/2);
    batch.add(DType::FLOAT32, count, 5, {.fresh = 5});
    batch.add(DType::BFLOAT16, count, 4, {.in_place = {0, 1, 2, 3}});
    expect_reduces(batch);
  }
}

TEST(DirectReduceTest, TensorsWithoutOutputsAreNotTouched) {
  TestBatch batch(ReduceOp::SUM);
  batch.add(DType::FLOAT32, 100, 2, {});
  batch.add(DType::FLOAT32, 100, 2, {.fresh = 1});
  expect_reduces(batch);
}

TEST(DirectReduceTest, AnEmptyBatchIsComplete) {
  EXPECT_EQ(direct_reduce({}), kCompleted);
  TestBatch batch(ReduceOp::SUM);
  batch.add(DType::FLOAT64, 0, 2, {.fresh = 2});
  expect_reduces(batch);
}

/// Tensors of a few elements and of many, as gradients come; together more than the caches of two cores.
TestBatch mixed_batch(bool in_place) {
  TestBatch batch(ReduceOp::SUM);
  const std::size_t counts[] = {9408, 64, 64, 0, 60'001, 1, 256, 120'003, 64, 2048, 16'385};
  for (const std::size_t count : counts) {
    for (const DType dtype : {DType::FLOAT32, DType::FLOAT16}) {
      batch.add(dtype, count, 3, in_place ? Outputs{.in_place = {0, 1, 2}} : Outputs{.fresh = 3});
    }
  }
  return batch;
}

std::vector<PackingOptions> packing_rules() {
  return {{},
          {.num_packs = 1},
          {.num_packs = 7},
          {.agg_small_grads_max_bytes = 1024, .agg_small_grads_max_group = 3},
          {.bytes_per_pack = 1},
          {.bytes_per_pack = 1 << 20}};
}

TEST(DirectReduceTest, ResultsDoNotDependOnPacks) {
  for (const bool in_place : {false, true}) {
    for (const PackingOptions& rule : packing_rules()) {
      const TestBatch batch = mixed_batch(in_place);
      expect_reduces(batch, make_packs(batch.sizes(), rule));
    }
  }
}

// --- completion

TEST(DirectReduceTest, EveryTensorIsReportedOnceAndWhenItIsReduced) {
  for (const bool in_place : {false, true}) {
    for (const PackingOptions& rule : packing_rules()) {
      const TestBatch batch = mixed_batch(in_place);
      const std::vector<Pack> packs = make_packs(batch.sizes(), rule);
      RecordingObserver observer(batch);
      DirectReduceRequest request = batch.request();
      request.packs = packs;
      request.observer = &observer;
      EXPECT_EQ(direct_reduce(request), kCompleted);
      observer.expect_each_tensor_once();
      batch.expect_reduced();
    }
  }
}

TestBatch small_batch() {
  TestBatch batch(ReduceOp::SUM);
  for (const std::size_t count : {5u, 0u, 700u, 1u, 300u}) {
    batch.add(DType::FLOAT32, count, 2, {.fresh = 2});
  }
  return batch;
}

TEST(DirectReduceTest, SmallTensorsCompleteInTheOrderOfThePacks) {
  for (const PackingOptions& rule : packing_rules()) {
    const TestBatch batch = small_batch();
    const std::vector<Pack> packs = make_packs(batch.sizes(), rule);
    RecordingObserver observer(batch);
    DirectReduceRequest request = batch.request();
    request.packs = packs;
    request.observer = &observer;
    EXPECT_EQ(direct_reduce(request), kCompleted);
    observer.expect_each_tensor_once();
    std::vector<std::size_t> last_ranges_first_to_last;
    for (const Pack& pack : packs) {
      for (const ElementRange& range : pack.ranges) {
        const bool is_last = range.begin + range.count == batch.sizes()[range.tensor].num_elements;
        if (is_last) last_ranges_first_to_last.push_back(range.tensor);
      }
    }
    EXPECT_EQ(observer.order(), last_ranges_first_to_last);
  }
}

TEST(DirectReduceTest, WithoutPacksSmallTensorsCompleteInInputOrder) {
  const TestBatch batch = small_batch();
  RecordingObserver observer(batch);
  DirectReduceRequest request = batch.request();
  request.observer = &observer;
  EXPECT_EQ(direct_reduce(request), kCompleted);
  EXPECT_THAT(observer.order(), ElementsAre(0, 1, 2, 3, 4));
}

// --- stopping

/// What must hold after a call that ended early: tensors are reduced where that was said, and nothing was written around them.
void expect_partly_reduced(const TestBatch& batch, const RecordingObserver& observer) {
  EXPECT_EQ(observer.num_wrong(), 0u);
  EXPECT_LT(observer.num_completed(), batch.sizes().size());
  for (std::size_t t = 0; t < batch.sizes().size(); ++t) {
    if (observer.is_completed(t)) {
      EXPECT_TRUE(batch.is_reduced(t)) << "tensor " << t;
    }
    batch.expect_others_intact(t);
  }
}

TEST(DirectReduceTest, AStopRequestBeforeTheCallLeavesEverythingUntouched) {
  for (const bool large : {false, true}) {
    const TestBatch batch = large ? mixed_batch(false) : small_batch();
    RecordingObserver observer(batch);
    observer.on_stop_requested = [](std::size_t) { return true; };
    DirectReduceRequest request = batch.request();
    request.observer = &observer;
    EXPECT_EQ(direct_reduce(request), DirectReduceOutcome::STOPPED);
    EXPECT_EQ(observer.num_completed(), 0u);
    batch.expect_untouched();
  }
}

TEST(DirectReduceTest, ADeadlineBeforeTheCallLeavesEverythingUntouched) {
  for (const bool large : {false, true}) {
    const TestBatch batch = large ? mixed_batch(false) : small_batch();
    RecordingObserver observer(batch);
    DirectReduceRequest request = batch.request();
    request.observer = &observer;
    request.deadline = Deadline::after(std::chrono::duration<double>(0));
    EXPECT_EQ(direct_reduce(request), DirectReduceOutcome::DEADLINE_PASSED);
    EXPECT_EQ(observer.num_completed(), 0u);
    batch.expect_untouched();
  }
}

TEST(DirectReduceTest, AStopRequestInTheMiddleLeavesTheRest) {
  for (const std::size_t chunks_before : {1u, 3u, 5u}) {
    const TestBatch batch = mixed_batch(false);
    RecordingObserver observer(batch);
    observer.on_stop_requested = [&](std::size_t asked) { return asked >= chunks_before; };
    DirectReduceRequest request = batch.request();
    request.observer = &observer;
    EXPECT_EQ(direct_reduce(request), DirectReduceOutcome::STOPPED);
    expect_partly_reduced(batch, observer);
  }
}

TEST(DirectReduceTest, ADeadlineInTheMiddleLeavesTheRest) {
  const TestBatch batch = mixed_batch(false);
  RecordingObserver observer(batch);
  DirectReduceRequest request = batch.request();
  request.deadline = Deadline::after(std::chrono::duration<double>(0.25));
  const Deadline deadline = request.deadline;
  observer.on_stop_requested = [deadline](std::size_t asked) {
    while (asked >= 3 && !deadline.has_passed()) std::this_thread::yield();
    return false;
  };
  request.observer = &observer;
  EXPECT_EQ(direct_reduce(request), DirectReduceOutcome::DEADLINE_PASSED);
  expect_partly_reduced(batch, observer);
}

TEST(DirectReduceTest, ADeadlineThatDoesNotPassChangesNothing) {
  for (const bool large : {false, true}) {
    const TestBatch batch = large ? mixed_batch(true) : small_batch();
    DirectReduceRequest request = batch.request();
    request.deadline = Deadline::after(std::chrono::hours(1));
    EXPECT_EQ(direct_reduce(request), kCompleted);
    batch.expect_reduced();
  }
}

// --- many callers

TestBatch random_batch(std::mt19937& random) {
  TestBatch batch(ReduceOp::SUM);
  const DType dtypes[] = {DType::FLOAT32, DType::BFLOAT16, DType::INT32};
  const std::size_t num_tensors = 1 + random() % 12;
  for (std::size_t t = 0; t < num_tensors; ++t) {
    const std::size_t count = random() % 3 == 0 ? random() % 80'000 : random() % 200;
    const std::size_t inputs = 1 + random() % 4;
    const bool in_place = random() % 2 == 0;
    batch.add(dtypes[random() % std::size(dtypes)], count, inputs,
              in_place ? Outputs{.in_place = {random() % inputs}} : Outputs{.fresh = 2});
  }
  return batch;
}

TEST(DirectReduceTest, CallersDoNotDisturbEachOther) {
  constexpr std::size_t kCallers = 4;
  std::vector<std::string> failures(kCallers);
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&failure = failures[caller], caller] {
      std::mt19937 random(static_cast<unsigned>(caller));
      for (int round = 0; round < 30; ++round) {
        const TestBatch batch = random_batch(random);
        const std::vector<Pack> packs =
            make_packs(batch.sizes(), packing_rules()[random() % packing_rules().size()]);
        RecordingObserver observer(batch);
        const bool stops = random() % 4 == 0;
        observer.on_stop_requested = [stops](std::size_t asked) { return stops && asked >= 2; };
        DirectReduceRequest request = batch.request();
        request.packs = packs;
        if (random() % 4 != 0) request.observer = &observer;
        const DirectReduceOutcome outcome = direct_reduce(request);
        if (outcome == DirectReduceOutcome::STOPPED && stops) continue;
        if (outcome != kCompleted) failure = "not completed";
        if (request.observer != nullptr && observer.num_completed() != batch.sizes().size()) {
          failure = "not every tensor was reported";
        }
        if (observer.num_wrong() != 0) failure = "reported too early";
        for (std::size_t t = 0; t < batch.sizes().size(); ++t) {
          if (!batch.is_reduced(t)) failure = "wrong result";
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

/// Shares of processes with different numbers of threads are shares of one whole.
TEST(DirectReduceTest, SharesCoverEverythingOnceHoweverManyThreadsEachHas) {
  for (const std::size_t count : {1UL, 4095UL, 250'000UL, 300'001UL, 524'288UL, 5'000'003UL}) {
    const std::vector<float> first(count, 1.0F);
    const std::vector<float> second(count, 2.0F);
    for (const std::size_t num_shares : {2UL, 3UL, 5UL}) {
      std::vector<float> result(count, 0.0F);
      for (std::size_t share = 0; share < num_shares; ++share) {
        std::vector<float> part(count, -1.0F);
        const void* const inputs[] = {first.data(), second.data()};
        void* const outputs[] = {part.data()};
        const DirectReduceTensor tensor{DType::FLOAT32, count, inputs, outputs};
        ASSERT_EQ(direct_reduce({.op = ReduceOp::SUM,
                                 .tensors = std::span<const DirectReduceTensor>(&tensor, 1),
                                 .share = {.index = share,
                                           .count = num_shares,
                                           .is_single_threaded = share % 2 == 0}}),
                  DirectReduceOutcome::COMPLETED);
        for (std::size_t i = 0; i < count; ++i) {
          if (part[i] != -1.0F) result[i] += part[i];
        }
      }
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(result[i], 3.0F) << i << " of " << count;
    }
  }
}

}  // namespace
}  // namespace crossdevice
