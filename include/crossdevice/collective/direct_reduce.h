// SPDX-License-Identifier: Apache-2.0
/// The engine of one process on host memory: every element of a batch is read once and written once, by all cores.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/collective/pack.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/reduce_op.h"

namespace crossdevice {

/// One tensor of a batch: as many inputs as replicas, as many outputs as results.
struct DirectReduceTensor {
  DType dtype = DType::FLOAT32;
  std::size_t num_elements = 0;
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
};

/// What an operation in progress is asked between its steps, and told as it proceeds.
class CROSSDEVICE_EXPORT OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  /// Whether to stop early. Any thread.
  [[nodiscard]] virtual bool stop_requested() const = 0;
  /// All elements of this tensor of the batch have their result. Any thread, once per tensor.
  virtual void tensor_completed(std::size_t tensor) = 0;
};

struct DirectReduceRequest {
  ReduceOp op = ReduceOp::SUM;
  std::size_t first_group = 0;                   ///< see ReducePass
  std::span<const DirectReduceTensor> tensors;
  std::span<const Pack> packs;                   ///< empty: one per tensor, in order
  Deadline deadline = Deadline::never();
  OperationObserver* observer = nullptr;
};

enum class DirectReduceOutcome { COMPLETED, DEADLINE_PASSED, STOPPED };

/// Reduces every tensor: outputs[j] = op(inputs...), as reduce_kernel.h says.
///
/// Memory   outputs are exactly inputs or overlap nothing. Outputs that are not inputs are written past the caches when the
///          batch is larger than them.
/// Order    blocks; chunks of packs are handed out in order, so early packs complete early. Small batches run inline on the caller.
/// Errors   none: arguments are checked above. On DEADLINE_PASSED and STOPPED some outputs are written and some are not; no thread touches
///          memory any more.
/// Threads  any number of callers.
/// Cost     (N + M) S bytes of memory traffic for N inputs and M outputs out of place, (N + M) S in place.
[[nodiscard]] CROSSDEVICE_EXPORT DirectReduceOutcome direct_reduce(const DirectReduceRequest& request);

}  // namespace crossdevice
