// SPDX-License-Identifier: Apache-2.0
/// The reduction of sparse values: concatenation, then one copy per destination.
#pragma once

#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/destinations.h"
#include "crossdevice/ops/values.h"

#include "ops/detail/active_operation.h"

namespace crossdevice::detail {

/// SUM: all rows of all replicas, in replica order, on `target`, then copied to the destinations. MEAN: the values divided by the number of
/// replicas, so that densifying the result gives the dense mean.
[[nodiscard]] Mirrored sparse_reduce(ReduceOp op, const PerReplica& value, const Device& target,
                                     const Destinations& destinations, ActiveOperation& active);

}  // namespace crossdevice::detail
