// SPDX-License-Identifier: Apache-2.0
/// A value on the wrong side of the bus: copies of its components where they are needed, and of the result back.
#pragma once

#include <span>

#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/values.h"

#include "ops/detail/active_operation.h"

namespace crossdevice::detail {

/// With a host as target every component on hosts, with a GPU every one on GPUs: those that are there already as they are, the others as copies on the target.
///
/// Memory   all outputs that are elsewhere have one tensor on the target between them.
/// Order    what is copied to hosts is there when the constructor returns: it waits for the components' streams.
/// Errors   as copy()'s; the waits are `active`'s: see StreamWait.
/// Cost     S bytes over the bus for each input that is elsewhere, and for each output in put_back().
class StagedValue {
 public:
  StagedValue(const PerReplica& value, const Mirrored& result, const Device& target,
              const ActiveOperation& active);

  [[nodiscard]] const PerReplica& inputs() const { return inputs_; }
  /// As many as the result has there, and one for the others.
  [[nodiscard]] const Mirrored& outputs() const { return outputs_; }
  /// The result into those of its tensors that are elsewhere.
  ///
  /// Errors   OpError: a copy failed. In place inputs() are then no longer intact, as others may have been put back, or lie where they were reduced.
  void put_back(const Mirrored& result, const ActiveOperation& active) const;
  /// Whether put_back() waits until the result is there.
  [[nodiscard]] bool puts_back() const { return static_cast<bool>(block_); }

 private:
  [[nodiscard]] bool is_there(const Tensor& tensor) const;

  Device target_;
  PerReplica inputs_;
  Mirrored outputs_;
  Tensor block_;  // none where every output is there
};

/// Dense or sparse, every component on hosts.
///
/// Errors   as StagedValue.
[[nodiscard]] PerReplica on_hosts(const PerReplica& value, const ActiveOperation& active);

}  // namespace crossdevice::detail
