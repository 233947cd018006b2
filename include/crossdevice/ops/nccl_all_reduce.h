// SPDX-License-Identifier: Apache-2.0
/// All-reduce through NCCL. TF counterpart: tf.distribute.NcclAllReduce.
#pragma once

#include "crossdevice/core/export.h"
#include "crossdevice/ops/all_reduce_cross_device_ops.h"

namespace crossdevice {

/// Where NCCL cannot work - host devices, no driver, no library - the values are reduced on the host instead; that is said once, with
/// the reason, and with CROSSDEVICE_STRICT=1 it is an error.
///
/// Errors   also FailedPreconditionError: CROSSDEVICE_STRICT=1 and NCCL cannot work for these devices.
class CROSSDEVICE_EXPORT NcclAllReduce : public AllReduceCrossDeviceOps {
 public:
  /// Errors   ValueError: num_packs is negative.
  explicit NcclAllReduce(int num_packs = 1) : AllReduceCrossDeviceOps(num_packs) {}

 protected:
  [[nodiscard]] std::size_t first_group(std::size_t num_replicas) const override;
  void prepare(const Devices& devices, const CommunicationOptions& options) override;

 private:
  Devices announced_;  // for which the fall-back has been announced last
};

}  // namespace crossdevice
