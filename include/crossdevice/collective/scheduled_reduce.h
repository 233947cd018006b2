// SPDX-License-Identifier: Apache-2.0
/// The engine of one process for schedules: the same memory as direct_reduce.h, another order of additions.
#pragma once

#include <memory>
#include <span>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/collective/pack.h"
#include "crossdevice/collective/reduction_plan.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/reduce_op.h"

namespace crossdevice {

/// A pack and what becomes of its elements. The plan's elements are the pack's, range by range.
struct ScheduledPack {
  Pack pack;
  std::shared_ptr<const ReductionPlan> plan;
};

struct ScheduledReduceRequest {
  ReduceOp op = ReduceOp::SUM;
  std::span<const DirectReduceTensor> tensors{};
  /// Cover every tensor, as make_packs does; started in order.
  std::span<const ScheduledPack> packs{};
  Deadline deadline = Deadline::never();
  OperationObserver* observer = nullptr;
};

/// Reduces every tensor as its packs' plans say; participant p's input is the tensor's input p.
///
/// Shapes   is_supported(op, dtype) for every tensor; as many inputs as its plans have participants. MEAN of integers takes plans of
///          one pass (plan_direct_reduction): the order of additions makes no difference to integers.
/// Memory   as direct_reduce. Intermediate results lie in memory of the thread's own, 16 KiB per row; inputs are not written but as outputs.
/// Arithmetic  float16, bfloat16 and float8 are rounded after each pass. MEAN divides in the pass that combines all inputs, where there
///          is one; else after the last, in float32 at least. A single participant's elements are copied.
/// Order    blocks. Packs are started in order. Small batches run on the caller alone.
/// Errors   FailedPreconditionError (of the thread pool): in a child of fork(). std::bad_alloc. Arguments are checked above. Deadline and observer are
///          asked before each chunk of work; on DEADLINE_PASSED and STOPPED some outputs are written and some are not, and no
///          thread touches memory any more.
/// Threads  any number of callers.
/// Cost     (N + M) S bytes of memory traffic for N inputs and M outputs of S bytes; what is intermediate stays in the first-level cache.
[[nodiscard]] CROSSDEVICE_EXPORT DirectReduceOutcome
scheduled_reduce(const ScheduledReduceRequest& request);

}  // namespace crossdevice
