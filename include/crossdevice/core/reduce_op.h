// SPDX-License-Identifier: Apache-2.0
/// How the components of a value become one. TF counterpart: tf.distribute.ReduceOp (SUM, MEAN);
/// MIN, MAX and PROD are extensions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

enum class ReduceOp : std::uint8_t { SUM, MEAN, MIN, MAX, PROD };

inline constexpr ReduceOp kAllReduceOps[] = {ReduceOp::SUM, ReduceOp::MEAN, ReduceOp::MIN,
                                             ReduceOp::MAX, ReduceOp::PROD};

/// "SUM", "MEAN", ...
[[nodiscard]] CROSSDEVICE_EXPORT std::string_view to_string(ReduceOp op);

/// The op of a name in any case ("sum", "MEAN"): what the strategy layer accepts besides the enum.
///
/// Errors   ValueError: not a name of a ReduceOp.
[[nodiscard]] CROSSDEVICE_EXPORT ReduceOp reduce_op_from_string(std::string_view name);

/// The dtype x op table: whether dense values of `dtype` can be reduced with `op`.
///
/// bool has no SUM and no MEAN, complex types have no MIN and no MAX; everything else works.
[[nodiscard]] constexpr bool is_supported(ReduceOp op, DType dtype) {
  if (dtype == DType::BOOL) return op != ReduceOp::SUM && op != ReduceOp::MEAN;
  if (is_complex(dtype)) return op != ReduceOp::MIN && op != ReduceOp::MAX;
  return true;
}

/// The DType of the result: mean_dtype for MEAN, else the input's.
[[nodiscard]] constexpr DType result_dtype(ReduceOp op, DType dtype) {
  return op == ReduceOp::MEAN ? mean_dtype(dtype) : dtype;
}

}  // namespace crossdevice
