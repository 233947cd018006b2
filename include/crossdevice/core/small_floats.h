// SPDX-License-Identifier: Apache-2.0
/// The 16-bit and 8-bit floating-point element types: storage that converts to and from float.
///
/// They have no arithmetic on purpose: convert, compute in float, round once on the way back
/// (to nearest, ties to even, denormals included, whatever the processor's rounding and flushing
/// modes). NaN stays a NaN of its sign and becomes quiet. Overflow gives infinity; in float8_e4m3,
/// which has none, it gives NaN.
#pragma once

#include <cstdint>

#include "crossdevice/core/export.h"

namespace crossdevice {

namespace detail {
[[nodiscard]] CROSSDEVICE_EXPORT float float16_bits_to_float(std::uint16_t bits);
[[nodiscard]] CROSSDEVICE_EXPORT std::uint16_t float_to_float16_bits(float value);
[[nodiscard]] CROSSDEVICE_EXPORT float bfloat16_bits_to_float(std::uint16_t bits);
[[nodiscard]] CROSSDEVICE_EXPORT std::uint16_t float_to_bfloat16_bits(float value);
[[nodiscard]] CROSSDEVICE_EXPORT float float8_e4m3_bits_to_float(std::uint8_t bits);
[[nodiscard]] CROSSDEVICE_EXPORT std::uint8_t float_to_float8_e4m3_bits(float value);
[[nodiscard]] CROSSDEVICE_EXPORT float float8_e5m2_bits_to_float(std::uint8_t bits);
[[nodiscard]] CROSSDEVICE_EXPORT std::uint8_t float_to_float8_e5m2_bits(float value);
}  // namespace detail

/// IEEE binary16.
struct float16 {
  std::uint16_t bits = 0;
  float16() = default;
  explicit float16(float value) : bits(detail::float_to_float16_bits(value)) {}
  explicit operator float() const { return detail::float16_bits_to_float(bits); }
  friend bool operator==(const float16& a, const float16& b) {
    return static_cast<float>(a) == static_cast<float>(b);
  }
};

/// The upper half of an IEEE binary32.
struct bfloat16 {
  std::uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float value) : bits(detail::float_to_bfloat16_bits(value)) {}
  explicit operator float() const { return detail::bfloat16_bits_to_float(bits); }
  friend bool operator==(const bfloat16& a, const bfloat16& b) {
    return static_cast<float>(a) == static_cast<float>(b);
  }
};

/// OCP 8-bit float, 4 exponent bits, no infinities (largest value 448).
struct float8_e4m3 {
  std::uint8_t bits = 0;
  float8_e4m3() = default;
  explicit float8_e4m3(float value) : bits(detail::float_to_float8_e4m3_bits(value)) {}
  explicit operator float() const { return detail::float8_e4m3_bits_to_float(bits); }
  friend bool operator==(const float8_e4m3& a, const float8_e4m3& b) {
    return static_cast<float>(a) == static_cast<float>(b);
  }
};

/// OCP 8-bit float, 5 exponent bits, with infinities (largest value 57344).
struct float8_e5m2 {
  std::uint8_t bits = 0;
  float8_e5m2() = default;
  explicit float8_e5m2(float value) : bits(detail::float_to_float8_e5m2_bits(value)) {}
  explicit operator float() const { return detail::float8_e5m2_bits_to_float(bits); }
  friend bool operator==(const float8_e5m2& a, const float8_e5m2& b) {
    return static_cast<float>(a) == static_cast<float>(b);
  }
};

}  // namespace crossdevice
