// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/lone_worker.h"

#include "ops/detail/component_reduce.h"
#include "ops/detail/sparse_reduce.h"

namespace crossdevice::detail {

BatchKind LoneWorker::kind_of(ReduceOp op, const PerReplica& value,
                              const Destinations& destinations,
                              const CommunicationOptions& options) {
  BatchKind kind;
  kind.placement = placement_of(value.devices(), destinations.devices());
  const bool is_for_nccl = kind.placement == Placement::GPUS && value.size() > 1 &&
                           !options.is_deterministic() &&
                           options.implementation != CommunicationImplementation::RING &&
                           value.devices().same_set(destinations.devices());
  if (is_for_nccl) kind.nccl = engines_.serving(op, value);
  return kind;
}

Mirrored LoneWorker::reduce(ReduceOp op, const PerReplica& value, const Destinations& destinations,
                            const CommunicationOptions& options, ActiveOperation& active) {
  if (value.is_sparse()) {
    return sparse_reduce(op, value, destinations.devices()[0], destinations, active);
  }
  const BatchKind kind = kind_of(op, value, destinations, options);
  Mirrored result = destinations.make_result(result_dtype(op, value.dtype()), value.shape(), value);
  if (kind.nccl == nullptr) {
    reduce_components(op, kind.route(), value, result, active);
    return result;
  }
  const ReduceItem item{&value, &result, PendingBatchState::kNoItem};
  reduce_batch(op, kind.route(),
               {.items = std::span<const ReduceItem>(&item, 1),
                .placement = kind.placement,
                .nccl = kind.nccl},
               active);
  return result;
}

std::vector<Mirrored> LoneWorker::batch_reduce(ReduceOp op,
                                               std::span<const ValueDestinationPair> pairs,
                                               const CommunicationOptions& options,
                                               ActiveOperation& active) {
  PackingOptions packing{.bytes_per_pack = options.bytes_per_pack};
  // Without a limit a launch of NCCL takes all; hosts have nothing to pack for.
  const bool has_gpus = !pairs.empty() && !pairs[0].value.devices().all_host();
  if (options.bytes_per_pack == 0 && has_gpus) packing.num_packs = 1;
  return reduce_in_groups(
      op, pairs, packing, active,
      [&](const ValueDestinationPair& pair) {
        return kind_of(op, pair.value, pair.destinations, options);
      },
      [](const ValueDestinationPair& pair) { return pair.destinations.devices()[0]; });
}

}  // namespace crossdevice::detail
