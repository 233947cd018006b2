// SPDX-License-Identifier: Apache-2.0
/// Reducing one tensor along some of its dimensions, in a wider type, so that partial results of replicas can be combined and rounded once.
#pragma once

#include <cstdint>
#include <span>

#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice::detail {

/// One replica's share.
struct AxisPartial {
  Tensor tensor;  ///< float64, complex128, int64, uint64 or bool, on CPU:0
  Tensor count;   ///< an int64 scalar: how many elements each element of `tensor` combines
};

/// `op` (MEAN: the sum) along `axes`; negative ones count from the back; none at all: every element by itself.
///
/// Errors   ValueError: an axis out of range or named twice, a combination that is_supported excludes, MIN or MAX over no elements.
[[nodiscard]] AxisPartial reduce_axes(ReduceOp op, const Tensor& value, std::span<const int> axes);

/// The combined partials as the result for values of `dtype`: for MEAN divided by `count`, then rounded once to result_dtype(op, dtype).
[[nodiscard]] Tensor finish_axes(ReduceOp op, DType dtype, const Tensor& total, std::int64_t count);

}  // namespace crossdevice::detail
