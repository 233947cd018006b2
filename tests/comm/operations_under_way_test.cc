// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/operations_under_way.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

TEST(OperationsUnderWayTest, SaysWhatIsDoneAndWhatWasDoneLast) {
  OperationsUnderWay operations;
  EXPECT_EQ(operations.read(), "");
  operations.enter("reduce", 11);
  EXPECT_EQ(operations.read(), "reduce #11");
  operations.leave();
  EXPECT_EQ(operations.read(), "no operation since reduce #11");
  operations.enter("all_gather", 12);
  EXPECT_EQ(operations.read(), "all_gather #12");
}

TEST(OperationsUnderWayTest, SomethingIsDoneUntilTheLastOneHasLeft) {
  OperationsUnderWay operations;
  operations.enter("reduce", 11);
  operations.enter("all_gather", 12);
  EXPECT_EQ(operations.read(), "all_gather #12");
  operations.leave();
  EXPECT_EQ(operations.read(), "all_gather #12");
  operations.leave();
  EXPECT_EQ(operations.read(), "no operation since all_gather #12");
}

/// Threads that enter and leave as fast as they can, each with a kind of its own, whose numbers are those that leave its remainder.
class BusyThreads {
 public:
  static constexpr std::size_t kNumThreads = 3;

  BusyThreads() {
    for (std::size_t i = 0; i < kNumThreads; ++i) {
      threads_.emplace_back([this, i] { work(i); });
    }
  }
  ~BusyThreads() { is_over_ = true; }
  BusyThreads(const BusyThreads&) = delete;
  BusyThreads& operator=(const BusyThreads&) = delete;

  [[nodiscard]] std::string read() const { return operations_.read(); }
  /// Whether `text` names an operation that has begun, and that has ended if it says so.
  [[nodiscard]] bool is_true(std::string text) const {
    const std::string since = std::string(OperationNote::kNone) + " since ";
    const bool is_idle = text.starts_with(since);
    if (is_idle) text.erase(0, since.size());
    const std::size_t mark = text.find(" #");
    if (mark == std::string::npos) return false;
    const std::uint64_t sequence = std::stoull(text.substr(mark + 2));
    const std::size_t thread = sequence % kNumThreads;
    if (text.substr(0, mark) != kind_of(thread)) return false;
    const std::array<std::atomic<std::uint64_t>, kNumThreads>& reached = is_idle ? ending_ : begun_;
    return sequence != 0 && sequence <= reached.at(thread);
  }

 private:
  static std::string kind_of(std::size_t thread) {
    return std::string(OperationNote::kMaxKind, static_cast<char>('a' + thread));
  }
  void work(std::size_t thread) {
    const std::string kind = kind_of(thread);
    for (std::uint64_t sequence = kNumThreads + thread; !is_over_; sequence += kNumThreads) {
      begun_.at(thread) = sequence;
      operations_.enter(kind, sequence);
      ending_.at(thread) = sequence;
      operations_.leave();
    }
  }

  OperationsUnderWay operations_;
  std::array<std::atomic<std::uint64_t>, kNumThreads> begun_{};
  std::array<std::atomic<std::uint64_t>, kNumThreads> ending_{};
  std::atomic<bool> is_over_{false};
  std::vector<std::jthread> threads_;
};

TEST(OperationsUnderWayTest, NothingIsNamedThatNeverWasHoweverManyThreadsComeAndGo) {
  const BusyThreads threads;
  for (int num_seen = 0; num_seen < 20'000; ++num_seen) {
    std::string text = threads.read();
    while (text.empty()) text = threads.read();  // nothing yet, or it goes from one to the next
    ASSERT_TRUE(threads.is_true(text)) << text;
  }
}

/// What others have left behind, however they overlapped, hides nobody who comes later.
TEST(OperationsUnderWayTest, WhoEntersWhenAllHaveLeftIsNamed) {
  OperationsUnderWay operations;
  for (std::uint64_t round = 1; round <= 200; ++round) {
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
          for (int j = 0; j < 100; ++j) {
            operations.enter("reduce", round);
            operations.leave();
          }
        });
      }
    }
    ASSERT_EQ(operations.read(), "no operation since reduce #" + std::to_string(round));
    operations.enter("all_gather", round);
    ASSERT_EQ(operations.read(), "all_gather #" + std::to_string(round));
    operations.leave();
  }
}

}  // namespace
}  // namespace crossdevice::detail
