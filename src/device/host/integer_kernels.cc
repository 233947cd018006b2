// SPDX-License-Identifier: Apache-2.0
// The kernels of integers and bool. Sums and products wrap, so signed types share those of unsigned ones.
#include "device/host/highway_targets.h"
#include "device/host/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/integer_kernels.cc"
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
#include <hwy/highway.h>

#include "device/host/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crossdevice::host {
namespace HWY_NAMESPACE {

template <class T>
struct IntegerFormats {
  using Full = Direct<hn::ScalableTag<T>>;
  using Part = Direct<hn::CappedTag<T, 16 / sizeof(T)>>;
  using Single = Direct<hn::CappedTag<T, 1>>;
};

template <class T>
ReduceKernel integer_kernel(ReduceOp op) {
  using Unsigned = std::make_unsigned_t<T>;
  switch (op) {
    case ReduceOp::SUM:
      return reduce_vectors<Sum, IntegerFormats<Unsigned>>;
    case ReduceOp::MIN:
      return reduce_vectors<Minimum, IntegerFormats<T>>;
    case ReduceOp::MAX:
      return reduce_vectors<Maximum, IntegerFormats<T>>;
    case ReduceOp::PROD:
      if constexpr (sizeof(T) > 1) return reduce_vectors<Prod, IntegerFormats<Unsigned>>;
      break;  // no instruction multiplies bytes: see plain_kernels.cc
    case ReduceOp::MEAN:
      break;
  }
  return nullptr;
}

ReduceKernel integer_kernel_of_target(ReduceOp op, DType dtype) {
  switch (dtype) {
    case DType::BOOL:
      return integer_kernel<std::uint8_t>(op == ReduceOp::PROD ? ReduceOp::MIN : op);
    case DType::INT8:
      return integer_kernel<std::int8_t>(op);
    case DType::INT16:
      return integer_kernel<std::int16_t>(op);
    case DType::INT32:
      return integer_kernel<std::int32_t>(op);
    case DType::INT64:
      return integer_kernel<std::int64_t>(op);
    case DType::UINT8:
      return integer_kernel<std::uint8_t>(op);
    case DType::UINT16:
      return integer_kernel<std::uint16_t>(op);
    case DType::UINT32:
      return integer_kernel<std::uint32_t>(op);
    case DType::UINT64:
      return integer_kernel<std::uint64_t>(op);
    case DType::FLOAT8_E4M3:
    case DType::FLOAT8_E5M2:
    case DType::FLOAT16:
    case DType::BFLOAT16:
    case DType::FLOAT32:
    case DType::FLOAT64:
    case DType::COMPLEX64:
    case DType::COMPLEX128:
      break;
  }
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace crossdevice::host
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crossdevice::host {

HWY_EXPORT(integer_kernel_of_target);

ReduceKernel find_integer_kernel(ReduceOp op, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(integer_kernel_of_target)(op, dtype);
}

}  // namespace crossdevice::host
#endif
