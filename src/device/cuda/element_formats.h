// SPDX-License-Identifier: Apache-2.0
/// How elements of floating dtypes become numbers to compute with, and results become elements again: on a GPU, and on the host, where the tests run
/// the same code.
///
/// The arithmetic is that of the host kernels (device/host), bit by bit. What makes that so: kernels are compiled without contraction (-fmad=false), with
/// subnormals (-ftz=false) and exact division (-prec-div=true); the conversions that a GPU does itself (float16; bfloat16 from 9.0 and float8 from 8.9 on) are
/// exact or rounded to nearest even as the standard defines, and where they saturate a comparison says what belongs there; NaNs, whose bits processors choose,
/// become the quiet one without sign and payload.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__device__)  // CUDA's compiler
#define CROSSDEVICE_BOTH __host__ __device__ __forceinline__
#else
#define CROSSDEVICE_BOTH inline
#endif
#if defined(__CUDA_ARCH__)  // its pass for the GPU
#define CROSSDEVICE_UNROLL _Pragma("unroll")
#if __CUDA_ARCH__ >= 890
#define CROSSDEVICE_CONVERTS_FLOAT8
#endif
#if __CUDA_ARCH__ >= 900
#define CROSSDEVICE_CONVERTS_BFLOAT16
#endif
#else
#define CROSSDEVICE_UNROLL
#endif

namespace crossdevice::cuda {

/// The bits of one type as another of the same size.
template <class To, class From>
CROSSDEVICE_BOTH To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

/// NaN without sign and payload; everything else as it is.
CROSSDEVICE_BOTH float canonical(float value) {
  return value == value ? value : bits_as<float>(std::uint32_t{0x7FC00000});
}
CROSSDEVICE_BOTH double canonical(double value) {
  return value == value ? value : bits_as<double>(std::uint64_t{0x7FF8000000000000});
}

/// A small float of 1 + kExponentBits + kMantissaBits bits, to and from float32. Without infinities (float8_e4m3), all ones is NaN and what is too large
/// becomes NaN.
template <int kExponentBits, int kMantissaBits, bool kHasInfinity>
struct SmallFloatCodec {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr int kSignShift = 31 - kExponentBits - kMantissaBits;
  static constexpr std::uint32_t kMagnitude = (1U << (kExponentBits + kMantissaBits)) - 1;
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  static constexpr std::uint32_t kInfinity = ((1U << kExponentBits) - 1) << kMantissaBits;
  static constexpr std::uint32_t kNaN =
      kHasInfinity ? kInfinity | 1U << (kMantissaBits - 1) : kMagnitude;
  static constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - kBias) << 23;

  CROSSDEVICE_BOTH static float decode(std::uint32_t bits) {
    const std::uint32_t magnitude = bits & kMagnitude;
    const std::uint32_t sign = (bits & (kMagnitude + 1)) << kSignShift;
    std::uint32_t result = (magnitude << kShift) + kRebias;
    if (magnitude < (1U << kMantissaBits)) {
      // An integer times a power of two: exact, and no subnormal float32 appears on the way.
      const float ulp = 1.0F / static_cast<float>(1 << (kBias - 1 + kMantissaBits));
      result = bits_as<std::uint32_t>(static_cast<float>(magnitude) * ulp);
    } else if (kHasInfinity ? magnitude >= kInfinity : magnitude == kNaN) {
      result = kHasInfinity ? result | 0x7F800000U : 0x7FC00000U;
    }
    return bits_as<float>(result | sign);
  }

  /// Rounds to nearest, ties to even.
  CROSSDEVICE_BOTH static std::uint32_t encode(float value) {
    const std::uint32_t bits = bits_as<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    const std::uint32_t sign = bits >> kSignShift & (kMagnitude + 1);
    if (magnitude > 0x7F800000U) return kNaN;
    if (magnitude < kSmallestNormal) {
      // Adding the power of two whose ulp is the type's smallest subnormal makes the addition round as it has to.
      constexpr std::uint32_t kMagic = static_cast<std::uint32_t>(127 - kBias + kShift + 1) << 23;
      const float sum = bits_as<float>(magnitude) + bits_as<float>(kMagic);
      return (bits_as<std::uint32_t>(sum) - kMagic) | sign;
    }
    const std::uint32_t odd = magnitude >> kShift & 1U;
    const std::uint32_t rounded =
        (magnitude + ((1U << (kShift - 1)) - 1U - kRebias) + odd) >> kShift;
    if (kHasInfinity) return (rounded < kInfinity ? rounded : kInfinity) | sign;
    return rounded < kNaN ? rounded | sign : kNaN;
  }
};

using Float16Codec = SmallFloatCodec<5, 10, true>;
using Float8E5M2Codec = SmallFloatCodec<5, 2, true>;
using Float8E4M3Codec = SmallFloatCodec<4, 3, false>;

CROSSDEVICE_BOTH float float16_to_float(std::uint16_t bits) {
#if defined(__CUDA_ARCH__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  return Float16Codec::decode(bits);
#endif
}

CROSSDEVICE_BOTH std::uint16_t float_to_float16(float value) {
#if defined(__CUDA_ARCH__)
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return value == value ? bits : static_cast<std::uint16_t>(Float16Codec::kNaN);
#else
  return static_cast<std::uint16_t>(Float16Codec::encode(value));
#endif
}

/// The value rounded to float32 so that rounding the result once more, to fewer than 23 bits of significand, gives what one rounding of `value` would:
/// towards zero, and odd where that lost something ("round to odd").
CROSSDEVICE_BOTH float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  std::uint32_t bits = bits_as<std::uint32_t>(nearest);
  const bool is_too_large = back < 0 || value < 0 ? back < value : back > value;
  if (is_too_large) bits -= 1;  // one towards zero: from infinity too, to the largest number
  return bits_as<float>(bits | 1U);
}

/// What all elements of a launch are divided by.
struct Divider {
  double divisor = 1;  ///< 1: nothing is divided
  /// 1 / divisor where that is a power of two, so that the product is the quotient, rounded once as it is; else 0. A division takes a GPU some ten instructions.
  double factor = 1;
};

/// On the host.
[[nodiscard]] inline Divider divider_by(double divisor) {
  int exponent = 0;
  const bool is_power_of_two = std::frexp(divisor, &exponent) == 0.5 && std::abs(exponent) < 100;
  return {divisor, is_power_of_two ? 1 / divisor : 0};
}

template <class T>
CROSSDEVICE_BOTH T divide(T value, const Divider& by) {
  if (by.divisor == 1) return value;
  if (by.factor != 0) return value * static_cast<T>(by.factor);
  return value / static_cast<T>(by.divisor);
}

/// Each of them; what is to be done is decided once.
template <class T, std::uint32_t kCount>
CROSSDEVICE_BOTH void divide_all(T (&values)[kCount], const Divider& by) {
  if (by.divisor == 1) return;
  const bool is_product = by.factor != 0;
  const T number = static_cast<T>(is_product ? by.factor : by.divisor);
  if (is_product) {
    CROSSDEVICE_UNROLL
    for (std::uint32_t e = 0; e < kCount; ++e) values[e] = values[e] * number;
  } else {
    CROSSDEVICE_UNROLL
    for (std::uint32_t e = 0; e < kCount; ++e) values[e] = values[e] / number;
  }
}

// Formats: Storage, Compute (float, or double for float64), and how to come and go. widen() may give any NaN for a NaN; narrow() rounds once and makes NaNs
// canonical. Where kHasPairs, widen_pair() takes two neighbours at once, the first in the lower byte; and where a GPU converts them, there is encode_finite() of
// two results that becomes_finite().

template <class T>
struct PlainFloat {
  using Storage = T;
  using Compute = T;
  static constexpr bool kHasPairs = false;
  CROSSDEVICE_BOTH static Compute widen(Storage value) { return value; }
  template <class From>
  CROSSDEVICE_BOTH static Storage narrow(From value) {
    return canonical(static_cast<T>(value));
  }
};

/// Derived gives encode(float) and decode.
template <class Derived, class Bits>
struct SmallFloat {
  using Storage = Bits;
  using Compute = float;
  static constexpr bool kHasPairs = false;
  CROSSDEVICE_BOTH static Storage narrow(float value) { return Derived::encode(value); }
  CROSSDEVICE_BOTH static Storage narrow(double value) {
    return Derived::encode(round_to_odd(value));
  }
};

using Float32 = PlainFloat<float>;
using Float64 = PlainFloat<double>;

struct Float16 : SmallFloat<Float16, std::uint16_t> {
  CROSSDEVICE_BOTH static float widen(std::uint16_t bits) { return float16_to_float(bits); }
  CROSSDEVICE_BOTH static std::uint16_t encode(float value) { return float_to_float16(value); }
};

struct BFloat16 : SmallFloat<BFloat16, std::uint16_t> {
  CROSSDEVICE_BOTH static float widen(std::uint16_t bits) {
    return bits_as<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  CROSSDEVICE_BOTH static std::uint16_t encode(float value) {
#if defined(CROSSDEVICE_CONVERTS_BFLOAT16)
    std::uint16_t converted;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(converted) : "f"(value));
    return value == value ? converted : std::uint16_t{0x7FC0};
#else
    const std::uint32_t bits = bits_as<std::uint32_t>(value);
    const std::uint32_t rounded = bits + 0x7FFFU + (bits >> 16 & 1U);
    return static_cast<std::uint16_t>(value == value ? rounded >> 16 : 0x7FC0U);
#endif
  }
};

/// The float16 numbers in the lower and the upper half.
CROSSDEVICE_BOTH void widen_halves(std::uint32_t halves, float (&pair)[2]) {
  pair[0] = float16_to_float(static_cast<std::uint16_t>(halves));
  pair[1] = float16_to_float(static_cast<std::uint16_t>(halves >> 16));
}

/// Derived also gives becomes_finite(float) and, where a GPU does it, encode_finite() of two such numbers.
template <class Derived>
struct Float8 : SmallFloat<Derived, std::uint8_t> {
  static constexpr bool kHasPairs = true;
};

/// The upper byte of a float16.
struct Float8E5M2 : Float8<Float8E5M2> {
  /// Below half way between the largest number and what would follow it; from there on, infinity. False of NaN.
  CROSSDEVICE_BOTH static bool becomes_finite(float value) { return fabsf(value) < 61440.0F; }

  CROSSDEVICE_BOTH static float widen(std::uint8_t bits) {
    return float16_to_float(static_cast<std::uint16_t>(bits << 8));
  }
  CROSSDEVICE_BOTH static void widen_pair(std::uint16_t bits, float (&pair)[2]) {
#if defined(CROSSDEVICE_CONVERTS_FLOAT8)
    std::uint32_t halves;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(bits));
    widen_halves(halves, pair);
#else
    widen_halves((bits & 0xFFU) << 8 | (bits & 0xFF00U) << 16, pair);
#endif
  }
  CROSSDEVICE_BOTH static std::uint8_t encode(float value) {
#if defined(CROSSDEVICE_CONVERTS_FLOAT8)
    if (becomes_finite(value)) return static_cast<std::uint8_t>(encode_finite(value, 0.0F));
    const std::uint32_t sign = bits_as<std::uint32_t>(value) >> 24 & 0x80U;
    return static_cast<std::uint8_t>(value == value ? Float8E5M2Codec::kInfinity | sign
                                                    : Float8E5M2Codec::kNaN);
#else
    return static_cast<std::uint8_t>(Float8E5M2Codec::encode(value));
#endif
  }
#if defined(CROSSDEVICE_CONVERTS_FLOAT8)
  CROSSDEVICE_BOTH static std::uint16_t encode_finite(float low, float high) {
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
  }
#endif
};

/// A float16 but for the exponent's offset and the NaN.
struct Float8E4M3 : Float8<Float8E4M3> {
  /// Up to half way between the largest number, which is even, and what would follow it; beyond, NaN. False of NaN.
  CROSSDEVICE_BOTH static bool becomes_finite(float value) { return fabsf(value) <= 464.0F; }

  CROSSDEVICE_BOTH static float widen(std::uint8_t bits) {
    float pair[2];
    widen_pair(bits, pair);
    return pair[0];
  }
  CROSSDEVICE_BOTH static void widen_pair(std::uint16_t bits, float (&pair)[2]) {
#if defined(CROSSDEVICE_CONVERTS_FLOAT8)
    std::uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(bits));
    widen_halves(halves, pair);
#else
    pair[0] = decode(bits & 0xFFU);
    pair[1] = decode(bits >> 8U);
#endif
  }
  CROSSDEVICE_BOTH static std::uint8_t encode(float value) {
#if defined(CROSSDEVICE_CONVERTS_FLOAT8)
    return static_cast<std::uint8_t>(becomes_finite(value) ? encode_finite(value, 0.0F)
                                                           : Float8E4M3Codec::kNaN);
#else
    return static_cast<std::uint8_t>(Float8E4M3Codec::encode(value));
#endif
  }
#if defined(CROSSDEVICE_CONVERTS_FLOAT8)
  CROSSDEVICE_BOTH static std::uint16_t encode_finite(float low, float high) {
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
  }
#else

 private:
  CROSSDEVICE_BOTH static float decode(std::uint32_t bits) {
    if ((bits & 0x7FU) == 0x7FU) return bits_as<float>(std::uint32_t{0x7FC00000});
    const std::uint32_t half = (bits & 0x80U) << 8 | (bits & 0x7FU) << 7;
    return float16_to_float(static_cast<std::uint16_t>(half)) * 256.0F;  // exact
  }
#endif
};

/// narrow() of each.
template <class Format, class Compute, std::uint32_t kCount>
CROSSDEVICE_BOTH void narrow_all(const Compute (&values)[kCount],
                                 typename Format::Storage (&results)[kCount]) {
#if defined(CROSSDEVICE_CONVERTS_FLOAT8)
  if constexpr (Format::kHasPairs && kCount % 2 == 0) {
    // One branch for all: what saturates is rare.
    bool are_finite = true;
    CROSSDEVICE_UNROLL
    for (std::uint32_t e = 0; e < kCount; ++e) are_finite &= Format::becomes_finite(values[e]);
    if (are_finite) {
      CROSSDEVICE_UNROLL
      for (std::uint32_t e = 0; e < kCount; e += 2) {
        const std::uint16_t pair = Format::encode_finite(values[e], values[e + 1]);
        results[e] = static_cast<std::uint8_t>(pair);
        results[e + 1] = static_cast<std::uint8_t>(pair >> 8);
      }
      return;
    }
  }
#endif
  CROSSDEVICE_UNROLL
  for (std::uint32_t e = 0; e < kCount; ++e) results[e] = Format::narrow(values[e]);
}

}  // namespace crossdevice::cuda
