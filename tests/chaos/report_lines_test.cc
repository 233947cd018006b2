// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "chaos/report.h"

namespace crossdevice::chaos {
namespace {

TEST(ReportTest, LinesAreReadAgain) {
  const Event event{.kind = EventKind::FAIL,
                    .time_us = 123456789012,
                    .step = "call 1 3",
                    .code = "UNAVAILABLE",
                    .inputs_intact = false,
                    .ranks = {2, -1, 0},
                    .counts = {1, 0},
                    .text = "rank 2 (host b, pid 7), last seen in x"};
  EXPECT_EQ(parse_line(to_line(event)), event);
  EXPECT_EQ(parse_line(to_line({})), Event{});
  for (const EventKind kind : {EventKind::FAULT, EventKind::EFFECT, EventKind::END}) {
    EXPECT_EQ(parse_line(to_line({.kind = kind})), (Event{.kind = kind}));
  }
  Event broken = event;
  broken.text = "two\nlines\tand a tab";
  EXPECT_EQ(parse_line(to_line(broken))->text, "two lines and a tab");
}

TEST(ReportTest, OtherLinesAreNotRead) {
  for (const char* line :
       {"", "begin", "begin\t1\t\t\t1\t\t", "begin\t1\t\t\t1\t\t\tx\ty", "end\tx\t\t\t1\t\t\t",
        "other\t1\t\t\t1\t\t\t", "fail\t1\t\t\t1\t1,x\t\t", "fail\t1\t\t\t1\t\t1;2\t"}) {
    EXPECT_FALSE(parse_line(line).has_value()) << line;
  }
}

}  // namespace
}  // namespace crossdevice::chaos
