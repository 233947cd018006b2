// SPDX-License-Identifier: Apache-2.0
/// The values of a batch, the dense ones by the engine that takes them together.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "crossdevice/collective/nccl_reduce.h"
#include "crossdevice/collective/pack.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/core/reused_list.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/scratch_lease.h"
#include "crossdevice/ops/destinations.h"
#include "crossdevice/ops/values.h"

#include "ops/detail/active_operation.h"
#include "ops/detail/batch_results.h"
#include "ops/detail/component_reduce.h"
#include "ops/detail/sparse_reduce.h"

namespace crossdevice::detail {

/// What values that are reduced together have in common.
struct BatchKind {
  std::size_t first_group = 0;
  Placement placement = Placement::HOSTS;
  NcclReducer* nccl = nullptr;                   ///< null: our kernels reduce
  std::optional<Device> reducer = std::nullopt;  ///< see ReduceRoute; nothing on hosts
  [[nodiscard]] ReduceRoute route() const { return {first_group, reducer}; }
  friend bool operator==(const BatchKind&, const BatchKind&) = default;
};

/// Kept between calls (ScratchLease): a batch like the one before allocates nothing.
class BatchGroups {
 public:
  /// `item` outlives this batch. On GPUs values of different devices are of different groups: who reduces a value does not depend on the rest of its batch.
  void add(const BatchKind& kind, const ReduceItem& item);

  /// Reduces all that was added: what lies on GPUs first, which work while the host does. `packing`: of the tensors of each group.
  ///
  /// Errors   as reduce_batch().
  void reduce(ReduceOp op, const PackingOptions& packing, ActiveOperation& active);
  void clear() { groups_.clear(); }

 private:
  class Group {
   public:
    [[nodiscard]] bool takes(const BatchKind& kind, const ReduceItem& item) const;
    void add(const ReduceItem& item);
    /// None where there is no rule: each tensor is a pack of its own then, which the engine knows without a list. Made anew only when the sizes
    /// differ from those of the batch before.
    [[nodiscard]] std::span<const Pack> packs(const PackingOptions& packing);
    void clear() {
      items.clear();
      sizes_.clear();
    }
    BatchKind kind;
    std::vector<ReduceItem> items;

   private:
    std::vector<TensorSize> sizes_;
    std::vector<TensorSize> packed_sizes_;  // the signature of packs_
    PackingOptions packing_;
    std::vector<Pack> packs_;
  };

  ReusedList<Group> groups_;  // few: one, unless a batch mixes devices, or kinds of destinations
};

/// Reduces a batch among this process' devices: the dense values in groups, then each sparse one.
///
/// kind_of    (pair) of a dense value. Before anything is written: what it throws refuses the batch.
/// target_of  (pair) the device on which the slices of a sparse one are brought together.
/// Errors     as make_result(), reduce_batch() and sparse_reduce().
template <class KindOf, class TargetOf>
std::vector<Mirrored> reduce_in_groups(ReduceOp op, std::span<const ValueDestinationPair> pairs,
                                       const PackingOptions& packing, ActiveOperation& active,
                                       const KindOf& kind_of, const TargetOf& target_of) {
  std::vector<Mirrored> results = make_results(pairs.size());
  const ScratchLease<BatchGroups> groups;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto& [value, destinations] = pairs[i];
    if (value.is_sparse()) continue;
    const BatchKind kind = kind_of(pairs[i]);
    results[i] = destinations.make_result(result_dtype(op, value.dtype()), value.shape(), value);
    groups->add(kind, {&value, &results[i], active.item_of(pairs[i])});
  }
  groups->reduce(op, packing, active);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto& [value, destinations] = pairs[i];
    if (!value.is_sparse()) continue;
    results[i] = sparse_reduce(op, value, target_of(pairs[i]), destinations, active);
    active.complete_item(active.item_of(pairs[i]), results[i]);
  }
  return results;
}

}  // namespace crossdevice::detail
