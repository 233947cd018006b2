// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/clock_comparison.h"

#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

constexpr std::int64_t kAhead = 1'000'000'000;  // of the chief's clock

TEST(ClockComparisonTest, TheQuickestAnswerCounts) {
  ClockComparison comparison;
  std::int64_t now = 5'000'000;
  std::optional<ClockReading> question = comparison.begin(now);
  EXPECT_FALSE(comparison.begin(now).has_value());  // one series at a time
  ClockComparison::Step step;
  for (int i = 0; i < ClockComparison::kQuestions; ++i) {
    ASSERT_TRUE(question.has_value());
    EXPECT_EQ(question->asked_ns, now);
    // There quickly, back slowly; the fourth is the quickest.
    const std::int64_t there = i == 3 ? 10 : 1000;
    const std::int64_t back = i == 3 ? 30 : 9000;
    step = comparison.hear({question->asked_ns, now + there + kAhead, "chief"}, now + there + back);
    now += there + back;
    question = step.question;
  }
  EXPECT_FALSE(question.has_value());
  ASSERT_TRUE(step.result.has_value());
  EXPECT_EQ(step.result->clock, "chief");
  EXPECT_EQ(step.result->within_ns, 20);
  EXPECT_EQ(step.result->to_add_ns, kAhead - 10);  // wrong by half the difference of the two ways
  EXPECT_EQ(step.result->at_ns, 5'000'000 + 3 * 10'000 + 20);
  EXPECT_TRUE(comparison.begin(now).has_value());
}

TEST(ClockComparisonTest, AnswersToNothingAreRefused) {
  ClockComparison comparison;
  EXPECT_THROW((void)comparison.hear({0, 1, "chief"}, 2), WireError);
  (void)comparison.begin(100);
  EXPECT_THROW((void)comparison.hear({99, 1, "chief"}, 200), WireError);
  EXPECT_TRUE(comparison.hear({100, 1, "chief"}, 200).question.has_value());
  EXPECT_THROW((void)comparison.hear({100, 1, "chief"}, 300), WireError);
  comparison.cancel();
  EXPECT_THROW((void)comparison.hear({200, 1, "chief"}, 300), WireError);
  EXPECT_TRUE(comparison.begin(400).has_value());
}

TEST(ClockComparisonTest, AnyReadingIsBorne) {
  for (const std::int64_t said : {std::numeric_limits<std::int64_t>::min(), std::int64_t{0},
                                  std::numeric_limits<std::int64_t>::max()}) {
    ClockComparison comparison;
    for (std::optional<ClockReading> question = comparison.begin(100); question.has_value();) {
      question = comparison.hear({question->asked_ns, said, ""}, question->asked_ns + 2).question;
    }
  }
}

}  // namespace
}  // namespace crossdevice::detail
