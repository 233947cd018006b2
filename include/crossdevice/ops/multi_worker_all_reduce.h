// SPDX-License-Identifier: Apache-2.0
/// All-reduce over several workers whose values lie in one PerReplica. TF counterpart: MultiWorkerAllReduce of TF 1.14 (in-graph
/// replication).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "crossdevice/core/export.h"
#include "crossdevice/core/int64.h"
#include "crossdevice/ops/all_reduce_cross_device_ops.h"
#include "crossdevice/ops/all_reduce_spec.h"

namespace crossdevice {

namespace detail {
class WorkerBatchPlans;
}  // namespace detail

struct CROSSDEVICE_EXPORT MultiWorkerAllReduceOptions {
  AllReduceSpec all_reduce_spec = {"pscpu/pscpu", 2, -1};
  /// How tensors of one algorithm are packed: the first rule that is set, CommunicationOptions::bytes_per_pack before both.
  int num_packs = 0;                    ///< > 0: concat-and-split
  Int64 agg_small_grads_max_bytes = 0;  ///< both > 0: aggregate small tensors
  int agg_small_grads_max_group = 10;
};

/// Each tensor takes the algorithm that all_reduce_spec has for its size. The algorithm decides the order in which values are combined, and
/// so the bits of a result:
///
///   nccl, pscpu, psgpu     replica order
///   nccl/..., pscpu/pscpu  each worker's replicas in their order, then the workers' sums as the second level says
///   xring                  per segment, in ring order from its owner's successor on
///   rechd                  pairs, pairs of pairs, ...
///
/// float16, bfloat16 and float8 are rounded once per hop: nccl, pscpu and psgpu once, xring n - 1 times, rechd log2 n times, two-level
/// algorithms once within a worker and then as their second level. MEAN divides once at the end, in float32 at least. To integers, MIN and
/// MAX the order makes no difference. With CommunicationOptions::deterministic all algorithms take the replica order and round once, as
/// the other ops do.
///
/// Devices  `worker_devices` names the workers: "/job:worker/task:0" (or its CPU:0). A component belongs to the worker whose job, replica
///          and task its device has. The order of the list decides which workers own parts of tensors first. num_gpus_per_worker is how many
///          of a worker's devices, hosts' ones too, psgpu takes as owners.
/// Memory   in one process: as the other ops, nothing is copied between devices but results. The nccl level is done by the host where NCCL
///          cannot work, which is said once. Plans of up to 64 different batches are kept.
/// Errors   as CrossDeviceOps. ValueError (of asynchronous forms: when they run) also: a component that belongs to none of the workers.
///          FailedPreconditionError: an algorithm with nccl, CROSSDEVICE_STRICT=1, and NCCL cannot work for these devices.
/// TF       results are in input order; limits are bytes; sparse values are reduced as by the other ops; the default works with one
///          worker; any number of workers, devices and shards; pscpu and psgpu take owners in turns across all sizes.
class CROSSDEVICE_EXPORT MultiWorkerAllReduce : public AllReduceCrossDeviceOps {
 public:
  /// Errors   ValueError: no workers, one twice, one that names a device instead of a worker, a negative number.
  MultiWorkerAllReduce(const Devices& worker_devices, int num_gpus_per_worker,
                       const MultiWorkerAllReduceOptions& options = {});
  ~MultiWorkerAllReduce() override;
  MultiWorkerAllReduce(const MultiWorkerAllReduce&) = delete;
  MultiWorkerAllReduce& operator=(const MultiWorkerAllReduce&) = delete;

  [[nodiscard]] const AllReduceSpec& all_reduce_spec() const;

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override;
  std::vector<Mirrored> batch_reduce_implementation(ReduceOp op,
                                                    std::span<const ValueDestinationPair> pairs,
                                                    const CommunicationOptions& options) override;
  /// What is not all-reduced by an algorithm of this class is combined in replica order.
  [[nodiscard]] std::size_t first_group(std::size_t num_replicas) const override;
  void prepare(const PerReplica& value, const CommunicationOptions& options) override;

 private:
  std::unique_ptr<detail::WorkerBatchPlans> plans_;
};

}  // namespace crossdevice
