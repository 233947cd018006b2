// SPDX-License-Identifier: Apache-2.0
/// Tests of support/byte_size.h.
#include "support/byte_size.h"

#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include "support/program.h"

namespace crossdevice::programs {
namespace {

TEST(ByteSizeTest, PlainNumbersAreBytes) {
  EXPECT_EQ(parse_byte_size("0"), 0U);
  EXPECT_EQ(parse_byte_size("8"), 8U);
  EXPECT_EQ(parse_byte_size("1000000007"), 1000000007U);
  EXPECT_EQ(parse_byte_size("12B"), 12U);
}

TEST(ByteSizeTest, SuffixesAreBinaryInEitherCase) {
  EXPECT_EQ(parse_byte_size("1K"), std::size_t{1024});
  EXPECT_EQ(parse_byte_size("32k"), std::size_t{32} << 10U);
  EXPECT_EQ(parse_byte_size("64M"), std::size_t{64} << 20U);
  EXPECT_EQ(parse_byte_size("64MiB"), std::size_t{64} << 20U);
  EXPECT_EQ(parse_byte_size("64mb"), std::size_t{64} << 20U);
  EXPECT_EQ(parse_byte_size("3G"), std::size_t{3} << 30U);
  EXPECT_EQ(parse_byte_size("2T"), std::size_t{2} << 40U);
}

TEST(ByteSizeTest, FractionsAreCutToWholeBytes) {
  EXPECT_EQ(parse_byte_size("1.5K"), 1536U);
  EXPECT_EQ(parse_byte_size("0.3"), 0U);
}

TEST(ByteSizeTest, RefusesWhatIsNoSizeAndQuotesIt) {
  for (const std::string text :
       {"", "K", "-1", "1KK", "1X", "1.2.3", ".", "8 K", "1Kx", "9999999T", "1e3"}) {
    try {
      (void)parse_byte_size(text);
      ADD_FAILURE() << "'" << text << "' was accepted";
    } catch (const ArgumentError& error) {
      EXPECT_NE(std::string(error.what()).find("'" + text + "'"), std::string::npos)
          << error.what();
    }
  }
}

TEST(ByteSizeTest, FormatsWithTheLargestUnit) {
  EXPECT_EQ(format_byte_size(0), "0 B");
  EXPECT_EQ(format_byte_size(1023), "1023 B");
  EXPECT_EQ(format_byte_size(1024), "1 KiB");
  EXPECT_EQ(format_byte_size(1536), "1.5 KiB");
  EXPECT_EQ(format_byte_size(std::size_t{64} << 20U), "64 MiB");
  EXPECT_EQ(format_byte_size((std::size_t{97} << 20U) + (std::size_t{512} << 10U)), "97.5 MiB");
}

}  // namespace
}  // namespace crossdevice::programs
