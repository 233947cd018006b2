// SPDX-License-Identifier: Apache-2.0
/// The last step of every operation: what a hook returned must be what the caller asked for.
#pragma once

#include <span>
#include <vector>

#include "crossdevice/ops/destinations.h"
#include "crossdevice/ops/values.h"

namespace crossdevice::detail {

/// Makes `result` lie in the destination's output buffers, if it has any: a hook of the program's own may have returned others, which are
/// copied. Results of the library's ops are there already.
///
/// Errors   InternalError: the hook returned another number of components than there are devices, or sparse ones for output
///          buffers.
void settle(Mirrored& result, const Destinations& destinations);
void settle_batch(std::vector<Mirrored>& results, std::span<const ValueDestinationPair> pairs);

}  // namespace crossdevice::detail
