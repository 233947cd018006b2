// SPDX-License-Identifier: Apache-2.0
/// Reduce on one device, then copy to the destinations. TF counterpart: tf.distribute.ReductionToOneDevice.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "crossdevice/core/export.h"
#include "crossdevice/ops/cross_device_ops.h"

namespace crossdevice {

struct ReductionToOneDeviceOptions {
  /// Where to reduce; nothing: the first destination.
  std::optional<Device> reduce_to_device = std::nullopt;
  /// Sums the replicas' tensors into a new tensor of the same dtype and shape; empty: the library's kernels. Used for dense SUM and MEAN; sparse values are
  /// concatenated.
  std::function<Tensor(std::span<const Tensor>)> accumulation_fn = {};
};

/// Works for any dtype, any mix of devices, and values whose devices differ from the destination.
///
/// Between host devices nothing is copied to one device first: one fused pass reads every replica and writes every destination; the
/// arithmetic is that of reducing in replica order.
/// Cost     (N + M) S bytes of memory traffic for N replicas and M destinations.
/// Errors   also ValueError: accumulation_fn is set and op is MIN, MAX or PROD, or its result has another dtype or shape.
/// Batches  of dense values on hosts are one pass, which completes early values early. All of an object with accumulation_fn or of a derived class, whose
///          reduce_implementation is to see them, are reduced one by one, in order, through reduce_implementation, as TF's are.
class CROSSDEVICE_EXPORT ReductionToOneDevice : public CrossDeviceOps {
 public:
  ReductionToOneDevice();
  /// Errors   ValueError: reduce_to_device is not present.
  explicit ReductionToOneDevice(ReductionToOneDeviceOptions options);

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override;
  std::vector<Mirrored> batch_reduce_implementation(ReduceOp op,
                                                    std::span<const ValueDestinationPair> pairs,
                                                    const CommunicationOptions& options) override;
  /// What batch_reduce_implementation does where the class is not derived: for derived ones whose reduce_implementation need not see a batch's values.
  std::vector<Mirrored> batch_reduce_together(ReduceOp op,
                                              std::span<const ValueDestinationPair> pairs,
                                              const CommunicationOptions& options);

 private:
  ReductionToOneDeviceOptions options_;
};

}  // namespace crossdevice
