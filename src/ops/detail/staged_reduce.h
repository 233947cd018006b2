// SPDX-License-Identifier: Apache-2.0
/// Schedules of hosts on values of which some components lie on GPUs: through copies on hosts.
#pragma once

#include <span>

#include "crossdevice/collective/scheduled_reduce.h"
#include "crossdevice/core/reduce_op.h"

#include "ops/detail/active_operation.h"
#include "ops/detail/host_reduce.h"

namespace crossdevice::detail {

/// Until the GPUs have done what they were given for these tensors so far.
///
/// Errors   DeadlineExceededError: names the tensor's device; a GPU's failure.
void await_streams(std::span<const Tensor> tensors, const ActiveOperation& active);

/// For before anything is written.
///
/// Errors   FailedPreconditionError: a component or a result is captured into a graph, and the host would wait for it.
void require_not_captured(const ReduceItem& item);

/// As host_scheduled_reduce.
///
/// Memory   a copy of each component that lies on a GPU, and one of each value's result, until it returns; over the bus through pinned memory.
/// Order    the copies are made behind what the components' streams were given before. Results are there on return, on GPUs too.
/// Errors   also FailedPreconditionError: captured into a graph; what CUDA reports. The deadline bounds the wait for the streams.
void staged_scheduled_reduce(ReduceOp op, std::span<const ReduceItem> items,
                             std::span<const ScheduledPack> packs, ActiveOperation& active);

}  // namespace crossdevice::detail
