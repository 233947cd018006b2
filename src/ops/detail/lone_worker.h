// SPDX-License-Identifier: Apache-2.0
/// The reductions of a worker that is alone: among its own devices, with nobody to agree with.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/core/reduce_op.h"
#include "crossdevice/ops/communication_options.h"
#include "crossdevice/ops/destinations.h"
#include "crossdevice/ops/values.h"

#include "ops/detail/active_operation.h"
#include "ops/detail/batch_groups.h"
#include "ops/detail/nccl_engines.h"

namespace crossdevice::detail {

/// Used by one thread at a time.
///
/// Order   on GPUs as the engines' (NcclReducer, gpu_reduce): returns after enqueueing. On hosts done on return.
/// Errors  theirs.
class LoneWorker {
 public:
  /// `who`: what the ops object is called where it says what it does.
  explicit LoneWorker(std::string who) : engines_(std::move(who)) {}

  /// By NCCL where it serves several GPUs and `options` allow it; else in one pass over all components.
  [[nodiscard]] Mirrored reduce(ReduceOp op, const PerReplica& value,
                                const Destinations& destinations,
                                const CommunicationOptions& options, ActiveOperation& active);
  /// The dense values together, then the sparse ones.
  [[nodiscard]] std::vector<Mirrored> batch_reduce(ReduceOp op,
                                                   std::span<const ValueDestinationPair> pairs,
                                                   const CommunicationOptions& options,
                                                   ActiveOperation& active);

 private:
  [[nodiscard]] BatchKind kind_of(ReduceOp op, const PerReplica& value,
                                  const Destinations& destinations,
                                  const CommunicationOptions& options);
  NcclEngines engines_;
};

}  // namespace crossdevice::detail
