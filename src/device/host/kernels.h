// SPDX-License-Identifier: Apache-2.0
/// The families of host kernels, each compiled once per instruction set in a source file of its own.
#pragma once

#include <cstddef>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/reduce_kernel.h"

namespace crossdevice::host {

/// float32, float64, complex64, complex128.
[[nodiscard]] ReduceKernel find_float_kernel(ReduceOp op, DType dtype);
/// float16, bfloat16, float8_e4m3, float8_e5m2.
[[nodiscard]] ReduceKernel find_small_float_kernel(ReduceOp op, DType dtype);
/// Integers with SUM, MIN, MAX and (of at least 16 bits) PROD; bool.
[[nodiscard]] ReduceKernel find_integer_kernel(ReduceOp op, DType dtype);
/// The rare rest, by loops that the compiler vectorises: MEAN of integers, PROD of 8-bit ones.
[[nodiscard]] ReduceKernel find_plain_kernel(ReduceOp op, DType dtype);

/// data[i] /= divisor for float32 (complex64 as two of them) and float64.
void divide_floats(DType dtype, void* data, std::size_t count, double divisor);
/// The same for the types find_small_float_kernel knows.
void divide_small_floats(DType dtype, void* data, std::size_t count, double divisor);

/// Copies past the caches; the ranges do not overlap.
void stream_bytes(void* destination, const void* source, std::size_t size_bytes);

/// The name of the instruction set that all of these run with.
[[nodiscard]] const char* kernel_target_name();

}  // namespace crossdevice::host
