// SPDX-License-Identifier: Apache-2.0
/// Two levels on GPUs: NCCL within each worker, schedules of hosts among the workers.
#pragma once

#include <cstddef>
#include <span>

#include "crossdevice/collective/nccl_reduce.h"
#include "crossdevice/core/reduce_op.h"

#include "ops/detail/active_operation.h"
#include "ops/detail/host_reduce.h"
#include "ops/detail/worker_batch_plans.h"

namespace crossdevice::detail {

struct NcclThenHostsRequest {
  ReduceOp op = ReduceOp::SUM;
  const WorkerBatchPart& part;          ///< for NCCL_THEN_HOSTS
  std::span<const ReduceItem> items{};  ///< the part's, none of them captured
  std::span<NcclReducer* const>
      reducers{};  ///< by worker, each can reduce all items; null: of a worker that has one GPU
  std::size_t bytes_per_pack = 0;  ///< see NcclReduceRequest
};

///   1. the host waits for the components' streams
///   2. NCCL reduces each worker's components to the worker's first GPU, into memory of its own
///   3. the host waits for that, and reduces the workers' sums as `part.upper` says, on copies
///   4. the results are copied to the workers' first GPUs, divided there for a MEAN, and broadcast by NCCL to the workers' other GPUs
///
/// Memory   until it returns, on each worker's first GPU one more of each item, and on hosts as staged_scheduled_reduce with one component for each worker.
/// Order    on return all but the broadcast has been done, which is enqueued on the results' streams. Announces items then.
/// Errors   as staged_scheduled_reduce and NcclReducer. Inputs are intact up to the end of 3; a stream that is late in 1 breaks nothing. What NCCL has begun in 2
///          and an abort has ended is an error here. What goes wrong with a broadcast later: `active`'s object.
void nccl_then_hosts_reduce(const NcclThenHostsRequest& request, ActiveOperation& active);

}  // namespace crossdevice::detail
