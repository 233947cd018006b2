// SPDX-License-Identifier: Apache-2.0
// MEAN of integers, PROD of 8-bit ones: rare, so loops over blocks that the compiler vectorises.
#include "device/host/highway_targets.h"
#include "device/host/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/plain_kernels.cc"
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace crossdevice::host {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kBlock =
    256;  // elements; accumulators and results of a block stay in the first cache

/// Sums exactly in 64 bits (types of 64 bits wrap there), divides in the result's type.
template <class T>
struct IntegerMean {
  using Input = T;
  using Accumulator = std::uint64_t;
  using Output = std::conditional_t<sizeof(T) <= 2, float, double>;

  static HWY_INLINE Accumulator widen(Input value) {
    return static_cast<Accumulator>(
        static_cast<std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>(value));
  }
  static HWY_INLINE Accumulator combine(Accumulator a, Accumulator b) { return a + b; }
  static HWY_INLINE Output finish(Accumulator sum, std::size_t num_inputs) {
    using Exact = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    return static_cast<Output>(static_cast<Exact>(sum)) / static_cast<Output>(num_inputs);
  }
};

/// Wraps, so signed values share it.
struct ByteProduct {
  using Input = std::uint8_t;
  using Accumulator = std::uint8_t;
  using Output = std::uint8_t;

  static HWY_INLINE Accumulator widen(Input value) { return value; }
  static HWY_INLINE Accumulator combine(Accumulator a, Accumulator b) {
    return static_cast<std::uint8_t>(a * b);
  }
  static HWY_INLINE Output finish(Accumulator value, std::size_t /*num_inputs*/) { return value; }
};

/// Combines inputs [first, last) of a block.
template <class Op>
HWY_INLINE void combine_block(typename Op::Accumulator* HWY_RESTRICT values, const ReducePass& pass,
                              std::size_t first, std::size_t last, std::size_t i,
                              std::size_t count) {
  const auto* from = static_cast<const typename Op::Input*>(pass.inputs[first]) + i;
  for (std::size_t e = 0; e < count; ++e) values[e] = Op::widen(from[e]);
  for (std::size_t k = first + 1; k < last; ++k) {
    from = static_cast<const typename Op::Input*>(pass.inputs[k]) + i;
    for (std::size_t e = 0; e < count; ++e) values[e] = Op::combine(values[e], Op::widen(from[e]));
  }
}

template <class Op>
void reduce_blocks(const ReducePass& pass, std::size_t begin, std::size_t count) {
  const std::size_t n = pass.inputs.size();
  const std::size_t split = pass.first_group == 0 || pass.first_group > n ? n : pass.first_group;
  typename Op::Accumulator values[kBlock];
  typename Op::Accumulator others[kBlock];
  typename Op::Output results[kBlock];
  for (std::size_t i = begin; i < begin + count; i += kBlock) {
    const std::size_t size = std::min(kBlock, begin + count - i);
    combine_block<Op>(values, pass, 0, split, i, size);
    if (split < n) {
      combine_block<Op>(others, pass, split, n, i, size);
      for (std::size_t e = 0; e < size; ++e) values[e] = Op::combine(values[e], others[e]);
    }
    for (std::size_t e = 0; e < size; ++e) results[e] = Op::finish(values[e], n);
    for (void* const output : pass.outputs) {
      std::memcpy(static_cast<typename Op::Output*>(output) + i, results,
                  size * sizeof(typename Op::Output));
    }
  }
}

ReduceKernel plain_kernel_of_target(ReduceOp op, DType dtype) {
  if (op == ReduceOp::PROD) return reduce_blocks<ByteProduct>;
  switch (dtype) {
    case DType::INT8:
      return reduce_blocks<IntegerMean<std::int8_t>>;
    case DType::INT16:
      return reduce_blocks<IntegerMean<std::int16_t>>;
    case DType::INT32:
      return reduce_blocks<IntegerMean<std::int32_t>>;
    case DType::INT64:
      return reduce_blocks<IntegerMean<std::int64_t>>;
    case DType::UINT8:
      return reduce_blocks<IntegerMean<std::uint8_t>>;
    case DType::UINT16:
      return reduce_blocks<IntegerMean<std::uint16_t>>;
    case DType::UINT32:
      return reduce_blocks<IntegerMean<std::uint32_t>>;
    case DType::UINT64:
      return reduce_blocks<IntegerMean<std::uint64_t>>;
    case DType::BOOL:
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

HWY_EXPORT(plain_kernel_of_target);

ReduceKernel find_plain_kernel(ReduceOp op, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(plain_kernel_of_target)(op, dtype);
}

}  // namespace crossdevice::host
#endif
