// SPDX-License-Identifier: Apache-2.0
#include "support/emulated_nccl_arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "crossdevice/core/small_floats.h"

namespace crossdevice::testing {
namespace {

using detail::NcclDataType;
using detail::NcclRedOp;

template <class T>
T combine(NcclRedOp op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::make_unsigned_t<T>;  // integers wrap
    const auto x = static_cast<Wide>(a);
    const auto y = static_cast<Wide>(b);
    switch (op) {
      case NcclRedOp::SUM:
        return static_cast<T>(static_cast<Wide>(x + y));
      case NcclRedOp::PROD:
        return static_cast<T>(static_cast<Wide>(static_cast<std::uint64_t>(x) * y));
      case NcclRedOp::MAX:
        return std::max(a, b);
      case NcclRedOp::MIN:
        return std::min(a, b);
    }
    return a;
  } else if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case NcclRedOp::SUM:
        return a + b;
      case NcclRedOp::PROD:
        return a * b;
      case NcclRedOp::MAX:
        return std::fmax(a, b);
      case NcclRedOp::MIN:
        return std::fmin(a, b);
    }
    return a;
  } else {
    return T(combine(op, static_cast<float>(a), static_cast<float>(b)));
  }
}

template <class T>
void reduce(NcclRedOp op, std::span<const std::byte* const> inputs, std::byte* result,
            std::size_t count) {
  for (std::size_t element = 0; element < count; ++element) {
    T value;
    std::memcpy(&value, inputs[0] + element * sizeof(T), sizeof(T));
    for (const std::byte* input : inputs.subspan(1)) {
      T next;
      std::memcpy(&next, input + element * sizeof(T), sizeof(T));
      value = combine(op, value, next);
    }
    std::memcpy(result + element * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

std::size_t size_in_bytes(NcclDataType type) {
  switch (type) {
    case NcclDataType::INT8:
    case NcclDataType::UINT8:
    case NcclDataType::FLOAT8_E4M3:
    case NcclDataType::FLOAT8_E5M2:
      return 1;
    case NcclDataType::FLOAT16:
    case NcclDataType::BFLOAT16:
      return 2;
    case NcclDataType::INT32:
    case NcclDataType::UINT32:
    case NcclDataType::FLOAT32:
      return 4;
    case NcclDataType::INT64:
    case NcclDataType::UINT64:
    case NcclDataType::FLOAT64:
      return 8;
  }
  return 0;
}

const char* name_of(NcclDataType type) {
  static constexpr const char* kNames[] = {"int8",    "uint8",    "int32",      "uint32",
                                           "int64",   "uint64",   "float16",    "float32",
                                           "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return kNames[static_cast<std::size_t>(type)];
}

const char* name_of(NcclRedOp op) {
  static constexpr const char* kNames[] = {"SUM", "PROD", "MAX", "MIN"};
  return kNames[static_cast<std::size_t>(op)];
}

void reduce_as_nccl(NcclDataType type, NcclRedOp op, std::span<const std::byte* const> inputs,
                    std::byte* result, std::size_t count) {
  switch (type) {
    case NcclDataType::INT8:
      return reduce<std::int8_t>(op, inputs, result, count);
    case NcclDataType::UINT8:
      return reduce<std::uint8_t>(op, inputs, result, count);
    case NcclDataType::INT32:
      return reduce<std::int32_t>(op, inputs, result, count);
    case NcclDataType::UINT32:
      return reduce<std::uint32_t>(op, inputs, result, count);
    case NcclDataType::INT64:
      return reduce<std::int64_t>(op, inputs, result, count);
    case NcclDataType::UINT64:
      return reduce<std::uint64_t>(op, inputs, result, count);
    case NcclDataType::FLOAT16:
      return reduce<float16>(op, inputs, result, count);
    case NcclDataType::FLOAT32:
      return reduce<float>(op, inputs, result, count);
    case NcclDataType::FLOAT64:
      return reduce<double>(op, inputs, result, count);
    case NcclDataType::BFLOAT16:
      return reduce<bfloat16>(op, inputs, result, count);
    case NcclDataType::FLOAT8_E4M3:
      return reduce<float8_e4m3>(op, inputs, result, count);
    case NcclDataType::FLOAT8_E5M2:
      return reduce<float8_e5m2>(op, inputs, result, count);
  }
}

}  // namespace crossdevice::testing
