// SPDX-License-Identifier: Apache-2.0
// Sizes read as documented on both sides of every border between units.
#include "crossdevice/core/format_bytes.h"

#include <limits>

#include <gtest/gtest.h>

namespace crossdevice {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kGiB = 1024 * kMiB;
constexpr std::size_t kEiB = 1024 * 1024 * 1024 * kGiB;

TEST(FormatBytesTest, BelowAKibibyteTheyAreCounted) {
  EXPECT_EQ(format_bytes(0), "0 bytes");
  EXPECT_EQ(format_bytes(1), "1 byte");
  EXPECT_EQ(format_bytes(2), "2 bytes");
  EXPECT_EQ(format_bytes(512), "512 bytes");
  EXPECT_EQ(format_bytes(1023), "1023 bytes");
}

TEST(FormatBytesTest, WholeUnitsHaveNoDecimals) {
  EXPECT_EQ(format_bytes(kKiB), "1 KiB");
  EXPECT_EQ(format_bytes(50 * kMiB), "50 MiB");
  EXPECT_EQ(format_bytes(1023 * kGiB), "1023 GiB");
  EXPECT_EQ(format_bytes(1024 * kGiB), "1 TiB");
  EXPECT_EQ(format_bytes(kEiB), "1 EiB");
}

TEST(FormatBytesTest, OtherSizesHaveOneDecimalRoundedToNearest) {
  EXPECT_EQ(format_bytes(97 * kMiB + 512 * kKiB), "97.5 MiB");
  EXPECT_EQ(format_bytes(kKiB + 1), "1.0 KiB");
  EXPECT_EQ(format_bytes(kKiB + 51), "1.0 KiB");  // 1.0498
  EXPECT_EQ(format_bytes(kKiB + 52), "1.1 KiB");  // 1.0508
  EXPECT_EQ(format_bytes(2 * kKiB - 1), "2.0 KiB");
  EXPECT_EQ(format_bytes(102'228'992), "97.5 MiB");
}

TEST(FormatBytesTest, WhatRoundsToAWholeNextUnitIsWrittenInIt) {
  EXPECT_EQ(format_bytes(kMiB - 52), "1023.9 KiB");
  EXPECT_EQ(format_bytes(kMiB - 51), "1.0 MiB");
  EXPECT_EQ(format_bytes(kMiB - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(kGiB - 1), "1.0 GiB");
}

TEST(FormatBytesTest, TheLargestSizeFits) {
  EXPECT_EQ(format_bytes(std::numeric_limits<std::size_t>::max()), "16.0 EiB");
  EXPECT_EQ(format_bytes(15 * kEiB + kEiB / 2), "15.5 EiB");
}

}  // namespace
}  // namespace crossdevice
