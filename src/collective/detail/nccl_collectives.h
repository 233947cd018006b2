// SPDX-License-Identifier: Apache-2.0
/// The engine of workers that have one GPU each, through NCCL.
#pragma once

#include <exception>
#include <memory>
#include <optional>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice::detail {

/// Whether the devices that the workers bring are all GPUs.
///
/// Ranks    collective.
/// Errors   ValueError, on all workers: a device that is not present, one GPU in two workers. Else as Cluster::all_gather_bytes().
[[nodiscard]] bool agree_on_gpus(Cluster& cluster, const Device& device, const Deadline& deadline);

/// A call, as all workers make it.
struct NcclCall {
  CollectiveRequest request;
  /// From the moment at which it reaches the head of its stream.
  std::optional<double> timeout_seconds = std::nullopt;
};

/// Ranks    as CollectiveEngine. Calls are compared, as NcclReducer's, with those that hosts carry out.
/// Shapes   have been checked; can_reduce() is true.
/// Memory   tensors on this worker's GPU.
/// Order    as gpu_reduce: a call returns after enqueueing on the tensors' streams.
/// Errors   what NCCL says at once, DeadlineExceededError of a launch that does not come back; FailedPreconditionError: some of the streams are captured.
///          What goes wrong later breaks this, as does what goes wrong here once the call has been counted; require_usable() throws it.
/// Threads  calls are serialised by the caller.
/// Cost     one call of NCCL, and one kernel more for MEAN; gather() one message from each worker.
class NcclCollectives {
  struct State;
  struct Passkey {};

 public:
  /// Null, on all workers, where NCCL does not serve one of them, which is said once.
  ///
  /// Ranks    collective, where all devices are GPUs.
  /// Errors   FailedPreconditionError: CROSSDEVICE_STRICT=1 forbids the fall-back. Those of the cluster.
  [[nodiscard]] static std::unique_ptr<NcclCollectives> make(
      const std::shared_ptr<Cluster>& cluster, const Device& device, const Deadline& deadline);
  ~NcclCollectives();
  NcclCollectives(const NcclCollectives&) = delete;
  NcclCollectives& operator=(const NcclCollectives&) = delete;

  [[nodiscard]] const Device& device() const;
  /// Whether NCCL does this with our arithmetic, on every worker.
  [[nodiscard]] bool can_reduce(ReduceOp op, DType dtype) const;

  /// Errors   what broke this, once; FailedPreconditionError, with its text, from then on.
  void require_usable() const;
  /// A call that hosts carry out, in its turn among NCCL's: see ComparedCalls.
  void begin_on_hosts(const NcclCall& call, const GroupOperationInfo& operation);
  void end_on_hosts();
  [[noreturn]] void fail_on_hosts(const std::exception_ptr& error);

  void all_reduce(const NcclCall& call, const Tensor& input, const Tensor& output);
  void reduce_scatter(const NcclCall& call, const Tensor& input, const Tensor& output);
  void all_gather(const NcclCall& call, const Tensor& input, const Tensor& output);
  void broadcast(const NcclCall& call, const Tensor& tensor, int root);
  void reduce(const NcclCall& call, const Tensor& input, const Tensor& output, int root);
  void gather(const NcclCall& call, const Tensor& input, const Tensor& output, int root);

  NcclCollectives(Passkey key, std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice::detail
