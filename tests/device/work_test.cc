// SPDX-License-Identifier: Apache-2.0
// Handles on asynchronous work: its ends, its items in order, who is told, and that a dropped handle leaves nobody at work.
#include "crossdevice/device/work.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/stream.h"

#include "support/thrown.h"

namespace crossdevice {
namespace {

using crossdevice::testing::thrown;
using detail::WorkState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

static_assert(!std::is_copy_constructible_v<Work> && std::is_nothrow_move_constructible_v<Work>);

Deadline soon() { return Deadline::after(std::chrono::milliseconds(5)); }

std::exception_ptr failure(const char* text) {
  return std::make_exception_ptr(std::runtime_error(text));
}

std::vector<std::size_t> completed(const WorkState& state) {
  std::vector<std::size_t> items;
  while (const auto item = state.wait_for_completed(items.size(), Deadline::never())) {
    items.push_back(*item);
  }
  return items;
}

std::atomic<int> num_opened{0};
std::atomic<int> num_closed{0};

TEST(WorkStateTest, WhoSleepsIsABarOfTheTimeline) {
  static constexpr detail::SpanHook kHook{.push =
                                              [](const detail::TraceEvent& event) noexcept {
                                                if (std::string_view(event.name) == "wait")
                                                  ++num_opened;
                                              },
                                          .pop = []() noexcept { ++num_closed; }};
  detail::set_span_hook(&kHook);
  WorkState state(0);
  EXPECT_TRUE(state.start());
  std::thread worker([&state] {
    const Deadline limit = Deadline::after(std::chrono::seconds(30));
    while (num_opened.load() == 0 && !limit.has_passed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    state.finish(nullptr);  // the other one sleeps, or is about to
  });
  state.wait_until_done(Deadline::never());
  state.wait_until_done(Deadline::never());  // nothing to wait for
  worker.join();
  detail::set_span_hook(nullptr);
  EXPECT_EQ(num_opened.load(), 1);
  EXPECT_EQ(num_closed.load(), 1);
}

TEST(WorkStateTest, RunsFromQueuedToDone) {
  WorkState state(0);
  EXPECT_FALSE(state.is_done());
  EXPECT_TRUE(state.start());
  EXPECT_FALSE(state.is_done());
  EXPECT_FALSE(state.cancel());
  EXPECT_EQ(state.error(), nullptr);
  state.finish(nullptr);
  EXPECT_TRUE(state.is_done());
  EXPECT_EQ(state.error(), nullptr);
  EXPECT_FALSE(state.start());
  EXPECT_FALSE(state.cancel());
  EXPECT_EQ(state.num_items(), 0u);
  EXPECT_EQ(state.wait_for_completed(0, Deadline::never()), std::nullopt);
  state.wait_until_done(Deadline::never());
}

TEST(WorkStateTest, SuccessCompletesTheItemsThatAreLeftInOrder) {
  WorkState state(5);
  ASSERT_TRUE(state.start());
  state.complete_item(3);
  state.complete_item(1);
  state.complete_item(3);  // the first time counts
  EXPECT_EQ(state.wait_for_completed(0, Deadline::never()), 3u);
  EXPECT_EQ(state.wait_for_completed(1, Deadline::never()), 1u);
  EXPECT_THROW((void)state.wait_for_completed(2, soon()), DeadlineExceededError);
  EXPECT_TRUE(state.wait_for_item(1, Deadline::never()));
  EXPECT_THROW((void)state.wait_for_item(0, soon()), DeadlineExceededError);
  state.finish(nullptr);
  EXPECT_THAT(completed(state), ElementsAre(3, 1, 0, 2, 4));
  EXPECT_TRUE(state.wait_for_item(4, Deadline::never()));
  EXPECT_EQ(state.wait_for_completed(5, Deadline::never()), std::nullopt);
}

TEST(WorkStateTest, FailureLeavesUnfinishedItemsIncompleteAndSaysSo) {
  WorkState state(3);
  ASSERT_TRUE(state.start());
  state.complete_item(2);
  state.finish(failure("broken"));
  state.complete_item(0);  // too late
  EXPECT_THAT(completed(state), ElementsAre(2));
  EXPECT_TRUE(state.wait_for_item(2, Deadline::never()));
  EXPECT_FALSE(state.wait_for_item(0, Deadline::never()));
  EXPECT_EQ(thrown<std::runtime_error>([&] { std::rethrow_exception(state.error()); }), "broken");
}

TEST(WorkStateTest, TheFirstEndCounts) {
  WorkState state(1);
  ASSERT_TRUE(state.start());
  state.finish(failure("first"));
  state.finish(nullptr);
  EXPECT_EQ(thrown<std::runtime_error>([&] { std::rethrow_exception(state.error()); }), "first");
  EXPECT_FALSE(state.wait_for_item(0, Deadline::never()));
}

TEST(WorkStateTest, WorkThatNeverBeganMayBeGivenUp) {
  WorkState state(1);
  state.finish(failure("no thread"));
  EXPECT_FALSE(state.start());
  EXPECT_TRUE(state.is_done());
}

TEST(WorkStateTest, CancelledWorkIsNotStarted) {
  WorkState state(2);
  EXPECT_TRUE(state.cancel());
  EXPECT_FALSE(state.cancel());
  EXPECT_FALSE(state.start());
  EXPECT_TRUE(state.is_done());
  EXPECT_THAT(thrown<CancelledError>([&] { std::rethrow_exception(state.error()); }),
              HasSubstr("cancelled before it started"));
  EXPECT_THAT(completed(state), ElementsAre());
  EXPECT_FALSE(state.stop_requested());
}

TEST(WorkStateTest, AskingToStopIsAWishThatRunningWorkCanSee) {
  WorkState state(1);
  ASSERT_TRUE(state.start());
  EXPECT_FALSE(state.stop_requested());
  state.request_stop();
  EXPECT_TRUE(state.stop_requested());
  EXPECT_FALSE(state.is_done());
  state.finish(nullptr);
}

TEST(WorkStateTest, ItemsThatAreNoneAreRefused) {
  WorkState state(2);
  EXPECT_EQ(thrown<ValueError>([&] { (void)state.wait_for_item(2, Deadline::never()); }),
            "expected an item below 2, got 2");
  EXPECT_THROW(state.complete_item(2), ValueError);
}

TEST(WorkStateTest, WaitsEndAtTheirDeadline) {
  WorkState state(1);
  EXPECT_THROW(state.wait_until_done(soon()), DeadlineExceededError);
  EXPECT_THROW(state.wait_until_done(Deadline::after(std::chrono::seconds(0))),
               DeadlineExceededError);
  state.finish(nullptr);
  EXPECT_NO_THROW(state.wait_until_done(Deadline::after(std::chrono::seconds(0))));
}

// One thread works, one waits in each of the three ways; what the worker wrote must be there when they are told.
TEST(WorkStress, WaitersSeeEachItemsResultAndTheOrder) {
  constexpr std::size_t kItems = 64;
  for (int round = 0; round < 60; ++round) {
    const auto state = std::make_shared<WorkState>(kItems);
    std::vector<std::size_t> results(kItems, 0);
    std::vector<std::size_t> order(kItems);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::reverse(order.begin() + round % 60, order.end());
    std::size_t after_end = 0;
    std::thread worker([&, state] {
      ASSERT_TRUE(state->start());
      for (std::size_t k = 0; k < kItems - 5; ++k) {
        results[order[k]] = order[k] + 1;
        // Long enough, now and then, that waiters go to sleep.
        if (k % 16 == 15) std::this_thread::sleep_for(std::chrono::microseconds(150));
        state->complete_item(order[k]);
      }
      for (std::size_t k = kItems - 5; k < kItems; ++k) results[order[k]] = order[k] + 1;
      after_end = 7;
      state->finish(nullptr);
    });
    std::atomic<int> wrong = 0;
    std::thread in_order([&, state] {
      for (std::size_t k = 0; k < kItems; ++k) {
        const auto item = state->wait_for_completed(k, Deadline::never());
        if (!item || (k < kItems - 5 && *item != order[k]) || results[*item] != *item + 1) ++wrong;
      }
    });
    std::thread by_item([&, state] {
      for (std::size_t item = 0; item < kItems; ++item) {
        if (!state->wait_for_item(item, Deadline::never()) || results[item] != item + 1) ++wrong;
      }
    });
    state->wait_until_done(Deadline::never());
    EXPECT_EQ(after_end, 7u);
    worker.join();
    in_order.join();
    by_item.join();
    EXPECT_EQ(wrong, 0);
  }
}

TEST(WorkStress, ItemsCompletedByManyThreadsAreEachCountedOnce) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kItems = 1000;
  const auto state = std::make_shared<WorkState>(kItems);
  ASSERT_TRUE(state->start());
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // Neighbouring threads overlap, so that some items are completed twice.
      for (std::size_t i = t * kItems / kThreads; i < kItems && i < (t + 2) * kItems / kThreads;
           ++i) {
        state->complete_item(i);
      }
    });
  }
  std::vector<std::size_t> order;
  for (std::size_t k = 0; k < kItems; ++k) {
    order.push_back(state->wait_for_completed(k, Deadline::never()).value());
  }
  for (std::thread& thread : threads) thread.join();
  state->finish(nullptr);
  EXPECT_EQ(completed(*state), order);
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < kItems; ++i) EXPECT_EQ(order[i], i);
}

TEST(WorkStress, EitherItStartsOrItIsCancelled) {
  for (int round = 0; round < 2000; ++round) {
    const auto state = std::make_shared<WorkState>(1);
    bool started = false;
    std::thread worker([&, state] {
      started = state->start();
      if (started) state->finish(nullptr);
    });
    const bool was_cancelled = state->cancel();
    state->wait_until_done(Deadline::never());
    worker.join();
    EXPECT_NE(started, was_cancelled);
    EXPECT_EQ(state->error() != nullptr, was_cancelled);
  }
}

TEST(WorkTest, WaitReturnsAfterTheWorkAndRethrowsItsErrorEachTime) {
  Stream stream("CPU:0", "work");
  const auto good = std::make_shared<WorkState>(0);
  const auto bad = std::make_shared<WorkState>(0);
  int value = 0;
  Work first(good);
  Work second(bad);
  stream.launch([&, good] {
    ASSERT_TRUE(good->start());
    value = 5;
    good->finish(nullptr);
  });
  stream.launch([bad] {
    ASSERT_TRUE(bad->start());
    bad->finish(failure("bad"));
  });
  first.wait();
  EXPECT_EQ(value, 5);
  EXPECT_TRUE(first.is_done());
  first.wait();
  EXPECT_EQ(thrown<std::runtime_error>([&] { second.wait(); }), "bad");
  EXPECT_EQ(thrown<std::runtime_error>([&] { second.wait(soon()); }), "bad");
}

TEST(WorkTest, WaitWithADeadlineLeavesTheWorkGoing) {
  const auto state = std::make_shared<WorkState>(0);
  Work work(state);
  EXPECT_THROW(work.wait(soon()), DeadlineExceededError);
  EXPECT_FALSE(work.is_done());
  EXPECT_FALSE(state->stop_requested());
  ASSERT_TRUE(state->start());
  state->finish(nullptr);
  work.wait();
}

TEST(WorkTest, CancelEndsWhatIsQueuedAndAsksWhatRuns) {
  const auto queued = std::make_shared<WorkState>(0);
  Work first(queued);
  first.cancel();
  EXPECT_THROW(first.wait(), CancelledError);
  EXPECT_THROW(first.wait(), CancelledError);

  const auto running = std::make_shared<WorkState>(0);
  ASSERT_TRUE(running->start());
  Work second(running);
  second.cancel();
  EXPECT_FALSE(second.is_done());
  EXPECT_TRUE(running->stop_requested());
  running->finish(std::make_exception_ptr(CancelledError("stopped")));
  EXPECT_THROW(second.wait(), CancelledError);

  const auto finished = std::make_shared<WorkState>(0);
  ASSERT_TRUE(finished->start());
  finished->finish(nullptr);
  Work third(finished);
  third.cancel();
  EXPECT_NO_THROW(third.wait());
}

// What a worker does with memory of the caller's, step by step, until it is asked to stop.
void work_on(const std::shared_ptr<WorkState>& state, int* memory) {
  if (!state->start()) return;
  while (!state->stop_requested()) {
    ++*memory;
    std::this_thread::yield();
  }
  state->finish(std::make_exception_ptr(CancelledError("stopped")));
}

TEST(WorkTest, ADroppedHandleLeavesNoThreadAtWork) {
  for (int round = 0; round < 50; ++round) {
    int memory = 0;
    Stream stream("CPU:0", "dropped");
    {
      const auto state = std::make_shared<WorkState>(1);
      stream.launch([state, &memory] { work_on(state, &memory); });
      const Work work(state);
      if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    const int after =
        memory;  // a data race, which the thread sanitizer sees, if the worker still ran
    memory = -1;
    stream.synchronize(Deadline::never());
    EXPECT_EQ(memory, -1);
    EXPECT_GE(after, 0);
  }
}

TEST(WorkTest, AssigningDropsWhatWasThere) {
  Stream stream("CPU:0", "assigned");
  const auto old_state = std::make_shared<WorkState>(0);
  const auto new_state = std::make_shared<WorkState>(0);
  int memory = 0;
  stream.launch([old_state, &memory] { work_on(old_state, &memory); });
  Work work(old_state);
  Work other(new_state);
  work = std::move(other);
  EXPECT_TRUE(old_state->is_done());
  EXPECT_FALSE(work.is_done());
  EXPECT_FALSE(new_state->stop_requested());
  new_state->finish(nullptr);
  work.wait();
}

TEST(WorkTest, NoStateIsRefused) { EXPECT_THROW((void)Work(nullptr), ValueError); }

}  // namespace
}  // namespace crossdevice
