// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/integer_mean.h"

#include <algorithm>
#include <type_traits>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

template <class Visitor>
void visit_integers(DType dtype, Visitor visitor) {
  switch (dtype) {
    case DType::INT8:
      return visitor(std::int8_t{});
    case DType::INT16:
      return visitor(std::int16_t{});
    case DType::INT32:
      return visitor(std::int32_t{});
    case DType::INT64:
      return visitor(std::int64_t{});
    case DType::UINT8:
      return visitor(std::uint8_t{});
    case DType::UINT16:
      return visitor(std::uint16_t{});
    case DType::UINT32:
      return visitor(std::uint32_t{});
    case DType::UINT64:
      return visitor(std::uint64_t{});
    case DType::BOOL:
    case DType::FLOAT8_E4M3:
    case DType::FLOAT8_E5M2:
    case DType::FLOAT16:
    case DType::BFLOAT16:
    case DType::FLOAT32:
    case DType::FLOAT64:
    case DType::COMPLEX64:
    case DType::COMPLEX128:
      break;
  }
  throw InternalError("not an integer dtype");
}

}  // namespace

void add_integers(DType dtype, std::span<const void* const> inputs, std::size_t count,
                  std::uint64_t* sums) {
  std::fill_n(sums, count, 0);
  visit_integers(dtype, [&]<class T>(T) {
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    for (const void* const input : inputs) {
      const T* const values = static_cast<const T*>(input);
      for (std::size_t i = 0; i < count; ++i) {
        sums[i] += static_cast<std::uint64_t>(static_cast<Wide>(values[i]));
      }
    }
  });
}

void divide_integer_sums(DType dtype, const std::uint64_t* sums, std::size_t count,
                         std::size_t divisor, void* output) {
  visit_integers(dtype, [&]<class T>(T) {
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    using Result = std::conditional_t<sizeof(T) <= 2, float, double>;
    auto* const results = static_cast<Result*>(output);
    for (std::size_t i = 0; i < count; ++i) {
      results[i] = static_cast<Result>(static_cast<Wide>(sums[i])) / static_cast<Result>(divisor);
    }
  });
}

}  // namespace crossdevice::detail
