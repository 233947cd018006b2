// SPDX-License-Identifier: Apache-2.0
/// The last step of every operation: what a hook returned must be what the caller asked for.
#pragma once

#include <span>
#include <vector>

#include "crossdevice/ops/destinations.h"
#include "crossdevice/ops/values.h"

namespace crossdevice::detail {

/// settle() of any value.
void settle_any(Mirrored& result, const Destinations& destinations);

/// Makes `result` lie in the destination's output buffers, if it has any: a hook of the program's own may have returned others, which are
/// copied. Results of the library's ops are there already.
///
/// Errors   InternalError: the hook returned another number of components than there are devices, or sparse ones for output
///          buffers.
inline void settle(Mirrored& result, const Destinations& destinations) {
  // Of the library's ops it is mostly the very tensor.
  const DistributedValues* const outputs = destinations.outputs();
  const bool is_there = outputs != nullptr && outputs->values().size() == 1 &&
                        result.values().size() == 1 &&
                        result.values()[0].is_same(outputs->values()[0]);
  if (!is_there) settle_any(result, destinations);
}
void settle_batch(std::vector<Mirrored>& results, std::span<const ValueDestinationPair> pairs);

}  // namespace crossdevice::detail
