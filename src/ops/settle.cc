// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/settle.h"

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"

namespace crossdevice::detail {

void settle(Mirrored& result, const Destinations& destinations) {
  const std::size_t expected = destinations.devices().size();
  if (result.size() != expected) {
    throw InternalError(
        fmt::format("a *_implementation hook returned {} components for {} destination devices",
                    result.size(), expected));
  }
  const DistributedValues* outputs = destinations.outputs();
  if (outputs == nullptr) return;
  if (result.is_sparse()) {
    throw InternalError("a *_implementation hook returned a sparse value for dense output buffers");
  }
  bool copied = false;
  for (std::size_t i = 0; i < expected; ++i) {
    const Tensor& made = result.values()[i];
    const Tensor& wanted = outputs->values()[i];
    const bool is_there =
        made.is_same(wanted) || (made.data() == wanted.data() && made.shape() == wanted.shape());
    if (is_there) continue;
    copy(wanted, made);
    copied = true;
  }
  if (copied) result = Mirrored(outputs->values());
}

void settle_batch(std::vector<Mirrored>& results, std::span<const ValueDestinationPair> pairs) {
  if (results.size() != pairs.size()) {
    throw InternalError(
        fmt::format("a batch_reduce_implementation hook returned {} results for {} values",
                    results.size(), pairs.size()));
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) settle(results[i], pairs[i].destinations);
}

}  // namespace crossdevice::detail
