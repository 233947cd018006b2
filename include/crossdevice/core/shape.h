// SPDX-License-Identifier: Apache-2.0
/// The dimensions of a tensor, and TF's "shape or None".
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "crossdevice/core/export.h"
#include "crossdevice/core/inline_vector.h"
#include "crossdevice/core/int64.h"

namespace crossdevice {

/// Row-major dimensions, all known. Rank 0 is a scalar with one element; a dimension may be 0.
///
/// Memory   up to 6 dimensions allocate nothing. A moved-from Shape is a scalar.
/// Errors   ValueError: a dimension is negative, or the product of all that are not 0 overflows a
///          signed 64-bit integer (so that no stride can overflow either).
class CROSSDEVICE_EXPORT Shape {
 public:
  Shape() = default;
  Shape(const Shape&) = default;
  Shape(Shape&& other) noexcept
      : dims_(std::move(other.dims_)), num_elements_(std::exchange(other.num_elements_, 1)) {}
  Shape& operator=(const Shape&) = default;
  Shape& operator=(Shape&& other) noexcept {
    dims_ = std::move(other.dims_);
    num_elements_ = std::exchange(other.num_elements_, 1);
    return *this;
  }
  ~Shape() = default;

  Shape(std::initializer_list<Int64> dims);
  explicit Shape(std::span<const std::int64_t> dims);

  [[nodiscard]] std::size_t rank() const { return dims_.size(); }
  /// Dimension `axis`, 0 <= axis < rank().
  [[nodiscard]] std::int64_t operator[](std::size_t axis) const { return dims_[axis]; }
  [[nodiscard]] std::span<const std::int64_t> dims() const { return dims_.view(); }
  [[nodiscard]] std::int64_t num_elements() const { return num_elements_; }
  /// "(3, 4)", "()" for a scalar.
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Shape& a, const Shape& b) {
    return std::ranges::equal(a.dims(), b.dims());
  }

 private:
  detail::InlineVector<std::int64_t, 6> dims_;
  std::int64_t num_elements_ = 1;
};

CROSSDEVICE_EXPORT std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// A Shape or nothing; takes `{50000, 128}`, a Shape and std::nullopt. TF counterpart: dense_shape.
class MaybeShape {
 public:
  MaybeShape() = default;
  MaybeShape(std::nullopt_t) {}  // NOLINT(google-explicit-constructor)
  MaybeShape(std::initializer_list<Int64> dims) : shape_(dims) {}
  MaybeShape(Shape shape) : shape_(std::move(shape)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool has_value() const { return shape_.has_value(); }
  explicit operator bool() const { return has_value(); }
  [[nodiscard]] const Shape& operator*() const { return *shape_; }
  [[nodiscard]] const Shape* operator->() const { return &*shape_; }
  friend bool operator==(const MaybeShape&, const MaybeShape&) = default;

 private:
  std::optional<Shape> shape_;
};

}  // namespace crossdevice
