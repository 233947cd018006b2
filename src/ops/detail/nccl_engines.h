// SPDX-License-Identifier: Apache-2.0
/// NCCL's engines of one ops object, by the devices that they serve.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/collective/nccl_reduce.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/values.h"

namespace crossdevice::detail {

/// Used by one thread at a time.
///
/// Memory   communicators and staging buffers are made by the first value on a list of devices, and kept.
class NcclEngines {
 public:
  /// `who`: what the ops object is called where it says what it does; `instead`: what happens where NCCL cannot do it.
  explicit NcclEngines(std::string who, std::string instead = "the library's own kernels reduce")
      : who_(std::move(who)), instead_(std::move(instead)) {}

  /// The engine for values on these devices; null: there is none, or find_or_make() was not called.
  [[nodiscard]] NcclReducer* find(const Devices& devices) const;
  /// The engine for this value's devices; null: NCCL cannot work for them. Which of both is said on the log when a list of devices is new.
  ///
  /// Errors   FailedPreconditionError: the list is new and the value captured into a graph; announce_nccl_fallback's.
  NcclReducer* find_or_make(const PerReplica& value);
  /// The engine that reduces this dense value by `op`; null: NCCL cannot, which has been said.
  ///
  /// Errors   as find_or_make(), also where NCCL has no such reduction with our arithmetic.
  NcclReducer* serving(ReduceOp op, const PerReplica& value);
  /// The same for components on these devices, none of them captured.
  NcclReducer* serving(ReduceOp op, DType dtype, const Devices& devices);

 private:
  struct Engine {
    Devices devices;
    std::unique_ptr<NcclReducer> reducer;  // null: NCCL cannot work for them
  };
  [[nodiscard]] const Engine* engine_of(const Devices& devices) const;
  NcclReducer* find_or_make(const Devices& devices);

  std::string who_;
  std::string instead_;
  std::vector<Engine> engines_;                        // few
  std::vector<std::pair<ReduceOp, DType>> announced_;  // reductions that NCCL does not have
};

}  // namespace crossdevice::detail
