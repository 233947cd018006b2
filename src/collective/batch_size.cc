// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/batch_size.h"

#include <algorithm>

#include "crossdevice/core/fingerprint.h"

#include "collective/detail/inline_batch.h"

namespace crossdevice::detail {

BatchSize measure_batch(const CollectiveRequest& request, std::span<const CollectiveValue> values) {
  BatchSize size;
  Fingerprint fingerprint;
  fingerprint.add(request.fingerprint);
  fingerprint.add(request.deterministic ? 1 : 0);
  for (const CollectiveValue& value : values) {
    const Tensor& first = value.inputs[0];
    fingerprint.add(static_cast<std::uint64_t>(first.dtype()) << 32U | value.inputs.size());
    fingerprint.add(first.num_elements());
    fingerprint.add(value.outputs.size());
    size.size_bytes += first.size_bytes();
    size.inline_bytes += value.inputs.size() * inline_bytes_of(first);
    size.num_tensors += value.inputs.size() + value.outputs.size();
  }
  size.fingerprint = fingerprint.value();
  return size;
}

bool is_in_place(std::span<const CollectiveValue> values) {
  return std::any_of(values.begin(), values.end(), [](const CollectiveValue& value) {
    return std::any_of(value.outputs.begin(), value.outputs.end(), [&value](const Tensor& output) {
      return std::any_of(value.inputs.begin(), value.inputs.end(),
                         [&](const Tensor& input) { return output.data() == input.data(); });
    });
  });
}

}  // namespace crossdevice::detail
