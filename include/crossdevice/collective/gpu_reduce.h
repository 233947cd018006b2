// SPDX-License-Identifier: Apache-2.0
/// The engine of one process on GPUs without NCCL: our kernels read and write each other's memory where the GPUs reach it, copies where they do not.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice {

namespace detail {
class FailureListener;  // comm/gpu_watchdog.h
}  // namespace detail

/// One tensor of a batch: as many inputs as replicas, as many outputs as results, all on GPUs of this process; outputs hold
/// result_dtype(op, dtype).
struct GpuReduceTensor {
  std::span<const Tensor> inputs{};   ///< 1 to 64
  std::span<const Tensor> outputs{};  ///< at most 64
};

/// What an operation on GPUs is called and how it ends when nobody waits for it. One without a name is part of another, and not watched.
struct GpuOperation {
  OperationRecord record{};
  /// From the moment at which it reaches the head of its stream.
  std::optional<double> timeout_seconds = std::nullopt;
  /// Of what the call itself waits for.
  Deadline deadline = Deadline::never();
  /// Hears, at most once, from the watchdog's thread, what went wrong after the call had returned. May be null.
  std::shared_ptr<detail::FailureListener> listener{};
  /// Whether it writes where it reads, so that its failure may have changed its inputs. Errors say so as exactly as can be known: what was thrown before the
  /// first write was enqueued, and every failure of an operation that is not in place, leaves the inputs intact.
  bool is_in_place = true;
};

struct GpuReduceRequest {
  ReduceOp op = ReduceOp::SUM;
  std::size_t first_group = 0;  ///< see ReducePass
  std::span<const GpuReduceTensor> tensors{};
  /// The GPU that reduces, if it has an input or an output; else all GPUs of the outputs do, each a part.
  std::optional<Device> reducer = std::nullopt;
  GpuOperation operation{};
};

/// Reduces every tensor: outputs[j] = op(inputs...), with the bits of direct_reduce.
///
/// Shapes   is_supported(op, dtype) for every tensor.
/// Memory   an output is exactly an input of its own tensor or overlaps nothing else of the batch. Where a GPU does not reach another's memory, parts are
///          copied through blocks of its pool.
/// Order    returns after enqueueing on the tensors' streams (one that has none of its own: its device's own stream): the operation begins when all of
///          them have come to it, and whatever is enqueued on any of them later sees its results. May be captured into a graph: all streams or none.
/// Errors   FailedPreconditionError: some streams are captured and some are not. ResourceExhaustedError, InternalError: CUDA's, with its text. What goes
///          wrong later: operation.listener; a captured operation is watched by nobody.
/// Threads  any number of callers.
/// Cost     the kernels read N S and write M S bytes in all, over the links between GPUs the part that lies elsewhere: for an all-reduce each GPU reads
///          and writes (N - 1) S / N of the others'. On each GPU one call of the kernels for each dtype (see ManyReduceLaunch), and one for each
///          tensor that it does not reach whole.
CROSSDEVICE_EXPORT void gpu_reduce(const GpuReduceRequest& request);

/// The same bytes into every output, in the order of both sides' streams.
CROSSDEVICE_EXPORT void gpu_broadcast(const Tensor& source, std::span<const Tensor> outputs,
                                      const GpuOperation& operation);

/// Each output is the inputs one after the other along `axis`.
///
/// Shapes   equal but along `axis`, where the outputs are as long as the inputs together.
CROSSDEVICE_EXPORT void gpu_gather(std::span<const Tensor> inputs, std::size_t axis,
                                   std::span<const Tensor> outputs, const GpuOperation& operation);

/// The same memory divided: data = data / divisor, as divide_elements.
CROSSDEVICE_EXPORT void gpu_divide(const Tensor& tensor, double divisor,
                                   const GpuOperation& operation);

}  // namespace crossdevice
