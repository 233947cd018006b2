// SPDX-License-Identifier: Apache-2.0
/// From a DType to the C++ type of its elements.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>

#include "crossdevice/core/dtype.h"

namespace crossdevice::detail {

/// Calls visitor(std::type_identity<T>()) with the element type of `dtype`.
template <class Visitor>
decltype(auto) visit_dtype(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::BOOL:
      return visitor(std::type_identity<bool>());
    case DType::INT8:
      return visitor(std::type_identity<std::int8_t>());
    case DType::INT16:
      return visitor(std::type_identity<std::int16_t>());
    case DType::INT32:
      return visitor(std::type_identity<std::int32_t>());
    case DType::INT64:
      return visitor(std::type_identity<std::int64_t>());
    case DType::UINT8:
      return visitor(std::type_identity<std::uint8_t>());
    case DType::UINT16:
      return visitor(std::type_identity<std::uint16_t>());
    case DType::UINT32:
      return visitor(std::type_identity<std::uint32_t>());
    case DType::UINT64:
      return visitor(std::type_identity<std::uint64_t>());
    case DType::FLOAT8_E4M3:
      return visitor(std::type_identity<float8_e4m3>());
    case DType::FLOAT8_E5M2:
      return visitor(std::type_identity<float8_e5m2>());
    case DType::FLOAT16:
      return visitor(std::type_identity<float16>());
    case DType::BFLOAT16:
      return visitor(std::type_identity<bfloat16>());
    case DType::FLOAT32:
      return visitor(std::type_identity<float>());
    case DType::FLOAT64:
      return visitor(std::type_identity<double>());
    case DType::COMPLEX64:
      return visitor(std::type_identity<std::complex<float>>());
    case DType::COMPLEX128:
      return visitor(std::type_identity<std::complex<double>>());
  }
  return visitor(std::type_identity<bool>());  // unreachable: every enumerator returns above
}

template <class T>
inline constexpr bool kIsSmallFloat =
    std::is_same_v<T, float16> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float8_e4m3> ||
    std::is_same_v<T, float8_e5m2>;
template <class T>
inline constexpr bool kIsComplex =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

}  // namespace crossdevice::detail
