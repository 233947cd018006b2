// SPDX-License-Identifier: Apache-2.0
/// From values and results to the in-process engine: the one place where ops meet the engines of collective.
#pragma once

#include <cstddef>
#include <span>

#include "crossdevice/collective/pack.h"
#include "crossdevice/collective/scheduled_reduce.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/ops/values.h"

#include "ops/detail/active_operation.h"

namespace crossdevice::detail {

/// One dense value of a batch, and where its result goes. `item` is what the operation calls it: see ActiveOperation::item_of.
struct ReduceItem {
  const PerReplica* value = nullptr;
  const Mirrored* result = nullptr;
  std::size_t item = 0;
};

/// One value. Allocates nothing for up to 64 components on either side.
///
/// Errors   DeadlineExceededError, CancelledError.
void host_reduce(ReduceOp op, std::size_t first_group, const PerReplica& value,
                 const Mirrored& result, ActiveOperation& active);

/// A batch in packs (none: one per value); each item is announced to `active` when it is complete.
void host_batch_reduce(ReduceOp op, std::size_t first_group, std::span<const ReduceItem> items,
                       std::span<const Pack> packs, ActiveOperation& active);

/// A batch in packs of which each has a plan of its own; they cover all items. Announces items as host_batch_reduce.
void host_scheduled_reduce(ReduceOp op, std::span<const ReduceItem> items,
                           std::span<const ScheduledPack> packs, ActiveOperation& active);

/// The same bytes into every tensor of `result`.
void host_broadcast(const Tensor& source, const Mirrored& result, ActiveOperation& active);

/// `sum` divided by `count`, in the dtype of `result` (that of a MEAN of sum's dtype), into every tensor of `result`.
void host_divide(const Tensor& sum, std::size_t count, const Mirrored& result,
                 ActiveOperation& active);

}  // namespace crossdevice::detail
