// SPDX-License-Identifier: Apache-2.0
// Conversions of small floats against a slow reference: every pattern, every rounding boundary and its neighbours.
#include "crossdevice/core/small_floats.h"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#if defined(__SSE2__)
#include <pmmintrin.h>
#endif

namespace crossdevice {
namespace {

template <class T, int ExponentBits, int MantissaBits, bool HasInfinity>
struct FormatOf {
  using Type = T;
  using Bits = decltype(T::bits);
  static constexpr int kExponentBits = ExponentBits;
  static constexpr int kMantissaBits = MantissaBits;
  static constexpr bool kHasInfinity = HasInfinity;
  static constexpr unsigned kSign = 1u << (ExponentBits + MantissaBits);
  /// The first positive pattern that is no finite number: infinity, or e4m3's only NaN.
  static constexpr unsigned kOverflow = HasInfinity ? kSign - (1u << MantissaBits) : kSign - 1u;
  static constexpr unsigned kFirstNan = HasInfinity ? kOverflow + 1 : kOverflow;
};

using Float16 = FormatOf<float16, 5, 10, true>;
using Bfloat16 = FormatOf<bfloat16, 8, 7, true>;
using Float8E4M3 = FormatOf<float8_e4m3, 4, 3, false>;
using Float8E5M2 = FormatOf<float8_e5m2, 5, 2, true>;

/// The value of a positive pattern by the definition of the format, as if no pattern were special: kOverflow gives
/// the number that would come next, from which overflow begins half a step below.
template <class F>
double value_of(unsigned pattern) {
  const int bias = (1 << (F::kExponentBits - 1)) - 1;
  const int exponent = static_cast<int>(pattern >> F::kMantissaBits);
  const double fraction =
      std::ldexp(static_cast<double>(pattern & ((1u << F::kMantissaBits) - 1)), -F::kMantissaBits);
  return exponent == 0 ? std::ldexp(fraction, 1 - bias)
                       : std::ldexp(1.0 + fraction, exponent - bias);
}

/// All of them, ascending, with kOverflow as the last.
template <class F>
const std::vector<double>& values() {
  static const std::vector<double> all = [] {
    std::vector<double> list;
    for (unsigned pattern = 0; pattern <= F::kOverflow; ++pattern) {
      list.push_back(value_of<F>(pattern));
    }
    return list;
  }();
  return all;
}

/// The pattern of the nearest value, the even one of two that are equally near.
template <class F>
unsigned nearest(float value) {
  const unsigned sign = std::signbit(value) ? F::kSign : 0u;
  const double magnitude = std::abs(static_cast<double>(value));
  const std::vector<double>& all = values<F>();
  const auto above = std::lower_bound(all.begin(), all.end(), magnitude);
  if (above == all.end()) return sign | F::kOverflow;
  auto pattern = static_cast<unsigned>(above - all.begin());
  if (*above != magnitude) {
    const double to_above =
        *above - magnitude;  // exact: the neighbours share their exponents, or nearly so
    const double to_below = magnitude - all[pattern - 1];
    if (to_below < to_above || (to_below == to_above && pattern % 2 == 1)) --pattern;
  }
  return sign | pattern;
}

template <class F>
class SmallFloatTest : public ::testing::Test {
 protected:
  using T = typename F::Type;
  static T from_bits(unsigned bits) {
    T result;
    result.bits = static_cast<typename F::Bits>(bits);
    return result;
  }
  static float widen(unsigned bits) { return static_cast<float>(from_bits(bits)); }
  static unsigned narrow(float value) { return T(value).bits; }

  static void expect_nearest(float value) {
    ASSERT_EQ(narrow(value), nearest<F>(value)) << std::hexfloat << value;
    ASSERT_EQ(narrow(-value), nearest<F>(-value)) << std::hexfloat << -value;
  }
};

struct FormatNames {
  template <class F>
  static std::string GetName(int) {
    if (std::is_same_v<F, Float16>) return "float16";
    if (std::is_same_v<F, Bfloat16>) return "bfloat16";
    return std::is_same_v<F, Float8E4M3> ? "float8_e4m3" : "float8_e5m2";
  }
};
using Formats = ::testing::Types<Float16, Bfloat16, Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(SmallFloatTest, Formats, FormatNames);

TYPED_TEST(SmallFloatTest, IsStorageOfItsSize) {
  using Element = typename TypeParam::Type;
  static_assert(std::is_trivially_copyable_v<Element> && std::is_standard_layout_v<Element>);
  static_assert(sizeof(Element) * 8 == 1 + TypeParam::kExponentBits + TypeParam::kMantissaBits);
  static_assert(!std::is_convertible_v<Element, float> && !std::is_convertible_v<float, Element>);
  EXPECT_EQ(Element().bits, 0);
}

TYPED_TEST(SmallFloatTest, EveryPatternWidensToItsValue) {
  using F = TypeParam;
  for (unsigned bits = 0; bits < 2 * F::kSign; ++bits) {
    const unsigned magnitude = bits % F::kSign;
    const float value = this->widen(bits);
    ASSERT_EQ(std::signbit(value), bits >= F::kSign) << bits;
    if (magnitude >= F::kFirstNan) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else if (magnitude == F::kOverflow) {
      ASSERT_TRUE(std::isinf(value)) << bits;
    } else {
      ASSERT_EQ(std::abs(static_cast<double>(value)), value_of<F>(magnitude)) << bits;
    }
  }
}

TYPED_TEST(SmallFloatTest, EveryPatternComesBackFromFloatAndNansComeBackQuiet) {
  using F = TypeParam;
  const unsigned quiet_bit = F::kHasInfinity ? 1u << (F::kMantissaBits - 1) : 0u;
  for (unsigned bits = 0; bits < 2 * F::kSign; ++bits) {
    const bool is_nan = bits % F::kSign >= F::kFirstNan;
    ASSERT_EQ(this->narrow(this->widen(bits)), is_nan ? bits | quiet_bit : bits);
  }
}

TYPED_TEST(SmallFloatTest, EveryValueHalfwayCaseAndNeighbourRoundsToNearestEven) {
  const std::vector<double>& all = values<TypeParam>();
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    const auto value = static_cast<float>(all[i]);
    const auto halfway = static_cast<float>((all[i] + all[i + 1]) / 2);
    ASSERT_EQ(static_cast<double>(halfway), (all[i] + all[i + 1]) / 2) << "the case must be exact";
    for (const float centre : {value, halfway}) {
      this->expect_nearest(centre);
      this->expect_nearest(std::nextafter(centre, infinity));
      this->expect_nearest(std::nextafter(centre, 0.0f));
    }
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(SmallFloatTest, AMillionFloatsOfAllMagnitudesRoundToNearestEven) {
  for (std::uint64_t bits = 0; bits < 0x7f800000u; bits += 2039) {
    this->expect_nearest(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(SmallFloatTest, OverflowAndInfinityGiveInfinityOrElseNan) {
  using F = TypeParam;
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(this->narrow(infinity), F::kOverflow);
  EXPECT_EQ(this->narrow(-infinity), F::kSign | F::kOverflow);
  if (values<F>().back() <= static_cast<double>(std::numeric_limits<float>::max())) {
    EXPECT_EQ(this->narrow(static_cast<float>(values<F>().back())), F::kOverflow);
  }
  EXPECT_EQ(this->narrow(std::numeric_limits<float>::max()), F::kOverflow);
  EXPECT_EQ(this->narrow(std::numeric_limits<float>::lowest()), F::kSign | F::kOverflow);
}

TYPED_TEST(SmallFloatTest, ZerosAndTheSmallestFloatsKeepTheirSign) {
  EXPECT_EQ(this->narrow(0.0f), 0u);
  EXPECT_EQ(this->narrow(-0.0f), TypeParam::kSign);
  EXPECT_EQ(this->narrow(std::numeric_limits<float>::denorm_min()), 0u);
  EXPECT_EQ(this->narrow(-std::numeric_limits<float>::denorm_min()), TypeParam::kSign);
}

TYPED_TEST(SmallFloatTest, EveryNanStaysANanOfItsSign) {
  // Payloads that narrowing cuts off entirely, that are quiet, signalling, and that rounding would carry away.
  for (const std::uint32_t payload :
       {0x000001u, 0x001fffu, 0x200000u, 0x400000u, 0x400001u, 0x7fffffu}) {
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const unsigned bits = this->narrow(std::bit_cast<float>(sign | 0x7f800000u | payload));
      EXPECT_GE(bits % TypeParam::kSign, TypeParam::kFirstNan) << std::hex << payload;
      EXPECT_EQ(bits >= TypeParam::kSign, sign != 0) << std::hex << payload;
    }
  }
}

TYPED_TEST(SmallFloatTest, ComparesAsItsValueDoes) {
  using F = TypeParam;
  EXPECT_EQ(this->from_bits(0), this->from_bits(F::kSign)) << "both zeros are equal";
  EXPECT_NE(this->from_bits(1), this->from_bits(2));
  EXPECT_EQ(this->from_bits(1), this->from_bits(1));
  const auto nan = this->from_bits(F::kSign - 1);
  EXPECT_FALSE(nan == nan);
}

TYPED_TEST(SmallFloatTest, RoundingModeOfTheProcessorDoesNotMatter) {
  const std::vector<double>& all = values<TypeParam>();
  const auto halfway = static_cast<float>((all[1] + all[2]) / 2);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    ASSERT_EQ(std::fesetround(mode), 0);
    const unsigned positive = this->narrow(halfway);
    const unsigned negative = this->narrow(-halfway);
    const float widened = this->widen(1);
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(positive, 2u) << "halfway between patterns 1 and 2: to the even one";
    EXPECT_EQ(negative, TypeParam::kSign | 2u);
    EXPECT_EQ(static_cast<double>(widened), all[1]);
  }
}

#if defined(__SSE2__)
TYPED_TEST(SmallFloatTest, FlushingOfDenormalsByTheProcessorDoesNotMatter) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
  const float widened = this->widen(1);
  const unsigned narrowed = this->narrow(widened);
  _mm_setcsr(before);
  EXPECT_EQ(static_cast<double>(widened), values<TypeParam>()[1]);
  EXPECT_EQ(narrowed, 1u);
}
#endif

TEST(SmallFloatLimitsTest, TheLargestNumbersAreThoseOfTheirStandards) {
  EXPECT_EQ(values<Float16>()[Float16::kOverflow - 1], 65504.0);
  EXPECT_EQ(values<Float8E4M3>()[Float8E4M3::kOverflow - 1], 448.0);
  EXPECT_EQ(values<Float8E5M2>()[Float8E5M2::kOverflow - 1], 57344.0);
  EXPECT_EQ(
      std::bit_cast<std::uint32_t>(static_cast<float>(values<Bfloat16>()[Bfloat16::kOverflow - 1])),
      0x7f7f0000u);
  EXPECT_EQ(float8_e4m3(448.0f).bits, 0x7e);
  EXPECT_EQ(float8_e4m3(464.0f).bits, 0x7e) << "halfway to overflow: to the even 448";
  EXPECT_EQ(float8_e4m3(std::nextafter(464.0f, 500.0f)).bits, 0x7f);
  EXPECT_EQ(float8_e4m3(-1e9f).bits, 0xff);
  EXPECT_EQ(float8_e5m2(61440.0f).bits, 0x7c) << "halfway to overflow: to the even infinity";
}

}  // namespace
}  // namespace crossdevice
