// SPDX-License-Identifier: Apache-2.0
// A row-major walk over the input with the output's offset kept alongside.
#include "strategy/detail/axis_reduce.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <string>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/core/int64.h"

#include "strategy/detail/elements.h"
#include "strategy/detail/visit_dtype.h"

namespace crossdevice::detail {

namespace {

/// The type that partial results of T are held in.
template <class T>
struct WideOf {
  using type = double;
};
template <>
struct WideOf<bool> {
  using type = bool;
};
template <class T>
requires(std::is_integral_v<T>&& std::is_signed_v<T>) struct WideOf<T> {
  using type = std::int64_t;
};
template <class T>
requires(std::is_integral_v<T>&& std::is_unsigned_v<T> &&
         !std::is_same_v<T, bool>) struct WideOf<T> {
  using type = std::uint64_t;
};
template <class T>
struct WideOf<std::complex<T>> {
  using type = std::complex<double>;
};
template <class T>
using Wide = typename WideOf<T>::type;

template <class T>
Wide<T> widen(T value) {
  if constexpr (kIsSmallFloat<T>) {
    return static_cast<float>(value);
  } else {
    return Wide<T>(value);
  }
}

template <class W>
W combine(ReduceOp op, W a, W b) {
  if constexpr (std::is_same_v<W, bool>) {
    return op == ReduceOp::MAX ? (a || b) : (a && b);
  } else if constexpr (kIsComplex<W>) {
    return op == ReduceOp::PROD ? a * b : a + b;
  } else if constexpr (std::is_integral_v<W>) {
    if (op == ReduceOp::MIN) return std::min(a, b);
    if (op == ReduceOp::MAX) return std::max(a, b);
    const auto x = static_cast<std::uint64_t>(a);  // wraps
    const auto y = static_cast<std::uint64_t>(b);
    return static_cast<W>(op == ReduceOp::PROD ? x * y : x + y);
  } else {
    if (op == ReduceOp::PROD) return a * b;
    if (op == ReduceOp::SUM || op == ReduceOp::MEAN) return a + b;
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<W>::quiet_NaN();
    const bool a_is_less =
        a != b ? a < b : std::signbit(a);  // -0 is less than +0, as in the kernels
    return a_is_less == (op == ReduceOp::MIN) ? a : b;
  }
}

/// Which dimensions go, and what stays.
struct Plan {
  std::vector<bool> is_reduced;
  Shape kept;
  std::int64_t count = 1;
};

Plan make_plan(const Shape& shape, std::span<const int> axes) {
  Plan plan;
  const auto rank = static_cast<int>(shape.rank());
  plan.is_reduced.assign(shape.rank(), false);
  for (const int axis : axes) {
    if (axis < -rank || axis >= rank) {
      throw ValueError("reduce: axis " + std::to_string(axis) + " is out of range for shape " +
                       shape.to_string());
    }
    const auto index = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
    if (plan.is_reduced[index]) {
      throw ValueError("reduce: axis " + std::to_string(index) + " is named twice");
    }
    plan.is_reduced[index] = true;
  }
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    if (plan.is_reduced[i]) {
      plan.count = checked_multiply(plan.count, shape[i]);
    } else {
      kept.push_back(shape[i]);
    }
  }
  plan.kept = Shape(std::span<const std::int64_t>(kept));
  return plan;
}

/// Calls visit(offset) for every element of `shape` in row-major order, with the offset of the output element that it goes to.
template <class Visit>
void walk(const Shape& shape, const Plan& plan, const Visit& visit) {
  std::vector<std::size_t> strides(shape.rank(), 0);  // of the output; 0 along reduced dimensions
  std::size_t stride = 1;
  for (std::size_t i = shape.rank(); i-- > 0;) {
    if (plan.is_reduced[i]) continue;
    strides[i] = stride;
    stride *= static_cast<std::size_t>(shape[i]);
  }
  std::vector<std::int64_t> index(shape.rank(), 0);
  std::size_t offset = 0;
  for (std::int64_t n = shape.num_elements(); n > 0; --n) {
    visit(offset);
    for (std::size_t i = shape.rank(); i-- > 0;) {
      offset += strides[i];
      if (++index[i] < shape[i]) break;
      offset -= strides[i] * static_cast<std::size_t>(shape[i]);
      index[i] = 0;
    }
  }
}

template <class T>
Tensor reduce_elements(ReduceOp op, const Tensor& value, const Plan& plan) {
  using W = Wide<T>;
  Tensor result = Tensor::empty(dtype_of<W>, plan.kept, "CPU:0");
  const std::span<W> out = result.span<W>();
  // What is left when there is nothing to combine; MIN and MAX have been refused then.
  std::fill(out.begin(), out.end(), op == ReduceOp::PROD ? W(1) : W(0));
  std::vector<bool> seen(out.size(), false);
  const std::span<const T> in = value.span<const T>();
  auto next = in.begin();
  walk(value.shape(), plan, [&](std::size_t offset) {
    const W element = widen(*next++);
    out[offset] = seen[offset] ? combine<W>(op, out[offset], element) : element;
    seen[offset] = true;
  });
  return result;
}

/// Rounded once, to the type of the result.
template <class R, class W>
R narrow(W value) {
  if constexpr (kIsComplex<R>) {
    return R(value);
  } else if constexpr (kIsSmallFloat<R>) {
    return R(static_cast<float>(value));
  } else {
    return static_cast<R>(value);
  }
}

template <class R, class W>
Tensor finish(const Tensor& total, ReduceOp op, std::int64_t count) {
  Tensor result = Tensor::empty(dtype_of<R>, total.shape(), "CPU:0");
  const std::span<R> out = result.span<R>();
  const std::span<const W> in = total.span<const W>();
  for (std::size_t i = 0; i < out.size(); ++i) {
    if constexpr (std::is_integral_v<W>) {
      out[i] = op == ReduceOp::MEAN
                   ? narrow<R>(static_cast<double>(in[i]) / static_cast<double>(count))
                   : narrow<R>(in[i]);
    } else {
      out[i] = narrow<R>(op == ReduceOp::MEAN ? in[i] / static_cast<double>(count) : in[i]);
    }
  }
  return result;
}

}  // namespace

AxisPartial reduce_axes(ReduceOp op, const Tensor& value, std::span<const int> axes) {
  if (!value) throw ValueError("reduce: the value is no tensor, only an empty handle");
  if (!is_supported(op, value.dtype())) {
    throw ValueError("reduce: " + std::string(to_string(value.dtype())) + " has no " +
                     std::string(to_string(op)));
  }
  const Plan plan = make_plan(value.shape(), axes);
  if ((op == ReduceOp::MIN || op == ReduceOp::MAX) && plan.count == 0 &&
      plan.kept.num_elements() > 0) {
    throw ValueError("reduce: " + std::string(to_string(op)) + " over no elements (shape " +
                     value.shape().to_string() + ")");
  }
  AxisPartial partial;
  const Tensor host = on_host(value);
  partial.tensor = visit_dtype(value.dtype(), [&]<class T>(std::type_identity<T>) {
    return reduce_elements<T>(op, host, plan);
  });
  partial.count =
      Tensor::copy_of(std::span<const std::int64_t, 1>(&plan.count, 1), Shape(), "CPU:0");
  return partial;
}

Tensor finish_axes(ReduceOp op, DType dtype, const Tensor& total, std::int64_t count) {
  return visit_dtype(dtype, [&]<class T>(std::type_identity<T>) {
    using W = Wide<T>;
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (op == ReduceOp::MEAN) {
        return sizeof(T) <= 2 ? finish<float, W>(total, op, count)
                              : finish<double, W>(total, op, count);
      }
    }
    return finish<T, W>(total, op, count);
  });
}

}  // namespace crossdevice::detail
