// SPDX-License-Identifier: Apache-2.0
// Int64 takes every integer that fits and refuses the rest; checked arithmetic never wraps.
#include "crossdevice/core/int64.h"

#include <limits>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using ::testing::StrEq;
using ::testing::ThrowsMessage;

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

template <class I>
class Int64FromTest : public ::testing::Test {};
using Integers = ::testing::Types<signed char, unsigned char, short, unsigned short, int, unsigned,
                                  long, unsigned long, long long, unsigned long long>;
TYPED_TEST_SUITE(Int64FromTest, Integers);

TYPED_TEST(Int64FromTest, EveryIntegerTypeConvertsImplicitlyAndKeepsItsValue) {
  static_assert(std::is_convertible_v<TypeParam, Int64>);
  using Limits = std::numeric_limits<TypeParam>;
  const TypeParam largest =
      std::in_range<std::int64_t>(Limits::max()) ? Limits::max() : static_cast<TypeParam>(kMax);
  for (const TypeParam value :
       {Limits::min(), TypeParam{0}, TypeParam{1}, TypeParam{100}, largest}) {
    const Int64 converted = value;
    EXPECT_EQ(converted.value(), static_cast<std::int64_t>(value));
  }
}

TEST(Int64Test, IsZeroByDefault) { EXPECT_EQ(Int64().value(), 0); }

TEST(Int64Test, AnUnsignedValueThatDoesNotFitThrows) {
  const std::uint64_t first_too_large = static_cast<std::uint64_t>(kMax) + 1;
  EXPECT_THAT([&] { (void)Int64(first_too_large); },
              ThrowsMessage<ValueError>(
                  StrEq("9223372036854775808 does not fit in a signed 64-bit integer")));
  EXPECT_THAT([] { (void)Int64(std::numeric_limits<std::uint64_t>::max()); },
              ThrowsMessage<ValueError>(
                  StrEq("18446744073709551615 does not fit in a signed 64-bit integer")));
}

TEST(Int64Test, WhatIsNoSizeDoesNotConvert) {
  static_assert(!std::is_constructible_v<Int64, bool>);
  static_assert(!std::is_constructible_v<Int64, char>);
  static_assert(!std::is_constructible_v<Int64, char32_t>);
  static_assert(!std::is_constructible_v<Int64, float>);
  static_assert(!std::is_constructible_v<Int64, double>);
  static_assert(!std::is_constructible_v<Int64, void*>);
  static_assert(!std::is_constructible_v<Int64, std::nullptr_t>);
  enum class Colour { RED };
  static_assert(!std::is_constructible_v<Int64, Colour>);
}

TEST(Int64Test, ComparesWithIntegers) {
  constexpr Int64 kSeven = 7u;
  static_assert(kSeven == 7);
  static_assert(kSeven > 6ul);
  static_assert(kSeven < std::int64_t{8});
  static_assert(-1 < kSeven);
  EXPECT_NE(kSeven, Int64(8));
}

TEST(CheckedTest, ProductsAndSumsThatFitAreExact) {
  static_assert(checked_multiply(-3, 5) == -15);
  static_assert(checked_add(-3, 5) == 2);
  EXPECT_EQ(checked_multiply(kMax, 1), kMax);
  EXPECT_EQ(checked_multiply(kMin, 1), kMin);
  EXPECT_EQ(checked_multiply(std::int64_t{1} << 31, std::int64_t{1} << 31), std::int64_t{1} << 62);
  EXPECT_EQ(checked_multiply(kMax, 0), 0);
  EXPECT_EQ(checked_add(kMax, 0), kMax);
  EXPECT_EQ(checked_add(kMax, kMin), -1);
}

TEST(CheckedTest, ProductsThatOverflowThrowAndNameBothFactors) {
  EXPECT_THAT([] { (void)checked_multiply(std::int64_t{1} << 32, std::int64_t{1} << 31); },
              ThrowsMessage<ValueError>(
                  StrEq("4294967296 * 2147483648 overflows a signed 64-bit integer")));
  EXPECT_THROW((void)checked_multiply(kMin, -1), ValueError);
  EXPECT_THROW((void)checked_multiply(kMax, 2), ValueError);
}

TEST(CheckedTest, SumsThatOverflowThrowAndNameBothTerms) {
  EXPECT_THAT([] { (void)checked_add(kMax, 1); },
              ThrowsMessage<ValueError>(
                  StrEq("9223372036854775807 + 1 overflows a signed 64-bit integer")));
  EXPECT_THROW((void)checked_add(kMin, -1), ValueError);
}

}  // namespace
}  // namespace crossdevice
