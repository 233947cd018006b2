// SPDX-License-Identifier: Apache-2.0
/// Reduces gradients while back-propagation still computes others.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "crossdevice/core/export.h"
#include "crossdevice/ops/cross_device_ops.h"

namespace crossdevice {

struct BucketerOptions {
  ReduceOp op = ReduceOp::SUM;
  /// bytes_per_pack 0 means CrossDeviceOps::streaming_pack_bytes() here, of CollectiveAllReduce across machines by the measured links, else 4 MiB: one pack of
  /// everything would overlap nothing.
  CommunicationOptions communication{};
};

/// Groups gradients into packs, last one first, and reduces each pack in place as soon as its last gradient is ready. Packs leave in a fixed
/// order, the same on every worker.
///
/// Memory   keeps handles on the gradients. The ops outlive it.
/// Order    ready() returns at once; the reduction runs on a progress thread: of objects among workers on one of their own, else on the library's.
/// Threads  ready() from any thread; the other calls from one thread at a time.
/// Ranks    collective, as the ops: every worker reduces the same gradients in the same steps, wait() after each, and makes its bucketer anew where the others
///          do; packs that stand in different places of these are different calls, so InternalError, which names step and pack as counted from 0. Of ops that
///          pass calls on to a CollectiveAllReduce inside them none of this is known there.
/// Errors   constructor: ValueError as batch_reduce_into, also: no gradients, sparse ones. ready(): ValueError: no such gradient or
///          replica; FailedPreconditionError: it was ready already in this step. wait(): what went wrong in a pack; the bucketer is
///          ready for the next step all the same, if the ops are: among several workers see wait(). Destroyed in a step of which some gradients are ready
///          and others not: other workers are told, as by wait().
/// TF       an addition; the packs are those of CollectiveAllReduce.
class CROSSDEVICE_EXPORT GradientBucketer {
 public:
  GradientBucketer(CrossDeviceOps& ops, std::span<const PerReplica> gradients,
                   BucketerOptions options = {});
  ~GradientBucketer();
  GradientBucketer(const GradientBucketer&) = delete;
  GradientBucketer& operator=(const GradientBucketer&) = delete;

  /// Gradient `index` of every replica has been computed.
  void ready(std::size_t index);
  /// Gradient `index` of one replica has been computed: for replicas that run concurrently. The pack leaves when all have said so.
  void ready(std::size_t index, std::size_t replica);

  class CROSSDEVICE_EXPORT InCompletionOrder : public CompletionRange {
   private:
    friend class GradientBucketer;
    explicit InCompletionOrder(const GradientBucketer* bucketer) : bucketer_(bucketer) {}
    bool wait_for(std::size_t position, std::size_t& index) const override;
    const GradientBucketer* bucketer_;
  };
  /// The gradients of this step as they complete.
  ///
  /// Errors   FailedPreconditionError: one is not ready yet; names it.
  [[nodiscard]] InCompletionOrder in_completion_order() const;

  /// Ends the step: waits for every pack that left, rethrows what went wrong. On GPUs it waits until they are enqueued, so that the host runs ahead, and the gradients may
  /// be used in the order of their streams; what goes wrong there later is thrown by a later step's wait(), by the ops' next call or by their check().
  ///
  /// Errors   also FailedPreconditionError: a gradient was not ready; names it. The step ends all the same. Other workers, which wait for its pack, get
  ///          AbortedError, which names this worker and the gradient; so it is where a pack failed here alone. That ends all that workers of the job do together,
  ///          with other ops and Communicators too: Cluster::rebuild. Ops that work for one process go on. What the others have heard as well, as a
  ///          worker's death, nobody is told again, however often the broken ops are used.
  void wait();

  [[nodiscard]] std::size_t num_packs() const;
  /// The gradients of a pack, in the order in which they lie in it.
  [[nodiscard]] std::span<const std::size_t> pack(std::size_t index) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice
