// SPDX-License-Identifier: Apache-2.0
// The kernels of 16-bit and 8-bit floats: widened to float32, combined there, rounded once.
#include "device/host/highway_targets.h"
#include "device/host/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/small_float_kernels.cc"
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
#include <hwy/highway.h>

#include "device/host/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crossdevice::host {
namespace HWY_NAMESPACE {

using FullFloats = hn::ScalableTag<float>;
using FourFloats = hn::CappedTag<float, 4>;
using OneFloat = hn::CappedTag<float, 1>;

template <class T, class Codec>
struct WidenedFormats {
  using Full = Widened<FullFloats, T, Codec>;
  using Part = Widened<FourFloats, T, Codec>;
  using Single = Widened<OneFloat, T, Codec>;
};

#if HWY_TARGET == HWY_SCALAR
using BFloat16Formats = WidenedFormats<std::uint16_t, BFloat16Codec>;
#else
struct BFloat16Formats {
  using Full = BFloat16Pairs<hn::ScalableTag<std::uint16_t>>;
  using Part = BFloat16Pairs<hn::CappedTag<std::uint16_t, 8>>;
  using Single = Widened<OneFloat, std::uint16_t, BFloat16Codec>;
};
#endif

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
struct Float16Formats {
  using Full = NativeFloat16<FullFloats>;
  using Part = NativeFloat16<FourFloats>;
  using Single = NativeFloat16<OneFloat>;
};
template <class Codec>
struct Float8Formats {
  using Full = NativeFloat8<FullFloats, Codec>;
  using Part = NativeFloat8<FourFloats, Codec>;
  using Single = NativeFloat8<OneFloat, Codec>;
};
#else
using Float16Formats = WidenedFormats<std::uint16_t, Float16Codec>;
template <class Codec>
using Float8Formats = WidenedFormats<std::uint8_t, Codec>;
#endif

template <class Formats>
ReduceKernel small_float_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::SUM:
      return reduce_vectors<Sum, Formats>;
    case ReduceOp::MEAN:
      return reduce_vectors<Mean, Formats>;
    case ReduceOp::MIN:
      return reduce_vectors<Minimum, Formats>;
    case ReduceOp::MAX:
      return reduce_vectors<Maximum, Formats>;
    case ReduceOp::PROD:
      return reduce_vectors<Prod, Formats>;
  }
  return nullptr;
}

ReduceKernel small_float_kernel_of_target(ReduceOp op, DType dtype) {
  if (dtype == DType::FLOAT16) return small_float_kernel<Float16Formats>(op);
  if (dtype == DType::BFLOAT16) return small_float_kernel<BFloat16Formats>(op);
  if (dtype == DType::FLOAT8_E5M2) return small_float_kernel<Float8Formats<Float8E5M2Codec>>(op);
  return small_float_kernel<Float8Formats<Float8E4M3Codec>>(op);
}

template <class Formats>
void divide(void* data, std::size_t count, double divisor) {
  const void* const input = data;
  const LoopArguments pass{&input, 1, 1, &data, 1, divisor};
  reduce_range<Mean, Formats>(pass, StoreMode::CACHED, 0, count);
}

void divide_small_floats_of_target(DType dtype, void* data, std::size_t count, double divisor) {
  if (dtype == DType::FLOAT16) return divide<Float16Formats>(data, count, divisor);
  if (dtype == DType::BFLOAT16) return divide<BFloat16Formats>(data, count, divisor);
  if (dtype == DType::FLOAT8_E5M2)
    return divide<Float8Formats<Float8E5M2Codec>>(data, count, divisor);
  divide<Float8Formats<Float8E4M3Codec>>(data, count, divisor);
}

}  // namespace HWY_NAMESPACE
}  // namespace crossdevice::host
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crossdevice::host {

HWY_EXPORT(small_float_kernel_of_target);
HWY_EXPORT(divide_small_floats_of_target);

ReduceKernel find_small_float_kernel(ReduceOp op, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(small_float_kernel_of_target)(op, dtype);
}

void divide_small_floats(DType dtype, void* data, std::size_t count, double divisor) {
  HWY_DYNAMIC_DISPATCH(divide_small_floats_of_target)(dtype, data, count, divisor);
}

}  // namespace crossdevice::host
#endif
