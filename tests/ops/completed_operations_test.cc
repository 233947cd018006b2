// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/completed_operations.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

class CompletedOperationsTest : public ::testing::Test {
 protected:
  CompletedOperationsTest() { completed_.set_target(last_); }
  [[nodiscard]] std::uint64_t last() const { return *last_; }

  const std::shared_ptr<std::atomic<std::uint64_t>> last_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  CompletedOperations completed_;
};

TEST_F(CompletedOperationsTest, OnHostsAnOperationIsOverWhenItsCallReturns) {
  completed_.end(1);
  EXPECT_EQ(last(), 1U);
  completed_.give_up(2);
  EXPECT_EQ(last(), 1U);
  completed_.end(3);
  EXPECT_EQ(last(), 3U);
}

TEST_F(CompletedOperationsTest, WhatItHasEnqueuedIsWaitedFor) {
  completed_.begin_part(1);
  completed_.begin_part(1);
  completed_.end_part(1);
  EXPECT_EQ(last(), 0U);
  completed_.end(1);
  EXPECT_EQ(last(), 0U);
  completed_.end_part(1);
  EXPECT_EQ(last(), 1U);
  // The parts may be over before the call.
  completed_.begin_part(2);
  completed_.end_part(2);
  EXPECT_EQ(last(), 1U);
  completed_.end(2);
  EXPECT_EQ(last(), 2U);
}

TEST_F(CompletedOperationsTest, NoOperationIsOverBeforeThoseBeforeIt) {
  completed_.begin_part(1);
  completed_.end(1);
  completed_.end(2);  // of hosts
  completed_.begin_part(3);
  completed_.end(3);
  completed_.end_part(3);  // on another stream
  EXPECT_EQ(last(), 0U);
  completed_.end_part(1);
  EXPECT_EQ(last(), 3U);
}

TEST_F(CompletedOperationsTest, WhoHasFailedIsPassedOver) {
  completed_.begin_part(1);
  completed_.end(1);
  completed_.begin_part(2);
  completed_.give_up(2);
  completed_.end_part(1);
  EXPECT_EQ(last(), 1U);
  completed_.end(3);
  EXPECT_EQ(last(), 1U);
  completed_.end_part(2);
  EXPECT_EQ(last(), 3U);
}

TEST_F(CompletedOperationsTest, APartThatFailsIsTheEnd) {
  completed_.begin_part(1);
  completed_.end(1);
  completed_.end_part(1);
  completed_.begin_part(2);
  completed_.end(2);
  completed_.stop();
  completed_.begin_part(3);
  completed_.end(3);
  completed_.end_part(3);
  completed_.end(4);
  EXPECT_EQ(last(), 1U);
}

TEST_F(CompletedOperationsTest, NumbersNeverGoBack) {
  constexpr std::uint64_t kOperations = 20'000;
  std::atomic<std::uint64_t> enqueued{0};
  std::thread watchdog([&] {
    for (std::uint64_t i = 1; i <= kOperations; ++i) {
      while (enqueued.load() < i) std::this_thread::yield();
      if (i % 3 != 0) completed_.end_part(i);
    }
  });
  std::uint64_t seen = 0;
  for (std::uint64_t i = 1; i <= kOperations; ++i) {
    if (i % 3 != 0) completed_.begin_part(i);
    enqueued.store(i);
    completed_.end(i);
    const std::uint64_t now = last();
    EXPECT_GE(now, seen);
    EXPECT_LE(now, i);
    seen = now;
  }
  watchdog.join();
  EXPECT_EQ(last(), kOperations);
}

TEST(CompletedOperationsWithoutTargetTest, SayNothing) {
  CompletedOperations completed;
  completed.begin_part(1);
  completed.end(1);
  completed.end_part(1);
  completed.give_up(2);
  completed.stop();
}

}  // namespace
}  // namespace crossdevice::detail
