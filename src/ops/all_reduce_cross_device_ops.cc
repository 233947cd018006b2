// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/all_reduce_cross_device_ops.h"

#include <vector>

#include <fmt/format.h>

#include "crossdevice/collective/nccl_reduce.h"
#include "crossdevice/collective/pack.h"
#include "crossdevice/core/error.h"

#include "ops/detail/active_operation.h"
#include "ops/detail/batch_groups.h"
#include "ops/detail/component_reduce.h"
#include "ops/detail/sparse_reduce.h"

namespace crossdevice {
namespace {

/// `first_group` and `nccl` are for all-reduces: where values and destinations differ, one device reduces, as in TF; where the caller wants bits that do
/// not depend on the algorithm, all inputs are combined in order.
detail::BatchKind kind_of(ReduceOp op, const ValueDestinationPair& pair,
                          const CommunicationOptions& options, std::size_t first_group,
                          NcclReducer* nccl) {
  const Devices& devices = pair.value.devices();
  const bool is_all_reduce = devices.same_set(pair.destinations.devices());
  detail::BatchKind kind;
  kind.placement = detail::placement_of(devices, pair.destinations.devices());
  if (is_all_reduce && !options.is_deterministic()) {
    const bool has_nccl = nccl != nullptr && nccl->can_reduce(op, pair.value.dtype());
    if (has_nccl) {
      kind.nccl = nccl;
    } else {
      kind.first_group = first_group;
    }
  }
  if (!is_all_reduce && kind.placement != detail::Placement::HOSTS) {
    kind.reducer = pair.destinations.devices()[0];
  }
  return kind;
}

}  // namespace

NcclReducer* AllReduceCrossDeviceOps::nccl_reducer(const Devices& /*devices*/) { return nullptr; }

AllReduceCrossDeviceOps::AllReduceCrossDeviceOps(int num_packs) : num_packs_(num_packs) {
  if (num_packs < 0) {
    throw ValueError(fmt::format("num_packs must be 0 or more, not {}", num_packs));
  }
}

Mirrored AllReduceCrossDeviceOps::reduce_implementation(ReduceOp op, const PerReplica& value,
                                                        const Destinations& destinations,
                                                        const CommunicationOptions& options) {
  prepare(value, options);
  detail::ActiveOperation& active = active_operation();
  if (value.is_sparse()) {
    return detail::sparse_reduce(op, value, destinations.devices()[0], destinations, active);
  }
  Mirrored result = destinations.make_result(result_dtype(op, value.dtype()), value.shape(), value);
  const detail::BatchKind kind = kind_of(op, {value, destinations}, options,
                                         first_group(value.size()), nccl_reducer(value.devices()));
  const detail::ReduceItem item{&value, &result, detail::PendingBatchState::kNoItem};
  if (kind.placement == detail::Placement::HOSTS) {
    detail::host_reduce(op, kind.first_group, value, result, active);
  } else {
    detail::reduce_batch(op, kind.route(),
                         {.items = std::span<const detail::ReduceItem>(&item, 1),
                          .placement = kind.placement,
                          .nccl = kind.nccl},
                         active);
  }
  return result;
}

std::vector<Mirrored> AllReduceCrossDeviceOps::batch_reduce_implementation(
    ReduceOp op, std::span<const ValueDestinationPair> pairs, const CommunicationOptions& options) {
  detail::ActiveOperation& active = active_operation();
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (i == 0 || !(pairs[i].value.devices() == pairs[i - 1].value.devices())) {
      prepare(pairs[i].value, options);
    }
  }
  PackingOptions packing{.bytes_per_pack = options.bytes_per_pack};
  if (options.bytes_per_pack == 0) packing.num_packs = num_packs_;
  return detail::reduce_in_groups(
      op, pairs, packing, active,
      [&](const ValueDestinationPair& pair) {
        return kind_of(op, pair, options, first_group(pair.value.size()),
                       nccl_reducer(pair.value.devices()));
      },
      [](const ValueDestinationPair& pair) { return pair.destinations.devices()[0]; });
}

}  // namespace crossdevice
