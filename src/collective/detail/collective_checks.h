// SPDX-License-Identifier: Apache-2.0
/// Arguments of collective calls, refused before anything is touched; and what a call is, for comparison.
#pragma once

#include <cstddef>
#include <span>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/device/tensor.h"

#include "collective/detail/batch_size.h"

namespace crossdevice::detail {

/// Errors   (of all) ValueError.
void require_root(int root, std::size_t num_ranks);
void require_reducible(ReduceOp op, DType dtype);
/// `input` has a part for every rank.
void require_divisible(const Tensor& input, std::size_t num_ranks);
/// `output` has this dtype and number of elements, and may be written.
void require_output(const char* what, const Tensor& output, DType dtype, std::size_t count);
/// `part` of one rank and the `whole` of all ranks' do not overlap, or the part is where that rank's is.
void require_own_place(const char* what, const Tensor& part, const Tensor& whole, int rank);
/// Both are the same memory, or do not overlap.
void require_same_or_apart(const char* what, const Tensor& input, const Tensor& output);

/// A call about a batch, which is not empty.
[[nodiscard]] GroupOperationInfo operation_of(const CollectiveRequest& request,
                                              std::span<const CollectiveValue> values,
                                              const BatchSize& size);
/// A call about one tensor.
[[nodiscard]] GroupOperationInfo operation_of(const CollectiveRequest& request,
                                              const Tensor& tensor, int root);

}  // namespace crossdevice::detail
