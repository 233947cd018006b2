// SPDX-License-Identifier: Apache-2.0
/// A 64-bit size, limit or dimension that any integer converts to, checked at run time.
///
/// `{n}` with a run-time `std::size_t` is neither a narrowing error nor a silent wrap: a value
/// outside the range of `std::int64_t` throws ValueError. The checked_* functions refuse to
/// overflow.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <utility>

#include "crossdevice/core/export.h"

namespace crossdevice {

namespace detail {
/// Throws ValueError "<value> does not fit in a signed 64-bit integer".
[[noreturn]] CROSSDEVICE_EXPORT void throw_does_not_fit(std::uint64_t value);
/// Throws ValueError "<a> <operation> <b> overflows a signed 64-bit integer".
[[noreturn]] CROSSDEVICE_EXPORT void throw_overflow(std::int64_t a, const char* operation,
                                                    std::int64_t b);

/// The types that mean a number: neither bool nor characters, and no wider than 64 bits.
template <class I>
concept SizeLike = std::integral<I> && sizeof(I) <= sizeof(std::int64_t) &&
                   !std::same_as<I, bool> && !std::same_as<I, char> && !std::same_as<I, wchar_t> &&
                   !std::same_as<I, char8_t> && !std::same_as<I, char16_t> &&
                   !std::same_as<I, char32_t>;
}  // namespace detail

/// Errors   ValueError: the integer is outside the range of std::int64_t.
class Int64 {
 public:
  constexpr Int64() = default;

  template <detail::SizeLike I>
  constexpr Int64(I value)  // NOLINT(google-explicit-constructor): any integer is a size
      : value_(static_cast<std::int64_t>(value)) {
    if (!std::in_range<std::int64_t>(value)) {
      detail::throw_does_not_fit(static_cast<std::uint64_t>(value));
    }
  }

  [[nodiscard]] constexpr std::int64_t value() const { return value_; }
  // NOLINTNEXTLINE(modernize-use-nullptr): what the linter sees is the compiler's comparison with 0
  friend constexpr auto operator<=>(const Int64&, const Int64&) = default;

 private:
  std::int64_t value_ = 0;
};

/// Errors   ValueError: the product does not fit.
[[nodiscard]] constexpr std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) detail::throw_overflow(a, "*", b);
  return result;
}

/// Errors   ValueError: the sum does not fit.
[[nodiscard]] constexpr std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) detail::throw_overflow(a, "+", b);
  return result;
}

}  // namespace crossdevice
