// SPDX-License-Identifier: Apache-2.0
/// Element types of tensors: their sizes, names, classes and DLPack codes.
///
/// float8 types are storage: reductions convert to float32, add there and round once.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include "crossdevice/core/export.h"
#include "crossdevice/core/small_floats.h"

namespace crossdevice {

enum class DType : std::uint8_t {
  BOOL,
  INT8,
  INT16,
  INT32,
  INT64,
  UINT8,
  UINT16,
  UINT32,
  UINT64,
  FLOAT8_E4M3,  ///< OCP e4m3 "fn": no infinities, overflow becomes NaN
  FLOAT8_E5M2,
  FLOAT16,
  BFLOAT16,
  FLOAT32,
  FLOAT64,
  COMPLEX64,
  COMPLEX128,
};

/// Every DType once, in declaration order.
inline constexpr DType kAllDTypes[] = {
    DType::BOOL,        DType::INT8,      DType::INT16,    DType::INT32,   DType::INT64,
    DType::UINT8,       DType::UINT16,    DType::UINT32,   DType::UINT64,  DType::FLOAT8_E4M3,
    DType::FLOAT8_E5M2, DType::FLOAT16,   DType::BFLOAT16, DType::FLOAT32, DType::FLOAT64,
    DType::COMPLEX64,   DType::COMPLEX128};
inline constexpr std::size_t kNumDTypes = std::size(kAllDTypes);

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_in_bytes(DType dtype) {
  switch (dtype) {
    case DType::BOOL:
    case DType::INT8:
    case DType::UINT8:
    case DType::FLOAT8_E4M3:
    case DType::FLOAT8_E5M2:
      return 1;
    case DType::INT16:
    case DType::UINT16:
    case DType::FLOAT16:
    case DType::BFLOAT16:
      return 2;
    case DType::INT32:
    case DType::UINT32:
    case DType::FLOAT32:
      return 4;
    case DType::INT64:
    case DType::UINT64:
    case DType::FLOAT64:
    case DType::COMPLEX64:
      return 8;
    case DType::COMPLEX128:
      return 16;
  }
  return 0;  // unreachable: every enumerator returns above
}

/// TF's name: "float32", "bfloat16", "float8_e4m3fn", ...
[[nodiscard]] CROSSDEVICE_EXPORT std::string_view to_string(DType dtype);
/// The DType of a TF name (also TF's aliases "half", "float" and "double"), or nothing.
[[nodiscard]] CROSSDEVICE_EXPORT std::optional<DType> dtype_from_string(std::string_view name);

[[nodiscard]] constexpr bool is_integer(DType dtype) {
  return dtype >= DType::INT8 && dtype <= DType::UINT64;
}
[[nodiscard]] constexpr bool is_floating(DType dtype) {
  return dtype >= DType::FLOAT8_E4M3 && dtype <= DType::FLOAT64;
}
[[nodiscard]] constexpr bool is_complex(DType dtype) {
  return dtype == DType::COMPLEX64 || dtype == DType::COMPLEX128;
}

/// The DType of a MEAN: TF's true division turns integers of up to 16 bits into float32 and wider
/// ones into float64; everything else keeps its type.
[[nodiscard]] constexpr DType mean_dtype(DType dtype) {
  if (!is_integer(dtype)) return dtype;
  return size_in_bytes(dtype) <= 2 ? DType::FLOAT32 : DType::FLOAT64;
}

/// DLPack's pair of type code and bits (lanes are always 1).
struct DlpackType {
  std::uint8_t code = 0;
  std::uint8_t bits = 0;
  friend constexpr bool operator==(const DlpackType&, const DlpackType&) = default;
};
[[nodiscard]] CROSSDEVICE_EXPORT DlpackType to_dlpack_type(DType dtype);
/// The DType of a DLPack pair, or nothing.
[[nodiscard]] CROSSDEVICE_EXPORT std::optional<DType> dtype_from_dlpack(DlpackType type);

namespace detail {
// One line per element type; kDTypeOf<anything else> is empty. The fundamental integer types are
// named one by one, not as std::int64_t and its kin, because those alias only one of `long` and
// `long long`.
template <class T>
inline constexpr std::optional<DType> kDTypeOf = std::nullopt;
template <>
inline constexpr std::optional<DType> kDTypeOf<bool> = DType::BOOL;
template <>
inline constexpr std::optional<DType> kDTypeOf<signed char> = DType::INT8;
template <>
inline constexpr std::optional<DType> kDTypeOf<unsigned char> = DType::UINT8;
template <>
inline constexpr std::optional<DType> kDTypeOf<short> = DType::INT16;
template <>
inline constexpr std::optional<DType> kDTypeOf<unsigned short> = DType::UINT16;
template <>
inline constexpr std::optional<DType> kDTypeOf<int> = DType::INT32;
template <>
inline constexpr std::optional<DType> kDTypeOf<unsigned int> = DType::UINT32;
template <>
inline constexpr std::optional<DType> kDTypeOf<long> = sizeof(long) == 8 ? DType::INT64
                                                                         : DType::INT32;
template <>
inline constexpr std::optional<DType> kDTypeOf<unsigned long> = sizeof(long) == 8 ? DType::UINT64
                                                                                  : DType::UINT32;
template <>
inline constexpr std::optional<DType> kDTypeOf<long long> = DType::INT64;
template <>
inline constexpr std::optional<DType> kDTypeOf<unsigned long long> = DType::UINT64;
template <>
inline constexpr std::optional<DType> kDTypeOf<float8_e4m3> = DType::FLOAT8_E4M3;
template <>
inline constexpr std::optional<DType> kDTypeOf<float8_e5m2> = DType::FLOAT8_E5M2;
template <>
inline constexpr std::optional<DType> kDTypeOf<float16> = DType::FLOAT16;
template <>
inline constexpr std::optional<DType> kDTypeOf<bfloat16> = DType::BFLOAT16;
template <>
inline constexpr std::optional<DType> kDTypeOf<float> = DType::FLOAT32;
template <>
inline constexpr std::optional<DType> kDTypeOf<double> = DType::FLOAT64;
template <>
inline constexpr std::optional<DType> kDTypeOf<std::complex<float>> = DType::COMPLEX64;
template <>
inline constexpr std::optional<DType> kDTypeOf<std::complex<double>> = DType::COMPLEX128;
}  // namespace detail

/// A C++ type (without const) that is the element type of some DType.
template <class T>
concept Element = (detail::kDTypeOf<T> != std::nullopt);

template <Element T>
inline constexpr DType dtype_of = *detail::kDTypeOf<T>;

}  // namespace crossdevice
