// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/all_reduce_cross_device_ops.h"

#include <optional>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/collective/nccl_reduce.h"
#include "crossdevice/collective/pack.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/scratch_lease.h"

#include "ops/detail/active_operation.h"
#include "ops/detail/batch_results.h"
#include "ops/detail/component_reduce.h"
#include "ops/detail/sparse_reduce.h"

namespace crossdevice {
namespace {

/// What the values that one engine takes together have in common.
struct BatchKind {
  std::size_t first_group = 0;
  detail::Placement placement = detail::Placement::HOSTS;
  NcclReducer* nccl = nullptr;
  std::optional<Device> reducer = std::nullopt;  // see ReduceRoute; nothing on hosts
  [[nodiscard]] detail::ReduceRoute route() const { return {first_group, reducer}; }
  friend bool operator==(const BatchKind&, const BatchKind&) = default;
};

/// `first_group` and `nccl` are for all-reduces: where values and destinations differ, one device reduces, as in TF; where the caller wants bits that do
/// not depend on the algorithm, all inputs are combined in order.
BatchKind kind_of(ReduceOp op, const ValueDestinationPair& pair,
                  const CommunicationOptions& options, std::size_t first_group, NcclReducer* nccl) {
  const Devices& devices = pair.value.devices();
  const bool is_all_reduce = devices.same_set(pair.destinations.devices());
  BatchKind kind;
  kind.placement = detail::placement_of(devices, pair.destinations.devices());
  if (is_all_reduce && !options.deterministic) {
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

/// The dense values of a batch that are of one kind.
struct BatchGroup {
  BatchKind kind;
  std::vector<detail::ReduceItem> items;

  void add(const detail::ReduceItem& item) {
    items.push_back(item);
    sizes_.push_back({item.value->dtype(), item.value->values()[0].num_elements()});
  }
  /// The packs of the values; none where there is no rule: each tensor is a pack of its own then, which the engine knows without a list.
  /// Made anew only when the sizes differ from those of the batch before.
  [[nodiscard]] std::span<const Pack> packs(const PackingOptions& packing) {
    if (packing == PackingOptions()) return {};
    if (!(packing == packing_) || sizes_ != packed_sizes_) {
      packs_ = make_packs(sizes_, packing);
      packed_sizes_ = sizes_;
      packing_ = packing;
    }
    return packs_;
  }
  void clear() {
    items.clear();
    sizes_.clear();
  }

 private:
  std::vector<TensorSize> sizes_;
  std::vector<TensorSize> packed_sizes_;  // the signature of packs_
  PackingOptions packing_;
  std::vector<Pack> packs_;
};

/// Few: one, unless a batch mixes numbers of replicas, hosts and GPUs, or kinds of destinations.
class BatchGroups {
 public:
  [[nodiscard]] BatchGroup& of(const BatchKind& kind) {
    for (BatchGroup& group : used()) {
      if (group.kind == kind) return group;
    }
    if (num_used_ == groups_.size()) groups_.emplace_back();
    groups_[num_used_].kind = kind;
    return groups_[num_used_++];
  }
  [[nodiscard]] std::span<BatchGroup> used() { return std::span(groups_).first(num_used_); }
  void clear() {
    for (BatchGroup& group : used()) group.clear();
    num_used_ = 0;
  }

 private:
  std::vector<BatchGroup> groups_;
  std::size_t num_used_ = 0;
};

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
  const BatchKind kind = kind_of(op, {value, destinations}, options, first_group(value.size()),
                                 nccl_reducer(value.devices()));
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
  std::vector<Mirrored> results = detail::make_results(pairs.size());
  const detail::ScratchLease<BatchGroups> groups;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto& [value, destinations] = pairs[i];
    if (i == 0 || !(value.devices() == pairs[i - 1].value.devices())) {
      prepare(value, options);
    }
    if (value.is_sparse()) continue;
    results[i] = destinations.make_result(result_dtype(op, value.dtype()), value.shape(), value);
    groups
        ->of(kind_of(op, pairs[i], options, first_group(value.size()),
                     nccl_reducer(value.devices())))
        .add({&value, &results[i], active.item_of(pairs[i])});
  }
  PackingOptions packing{.bytes_per_pack = options.bytes_per_pack};
  if (options.bytes_per_pack == 0) packing.num_packs = num_packs_;
  for (BatchGroup& group : groups->used()) {
    detail::reduce_batch(
        op, group.kind.route(),
        {.items = group.items,
         .packs = group.packs(packing),
         .bytes_per_pack = static_cast<std::size_t>(options.bytes_per_pack.value()),
         .placement = group.kind.placement,
         .nccl = group.kind.nccl},
        active);
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto& [value, destinations] = pairs[i];
    if (!value.is_sparse()) continue;
    results[i] = detail::sparse_reduce(op, value, destinations.devices()[0], destinations, active);
    active.complete_item(active.item_of(pairs[i]), results[i]);
  }
  return results;
}

}  // namespace crossdevice
