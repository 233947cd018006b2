// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/settle.h"

#include <algorithm>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"

namespace crossdevice::detail {
namespace {

[[noreturn]] void throw_wrong_size(std::size_t size, std::size_t expected) {
  throw InternalError(fmt::format(
      "a *_implementation hook returned {} components for {} destination devices", size, expected));
}

bool is_there(const Tensor& made, const Tensor& wanted) {
  return made.is_same(wanted) || (made.data() == wanted.data() && made.shape() == wanted.shape());
}

/// What is not in the output buffers yet.
void settle_into(Mirrored& result, const DistributedValues& outputs) {
  if (result.is_sparse()) {
    throw InternalError("a *_implementation hook returned a sparse value for dense output buffers");
  }
  bool copied = false;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& made = result.values()[i];
    const Tensor& wanted = outputs.values()[i];
    if (is_there(made, wanted)) continue;
    copy(wanted, made);
    copied = true;
  }
  if (copied) result = Mirrored(outputs.values());
}

}  // namespace

void settle_any(Mirrored& result, const Destinations& destinations) {
  const std::size_t expected = destinations.devices().size();
  if (result.size() != expected) throw_wrong_size(result.size(), expected);
  const DistributedValues* const outputs = destinations.outputs();
  if (outputs == nullptr) return;
  // Of the library's ops they are these very tensors.
  const auto is_same = [](const Tensor& made, const Tensor& wanted) {
    return made.is_same(wanted);
  };
  if (std::ranges::equal(result.values(), outputs->values(), is_same)) return;
  settle_into(result, *outputs);
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
