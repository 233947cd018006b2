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

struct CROSSDEVICE_EXPORT MultiWorkerAllReduceOptions {
  AllReduceSpec all_reduce_spec = {"pscpu/pscpu", 2, -1};
  /// How tensors of one algorithm are packed: the first rule that is set, CommunicationOptions::bytes_per_pack before both.
  int num_packs = 0;                    ///< > 0: concat-and-split
  Int64 agg_small_grads_max_bytes = 0;  ///< both > 0: aggregate small tensors
  int agg_small_grads_max_group = 10;
};

/// Each tensor takes the algorithm that all_reduce_spec has for its size, wherever its components lie. The algorithm decides the order in which values are
/// combined, and so the bits of a result:
///
///   nccl, pscpu, psgpu     replica order; on GPUs nccl is NCCL, with the order, and for small floats the roundings, that NCCL chooses
///   nccl/..., pscpu/pscpu  each worker's replicas in their order, then the workers' sums as the second level says; on GPUs the first level of nccl/... is
///                          NCCL's, as nccl is
///   xring                  per segment, in ring order from its owner's successor on
///   rechd                  pairs, pairs of pairs, ...
///
/// float16, bfloat16 and float8 are rounded once per hop: nccl, pscpu and psgpu once, xring n - 1 times, rechd log2 n times, two-level
/// algorithms once within a worker (NCCL there: up to once per addition) and then as their second level. MEAN divides once at the end, in
/// float32 at least. To integers, MIN and MAX the order makes no difference. With CommunicationOptions::deterministic all algorithms take
/// the replica order and round once, as the other ops do.
///
/// Devices  `worker_devices` names the workers: "/job:worker/task:0" (or its CPU:0). A component belongs to the worker whose job, replica
///          and task its device has. The order of the list decides which workers own parts of tensors first. num_gpus_per_worker is how many
///          of a worker's devices, hosts' ones too, psgpu takes as owners.
///          GPUs: nccl reduces on them, by NCCL. What NCCL cannot do there (several components on one GPU, no NCCL, a reduction that it does not have: see
///          nccl_reduction) our kernels do, in replica order.
///          nccl/xring, nccl/rechd and nccl/pscpu: within each worker NCCL reduces to the worker's first GPU; the host reduces what the workers' first GPUs
///          have, on copies, as the second level says; from the first GPUs NCCL broadcasts the result to the others. One worker alone has no second level:
///          there they are nccl. Where NCCL cannot do it for some worker with several GPUs, or some components lie on hosts, the host does both levels.
///          All other algorithms, nccl where some components lie on hosts, and nccl/... where each worker has one GPU are executed by the host on copies.
///          What hosts execute alone has the same bits as for host devices. Each reason for doing without NCCL is said once.
/// Memory   on host devices nothing is copied between devices but results. Copies of what lies on GPUs go through pinned memory, one of each component and
///          one of the result; they exist for one pack at a time, or for those packs that parts of one tensor are in. nccl/... by NCCL: copies of the
///          workers' sums alone, which lie in memory of their own on the first GPUs until then, so that inputs are intact for as long. NCCL: as
///          NcclAllReduce, for nccl/... in each worker. Plans of up to 64 different batches are kept.
/// Order    as the other ops. What the host executes for GPUs is there on return: it waits for the components' streams, for up to the call's timeout. nccl/...
///          by NCCL: the host waits for the components' streams, then for NCCL's sums; the broadcast has been enqueued on return.
/// Errors   as CrossDeviceOps. ValueError (of asynchronous forms: when they run) also: a component that belongs to none of the workers, or a worker without a
///          component, of what an algorithm reduces.
///          FailedPreconditionError: an algorithm with nccl, CROSSDEVICE_STRICT=1, and NCCL does not do it, for whichever of the reasons above; values on GPUs
///          for which the host would wait are captured into a graph. All of these before anything is written. Also as NcclAllReduce.
/// Cost     for N components of S bytes on GPUs that the host reduces: 2 N S over the bus, one component after the other. nccl/... by NCCL on W workers: 2 W S,
///          and one reduction and one broadcast of NCCL's for each pack and worker with several GPUs.
/// TF       results are in input order; limits are bytes; sparse values are reduced as by the other ops; the default works with one
///          worker; any number of workers, devices and shards; pscpu and psgpu take owners in turns across all sizes; NCCL takes no shards, and within a
///          worker it reduces to the first GPU, where TF's has an all-reduce of which it takes that GPU's.
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
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice
