// SPDX-License-Identifier: Apache-2.0
/// What a reduction does to elements: one rule for each kind of arithmetic, with what may differ at run time as an argument, so that few kernels serve
/// every op and dtype.
///
/// A rule has: Element (as stored), Compute, Result (as stored); widen(), combine(), finish(), and finish_all() where several results are cheaper together. start()
/// is what combine() with any number gives that number, bit by bit but for a NaN's; a rule that has none begins with the first element. One of a format that
/// converts two elements at once also has widen_pair().
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/cuda/element_formats.h"

namespace crossdevice::cuda {

/// What a rule is told at run time.
struct RuleArguments {
  Divider divider{};  ///< MEAN: by the number of inputs
  std::uint64_t mask =
      0;  ///< MIN and MAX: what turns the order round; integer MEAN: the sign's bit, or 0
};

/// SUM, and MEAN with a divider.
template <class Format>
struct FloatSum {
  using Element = typename Format::Storage;
  using Compute = typename Format::Compute;
  using Result = Element;
  CROSSDEVICE_BOTH static Compute widen(Element value, const RuleArguments& /*rule*/) {
    return Format::widen(value);
  }
  CROSSDEVICE_BOTH static void widen_pair(std::uint16_t elements, const RuleArguments& /*rule*/,
                                          Compute (&pair)[2]) requires(Format::kHasPairs) {
    Format::widen_pair(elements, pair);
  }
  CROSSDEVICE_BOTH static Compute start() { return Compute{-0.0F}; }
  CROSSDEVICE_BOTH static Compute combine(Compute a, Compute b) { return a + b; }
  CROSSDEVICE_BOTH static Result finish(Compute value, const RuleArguments& rule) {
    return Format::narrow(divide(value, rule.divider));
  }
  template <std::uint32_t kCount>
  CROSSDEVICE_BOTH static void finish_all(Compute (&values)[kCount], const RuleArguments& rule,
                                          Result (&results)[kCount]) {
    divide_all(values, rule.divider);
    narrow_all<Format>(values, results);
  }
};

/// Whether a rule takes two elements at once.
template <class Rule>
inline constexpr bool kTakesPairs = requires(typename Rule::Compute (&pair)[2],
                                             RuleArguments rule) {
  Rule::widen_pair(std::uint16_t{}, rule, pair);
};

template <class Format>
struct FloatProduct {
  using Element = typename Format::Storage;
  using Compute = typename Format::Compute;
  using Result = Element;
  CROSSDEVICE_BOTH static Compute widen(Element value, const RuleArguments& /*rule*/) {
    return Format::widen(value);
  }
  CROSSDEVICE_BOTH static Compute start() { return Compute{1.0F}; }
  CROSSDEVICE_BOTH static Compute combine(Compute a, Compute b) { return a * b; }
  CROSSDEVICE_BOTH static Result finish(Compute value, const RuleArguments& /*rule*/) {
    return Format::narrow(value);
  }
};

/// MIN; MAX as the negated minimum of the negated values, with the sign's bit as mask.
template <class Format>
struct FloatExtremum {
  using Element = typename Format::Storage;
  using Compute = typename Format::Compute;
  using Result = Element;
  using Bits = std::conditional_t<sizeof(Compute) == 8, std::uint64_t, std::uint32_t>;

  CROSSDEVICE_BOTH static Compute masked(Compute value, const RuleArguments& rule) {
    return bits_as<Compute>(static_cast<Bits>(bits_as<Bits>(value) ^ static_cast<Bits>(rule.mask)));
  }
  CROSSDEVICE_BOTH static Compute widen(Element value, const RuleArguments& rule) {
    return masked(Format::widen(value), rule);
  }
  CROSSDEVICE_BOTH static Compute start() {
    return Compute{bits_as<float>(std::uint32_t{0x7F800000})};  // infinity
  }
  /// The bitwise or of both orders of comparison: equal to both where they agree, -0 where the operands are zeros of different sign, and NaN where
  /// either is.
  CROSSDEVICE_BOTH static Compute combine(Compute a, Compute b) {
    return bits_as<Compute>(
        static_cast<Bits>(bits_as<Bits>(a < b ? a : b) | bits_as<Bits>(b < a ? b : a)));
  }
  CROSSDEVICE_BOTH static Result finish(Compute value, const RuleArguments& rule) {
    return Format::narrow(masked(value, rule));
  }
};

/// Wraps, so signed integers share it. With one input: a copy of bits, of any dtype.
template <class T>
struct WrappingSum {
  using Element = T;
  using Compute = T;
  using Result = T;
  CROSSDEVICE_BOTH static T widen(T value, const RuleArguments& /*rule*/) { return value; }
  CROSSDEVICE_BOTH static T start() { return 0; }
  CROSSDEVICE_BOTH static T combine(T a, T b) { return static_cast<T>(a + b); }
  CROSSDEVICE_BOTH static T finish(T value, const RuleArguments& /*rule*/) { return value; }
};

/// Wraps too.
template <class T>
struct WrappingProduct {
  using Element = T;
  using Compute = T;
  using Result = T;
  CROSSDEVICE_BOTH static T widen(T value, const RuleArguments& /*rule*/) { return value; }
  CROSSDEVICE_BOTH static T start() { return 1; }
  CROSSDEVICE_BOTH static T combine(T a, T b) {
    // Not in T: 16-bit operands would be promoted to int, which overflows.
    using Wide = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
  }
  CROSSDEVICE_BOTH static T finish(T value, const RuleArguments& /*rule*/) { return value; }
};

/// The minimum of unsigned values; a mask makes it that of signed ones (the sign's bit turned), or the maximum (all bits turned).
template <class T>
struct IntegerExtremum {
  using Element = T;
  using Compute = T;
  using Result = T;
  CROSSDEVICE_BOTH static T widen(T value, const RuleArguments& rule) {
    return static_cast<T>(value ^ static_cast<T>(rule.mask));
  }
  CROSSDEVICE_BOTH static T start() { return static_cast<T>(~T{0}); }
  CROSSDEVICE_BOTH static T combine(T a, T b) { return a < b ? a : b; }
  CROSSDEVICE_BOTH static T finish(T value, const RuleArguments& rule) {
    return static_cast<T>(value ^ static_cast<T>(rule.mask));
  }
};

/// Sums exactly in 64 bits (types of 64 bits wrap there), divides in the result's type. The mask is the sign's bit of signed types.
template <class T>
struct IntegerMean {
  using Element = T;
  using Compute = std::uint64_t;
  using Result = std::conditional_t<sizeof(T) <= 2, float, double>;
  CROSSDEVICE_BOTH static Compute widen(T value, const RuleArguments& rule) {
    return (static_cast<std::uint64_t>(value) ^ rule.mask) - rule.mask;  // extends the sign
  }
  CROSSDEVICE_BOTH static Compute start() { return 0; }
  CROSSDEVICE_BOTH static Compute combine(Compute a, Compute b) { return a + b; }
  CROSSDEVICE_BOTH static Result finish(Compute sum, const RuleArguments& rule) {
    const Result exact = rule.mask != 0 ? static_cast<Result>(static_cast<std::int64_t>(sum))
                                        : static_cast<Result>(sum);
    return divide(exact, rule.divider);
  }
};

/// (ac - bd) + (ad + bc)i as written.
template <class T>
struct ComplexProduct {
  struct Element {
    T real;
    T imaginary;
  };
  using Compute = Element;
  using Result = Element;
  CROSSDEVICE_BOTH static Compute widen(Element value, const RuleArguments& /*rule*/) {
    return value;
  }
  CROSSDEVICE_BOTH static Compute combine(Compute a, Compute b) {
    const T ac = a.real * b.real;
    const T bd = a.imaginary * b.imaginary;
    const T ad = a.real * b.imaginary;
    const T bc = a.imaginary * b.real;
    return {ac - bd, ad + bc};
  }
  CROSSDEVICE_BOTH static Result finish(Compute value, const RuleArguments& /*rule*/) {
    return {canonical(value.real), canonical(value.imaginary)};
  }
};

}  // namespace crossdevice::cuda
