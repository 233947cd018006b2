// SPDX-License-Identifier: Apache-2.0
/// The slow, obvious reductions that every fast one is compared with, bit by bit.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/core/small_floats.h"

namespace crossdevice::testing {

template <class T>
[[nodiscard]] T load_element(const void* data, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store_element(void* data, std::size_t i, T value) {
  std::memcpy(static_cast<std::byte*>(data) + i * sizeof(T), &value, sizeof(T));
}

namespace reference {

/// a op b of floats: MIN and MAX propagate NaN, and -0 is less than +0.
template <class T>
T combine_floats(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::MEAN:
      return a + b;
    case ReduceOp::PROD:
      return a * b;
    case ReduceOp::MIN:
    case ReduceOp::MAX: {
      if (std::isnan(a)) return a;
      if (std::isnan(b)) return b;
      const bool a_is_less = a < b || (a == b && std::signbit(a));
      return a_is_less == (op == ReduceOp::MIN) ? a : b;
    }
  }
  return a;
}

/// NaN without sign and payload.
template <class T>
T canonical(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

/// A storage type, the type it is computed in, and how to come and go.
template <class T>
struct FloatType {
  using Compute = T;
  static T widen(T value) { return value; }
  static T narrow(T value) { return canonical(value); }
};
template <class T, class Bits, Bits kNaN>
struct SmallFloatType {
  using Compute = float;
  static float widen(T value) { return static_cast<float>(value); }
  static T narrow(float value) {
    T result(value);
    if (std::isnan(static_cast<float>(result))) result.bits = kNaN;
    return result;
  }
};
template <>
struct FloatType<float16> : SmallFloatType<float16, std::uint16_t, 0x7E00> {};
template <>
struct FloatType<bfloat16> : SmallFloatType<bfloat16, std::uint16_t, 0x7FC0> {};
template <>
struct FloatType<float8_e5m2> : SmallFloatType<float8_e5m2, std::uint8_t, 0x7E> {};
template <>
struct FloatType<float8_e4m3> : SmallFloatType<float8_e4m3, std::uint8_t, 0x7F> {};

template <class T>
T reduce_floats(ReduceOp op, std::span<const T> values, std::size_t first_group) {
  using Type = FloatType<T>;
  using Compute = typename Type::Compute;
  if (values.size() == 1) return values[0];
  const auto fold = [&](std::span<const T> group) {
    Compute result = Type::widen(group[0]);
    for (const T value : group.subspan(1)) result = combine_floats(op, result, Type::widen(value));
    return result;
  };
  Compute result = first_group == 0 ? fold(values)
                                    : combine_floats(op, fold(values.first(first_group)),
                                                     fold(values.subspan(first_group)));
  if (op == ReduceOp::MEAN) result = result / static_cast<Compute>(values.size());
  return Type::narrow(result);
}

/// Component by component; a product of two is written out, and nothing in it is fused.
template <class T>
std::complex<T> reduce_complex(ReduceOp op, std::span<const std::complex<T>> values,
                               std::size_t first_group) {
  if (values.size() == 1) return values[0];
  if (op != ReduceOp::PROD) {
    std::vector<T> real;
    std::vector<T> imaginary;
    for (const std::complex<T>& value : values) {
      real.push_back(value.real());
      imaginary.push_back(value.imag());
    }
    return {reduce_floats<T>(op, real, first_group), reduce_floats<T>(op, imaginary, first_group)};
  }
  const auto multiply = [](std::complex<T> a, std::complex<T> b) {
    const volatile T products[] = {a.real() * b.real(), a.imag() * b.imag(), a.real() * b.imag(),
                                   a.imag() * b.real()};
    return std::complex<T>(products[0] - products[1], products[2] + products[3]);
  };
  const auto fold = [&](std::span<const std::complex<T>> group) {
    std::complex<T> result = group[0];
    for (const std::complex<T>& value : group.subspan(1)) result = multiply(result, value);
    return result;
  };
  const std::complex<T> result = first_group == 0 ? fold(values)
                                                  : multiply(fold(values.first(first_group)),
                                                             fold(values.subspan(first_group)));
  return {canonical(result.real()), canonical(result.imag())};
}

/// Integers wrap; grouping makes no difference to them.
template <class T>
T reduce_integers(ReduceOp op, std::span<const T> values) {
  T result = values[0];
  for (const T value : values.subspan(1)) {
    switch (op) {
      case ReduceOp::SUM:
        result =
            static_cast<T>(static_cast<std::uint64_t>(result) + static_cast<std::uint64_t>(value));
        break;
      case ReduceOp::PROD:
        result =
            static_cast<T>(static_cast<std::uint64_t>(result) * static_cast<std::uint64_t>(value));
        break;
      case ReduceOp::MIN:
        result = value < result ? value : result;
        break;
      case ReduceOp::MAX:
        result = value > result ? value : result;
        break;
      case ReduceOp::MEAN:
        break;  // has another result type: mean_of_integers
    }
  }
  return result;
}

/// The sum in 64 bits, divided in float32 (integers of up to 16 bits) or float64.
template <class T>
auto mean_of_integers(std::span<const T> values) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  using Result = std::conditional_t<sizeof(T) <= 2, float, double>;
  std::uint64_t sum = 0;
  for (const T value : values) sum += static_cast<std::uint64_t>(value);
  return static_cast<Result>(static_cast<Wide>(sum)) / static_cast<Result>(values.size());
}

/// One element of the result, from the values of all inputs.
template <class T>
void reduce_element(ReduceOp op, std::span<const T> values, std::size_t first_group, void* result,
                    std::size_t i) {
  if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    store_element(result, i, reduce_complex<typename T::value_type>(op, values, first_group));
  } else if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::MEAN) {
      store_element(result, i, mean_of_integers<T>(values));
    } else {
      store_element(result, i, reduce_integers<T>(op, values));
    }
  } else {
    store_element(result, i, reduce_floats<T>(op, values, first_group));
  }
}

template <class T>
void reduce_all(ReduceOp op, std::span<const void* const> inputs, std::size_t count,
                std::size_t first_group, void* result) {
  std::vector<T> values(inputs.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < inputs.size(); ++k) values[k] = load_element<T>(inputs[k], i);
    reduce_element<T>(op, values, first_group, result, i);
  }
}

}  // namespace reference

/// The `count` elements of result_dtype(op, dtype) that reduce_kernel.h promises for these inputs. `first_group` is 0 or
/// less than the number of inputs.
[[nodiscard]] inline std::vector<std::byte> reference_reduce(ReduceOp op, DType dtype,
                                                             std::span<const void* const> inputs,
                                                             std::size_t count,
                                                             std::size_t first_group = 0) {
  std::vector<std::byte> result(count * size_in_bytes(result_dtype(op, dtype)));
  const auto reduce = [&]<class T>(T) {
    reference::reduce_all<T>(op, inputs, count, first_group, result.data());
  };
  switch (dtype) {
    case DType::BOOL:  // false is 0 and true is 1, so "and" is their minimum, "or" their maximum
      reference::reduce_all<std::uint8_t>(op == ReduceOp::PROD ? ReduceOp::MIN : op, inputs, count,
                                          0, result.data());
      break;
    case DType::INT8:
      reduce(std::int8_t{});
      break;
    case DType::INT16:
      reduce(std::int16_t{});
      break;
    case DType::INT32:
      reduce(std::int32_t{});
      break;
    case DType::INT64:
      reduce(std::int64_t{});
      break;
    case DType::UINT8:
      reduce(std::uint8_t{});
      break;
    case DType::UINT16:
      reduce(std::uint16_t{});
      break;
    case DType::UINT32:
      reduce(std::uint32_t{});
      break;
    case DType::UINT64:
      reduce(std::uint64_t{});
      break;
    case DType::FLOAT8_E4M3:
      reduce(float8_e4m3{});
      break;
    case DType::FLOAT8_E5M2:
      reduce(float8_e5m2{});
      break;
    case DType::FLOAT16:
      reduce(float16{});
      break;
    case DType::BFLOAT16:
      reduce(bfloat16{});
      break;
    case DType::FLOAT32:
      reduce(float{});
      break;
    case DType::FLOAT64:
      reduce(double{});
      break;
    case DType::COMPLEX64:
      reduce(std::complex<float>{});
      break;
    case DType::COMPLEX128:
      reduce(std::complex<double>{});
      break;
  }
  return result;
}

}  // namespace crossdevice::testing
