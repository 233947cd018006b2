// SPDX-License-Identifier: Apache-2.0
// Deadlines lie where their timeouts say, never overflow, and refuse what is no timeout.
#include "crossdevice/core/deadline.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using ::testing::StrEq;
using ::testing::ThrowsMessage;
using Clock = Deadline::Clock;
using Seconds = std::chrono::duration<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(DeadlineTest, NeverDoesNotPassAndIsTheLastMomentOfTheClock) {
  EXPECT_TRUE(Deadline::never().is_never());
  EXPECT_FALSE(Deadline::never().has_passed());
  EXPECT_EQ(Deadline::never().moment(), Clock::time_point::max());
}

TEST(DeadlineTest, LiesTheTimeoutAfterNow) {
  const Clock::time_point before = Clock::now();
  const Deadline deadline = Deadline::after(std::chrono::hours(1));
  const Clock::time_point after = Clock::now();
  EXPECT_FALSE(deadline.is_never());
  EXPECT_FALSE(deadline.has_passed());
  EXPECT_GE(deadline.moment(), before + std::chrono::hours(1));
  EXPECT_LE(deadline.moment(), after + std::chrono::hours(1));
}

TEST(DeadlineTest, KeepsFractionsOfASecond) {
  const Clock::time_point before = Clock::now();
  const Deadline deadline = Deadline::after(Seconds(1000.25));
  const Clock::time_point after = Clock::now();
  EXPECT_GE(deadline.moment(), before + std::chrono::milliseconds(1'000'250));
  EXPECT_LE(deadline.moment(), after + std::chrono::milliseconds(1'000'250));
}

TEST(DeadlineTest, ZeroAndNegativeTimeoutsHavePassed) {
  EXPECT_TRUE(Deadline::after(Seconds(0)).has_passed());
  EXPECT_TRUE(Deadline::after(Seconds(-1)).has_passed());
  EXPECT_TRUE(Deadline::after(Seconds(-kInfinity)).has_passed());
  EXPECT_FALSE(Deadline::after(Seconds(-1)).is_never());
}

TEST(DeadlineTest, TimeoutsBeyondTheClockMeanNever) {
  EXPECT_TRUE(Deadline::after(Seconds(1e10)).is_never());
  EXPECT_TRUE(Deadline::after(Seconds(1e300)).is_never());
  EXPECT_TRUE(Deadline::after(Seconds(kInfinity)).is_never());
  EXPECT_TRUE(Deadline::after_timeout_seconds(kInfinity).is_never());
  EXPECT_FALSE(Deadline::after(Seconds(3e9)).is_never());
  EXPECT_GT(Deadline::after(Seconds(3e9)).moment(), Clock::now());
}

TEST(DeadlineTest, NoTimeoutSecondsAndZeroMeanNever) {
  EXPECT_TRUE(Deadline::after_timeout_seconds(std::nullopt).is_never());
  EXPECT_TRUE(Deadline::after_timeout_seconds(0.0).is_never());
  EXPECT_TRUE(Deadline::after_timeout_seconds(-0.0).is_never());
}

TEST(DeadlineTest, TimeoutSecondsAreSeconds) {
  const Clock::time_point before = Clock::now();
  const Deadline deadline = Deadline::after_timeout_seconds(120);
  const Clock::time_point after = Clock::now();
  EXPECT_GE(deadline.moment(), before + std::chrono::seconds(120));
  EXPECT_LE(deadline.moment(), after + std::chrono::seconds(120));
}

TEST(DeadlineTest, NegativeAndNanTimeoutSecondsThrowAndAreNamed) {
  EXPECT_THAT([] { (void)Deadline::after_timeout_seconds(-0.5); },
              ThrowsMessage<ValueError>(
                  StrEq("timeout_seconds: expected a number of at least 0, got -0.5")));
  EXPECT_THAT([] { (void)Deadline::after_timeout_seconds(kNan); },
              ThrowsMessage<ValueError>(
                  StrEq("timeout_seconds: expected a number of at least 0, got nan")));
  EXPECT_THROW((void)Deadline::after_timeout_seconds(-kInfinity), ValueError);
  EXPECT_THROW((void)Deadline::after(Seconds(kNan)), ValueError);
}

TEST(DeadlineTest, TheEarlierOneIsTheOneThatPassesFirst) {
  const Deadline soon = Deadline::after(std::chrono::hours(1));
  const Deadline late = Deadline::after(std::chrono::hours(2));
  EXPECT_EQ(Deadline::earlier(soon, late).moment(), soon.moment());
  EXPECT_EQ(Deadline::earlier(late, soon).moment(), soon.moment());
  EXPECT_EQ(Deadline::earlier(Deadline::never(), late).moment(), late.moment());
  EXPECT_EQ(Deadline::earlier(late, Deadline::never()).moment(), late.moment());
  EXPECT_TRUE(Deadline::earlier(Deadline::never(), Deadline::never()).is_never());
}

}  // namespace
}  // namespace crossdevice
