// SPDX-License-Identifier: Apache-2.0
#include "chaos/jumping_clock.h"

#include <chrono>
#include <ctime>

#include <gtest/gtest.h>
#include <sys/time.h>

#include "crossdevice/core/trace_clock.h"

namespace crossdevice::chaos {
namespace {

using std::chrono::hours;

std::chrono::system_clock::time_point of_timeofday() {
  timeval now{};
  (void)::gettimeofday(&now, nullptr);
  return std::chrono::system_clock::from_time_t(now.tv_sec);
}

TEST(JumpingClockTest, TheRealTimeClockJumpsAndTheMonotonicOneDoesNot) {
  const auto before = std::chrono::system_clock::now();
  const auto steady = std::chrono::steady_clock::now();
  const std::int64_t of_traces = detail::trace_clock_ns();
  EXPECT_NEAR(static_cast<double>(real_time_lead_seconds()), 0, 1);
  jump_real_time_clock(3600);
  EXPECT_NEAR(static_cast<double>(real_time_lead_seconds()), 3600, 1);
  EXPECT_GE(std::chrono::system_clock::now() - before, hours(1));
  EXPECT_GE(of_timeofday() - before, hours(1) - std::chrono::seconds(1));
  EXPECT_GE(std::chrono::system_clock::from_time_t(std::time(nullptr)) - before,
            hours(1) - std::chrono::seconds(1));
  EXPECT_LT(std::chrono::steady_clock::now() - steady, hours(1));
  EXPECT_LT(std::chrono::nanoseconds(detail::trace_clock_ns() - of_traces), hours(1));
  jump_real_time_clock(-7200);
  EXPECT_LT(std::chrono::system_clock::now(), before);
  jump_real_time_clock(3600);
}

}  // namespace
}  // namespace crossdevice::chaos
