// SPDX-License-Identifier: Apache-2.0
// The operations of a reduction on vectors: what happens to each input, to two values, and to the result.

#if defined(CROSSDEVICE_DEVICE_HOST_VECTOR_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CROSSDEVICE_DEVICE_HOST_VECTOR_OPS_INL_H_
#undef CROSSDEVICE_DEVICE_HOST_VECTOR_OPS_INL_H_
#else
#define CROSSDEVICE_DEVICE_HOST_VECTOR_OPS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace crossdevice::host {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
  template <class D>
  static HWY_INLINE hn::Vec<D> prepare(D /*d*/, hn::Vec<D> value) {
    return value;
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> combine(D /*d*/, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Add(a, b);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> finish(D /*d*/, hn::Vec<D> value, hn::TFromD<D> /*divisor*/) {
    return value;
  }
};

struct Mean : Sum {
  template <class D>
  static HWY_INLINE hn::Vec<D> finish(D d, hn::Vec<D> value, hn::TFromD<D> divisor) {
    return hn::Div(value, hn::Set(d, divisor));
  }
};

struct Prod : Sum {
  template <class D>
  static HWY_INLINE hn::Vec<D> combine(D /*d*/, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Mul(a, b);
  }
};

/// a < b ? a : b, the operation of x86's own instruction: b when either is NaN or both are zero.
template <class D>
HWY_INLINE hn::Vec<D> lesser_or_second(D /*d*/, hn::Vec<D> a, hn::Vec<D> b) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  return hn::Min(a, b);
#else
  return hn::IfThenElse(hn::Lt(a, b), a, b);
#endif
}

/// Of floats, the bitwise or of both orders of comparison: equal to both where they agree, -0 where the operands are
/// zeros of different sign, and NaN where either is.
struct Minimum : Sum {
  template <class D>
  static HWY_INLINE hn::Vec<D> combine(D d, hn::Vec<D> a, hn::Vec<D> b) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      return hn::Or(lesser_or_second(d, a, b), lesser_or_second(d, b, a));
    } else {
      return hn::Min(a, b);
    }
  }
};

/// Of floats, the negated minimum of the negated operands.
struct Maximum : Minimum {
  template <class D>
  static HWY_INLINE hn::Vec<D> prepare(D d, hn::Vec<D> value) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      return hn::Xor(value, hn::SignBit(d));
    } else {
      return value;
    }
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> combine(D d, hn::Vec<D> a, hn::Vec<D> b) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      return Minimum::combine(d, a, b);
    } else {
      return hn::Max(a, b);
    }
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> finish(D d, hn::Vec<D> value, hn::TFromD<D> /*divisor*/) {
    return prepare(d, value);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace crossdevice::host
HWY_AFTER_NAMESPACE();

#endif
