// SPDX-License-Identifier: Apache-2.0
/// Concatenation of host tensors along an axis, into every destination at once.
#pragma once

#include <cstddef>

#include "crossdevice/ops/values.h"

#include "ops/detail/active_operation.h"

namespace crossdevice::detail {

/// result[.., i0 + i1 + .., ..] = the components side by side along `axis`. Shapes are checked already.
///
/// Errors   DeadlineExceededError, CancelledError.
/// Cost     each byte of the inputs is read once per destination and written once per destination.
void host_gather(const PerReplica& value, std::size_t axis, const Mirrored& result,
                 ActiveOperation& active);

}  // namespace crossdevice::detail
