// SPDX-License-Identifier: Apache-2.0
/// What NcclAllReduce, HierarchicalCopyAllReduce and MultiWorkerAllReduce share: all-reduce in packs where values and destinations match, else to one device.
/// TF counterpart: AllReduceCrossDeviceOps.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/core/export.h"
#include "crossdevice/ops/cross_device_ops.h"
#include "crossdevice/ops/reduction_to_one_device.h"

namespace crossdevice {

class NcclReducer;

/// A batch is one all-reduce: dense values in packs (bytes_per_pack if set, else num_packs per dtype, 0: one per tensor), sparse ones
/// concatenated, results in input order.
class CROSSDEVICE_EXPORT AllReduceCrossDeviceOps : public CrossDeviceOps {
 public:
  [[nodiscard]] int num_packs() const { return num_packs_; }

 protected:
  /// Errors   ValueError: num_packs is negative.
  explicit AllReduceCrossDeviceOps(int num_packs);

  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override;
  std::vector<Mirrored> batch_reduce_implementation(ReduceOp op,
                                                    std::span<const ValueDestinationPair> pairs,
                                                    const CommunicationOptions& options) override;

  /// How many of `num_replicas` are combined first, by themselves (0: all in one row). The subclass's algorithm.
  [[nodiscard]] virtual std::size_t first_group(std::size_t num_replicas) const = 0;
  /// Called before a value is reduced, in a batch once for values on equal devices: where a subclass makes what it needs there, or says that it falls back.
  virtual void prepare(const PerReplica& value, const CommunicationOptions& options) = 0;
  /// NCCL's engine for values on these devices, after prepare(); null: our kernels reduce.
  [[nodiscard]] virtual NcclReducer* nccl_reducer(const Devices& devices);

 private:
  int num_packs_;
};

}  // namespace crossdevice
