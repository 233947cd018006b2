// SPDX-License-Identifier: Apache-2.0
// Whether a waiter knows if it shares its core. Each test binds its threads to one core, and waits as long as it takes.
#include "comm/detail/spin_patience.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

namespace crossdevice::detail {
namespace {

constexpr std::chrono::seconds kLong{20};

/// The calling thread, and those that it starts, run on one core.
void keep_to_one_core() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
}

/// Waits, one wait after the other, until the core is taken for the waiter's own, or for somebody else's; false if that does not happen.
bool becomes(SpinPatience& patience, bool is_own) {
  for (const auto end = std::chrono::steady_clock::now() + kLong;
       std::chrono::steady_clock::now() < end;) {
    patience.reset();
    while (!patience.is_exhausted()) {
      if (patience.has_core() == is_own) return true;
    }
  }
  return false;
}

/// Runs beside the caller, on the same core, and only looks and yields.
class Neighbour {
 public:
  ~Neighbour() { leave(); }
  void leave() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> is_over_{false};
  std::thread thread_{[this] {
    while (!is_over_.load()) std::this_thread::yield();
  }};
};

TEST(SpinPatienceTest, IsOverAtSomeTime) {
  SpinPatience patience(true);
  for (int wait = 0; wait < 3; ++wait) {
    patience.reset();
    while (!patience.is_exhausted()) {
    }
    EXPECT_TRUE(patience.is_exhausted());
  }
}

TEST(SpinPatienceTest, WhoMayNotSpinNeverHasACore) {
  SpinPatience patience(false);
  for (int wait = 0; wait < 200; ++wait) {
    patience.reset();
    while (!patience.is_exhausted()) EXPECT_FALSE(patience.has_core());
  }
}

/// The other one only looks and yields, which may take less time than a yield that nobody answers does on a slower machine.
TEST(SpinPatienceTest, SeesWhoSharesItsCoreHoweverQuickTheyAre) {
  std::thread([] {
    keep_to_one_core();
    const Neighbour neighbour;
    SpinPatience patience(true);
    EXPECT_TRUE(becomes(patience, false));
  }).join();
}

TEST(SpinPatienceTest, SeesThatItsCoreIsFreeAgain) {
  std::thread([] {
    keep_to_one_core();
    Neighbour neighbour;
    SpinPatience patience(true);
    EXPECT_TRUE(becomes(patience, false));
    neighbour.leave();
    EXPECT_TRUE(becomes(patience, true));
  }).join();
}

}  // namespace
}  // namespace crossdevice::detail
