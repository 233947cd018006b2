// SPDX-License-Identifier: Apache-2.0
/// All-reduce among workers. TF counterpart: CollectiveAllReduce.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/export.h"
#include "crossdevice/ops/communication_options.h"
#include "crossdevice/ops/cross_device_ops.h"

namespace crossdevice {

/// Every worker holds the values of its own devices; results are over all workers' devices, in the order of their ranks.
///
/// Shapes   a value has one component per device of this worker, in any order. Of what is reduced the number of elements is equal on all workers, and compared; shapes are
///          meant to be, and are not compared. gather: equal but along its axis; sparse values: any number of rows.
/// Memory   on one machine values are reduced where they lie: tensors from the pool without a copy, other memory through buffers of the pool. Between
///          machines they are sent and received where they lie from 1 MiB on, and through a buffer below (see TransportCollectives).
///          Values on GPUs go through NCCL (see nccl_reduce.h) where it works on all workers and reduces the dtype with our arithmetic, and the calls return
///          after enqueueing; else, with `deterministic`, with RING, and for gather and sparse values, they are copied to the host, reduced there and
///          copied back, and the calls wait for that.
/// Ranks    collective: every worker makes the same calls in the same order, on objects that were made in the same order.
/// Errors   besides those of CrossDeviceOps: UnavailableError (a worker is gone), AbortedError, InternalError (workers make different calls; says which, also where a call goes through
///          NCCL here and through the host there), DeadlineExceededError (names the workers that did not come). After one of them the object is broken; make a new one from a new cluster.
///          A ValueError of a call concerns this worker alone: the others wait for it. They are not told, since nothing was touched: the caller may put
///          the call right and make it, and theirs goes on; were they told, all would have to be made anew for a wrong argument of one. One
///          that leaves MultiWorkerMirroredStrategy's run() has nobody to put it right, and is told. A call that was cancelled before it
///          began counts: on a worker that has not cancelled it too it ends with an InternalError when this one makes its next call.
/// TF       broadcast() copies to this worker's devices only, as in TF. bytes_per_pack groups tensors from last to first. MEAN divides by the
///          group's size.
class CROSSDEVICE_EXPORT CollectiveAllReduce : public CrossDeviceOps {
 public:
  /// `devices`: this worker's, equally many on every worker. `group_size`: devices of all workers together. `options` are defaults for calls that set none.
  /// Collective where the cluster has several workers. No cluster: this worker alone.
  ///
  /// Errors   ValueError, on all workers: no devices, an absent or duplicate one, invalid options (says on which worker), a group_size that is not devices times
  ///          workers, different numbers of devices or group sizes (says who has what). As Cluster: a worker that does not come, which is waited for until
  ///          the timeout of `options`, or else CROSSDEVICE_DEFAULT_TIMEOUT, or else 300 s. DeadlineExceededError, on all workers: NCCL, which has
  ///          as much time of its own as a construction without `options` from then on, has not made its communicators, says on whom that was late.
  ///          ResourceExhaustedError: this worker, or another one that it names, lacks memory, descriptors or threads.
  CollectiveAllReduce(const Devices& devices, int group_size,
                      const CommunicationOptions& options = {},
                      std::shared_ptr<Cluster> cluster = nullptr);
  /// The same by a deadline for all of it, whatever the timeout of `options`, which then is that of calls alone.
  CollectiveAllReduce(const Devices& devices, int group_size, const CommunicationOptions& options,
                      std::shared_ptr<Cluster> cluster, const Deadline& deadline);
  ~CollectiveAllReduce() override;

  /// How an all-reduce of so many bytes per device would be done, and what else could be: one line for people.
  [[nodiscard]] std::string explain(std::size_t size_bytes) const;
  /// The same for the packs of a GradientBucketer whose bytes_per_pack is 0, and of a list that is there as a whole.
  [[nodiscard]] std::string explain_packs() const;

  /// By what the workers have measured of their links, which NCCL's are not; equal on all of them.
  [[nodiscard]] std::size_t streaming_pack_bytes() const override;

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override;
  std::vector<Mirrored> batch_reduce_implementation(ReduceOp op,
                                                    std::span<const ValueDestinationPair> pairs,
                                                    const CommunicationOptions& options) override;
  Mirrored gather_implementation(const PerReplica& value, const Destinations& destinations,
                                 int axis, const CommunicationOptions& options) override;
  [[nodiscard]] bool gathers_from_other_workers() const override;
  /// Cluster::abort_collective_ops.
  void give_up_for_all(const std::string& text) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice
