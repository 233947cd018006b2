// SPDX-License-Identifier: Apache-2.0
// Element loops of the strategy floor.
#include "strategy/detail/elements.h"

#include <algorithm>
#include <complex>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/host_thread_pool.h"
#include "crossdevice/device/reduce_kernel.h"
#include "crossdevice/strategy/variable_component.h"

#include "strategy/detail/visit_dtype.h"

namespace crossdevice::detail {

namespace {

/// Large enough that a chunk is worth handing to another thread.
constexpr std::size_t kChunk = std::size_t{1} << 18;

template <class T>
T combine(T a, T b, VariableUpdate update) {
  const bool adds = update == VariableUpdate::ASSIGN_ADD;
  if constexpr (kIsSmallFloat<T>) {
    const auto x = static_cast<float>(a);
    const auto y = static_cast<float>(b);
    return T(adds ? x + y : x - y);
  } else if constexpr (std::is_integral_v<T>) {  // wraps, as the kernels' SUM does
    const auto x = static_cast<std::uint64_t>(static_cast<std::int64_t>(a));
    const auto y = static_cast<std::uint64_t>(static_cast<std::int64_t>(b));
    return static_cast<T>(adds ? x + y : x - y);
  } else {
    return adds ? a + b : a - b;
  }
}

template <class T>
void combine_all(const Tensor& component, const Tensor& value, VariableUpdate update) {
  const std::span<T> to = component.span<T>();
  const std::span<const T> from = value.span<const T>();
  const std::size_t num_chunks = (to.size() + kChunk - 1) / kChunk;
  HostThreadPool::instance().run(num_chunks, [&](std::size_t chunk) {
    const std::size_t end = std::min(to.size(), (chunk + 1) * kChunk);
    for (std::size_t i = chunk * kChunk; i < end; ++i) to[i] = combine(to[i], from[i], update);
  });
}

/// Whether an integer type holds the number exactly.
template <class T>
bool holds(const Number& number) {
  return std::visit(
      [](auto n) {
        if constexpr (std::is_same_v<T, bool>) {
          return n == 0 || n == 1;
        } else if constexpr (std::is_integral_v<decltype(n)>) {
          return std::in_range<T>(n);
        } else {
          // Powers of two, so both bounds are exact; NaN fails the first comparison.
          constexpr T kHalfOfAbove = std::numeric_limits<T>::max() / 2 + 1;
          const auto low = static_cast<double>(std::numeric_limits<T>::min());
          const double above = 2.0 * static_cast<double>(kHalfOfAbove);
          return n >= low && n < above && n == static_cast<double>(static_cast<T>(n));
        }
      },
      number);
}

template <class T>
T convert(const Number& number) {
  if constexpr (std::is_integral_v<T>) {
    if (!holds<T>(number)) {
      const std::string text = std::visit([](auto n) { return std::to_string(n); }, number);
      throw ValueError(text + " has no exact form in " + std::string(to_string(dtype_of<T>)));
    }
  }
  return std::visit(
      [](auto n) {
        if constexpr (kIsSmallFloat<T>) {
          return T(static_cast<float>(n));
        } else if constexpr (kIsComplex<T>) {
          return T(static_cast<typename T::value_type>(n));
        } else {
          return static_cast<T>(n);
        }
      },
      number);
}

bool has_only_zeros(const Tensor& tensor) {
  const Tensor host = on_host(tensor);
  return visit_dtype(tensor.dtype(), [&host]<class T>(std::type_identity<T>) {
    const std::span<const T> elements = host.span<const T>();
    return std::all_of(elements.begin(), elements.end(), [](const T& x) { return x == T{}; });
  });
}

}  // namespace

const char* to_string(VariableUpdate update) {
  switch (update) {
    case VariableUpdate::ASSIGN:
      return "assign";
    case VariableUpdate::ASSIGN_ADD:
      return "assign_add";
    case VariableUpdate::ASSIGN_SUB:
      return "assign_sub";
  }
  return "";  // unreachable: every enumerator returns above
}

void apply_update(VariableUpdate update, const Tensor& component, const Tensor& value) {
  if (component.dtype() != value.dtype() || component.shape() != value.shape()) {
    throw ValueError(std::string(to_string(update)) + ": expected " + component.to_string() +
                     ", got " + value.to_string());
  }
  if (update == VariableUpdate::ASSIGN) {
    copy(component, value);
    return;
  }
  if (!is_supported(ReduceOp::SUM, component.dtype())) {
    throw ValueError(std::string(to_string(update)) + ": bool has no sum");
  }
  const Tensor to = on_host(component);
  const Tensor from = on_host(value);
  visit_dtype(component.dtype(),
              [&]<class T>(std::type_identity<T>) { combine_all<T>(to, from, update); });
  if (!component.device().is_host()) copy(component, to);
}

Tensor on_host(const Tensor& tensor) {
  return tensor.device().is_host() ? tensor : copy_to_device(tensor, "CPU:0");
}

bool is_all_zero(const DistributedValues& value) {
  const auto is_zero = [](const Tensor& tensor) { return has_only_zeros(tensor); };
  return std::all_of(value.values().begin(), value.values().end(), is_zero) &&
         std::all_of(value.slices().begin(), value.slices().end(),
                     [&](const IndexedSlices& slices) { return is_zero(slices.values); });
}

Tensor make_scalar(const Number& number, DType dtype, const Device& device) {
  return visit_dtype(dtype, [&]<class T>(std::type_identity<T>) {
    const T element = convert<T>(number);
    return Tensor::copy_of(std::span<const T, 1>(&element, 1), Shape(), device);
  });
}

Tensor equal_part(const Tensor& value, std::size_t part, std::size_t num_parts) {
  if (!is_supported(ReduceOp::SUM, value.dtype())) throw ValueError("bool has no sum");
  Tensor result = copy_to_device(value, "CPU:0");
  if (!is_integer(value.dtype())) {
    divide_elements(result.dtype(), result.data(), result.num_elements(),
                    static_cast<double>(num_parts));
    return result;
  }
  visit_dtype(value.dtype(), [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      using W = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
      const auto parts = static_cast<W>(num_parts);
      for (T& element : result.span<T>()) {
        const W quotient = static_cast<W>(element) / parts;
        element =
            static_cast<T>(part == 0 ? static_cast<W>(element) - quotient * (parts - 1) : quotient);
      }
    }
  });
  return result;
}

}  // namespace crossdevice::detail
