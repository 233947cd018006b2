// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/launcher_variables.h"

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

TEST(ParseDigitsTest, DigitsOnly) {
  EXPECT_EQ(parse_digits("0"), 0U);
  EXPECT_EQ(parse_digits("007"), 7U);
  EXPECT_EQ(parse_digits("18446744073709551615"), 18446744073709551615U);
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "18446744073709551616", "1a", "a"}) {
    EXPECT_EQ(parse_digits(text), std::nullopt) << text;
  }
}

TEST(PortOfJobTest, TheLast4096Ports) {
  EXPECT_EQ(port_of_job(0), 61440);
  EXPECT_EQ(port_of_job(4095), 65535);
  EXPECT_EQ(port_of_job(4096), 61440);
  EXPECT_EQ(port_of_job(12345678), 61440 + 12345678 % 4096);
  EXPECT_EQ(number_of_job(""), 0U);
  EXPECT_NE(number_of_job("4711.0"), number_of_job("4711.1"));
}

TEST(PrintableTest, ShowsBytesAndCutsWhatIsLong) {
  EXPECT_EQ(printable("a b~"), "a b~");
  EXPECT_EQ(printable(std::string_view("\0\n\xff", 3)), "\\x00\\x0a\\xff");
  EXPECT_EQ(printable(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(printable(std::string(201, 'x')), std::string(200, 'x') + "...");
}

}  // namespace
}  // namespace crossdevice::detail
