// SPDX-License-Identifier: Apache-2.0
/// The engine of GPUs through NCCL, of one process or of several: all-reduces in packs, the next filled while NCCL reduces the one before. Within one process also
/// the halves of an all-reduce, for those who have something to do in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string_view>

#include "crossdevice/collective/gpu_reduce.h"
#include "crossdevice/collective/pack.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/device.h"

namespace crossdevice {

/// What becomes of a tensor. The first device is the reducer's first.
enum class NcclPattern : std::uint8_t {
  ALL_REDUCE,  ///< outputs[j] = op(inputs...): an output on each device, in any order
  REDUCE,      ///< outputs[0] = op(inputs...): one output, on the first device
  BROADCAST,  ///< outputs[j] = inputs[0], of any dtype: one input, on the first device, where it is the output too
};

struct NcclReduceRequest {
  ReduceOp op = ReduceOp::SUM;  ///< not BROADCAST's
  /// Within one process; several workers have ALL_REDUCE alone.
  NcclPattern pattern = NcclPattern::ALL_REDUCE;
  /// Inputs in the order of the reducer's devices, one on each; outputs as the pattern says.
  std::span<const GpuReduceTensor> tensors{};
  /// Cover every tensor, as make_packs does; empty: one per tensor, in order.
  std::span<const Pack> packs{};
  /// What the packs were cut by; 0: something else. Bounds the staging buffers.
  std::size_t bytes_per_pack = 0;
  /// Over whatever else of the caller's must be equal on all workers.
  std::uint64_t fingerprint = 0;
  /// What workers call it that find their calls to differ; nothing: what the operation is called.
  std::string_view kind{};
  GpuOperation operation{};
};

/// Ranges below min(1 MiB, the pack's bytes) are copied into a staging buffer, one launch per GPU and pack, and out of it the same way; larger ones, and packs of
/// one range, go to NCCL where they lie. MEAN is the sum, divided on the way out of the buffer or in one pass where it lies.
///
/// Memory   at most two staging buffers on each GPU of bytes_per_pack + 1 MiB, or 64 MiB where that is 0, made when they are first needed and kept; each captured
///          operation that needs some has such buffers of its own, which live as long as this.
/// Order    as gpu_reduce; a batch of one pack runs on the tensors' streams alone, of several NCCL works on a stream of its own beside them.
/// Errors   as gpu_reduce; UnavailableError, FailedPreconditionError: the communicators are broken, says since when and why.
/// Threads  calls are serialised by the caller.
/// Cost     one launch to pack, one of NCCL and one to unpack per GPU and pack; for one large tensor exactly one of NCCL, and one more for MEAN.
class CROSSDEVICE_EXPORT NcclReducer {
 public:
  /// Makes, or finds, the communicators.
  ///
  /// Errors   UnavailableError: NCCL cannot reduce over these devices, says why. FailedPreconditionError: nothing is to be done on them, since NCCL has not come
  ///          back from an abort there.
  explicit NcclReducer(const Devices& devices);
  /// For the GPUs of all workers, of which `local` are this one's: every worker makes the same calls in the same order, with equal ops, dtypes, numbers of
  /// elements and packs. Collective. Where their calls differ, that is InternalError on every worker, which says who differs and how: it breaks the communicators
  /// as soon as all have made the call, or, with CROSSDEVICE_STRICT=1 and where another object shares a GPU with this one, is thrown before anything is launched.
  ///
  /// Errors   as above, on all workers, and those of the cluster.
  NcclReducer(const std::shared_ptr<Cluster>& cluster, const Devices& local,
              const Deadline& deadline = meeting_deadline());
  ~NcclReducer();
  NcclReducer(const NcclReducer&) = delete;
  NcclReducer& operator=(const NcclReducer&) = delete;

  /// This process's.
  [[nodiscard]] const Devices& devices() const;
  /// Whether NCCL does this with our arithmetic; see nccl_reduction().
  [[nodiscard]] bool can_reduce(ReduceOp op, DType dtype) const;
  /// Every tensor, for dtypes of which can_reduce() is true.
  void reduce(const NcclReduceRequest& request);
  /// For those who have waited for what reduce() has enqueued: it may have ended because the communicators broke.
  ///
  /// Errors   what broke them, once; FailedPreconditionError, with its text, from then on.
  void require_usable() const;

  /// Of several workers: a call that hosts carry out, in its turn among those of NCCL. It is compared with what the others call then, so that who takes the other
  /// way is found: every call once, by reduce() or here. To be made when all that may fail on this worker alone is done. One that throws has counted for nothing;
  /// else end_on_hosts() or fail_on_hosts() follows.
  ///
  /// Errors   as reduce(). InternalError with CROSSDEVICE_STRICT=1, on every worker: the calls differ.
  void begin_on_hosts(const GroupOperationInfo& call, const GpuOperation& operation);
  /// The same for the rest of a call of which reduce() has done a part.
  void continue_on_hosts();
  /// It has ended, well or as it does on all workers.
  ///
  /// Errors   InternalError: meanwhile calls were found to differ.
  void end_on_hosts();
  /// It has failed while others may count on it: breaks the communicators, which the others are told, and throws `error`, or, where the hosts' wait was ended
  /// because calls differ, InternalError as above.
  [[noreturn]] void fail_on_hosts(const std::exception_ptr& error);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice
