// SPDX-License-Identifier: Apache-2.0
/// The mean of integers of several workers: exact sums in 64 bits travel, then each is divided, with the arithmetic of reduce_kernel.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "crossdevice/core/dtype.h"

namespace crossdevice::detail {

/// What the sums travel as; addition is the same for signed and unsigned ones.
inline constexpr DType kIntegerSumDType = DType::UINT64;

/// sums[i] = sum over all inputs, each of `count` elements of an integer dtype, sign extended.
void add_integers(DType dtype, std::span<const void* const> inputs, std::size_t count,
                  std::uint64_t* sums);
/// output[i] = sums[i] / divisor, in result_dtype(MEAN, dtype).
void divide_integer_sums(DType dtype, const std::uint64_t* sums, std::size_t count,
                         std::size_t divisor, void* output);

}  // namespace crossdevice::detail
