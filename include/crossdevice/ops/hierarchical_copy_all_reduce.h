// SPDX-License-Identifier: Apache-2.0
/// All-reduce in two halves. TF counterpart: tf.distribute.HierarchicalCopyAllReduce.
#pragma once

#include "crossdevice/core/export.h"
#include "crossdevice/ops/all_reduce_cross_device_ops.h"

namespace crossdevice {

/// Each half of the devices is summed by itself, then the two sums: ((r0 + r1) + (r2 + r3)) for four. Any number of devices, odd ones too.
///
/// On host devices the schedule (collective/hierarchical_copy.h) is one fused pass with that association; with
/// CommunicationOptions::deterministic it is the plain replica order, as everywhere.
/// TF       an odd device count works (TF drops the last device).
class CROSSDEVICE_EXPORT HierarchicalCopyAllReduce : public AllReduceCrossDeviceOps {
 public:
  /// Errors   ValueError: num_packs is negative.
  explicit HierarchicalCopyAllReduce(int num_packs = 1);

 protected:
  [[nodiscard]] std::size_t first_group(std::size_t num_replicas) const override;
  void prepare(const PerReplica& value, const CommunicationOptions& options) override;
};

}  // namespace crossdevice
