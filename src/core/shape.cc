// SPDX-License-Identifier: Apache-2.0
// Shapes: what a list of dimensions must satisfy, and how it reads.
#include "crossdevice/core/shape.h"

#include <ostream>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

std::string text_of(std::span<const std::int64_t> dims) {
  return fmt::format("({})", fmt::join(dims.begin(), dims.end(), ", "));
}

// Checks all dimensions before it returns their product.
std::int64_t count_elements(std::span<const std::int64_t> dims) {
  std::int64_t product_of_others = 1;  // of the dimensions that are not 0
  bool is_empty = false;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] < 0) {
      throw ValueError(
          fmt::format("shape {}: expected dimensions of at least 0, got {} in position {}",
                      text_of(dims), dims[axis], axis));
    }
    if (dims[axis] == 0) {
      is_empty = true;
    } else if (__builtin_mul_overflow(product_of_others, dims[axis], &product_of_others)) {
      throw ValueError(
          fmt::format("shape {}: expected a number of elements that fits in a signed "
                      "64-bit integer, got a larger one",
                      text_of(dims)));
    }
  }
  return is_empty ? 0 : product_of_others;
}

}  // namespace

Shape::Shape(std::initializer_list<Int64> dims) {
  for (const Int64& dim : dims) dims_.push_back(dim.value());
  num_elements_ = count_elements(dims_.view());
}

Shape::Shape(std::span<const std::int64_t> dims)
    : dims_(detail::InlineVector<std::int64_t, 6>::copy_of(dims)),
      num_elements_(count_elements(dims)) {}

std::string Shape::to_string() const { return text_of(dims()); }

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.to_string(); }

}  // namespace crossdevice
