// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/core/backoff.h"

#include <chrono>

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

using std::chrono::steady_clock;

TEST(BackoffTest, PausesAtLeastAsLongAsItSays) {
  Backoff backoff;
  const auto start = steady_clock::now();
  backoff.pause(Deadline::never());
  EXPECT_GE(steady_clock::now() - start, std::chrono::microseconds(20));
  for (int i = 0; i < 40; ++i) backoff.pause(Deadline::never());
  const auto later = steady_clock::now();
  backoff.pause(Deadline::never());
  EXPECT_GE(steady_clock::now() - later, std::chrono::milliseconds(1));
}

TEST(BackoffTest, ADeadlineThatHasPassedEndsThePauseAtOnce) {
  Backoff backoff;
  for (int i = 0; i < 100000; ++i) backoff.pause(Deadline::after(std::chrono::seconds(-1)));
}

}  // namespace
}  // namespace crossdevice::detail
