// SPDX-License-Identifier: Apache-2.0
/// All-reduce through NCCL. TF counterpart: tf.distribute.NcclAllReduce.
#pragma once

#include <cstddef>
#include <memory>

#include "crossdevice/core/export.h"
#include "crossdevice/ops/all_reduce_cross_device_ops.h"

namespace crossdevice {

namespace detail {
class NcclEngines;
}  // namespace detail

/// On GPUs: packs through NCCL (see nccl_reduce.h); what NCCL cannot reduce with our arithmetic (see nccl_reduction), deterministic values, and values that go to
/// other devices than those they lie on are reduced by our kernels (see gpu_reduce.h). Where NCCL cannot work - host devices, no driver, no library, several
/// devices on one GPU - everything is; that is said once, with the reason, and with CROSSDEVICE_STRICT=1 it is an error.
///
/// Memory   communicators and staging buffers are made by the first operation on a list of devices, and kept.
/// Errors   also FailedPreconditionError: CROSSDEVICE_STRICT=1 and NCCL cannot work for these devices; the communicators are broken since an earlier
///          failure (make a new NcclAllReduce); the first operation on a list of devices is captured into a graph (run it once before).
class CROSSDEVICE_EXPORT NcclAllReduce : public AllReduceCrossDeviceOps {
 public:
  /// Errors   ValueError: num_packs is negative.
  explicit NcclAllReduce(int num_packs = 1);
  ~NcclAllReduce() override;

 protected:
  [[nodiscard]] std::size_t first_group(std::size_t num_replicas) const override;
  void prepare(const PerReplica& value, const CommunicationOptions& options) override;
  [[nodiscard]] NcclReducer* nccl_reducer(const Devices& devices) override;

 private:
  std::unique_ptr<detail::NcclEngines> engines_;
};

}  // namespace crossdevice
