// SPDX-License-Identifier: Apache-2.0
// Conversions of small floats in integer arithmetic: the reference that vectorised kernels must
// match bit by bit.
#include "crossdevice/core/small_floats.h"

#include <bit>
#include <limits>

namespace crossdevice::detail {
namespace {

static_assert(std::numeric_limits<float>::is_iec559);

constexpr int kFloatMantissaBits = 23;
constexpr int kFloatBias = 127;
constexpr std::uint32_t kFloatInfinity = 0x7f800000;
constexpr std::uint32_t kFloatQuietBit = 0x00400000;

/// A format with fewer exponent bits than float has: sign, kExponentBits, kMantissaBits.
template <int ExponentBits, int MantissaBits>
struct Format {
  static constexpr int kMantissaBits = MantissaBits;
  static constexpr int kBias = (1 << (ExponentBits - 1)) - 1;
  static constexpr int kMinExponent = 1 - kBias;  // of the smallest normal number, and of denormals
  static constexpr std::uint32_t kSign = 1u << (ExponentBits + MantissaBits);
  static constexpr std::uint32_t kMantissaMask = (1u << MantissaBits) - 1;
  static constexpr std::uint32_t kExponentMask = (kSign - 1) & ~kMantissaMask;
};

using Float16 = Format<5, 10>;
using Float8E5M2 = Format<5, 2>;
using Float8E4M3 = Format<4, 3>;

/// The magnitude of a finite value or infinity, rounded as if the exponent had no upper limit.
template <class F>
std::uint32_t round_magnitude(std::uint32_t magnitude) {
  const int exponent = static_cast<int>(magnitude >> kFloatMantissaBits) - kFloatBias;
  if (exponent == -kFloatBias)
    return 0;  // zero or a float's denormal, far below half of our smallest value
  const std::uint32_t significand = (magnitude & 0x007fffffu) | 0x00800000u;
  int shift = kFloatMantissaBits - F::kMantissaBits;
  if (exponent < F::kMinExponent) shift += F::kMinExponent - exponent;
  if (shift > kFloatMantissaBits + 1) return 0;  // below half of the smallest denormal
  const std::uint32_t is_odd = (significand >> shift) & 1u;
  const std::uint32_t rounded = (significand + (1u << (shift - 1)) - 1u + is_odd) >> shift;
  if (exponent < F::kMinExponent) return rounded;  // a carry makes it the smallest normal number
  // The significand's leading 1 adds one to the exponent field, and so does a carry out of the
  // rounding.
  return rounded + (static_cast<std::uint32_t>(exponent - F::kMinExponent) << F::kMantissaBits);
}

/// The sign and the upper part of a NaN's payload, quiet.
template <class F>
std::uint32_t narrow_nan(std::uint32_t magnitude) {
  return F::kExponentMask |
         ((magnitude | kFloatQuietBit) >> (kFloatMantissaBits - F::kMantissaBits) &
          F::kMantissaMask);
}

template <class F>
std::uint32_t to_ieee_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 31) != 0 ? F::kSign : 0;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kFloatInfinity) return sign | narrow_nan<F>(magnitude);
  const std::uint32_t rounded = round_magnitude<F>(magnitude);
  return sign | (rounded < F::kExponentMask ? rounded : F::kExponentMask);
}

/// A number with the exponent field and mantissa of `bits`, which is neither infinity nor NaN.
template <class F>
std::uint32_t widen_magnitude(std::uint32_t bits) {
  std::uint32_t mantissa = bits & F::kMantissaMask;
  int exponent = static_cast<int>((bits & F::kExponentMask) >> F::kMantissaBits) - F::kBias;
  if (exponent < F::kMinExponent) {
    if (mantissa == 0) return 0;
    // Up until the leading 1 is the implicit one.
    const int up = std::countl_zero(mantissa) - (31 - F::kMantissaBits);
    exponent = F::kMinExponent - up;
    mantissa = (mantissa << up) & F::kMantissaMask;
  }
  return (static_cast<std::uint32_t>(exponent + kFloatBias) << kFloatMantissaBits) |
         (mantissa << (kFloatMantissaBits - F::kMantissaBits));
}

template <class F>
float from_ieee_bits(std::uint32_t bits) {
  const std::uint32_t sign = (bits & F::kSign) != 0 ? 0x80000000u : 0u;
  const std::uint32_t mantissa = bits & F::kMantissaMask;
  if ((bits & F::kExponentMask) != F::kExponentMask) {
    return std::bit_cast<float>(sign | widen_magnitude<F>(bits));
  }
  const std::uint32_t quiet = mantissa != 0 ? kFloatQuietBit : 0u;
  return std::bit_cast<float>(sign | kFloatInfinity | quiet |
                              (mantissa << (kFloatMantissaBits - F::kMantissaBits)));
}

}  // namespace

float float16_bits_to_float(std::uint16_t bits) { return from_ieee_bits<Float16>(bits); }

std::uint16_t float_to_float16_bits(float value) {
  return static_cast<std::uint16_t>(to_ieee_bits<Float16>(value));
}

float float8_e5m2_bits_to_float(std::uint8_t bits) { return from_ieee_bits<Float8E5M2>(bits); }

std::uint8_t float_to_float8_e5m2_bits(float value) {
  return static_cast<std::uint8_t>(to_ieee_bits<Float8E5M2>(value));
}

// float8_e4m3 uses its highest exponent for numbers too; only its last pattern of each sign is a
// NaN.
float float8_e4m3_bits_to_float(std::uint8_t bits) {
  const std::uint32_t sign = (bits & 0x80u) != 0 ? 0x80000000u : 0u;
  const std::uint32_t magnitude = bits & 0x7fu;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | kFloatInfinity | kFloatQuietBit);
  return std::bit_cast<float>(sign | widen_magnitude<Float8E4M3>(magnitude));
}

std::uint8_t float_to_float8_e4m3_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 31) != 0 ? 0x80u : 0u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t rounded =
      magnitude > kFloatInfinity ? 0x7fu : round_magnitude<Float8E4M3>(magnitude);
  return static_cast<std::uint8_t>(sign | (rounded < 0x7fu ? rounded : 0x7fu));
}

// bfloat16 has float's exponent, so that it is the upper half of a float, denormals and all.
float bfloat16_bits_to_float(std::uint16_t bits) {
  std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  if ((wide & 0x7fffffffu) > kFloatInfinity) wide |= kFloatQuietBit;
  return std::bit_cast<float>(wide);
}

std::uint16_t float_to_bfloat16_bits(float value) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > kFloatInfinity) {
    bits |= kFloatQuietBit;  // rounding could carry a NaN into infinity
  } else {
    bits += 0x7fffu + ((bits >> 16) & 1u);
  }
  return static_cast<std::uint16_t>(bits >> 16);
}

}  // namespace crossdevice::detail
