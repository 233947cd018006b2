// SPDX-License-Identifier: Apache-2.0
/// The dense values of a batch, by the engine that takes them together.
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

#include "ops/detail/active_operation.h"
#include "ops/detail/component_reduce.h"

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

}  // namespace crossdevice::detail
