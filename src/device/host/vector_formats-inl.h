// SPDX-License-Identifier: Apache-2.0
// How elements of each storage type become vectors to compute with, and results become elements again.
//
// A Format has: Element, Value (the registers that hold one step's elements), Compute (the tag ops compute with),
// lanes(), load(), store(), stream(); prepare(), combine() and finish(), which apply an Op to the vectors of a Value; and
// canonical(), applied to results that may_hold_nan().

#if defined(CROSSDEVICE_DEVICE_HOST_VECTOR_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CROSSDEVICE_DEVICE_HOST_VECTOR_FORMATS_INL_H_
#undef CROSSDEVICE_DEVICE_HOST_VECTOR_FORMATS_INL_H_
#else
#define CROSSDEVICE_DEVICE_HOST_VECTOR_FORMATS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace crossdevice::host {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Every NaN becomes the quiet one without sign and payload. Which operand's payload an addition keeps is up to the
/// compiler, who may swap them, and to the processor; so this is what makes the bits of results reproducible.
template <class D>
HWY_INLINE hn::Vec<D> canonical_nan(D d, hn::Vec<D> value) {
  if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
    const auto nan = hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN());
    return hn::IfThenElse(hn::Eq(value, value), value, nan);
  } else {
    return value;
  }
}

/// Formats without a quick test.
struct MayHoldNan {
  template <class Value, std::size_t kSize>
  static HWY_INLINE bool may_hold_nan(const Value (&)[kSize]) {
    return true;
  }
};

#if HWY_TARGET == HWY_AVX3
/// Whether a or b holds a NaN. One comparison for two vectors: results into mask registers are what limits the loops of 16-bit floats.
HWY_INLINE unsigned unordered_lanes(hn::Vec<hn::ScalableTag<float>> a,
                                    hn::Vec<hn::ScalableTag<float>> b) {
  return _mm512_cmp_ps_mask(a.raw, b.raw, _CMP_UNORD_Q);
}
#endif

/// Formats whose elements fill one vector of D: what does not depend on how they are stored.
template <class D>
struct OneVector : MayHoldNan {
  using Compute = D;
  using Value = hn::Vec<D>;

  static HWY_INLINE std::size_t lanes() { return hn::Lanes(D()); }

  template <class Op>
  static HWY_INLINE Value prepare(Value value) {
    return Op::prepare(D(), value);
  }
  template <class Op>
  static HWY_INLINE Value combine(Value a, Value b) {
    return Op::combine(D(), a, b);
  }
  template <class Op>
  static HWY_INLINE Value finish(Value value, hn::TFromD<D> divisor) {
    return Op::finish(D(), value, divisor);
  }
  static HWY_INLINE Value canonical(Value value) { return canonical_nan(D(), value); }
};

/// Elements that are computed with in their own type.
template <class D>
struct Direct : OneVector<D> {
  using Element = hn::TFromD<D>;
  using Value = hn::Vec<D>;

  static HWY_INLINE Value load(const Element* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE void store(Value value, Element* to) { hn::StoreU(value, D(), to); }
  static HWY_INLINE void stream(Value value, Element* to) { hn::Stream(value, D(), to); }
};

/// A small float of 1 + kExponentBits + kMantissaBits bits, in the low bits of 32-bit lanes, to and from float32.
/// Without infinities (float8_e4m3), all ones is NaN and what is too large becomes NaN.
template <int kExponentBits, int kMantissaBits, bool kHasInfinity>
struct SmallFloatCodec {
  static constexpr bool kHasInfinityCode = kHasInfinity;
  static constexpr bool kEncodesEveryNan = true;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr int kSignShift = 31 - kExponentBits - kMantissaBits;
  static constexpr std::int32_t kMagnitude = (1 << (kExponentBits + kMantissaBits)) - 1;
  static constexpr std::int32_t kRebias = (127 - kBias) << 23;
  static constexpr std::int32_t kInfinity = ((1 << kExponentBits) - 1) << kMantissaBits;
  static constexpr std::int32_t kNaN =
      kHasInfinity ? kInfinity | 1 << (kMantissaBits - 1) : kMagnitude;

  template <class D, class DI = hn::RebindToSigned<D>>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<DI> bits) {
    const DI di;
    const auto magnitude = hn::And(bits, hn::Set(di, kMagnitude));
    const auto sign = hn::ShiftLeft<kSignShift>(hn::AndNot(hn::Set(di, kMagnitude), bits));
    const auto normal = hn::Add(hn::ShiftLeft<kShift>(magnitude), hn::Set(di, kRebias));
    // An integer times a power of two: exact, and no subnormal float32 appears on the way.
    const float ulp = 1.0F / static_cast<float>(1 << (kBias - 1 + kMantissaBits));
    const auto subnormal = hn::BitCast(di, hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, ulp)));
    auto result =
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 1 << kMantissaBits)), subnormal, normal);
    if constexpr (kHasInfinity) {
      const auto special = hn::Or(normal, hn::Set(di, 0x7F800000));
      result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, kInfinity - 1)), special, result);
    } else {
      result =
          hn::IfThenElse(hn::Eq(magnitude, hn::Set(di, kNaN)), hn::Set(di, 0x7FC00000), result);
    }
    return hn::BitCast(d, hn::Or(result, sign));
  }

  /// Rounds to nearest, ties to even.
  template <class D, class DI = hn::RebindToSigned<D>>
  static HWY_INLINE hn::Vec<DI> encode(D d, hn::Vec<D> value) {
    const DI di;
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(di, value);
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
    const auto sign = hn::And(hn::BitCast(di, hn::ShiftRight<kSignShift>(hn::BitCast(du, bits))),
                              hn::Set(di, kMagnitude + 1));
    // The new exponent's offset is even in units of the last place, so oddness can be read before it is subtracted.
    const auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(di, 1));
    const auto offset = hn::Set(di, (1 << (kShift - 1)) - 1 - kRebias);
    auto normal = hn::ShiftRight<kShift>(hn::Add(hn::Add(magnitude, offset), odd));
    normal = hn::Min(normal, hn::Set(di, kHasInfinity ? kInfinity : kNaN));
    // Adding the power of two whose ulp is the type's smallest subnormal makes the addition round as it has to.
    const auto magic = hn::Set(di, (127 - kBias + kShift + 1) << 23);
    const auto sum = hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, magic));
    const auto subnormal = hn::Sub(hn::BitCast(di, sum), magic);
    const auto is_subnormal = hn::Lt(magnitude, hn::Set(di, (127 - kBias + 1) << 23));
    auto result = hn::Or(hn::IfThenElse(is_subnormal, subnormal, normal), sign);
    const auto nan = hn::Set(di, kNaN);
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7F800000)), nan, result);
    if constexpr (!kHasInfinity) result = hn::IfThenElse(hn::Eq(normal, nan), nan, result);
    return result;
  }
};

using Float16Codec = SmallFloatCodec<5, 10, true>;
using Float8E5M2Codec = SmallFloatCodec<5, 2, true>;
using Float8E4M3Codec = SmallFloatCodec<4, 3, false>;

/// float32 bits rounded to their upper half, to nearest, ties to even; the lower half is left as it falls.
/// NaN has to be the canonical one: others could round to infinity.
template <class DU>
HWY_INLINE hn::Vec<DU> round_to_upper_half(DU du, hn::Vec<DU> bits) {
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  return hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
}

struct BFloat16Codec {
  static constexpr bool kEncodesEveryNan = false;

  template <class D, class DI = hn::RebindToSigned<D>>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<DI> bits) {
    return hn::BitCast(d, hn::ShiftLeft<16>(bits));
  }
  template <class D, class DI = hn::RebindToSigned<D>>
  static HWY_INLINE hn::Vec<DI> encode(D /*d*/, hn::Vec<D> value) {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(DI(), hn::ShiftRight<16>(round_to_upper_half(du, hn::BitCast(du, value))));
  }
};

/// Elements of type T that are widened to one float32 lane each.
template <class D, class T, class Codec>
struct Widened : OneVector<D> {
  using Element = T;
  using Value = hn::Vec<D>;
  using Narrow = hn::Rebind<T, D>;
  using Wide = hn::RebindToSigned<D>;

  static HWY_INLINE Value load(const Element* from) {
    return Codec::decode(D(), hn::PromoteTo(Wide(), hn::LoadU(Narrow(), from)));
  }
  static HWY_INLINE hn::Vec<Narrow> narrow(Value value) {
    return hn::DemoteTo(Narrow(), Codec::encode(D(), value));
  }
  static HWY_INLINE void store(Value value, Element* to) {
    hn::StoreU(narrow(value), Narrow(), to);
  }
  static HWY_INLINE void stream(Value value, Element* to) { store(value, to); }
  static HWY_INLINE Value canonical(Value value) {
    if constexpr (Codec::kEncodesEveryNan) return value;
    return canonical_nan(D(), value);
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
/// float16 with the processor's own conversions, which agree with Float16Codec.
template <class D>
struct NativeFloat16 : OneVector<D> {
  using Element = std::uint16_t;
  using Value = hn::Vec<D>;
  using Narrow = hn::Rebind<hwy::float16_t, D>;
  using Bits = hn::Rebind<std::uint16_t, D>;

  static HWY_INLINE Value load(const Element* from) {
    return hn::PromoteTo(D(), hn::BitCast(Narrow(), hn::LoadU(Bits(), from)));
  }
  static HWY_INLINE hn::Vec<Bits> narrow(Value value) {
    return hn::BitCast(Bits(), hn::DemoteTo(Narrow(), value));
  }
  static HWY_INLINE void store(Value value, Element* to) { hn::StoreU(narrow(value), Bits(), to); }
  static HWY_INLINE void stream(Value value, Element* to) { hn::Stream(narrow(value), Bits(), to); }
  template <std::size_t kSize>
  static HWY_INLINE bool may_hold_nan(const Value (&values)[kSize]) {
#if HWY_TARGET == HWY_AVX3
    if constexpr (kSize == 4) {
      return (unordered_lanes(values[0], values[1]) | unordered_lanes(values[2], values[3])) != 0;
    }
#endif
    (void)values;
    return true;
  }
};

/// 8-bit floats, decoded as the float16 that they are but for the exponent's offset and e4m3's NaN.
template <class D, class Codec>
struct NativeFloat8 : Widened<D, std::uint8_t, Codec> {
  using Value = hn::Vec<D>;
  using Narrow = hn::Rebind<std::uint8_t, D>;
  using Bits = hn::Rebind<std::int16_t, D>;
  using Half = hn::Rebind<hwy::float16_t, D>;

  static HWY_INLINE Value load(const std::uint8_t* from) {
    const D d;
    const auto bytes = hn::BitCast(hn::Rebind<std::int8_t, D>(), hn::LoadU(Narrow(), from));
    const auto bits = hn::PromoteTo(Bits(), bytes);  // with copies of the sign
    if constexpr (Codec::kHasInfinityCode) {
      return hn::PromoteTo(d, hn::BitCast(Half(), hn::ShiftLeft<8>(bits)));
    } else {
      const auto sign_and_magnitude =
          hn::And(hn::ShiftLeft<7>(bits), hn::Set(Bits(), static_cast<std::int16_t>(0xBF80)));
      const auto value =
          hn::Mul(hn::PromoteTo(d, hn::BitCast(Half(), sign_and_magnitude)), hn::Set(d, 256.0F));
      const auto is_nan = hn::Eq(hn::Abs(value), hn::Set(d, 480.0F));
      return hn::IfThenElse(is_nan, hn::Set(d, std::numeric_limits<float>::quiet_NaN()), value);
    }
  }
};
#endif

/// Complex numbers, real and imaginary parts in vectors of their own. The only operation is the product,
/// (ac - bd) + (ad + bc)i as written, without the recovery of infinities from NaN that the C++ library's operator adds.
template <class D>
struct ComplexNumbers : MayHoldNan {
  using Compute = D;
  using Component = hn::TFromD<D>;
  struct Element {
    Component real;
    Component imaginary;
  };
  struct Value {
    hn::Vec<D> real;
    hn::Vec<D> imaginary;
  };

  static HWY_INLINE std::size_t lanes() { return hn::Lanes(D()); }
  static HWY_INLINE Value load(const Element* from) {
    Value value;
    hn::LoadInterleaved2(D(), &from->real, value.real, value.imaginary);
    return value;
  }
  static HWY_INLINE void store(const Value& value, Element* to) {
    hn::StoreInterleaved2(value.real, value.imaginary, D(), &to->real);
  }
  static HWY_INLINE void stream(const Value& value, Element* to) { store(value, to); }

  template <class Op>
  static HWY_INLINE Value prepare(const Value& value) {
    return value;
  }
  template <class Op>
  static HWY_INLINE Value combine(const Value& a, const Value& b) {
    return {hn::Sub(hn::Mul(a.real, b.real), hn::Mul(a.imaginary, b.imaginary)),
            hn::Add(hn::Mul(a.real, b.imaginary), hn::Mul(a.imaginary, b.real))};
  }
  template <class Op>
  static HWY_INLINE Value finish(const Value& value, Component divisor) {
    return {Op::finish(D(), value.real, divisor), Op::finish(D(), value.imaginary, divisor)};
  }
  static HWY_INLINE Value canonical(const Value& value) {
    return {canonical_nan(D(), value.real), canonical_nan(D(), value.imaginary)};
  }
};

#if HWY_TARGET != HWY_SCALAR
/// A vector of bfloat16 as two of float32: the elements with even and those with odd index. Getting them apart and
/// together again takes shifts and masks only.
template <class D16>
struct BFloat16Pairs {
  using Bits = hn::RepartitionToWide<D16>;
  using Compute = hn::RebindToFloat<Bits>;
  using Element = std::uint16_t;
  struct Value {
    hn::Vec<Compute> even;
    hn::Vec<Compute> odd;
  };

  static HWY_INLINE std::size_t lanes() { return hn::Lanes(D16()); }
  static HWY_INLINE Value load(const Element* from) {
    const auto bits = hn::BitCast(Bits(), hn::LoadU(D16(), from));
    return {hn::BitCast(Compute(), hn::ShiftLeft<16>(bits)),
            hn::BitCast(Compute(), hn::And(bits, hn::Set(Bits(), 0xFFFF0000U)))};
  }
  static HWY_INLINE hn::Vec<D16> narrow(const Value& value) {
    const auto even = round_to_upper_half(Bits(), hn::BitCast(Bits(), value.even));
    const auto odd = round_to_upper_half(Bits(), hn::BitCast(Bits(), value.odd));
    return hn::BitCast(
        D16(), hn::Or(hn::ShiftRight<16>(even), hn::And(odd, hn::Set(Bits(), 0xFFFF0000U))));
  }
  static HWY_INLINE void store(const Value& value, Element* to) {
    hn::StoreU(narrow(value), D16(), to);
  }
  static HWY_INLINE void stream(const Value& value, Element* to) {
    hn::Stream(narrow(value), D16(), to);
  }

  template <class Op>
  static HWY_INLINE Value prepare(const Value& value) {
    return {Op::prepare(Compute(), value.even), Op::prepare(Compute(), value.odd)};
  }
  template <class Op>
  static HWY_INLINE Value combine(const Value& a, const Value& b) {
    return {Op::combine(Compute(), a.even, b.even), Op::combine(Compute(), a.odd, b.odd)};
  }
  template <class Op>
  static HWY_INLINE Value finish(const Value& value, float divisor) {
    return {Op::finish(Compute(), value.even, divisor), Op::finish(Compute(), value.odd, divisor)};
  }
  static HWY_INLINE Value canonical(const Value& value) {
    return {canonical_nan(Compute(), value.even), canonical_nan(Compute(), value.odd)};
  }
  template <std::size_t kSize>
  static HWY_INLINE bool may_hold_nan(const Value (&values)[kSize]) {
#if HWY_TARGET == HWY_AVX3
    if constexpr (kSize == 4) {
      return (unordered_lanes(values[0].even, values[0].odd) |
              unordered_lanes(values[1].even, values[1].odd) |
              unordered_lanes(values[2].even, values[2].odd) |
              unordered_lanes(values[3].even, values[3].odd)) != 0;
    }
#endif
    (void)values;
    return true;
  }
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace crossdevice::host
HWY_AFTER_NAMESPACE();

#endif
