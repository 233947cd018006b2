// SPDX-License-Identifier: Apache-2.0
/// From a DType at run time to its C++ type.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>

#include "crossdevice/core/dtype.h"

namespace crossdevice::bench {

/// Calls `f(std::type_identity<T>{})` with the element type of `dtype` and returns what it returns.
template <class F>
decltype(auto) with_element_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::BOOL:
      return f(std::type_identity<bool>{});
    case DType::INT8:
      return f(std::type_identity<std::int8_t>{});
    case DType::INT16:
      return f(std::type_identity<std::int16_t>{});
    case DType::INT32:
      return f(std::type_identity<std::int32_t>{});
    case DType::INT64:
      return f(std::type_identity<std::int64_t>{});
    case DType::UINT8:
      return f(std::type_identity<std::uint8_t>{});
    case DType::UINT16:
      return f(std::type_identity<std::uint16_t>{});
    case DType::UINT32:
      return f(std::type_identity<std::uint32_t>{});
    case DType::UINT64:
      return f(std::type_identity<std::uint64_t>{});
    case DType::FLOAT8_E4M3:
      return f(std::type_identity<float8_e4m3>{});
    case DType::FLOAT8_E5M2:
      return f(std::type_identity<float8_e5m2>{});
    case DType::FLOAT16:
      return f(std::type_identity<float16>{});
    case DType::BFLOAT16:
      return f(std::type_identity<bfloat16>{});
    case DType::FLOAT32:
      return f(std::type_identity<float>{});
    case DType::FLOAT64:
      return f(std::type_identity<double>{});
    case DType::COMPLEX64:
      return f(std::type_identity<std::complex<float>>{});
    case DType::COMPLEX128:
      return f(std::type_identity<std::complex<double>>{});
  }
  return f(std::type_identity<float>{});  // unreachable: every enumerator returns above
}

}  // namespace crossdevice::bench
