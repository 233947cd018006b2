// SPDX-License-Identifier: Apache-2.0
/// Small things done to the elements of single tensors, for variables and for values that are equal everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/values.h"

namespace crossdevice::detail {

/// The tensor itself on a host, else a copy on CPU:0.
[[nodiscard]] Tensor on_host(const Tensor& tensor);

/// Whether every element of every component is zero. A sparse value: of its rows.
[[nodiscard]] bool is_all_zero(const DistributedValues& value);

using Number = std::variant<double, std::int64_t, std::uint64_t>;

/// A scalar tensor.
///
/// Errors   ValueError: the number has no exact form in an integer dtype; bool takes 0 and 1.
[[nodiscard]] Tensor make_scalar(const Number& number, DType dtype, const Device& device);

/// Part `part` of `value` cut into `num_parts` equal parts whose sum is the value: integers leave the remainder to part 0.
///
/// Errors   ValueError: the dtype has no sum.
[[nodiscard]] Tensor equal_part(const Tensor& value, std::size_t part, std::size_t num_parts);

}  // namespace crossdevice::detail
