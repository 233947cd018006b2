// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/all_reduce_cross_device_ops.h"

#include <fmt/format.h>

#include "crossdevice/collective/pack.h"
#include "crossdevice/core/error.h"

#include "ops/detail/active_operation.h"
#include "ops/detail/host_reduce.h"
#include "ops/detail/sparse_reduce.h"

namespace crossdevice {
namespace {

/// The association of an all-reduce, or the plain one: where values and destinations differ (TF then reduces to one device), and
/// where the caller wants bits that do not depend on the algorithm.
std::size_t association(const PerReplica& value, const Destinations& destinations,
                        const CommunicationOptions& options, std::size_t first_group) {
  if (options.deterministic) return 0;
  return value.devices().same_set(destinations.devices()) ? first_group : 0;
}

}  // namespace

AllReduceCrossDeviceOps::AllReduceCrossDeviceOps(int num_packs) : num_packs_(num_packs) {
  if (num_packs < 0) {
    throw ValueError(fmt::format("num_packs must be 0 or more, not {}", num_packs));
  }
}

Mirrored AllReduceCrossDeviceOps::reduce_implementation(ReduceOp op, const PerReplica& value,
                                                        const Destinations& destinations,
                                                        const CommunicationOptions& options) {
  prepare(value.devices(), options);
  detail::ActiveOperation& active = active_operation();
  if (value.is_sparse()) {
    return detail::sparse_reduce(op, value, destinations.devices()[0], destinations, active);
  }
  Mirrored result = destinations.make_result(result_dtype(op, value.dtype()), value.shape());
  detail::host_reduce(op, association(value, destinations, options, first_group(value.size())),
                      value, result, active);
  return result;
}

// Values with the same association go to the engine as one batch. There are two at most: matching ones and the others.
std::vector<Mirrored> AllReduceCrossDeviceOps::batch_reduce_implementation(
    ReduceOp op, std::span<const ValueDestinationPair> pairs, const CommunicationOptions& options) {
  detail::ActiveOperation& active = active_operation();
  std::vector<Mirrored> results(pairs.size());
  struct Group {
    std::size_t first_group;
    std::vector<detail::HostReduceItem> items;
    std::vector<TensorSize> sizes;
  };
  std::vector<Group> groups;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const PerReplica& value = pairs[i].value;
    if (i == 0 || !(value.devices() == pairs[i - 1].value.devices())) {
      prepare(value.devices(), options);
    }
    if (value.is_sparse()) continue;
    const Destinations& destinations = pairs[i].destinations;
    results[i] = destinations.make_result(result_dtype(op, value.dtype()), value.shape());
    const std::size_t first = association(value, destinations, options, first_group(value.size()));
    Group* group = nullptr;
    for (Group& known : groups) {
      if (known.first_group == first) group = &known;
    }
    if (group == nullptr) {
      group = &groups.emplace_back(Group{first, {}, {}});
      group->items.reserve(pairs.size() - i);
      group->sizes.reserve(pairs.size() - i);
    }
    group->items.push_back({&value, &results[i], active.item_of(pairs[i])});
    group->sizes.push_back({value.dtype(), value.values()[0].num_elements()});
  }
  PackingOptions packing{.bytes_per_pack = options.bytes_per_pack};
  if (options.bytes_per_pack == 0) packing.num_packs = num_packs_;
  const bool has_packs = packing.bytes_per_pack != 0 || packing.num_packs != 0;
  for (const Group& group : groups) {
    // Without a rule each tensor is a pack of its own, which the engine knows without a list.
    const std::vector<Pack> packs =
        has_packs ? make_packs(group.sizes, packing) : std::vector<Pack>();
    detail::host_batch_reduce(op, group.first_group, group.items, packs, active);
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (!pairs[i].value.is_sparse()) continue;
    const Destinations& destinations = pairs[i].destinations;
    results[i] =
        detail::sparse_reduce(op, pairs[i].value, destinations.devices()[0], destinations, active);
    active.complete_item(active.item_of(pairs[i]), results[i]);
  }
  return results;
}

}  // namespace crossdevice
