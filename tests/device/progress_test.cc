// SPDX-License-Identifier: Apache-2.0
// The streams of asynchronous operations: one for the process, in order, and those that are leased.
#include "crossdevice/device/progress.h"

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>

#include "crossdevice/device/work.h"

namespace crossdevice {
namespace {

TEST(ProgressTest, ThereIsOneStreamForTheProcess) {
  Stream* seen_by_other = nullptr;
  std::thread other([&] { seen_by_other = &progress_stream(); });
  other.join();
  EXPECT_EQ(seen_by_other, &progress_stream());
}

TEST(ProgressTest, ItsThreadHasANameOfItsOwn) {
  std::array<char, 32> name{};
  bool is_current = false;
  progress_stream().launch([&] {
    pthread_getname_np(pthread_self(), name.data(), name.size());
    is_current = progress_stream().is_current();
  });
  progress_stream().synchronize(Deadline::never());
  EXPECT_STREQ(name.data(), "xdev-progress");
  EXPECT_TRUE(is_current);
  EXPECT_FALSE(progress_stream().is_current());
}

TEST(ProgressTest, OperationsOfSeveralThreadsEachEndAndRunOneAfterTheOther) {
  constexpr int kThreads = 4;
  constexpr int kOperations = 200;
  int running = 0;  // touched by the progress thread only
  int wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kOperations; ++i) {
        const auto state = std::make_shared<detail::WorkState>(1);
        Work work(state);
        progress_stream().launch([&, state] {
          if (!state->start()) return;
          wrong += ++running == 1 ? 0 : 1;
          --running;
          state->finish(nullptr);
        });
        work.wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  progress_stream().synchronize(Deadline::never());
  EXPECT_EQ(wrong, 0);
}

TEST(ProgressTest, LeasesHaveThreadsOfTheirOwnWhichAreUsedAgain) {
  Stream* first = nullptr;
  {
    const detail::ProgressLease one;
    const detail::ProgressLease other;
    first = &one.stream();
    EXPECT_NE(first, &other.stream());
    EXPECT_NE(first, &progress_stream());
    // Neither waits for the other: this would hang on one thread.
    std::atomic<bool> has_run{false};
    one.stream().launch([&] { has_run.wait(false); });
    other.stream().launch([&] {
      has_run = true;
      has_run.notify_all();
    });
    one.stream().synchronize(Deadline::never());
    other.stream().synchronize(Deadline::never());
  }
  const detail::ProgressLease again;
  const detail::ProgressLease and_again;
  EXPECT_TRUE(&again.stream() == first || &and_again.stream() == first);
}

}  // namespace
}  // namespace crossdevice
