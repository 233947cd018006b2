// SPDX-License-Identifier: Apache-2.0
/// A wait ends when the last operation has ended, and sees what the operations wrote.
#include "crossdevice/device/readiness.h"

#include <array>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

TEST(ReadinessTest, WithoutOperationsItIsReadyAtOnce) {
  Readiness readiness;
  EXPECT_TRUE(readiness.is_ready());
  readiness.wait();
}

TEST(ReadinessTest, ItIsReadyWhenEveryOperationHasEnded) {
  Readiness readiness;
  readiness.add();
  readiness.add();
  EXPECT_FALSE(readiness.is_ready());
  readiness.remove();
  EXPECT_FALSE(readiness.is_ready());
  readiness.remove();
  EXPECT_TRUE(readiness.is_ready());
  readiness.wait();
  readiness.add();
  EXPECT_FALSE(readiness.is_ready());
  readiness.remove();
  EXPECT_TRUE(readiness.is_ready());
}

TEST(ReadinessTest, EveryWaiterSeesWhatTheOperationsWrote) {
  constexpr std::size_t kNumOperations = 4;
  for (int round = 0; round < 200; ++round) {
    Readiness readiness;
    std::array<int, kNumOperations> written{};  // plain memory: only the readiness orders it
    for (std::size_t i = 0; i < kNumOperations; ++i) readiness.add();
    std::array<std::array<int, kNumOperations>, 3> seen{};
    std::vector<std::thread> threads;
    for (auto& mine : seen) {
      threads.emplace_back([&readiness, &written, &mine] {
        readiness.wait();
        mine = written;
      });
    }
    for (std::size_t i = 0; i < kNumOperations; ++i) {
      threads.emplace_back([&readiness, &written, i, round] {
        written[i] = round + static_cast<int>(i) + 1;
        readiness.remove();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& mine : seen) {
      for (std::size_t i = 0; i < kNumOperations; ++i) {
        ASSERT_EQ(mine[i], round + static_cast<int>(i) + 1);
      }
    }
  }
}

}  // namespace
}  // namespace crossdevice::detail
