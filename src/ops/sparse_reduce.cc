// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/sparse_reduce.h"

#include <utility>
#include <vector>

#include "crossdevice/device/reduce_kernel.h"

#include "ops/detail/component_reduce.h"

namespace crossdevice::detail {

Mirrored sparse_reduce(ReduceOp op, const PerReplica& value, const Device& target,
                       const Destinations& destinations, ActiveOperation& active) {
  active.require_time_left();
  const IndexedSlices all = concatenate(value.slices(), target);
  if (op == ReduceOp::MEAN) {
    const auto divisor = static_cast<double>(value.size());
    if (all.values.device().is_host()) {
      divide_elements(all.dtype(), all.values.data(), all.values.num_elements(), divisor);
    } else {
      gpu_divide(all.values, divisor, gpu_operation(active));
    }
  }
  std::vector<IndexedSlices> copies;
  bool target_taken = false;
  for (const Device& device : destinations.devices()) {
    active.require_time_left();
    // The concatenation itself serves the device it lies on; every other one gets a copy of its own.
    if (device == target && !std::exchange(target_taken, true)) {
      copies.push_back(all);
    } else {
      copies.push_back(copy_to_device(all, device));
    }
  }
  return Mirrored(std::move(copies));
}

}  // namespace crossdevice::detail
