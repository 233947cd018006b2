// SPDX-License-Identifier: Apache-2.0
/// Test patterns, and a reference reduction without any cleverness.
#include "collective/pattern.h"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "collective/element_types.h"

namespace crossdevice::bench {

namespace {

template <class T>
constexpr bool kIsComplex = false;
template <class T>
constexpr bool kIsComplex<std::complex<T>> = true;

/// The element that holds `number`; wraps for integers.
template <class T>
T from_number(double number) {
  if constexpr (std::is_same_v<T, bool>) {
    return number != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(number));
  } else if constexpr (std::is_same_v<T, double> || kIsComplex<T>) {
    return T(static_cast<
             typename std::conditional_t<std::is_same_v<T, std::complex<float>>, float, double>>(
        number));
  } else {
    return T(static_cast<float>(number));
  }
}

/// `sum` divided by `n` in the arithmetic of MEAN: float32, or float64 for 64-bit results.
template <class T>
T mean_from(double sum, std::size_t n) {
  if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::complex<double>>) {
    return T(sum / static_cast<double>(n));
  } else {
    return from_number<T>(static_cast<double>(static_cast<float>(sum) / static_cast<float>(n)));
  }
}

/// Reads without assuming that the bytes are a valid T: an untouched bool may be anything.
template <class T>
bool holds(const void* data, std::size_t index, const T& expected) {
  if constexpr (std::is_same_v<T, bool>) {
    return static_cast<const unsigned char*>(data)[index] == (expected ? 1 : 0);
  } else {
    return static_cast<const T*>(data)[index] == expected;
  }
}

/// Compares with `expected(k)`, which repeats with the pattern, so each of its values is computed once.
template <class T, class Expected>
std::size_t count_different(const PatternPlace& place, const void* data, std::size_t count,
                            const Expected& expected) {
  const auto table = std::make_unique<T[]>(kPatternPeriod);
  for (std::size_t k = 0; k < kPatternPeriod; ++k) table[k] = expected(k);
  std::size_t wrong = 0;
  std::size_t k = place.first_index % kPatternPeriod;
  for (std::size_t i = 0; i < count; ++i) {
    if (!holds<T>(data, i, table[k])) ++wrong;
    if (++k == kPatternPeriod) k = 0;
  }
  return wrong;
}

}  // namespace

double input_element(DType dtype, ReduceOp op, std::size_t replica, std::size_t num_replicas,
                     std::size_t index) {
  const std::size_t k = index % kPatternPeriod;
  if (dtype == DType::BOOL) return static_cast<double>((k / 2 + replica * (k % 3)) % 2);
  // A product of many numbers stays small only if almost all of them are 1.
  if (op == ReduceOp::PROD) return (k + replica) % (2 * num_replicas + 1) == 0 ? 2 : 1;
  const double number = static_cast<double>((k * 7 + replica * 3 + k / 5) % 5);
  const bool has_sign =
      is_floating(dtype) || is_complex(dtype) || (dtype >= DType::INT8 && dtype <= DType::INT64);
  return has_sign ? number - 2 : number;
}

double reduced_element(DType dtype, ReduceOp op, std::size_t num_replicas, std::size_t index) {
  double result = input_element(dtype, op, 0, num_replicas, index);
  for (std::size_t r = 1; r < num_replicas; ++r) {
    const double next = input_element(dtype, op, r, num_replicas, index);
    switch (op) {
      case ReduceOp::SUM:
      case ReduceOp::MEAN:
        result += next;
        break;
      case ReduceOp::MIN:
        result = std::min(result, next);
        break;
      case ReduceOp::MAX:
        result = std::max(result, next);
        break;
      case ReduceOp::PROD:
        result *= next;
        break;
    }
  }
  return result;
}

void write_inputs(const PatternPlace& place, void* data, std::size_t count) {
  with_element_type(place.dtype, [&]<class T>(std::type_identity<T>) {
    // One period is computed; the buffer is filled with copies of it.
    const std::size_t period = std::min(count, kPatternPeriod);
    T* const out = static_cast<T*>(data);
    for (std::size_t i = 0; i < period; ++i) {
      out[i] = from_number<T>(input_element(place.dtype, place.op, place.replica,
                                            place.num_replicas, place.first_index + i));
    }
    for (std::size_t done = period; done < count;) {
      // The source block stays small, so that it is read from the first cache.
      const std::size_t piece = std::min(count - done, std::min(done, 8 * kPatternPeriod));
      std::memcpy(static_cast<void*>(out + done), out, piece * sizeof(T));
      done += piece;
    }
  });
}

std::size_t count_different_from_input(const PatternPlace& place, const void* data,
                                       std::size_t count) {
  return with_element_type(place.dtype, [&]<class T>(std::type_identity<T>) {
    return count_different<T>(place, data, count, [&](std::size_t k) {
      return from_number<T>(
          input_element(place.dtype, place.op, place.replica, place.num_replicas, k));
    });
  });
}

std::size_t count_different_from_reduction(const PatternPlace& place, const void* data,
                                           std::size_t count) {
  const DType result = result_dtype(place.op, place.dtype);
  return with_element_type(result, [&]<class T>(std::type_identity<T>) {
    return count_different<T>(place, data, count, [&](std::size_t k) {
      const double number = reduced_element(place.dtype, place.op, place.num_replicas, k);
      return place.op == ReduceOp::MEAN ? mean_from<T>(number, place.num_replicas)
                                        : from_number<T>(number);
    });
  });
}

}  // namespace crossdevice::bench
