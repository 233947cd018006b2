// SPDX-License-Identifier: Apache-2.0
/// The element-wise kernels of host devices: fused N-to-M reduction, division, copy, scatter-add.
///
/// Everything here runs on the calling thread, over ranges; parallelism and scheduling are the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/reduce_op.h"

namespace crossdevice {

/// How results are written. STREAMING bypasses the caches: right for large outputs that are not inputs, wrong in place.
enum class StoreMode : std::uint8_t { CACHED, STREAMING };

/// One fused pass: outputs[j][i] = op over k of inputs[k][i], for every j; each element is read once and written once.
///
/// Shapes   every input holds elements of `dtype`, every output of result_dtype(op, dtype); all have the same length.
/// Memory   an output may be exactly one of the inputs (in place, for MEAN of integers not); any other overlap is undefined.
///          Inputs and outputs are aligned to their element size (complex numbers to their component's), no more. With STREAMING, outputs
///          that are also inputs, and those whose cache lines start at other elements than those of the first output that is
///          none, are written through the caches all the same.
/// Arithmetic  inputs are combined in order: ((i0 + i1) + i2) + ... With 0 < first_group < the number of inputs, the first
///          first_group inputs and the others are combined each in order, then the two. float16, bfloat16 and float8 are converted to
///          float32, combined there, rounded once. Integers wrap. Complex numbers are multiplied as (ac - bd) + (ad + bc)i.
///          MEAN divides once by the number of inputs after the sum: in float32 for types of up to 32 bits of floating point, in the
///          type itself above; integers of up to 32 bits are summed exactly in 64 bits, 64-bit ones wrap there, then divided in the
///          result's type. MIN and MAX propagate NaN and take -0 for less than +0, so the order of inputs makes no difference to them; bool
///          combines by and (MIN, PROD) and or (MAX). A NaN in a result is the quiet one without sign and payload. One input
///          is copied bit by bit (but for MEAN of integers, which converts). The bits of a result depend on the values, their order and
///          first_group alone, never on the range, the machine's vector width or alignment; what the calling thread may change is
///          the rounding mode and the treatment of subnormals, which are the processor's defaults unless somebody set them.
struct ReducePass {
  ReduceOp op = ReduceOp::SUM;
  DType dtype = DType::FLOAT32;
  std::span<const void* const> inputs;  ///< at least one
  std::span<void* const> outputs;       ///< at least one
  std::size_t first_group = 0;          ///< 0, or not less than the inputs: one group
  StoreMode stores = StoreMode::CACHED;
};

/// A compiled kernel for one op and dtype on this machine's processor: reduces the elements [begin, begin + count) of a pass.
using ReduceKernel = void (*)(const ReducePass& pass, std::size_t begin, std::size_t count);

/// The kernel for `op` on `dtype`; nullptr where is_supported(op, dtype) is false. Cheap: a table look-up.
[[nodiscard]] CROSSDEVICE_EXPORT ReduceKernel find_reduce_kernel(ReduceOp op, DType dtype);

/// The instruction set the kernels run with, for reports: "AVX3" (AVX-512), "AVX2", "SSE4", "NEON", ...
[[nodiscard]] CROSSDEVICE_EXPORT const char* reduce_kernel_target();

/// data[i] = data[i] / divisor, for floating and complex types, with the arithmetic of MEAN. The divisor is rounded to the
/// type divided in.
CROSSDEVICE_EXPORT void divide_elements(DType dtype, void* data, std::size_t count, double divisor);

/// Copies bytes; STREAMING bypasses the caches, whatever the size. The ranges do not overlap.
CROSSDEVICE_EXPORT void copy_bytes(void* destination, const void* source, std::size_t size_bytes,
                                   StoreMode stores);

/// accumulator[k] += row[k] for k < count, in the arithmetic of SUM (float16, bfloat16, float8: one rounding per call).
/// Not for bool, which has no SUM.
CROSSDEVICE_EXPORT void accumulate_elements(DType dtype, void* accumulator, const void* row,
                                            std::size_t count);

}  // namespace crossdevice
