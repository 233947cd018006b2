// SPDX-License-Identifier: Apache-2.0
// The kernels of float32 and float64, and of complex numbers of them.
#include "device/host/highway_targets.h"
#include "device/host/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/float_kernels.cc"
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
#include <hwy/highway.h>

#include "device/host/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crossdevice::host {
namespace HWY_NAMESPACE {

template <class T>
struct FloatFormats {
  using Full = Direct<hn::ScalableTag<T>>;
  using Part = Direct<hn::CappedTag<T, 16 / sizeof(T)>>;
  using Single = Direct<hn::CappedTag<T, 1>>;
};

template <class T>
struct ComplexFormats {
  using Full = ComplexNumbers<hn::ScalableTag<T>>;
  using Part = ComplexNumbers<hn::CappedTag<T, 16 / sizeof(T)>>;
  using Single = ComplexNumbers<hn::CappedTag<T, 1>>;
};

template <class T>
ReduceKernel float_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::SUM:
      return reduce_vectors<Sum, FloatFormats<T>>;
    case ReduceOp::MEAN:
      return reduce_vectors<Mean, FloatFormats<T>>;
    case ReduceOp::MIN:
      return reduce_vectors<Minimum, FloatFormats<T>>;
    case ReduceOp::MAX:
      return reduce_vectors<Maximum, FloatFormats<T>>;
    case ReduceOp::PROD:
      return reduce_vectors<Prod, FloatFormats<T>>;
  }
  return nullptr;
}

/// Sums and means of complex numbers are those of their components.
template <class T>
ReduceKernel complex_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::SUM:
      return reduce_vectors<Sum, FloatFormats<T>, 2>;
    case ReduceOp::MEAN:
      return reduce_vectors<Mean, FloatFormats<T>, 2>;
    case ReduceOp::PROD:
      return reduce_vectors<Prod, ComplexFormats<T>>;
    case ReduceOp::MIN:
    case ReduceOp::MAX:
      break;
  }
  return nullptr;
}

ReduceKernel float_kernel_of_target(ReduceOp op, DType dtype) {
  switch (dtype) {
    case DType::FLOAT32:
      return float_kernel<float>(op);
    case DType::FLOAT64:
      return float_kernel<double>(op);
    case DType::COMPLEX64:
      return complex_kernel<float>(op);
    case DType::COMPLEX128:
      return complex_kernel<double>(op);
    case DType::BOOL:
    case DType::INT8:
    case DType::INT16:
    case DType::INT32:
    case DType::INT64:
    case DType::UINT8:
    case DType::UINT16:
    case DType::UINT32:
    case DType::UINT64:
    case DType::FLOAT8_E4M3:
    case DType::FLOAT8_E5M2:
    case DType::FLOAT16:
    case DType::BFLOAT16:
      break;
  }
  return nullptr;
}

void divide_floats_of_target(DType dtype, void* data, std::size_t count, double divisor) {
  const void* const input = data;
  const LoopArguments pass{&input, 1, 1, &data, 1, divisor};
  const std::size_t num_components = is_complex(dtype) ? 2 * count : count;
  if (dtype == DType::FLOAT32 || dtype == DType::COMPLEX64) {
    reduce_range<Mean, FloatFormats<float>>(pass, StoreMode::CACHED, 0, num_components);
  } else {
    reduce_range<Mean, FloatFormats<double>>(pass, StoreMode::CACHED, 0, num_components);
  }
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace crossdevice::host
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crossdevice::host {

HWY_EXPORT(float_kernel_of_target);
HWY_EXPORT(divide_floats_of_target);
HWY_EXPORT(target_name);

ReduceKernel find_float_kernel(ReduceOp op, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(float_kernel_of_target)(op, dtype);
}

void divide_floats(DType dtype, void* data, std::size_t count, double divisor) {
  HWY_DYNAMIC_DISPATCH(divide_floats_of_target)(dtype, data, count, divisor);
}

const char* kernel_target_name() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace crossdevice::host
#endif
