// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/sparse_reduce.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "crossdevice/device/reduce_kernel.h"

#include "ops/detail/component_reduce.h"
#include "ops/detail/staged_value.h"
#include "ops/detail/stream_wait.h"

namespace crossdevice::detail {
namespace {

/// Whether no host has a part in it.
bool are_for_gpus(std::span<const IndexedSlices> slices, const Device& target) {
  const DType index_dtype = slices[0].indices.dtype();
  return !target.is_host() && std::ranges::all_of(slices, [&](const IndexedSlices& each) {
    return !each.values.device().is_host() && !each.indices.device().is_host() &&
           each.indices.dtype() == index_dtype;
  });
}

IndexedSlices concatenated(const PerReplica& value, const Device& target,
                           const ActiveOperation& active) {
  if (are_for_gpus(value.slices(), target)) return concatenate(value.slices(), target);
  const PerReplica there = on_hosts(value, active);
  if (target.is_host()) return concatenate(there.slices(), target);
  const IndexedSlices all = concatenate(there.slices(), "CPU:0");
  return StreamWait(active, StreamWait::When::BEHIND_OTHERS).run([&](const WaitLimit& limit) {
    return copy_to_device(all, target, limit);
  });
}

}  // namespace

Mirrored sparse_reduce(ReduceOp op, const PerReplica& value, const Device& target,
                       const Destinations& destinations, ActiveOperation& active) {
  active.require_time_left();
  const IndexedSlices all = concatenated(value, target, active);
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
      copies.push_back(StreamWait(active).run(
          [&](const WaitLimit& limit) { return copy_to_device(all, device, limit); }));
    }
  }
  return Mirrored(std::move(copies));
}

}  // namespace crossdevice::detail
