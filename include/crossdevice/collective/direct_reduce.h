// SPDX-License-Identifier: Apache-2.0
/// The engine of one process on host memory: every element of a batch is read once and written once, by all cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "crossdevice/collective/pack.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/reduce_op.h"

namespace crossdevice {

/// One tensor of a batch: as many inputs as replicas, as many outputs as results. Outputs hold result_dtype(op, dtype).
struct DirectReduceTensor {
  DType dtype = DType::FLOAT32;
  std::size_t num_elements = 0;
  std::span<const void* const> inputs{};  ///< at least one
  std::span<void* const> outputs{};       ///< may be empty: nothing to do
};

/// What an operation in progress is asked between its steps, and told as it proceeds. Neither may throw.
class CROSSDEVICE_EXPORT OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  /// Whether to stop early. Any thread.
  [[nodiscard]] virtual bool stop_requested() const = 0;
  /// All elements of this tensor of the batch have their result, visible to the calling thread. Any thread, once per tensor.
  virtual void tensor_completed(std::size_t tensor) = 0;
};

/// A part of the work, where several processes do the same request together: every element belongs to exactly one of `count` shares.
struct DirectReduceShare {
  std::size_t index = 0;
  std::size_t count = 1;
  /// On the calling thread alone: where there is a process for every core already.
  bool is_single_threaded = false;
};

struct DirectReduceRequest {
  ReduceOp op = ReduceOp::SUM;
  std::size_t first_group = 0;  ///< see ReducePass
  std::span<const DirectReduceTensor> tensors{};
  /// Cover every tensor, as make_packs does; empty: one per tensor, in order.
  std::span<const Pack> packs{};
  Deadline deadline = Deadline::never();
  OperationObserver* observer =
      nullptr;  ///< only for the whole: with a share nobody knows when a tensor is complete
  DirectReduceShare share{};
};

enum class DirectReduceOutcome : std::uint8_t { COMPLETED, DEADLINE_PASSED, STOPPED };

/// Reduces every tensor: outputs[j] = op(inputs...), as reduce_kernel.h says.
///
/// Shapes   is_supported(op, dtype) for every tensor.
/// Memory   an output is exactly an input of its own tensor or overlaps nothing else of the batch. Outputs that are not inputs
///          are written past the caches when the batch is larger than the cores' own ones. Nothing is allocated once batches
///          as large have run before.
/// Order    blocks. Packs are started in order, so early packs complete early. Small batches run on the caller alone.
/// Errors   FailedPreconditionError (of the thread pool): in a child of fork(). Arguments are checked above. Deadline and
///          observer are asked before each chunk of work (some 10 to 100 us); on DEADLINE_PASSED and STOPPED some outputs are
///          written and some are not, and no thread touches memory any more.
/// Threads  any number of callers.
/// Cost     (N + M) S bytes of memory traffic for N inputs and M outputs of S bytes.
[[nodiscard]] CROSSDEVICE_EXPORT DirectReduceOutcome
direct_reduce(const DirectReduceRequest& request);

}  // namespace crossdevice
