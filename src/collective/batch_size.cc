// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/batch_size.h"

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
    for (const Tensor& output : value.outputs) {
      for (const Tensor& input : value.inputs) size.in_place |= output.data() == input.data();
    }
  }
  size.fingerprint = fingerprint.value();
  return size;
}

}  // namespace crossdevice::detail
