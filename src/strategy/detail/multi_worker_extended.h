// SPDX-License-Identifier: Apache-2.0
/// The cross-replica half of MultiWorkerMirroredStrategy: which ops combine what, and what the workers tell each other.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/ops/reduction_to_one_device.h"
#include "crossdevice/strategy/strategy_extended.h"

namespace crossdevice::detail {

/// Values of one component per device go through the strategy's cross-device ops. Values of the whole worker go through ops of their own: CPU:0 of every
/// worker.
class MultiWorkerExtended final : public StrategyExtended {
 public:
  /// Collective where there are several workers.
  MultiWorkerExtended(StrategyConfiguration configuration, std::shared_ptr<Cluster> cluster,
                      const Deadline& deadline);
  ~MultiWorkerExtended() override;

 protected:
  Mirrored reduce_to_implementation(ReduceOp op, const PerReplica& value,
                                    const Destinations& destinations,
                                    const CommunicationOptions& options) override;
  std::vector<Mirrored> batch_reduce_to_implementation(
      ReduceOp op, std::span<const ValueDestinationPair> pairs,
      const CommunicationOptions& options) override;
  Mirrored gather_to_implementation(const PerReplica& value, const Destinations& destinations,
                                    int axis, const CommunicationOptions& options) override;
  Mirrored reduce_equal_implementation(ReduceOp op, const PerReplica& one,
                                       const Destinations& destinations,
                                       const CommunicationOptions& options) override;
  Tensor first_replica_implementation(const Tensor& tensor,
                                      const CommunicationOptions& options) override;
  Tensor initial_value_implementation(const std::string& name, const Tensor& tensor) override;
  /// Errors   AbortedError, UnavailableError, ...: a run has failed, so the workers are out of step; even where the ops have not heard of it.
  void require_usable() override;
  void announce_failure(const std::exception_ptr& error) noexcept override;

 private:
  /// A value where the ops that combine it expect it.
  struct Placed {
    PerReplica value;
    CrossDeviceOps* ops;
  };
  [[nodiscard]] Placed place(const PerReplica& value);
  /// What combines one value per worker.
  [[nodiscard]] CrossDeviceOps& worker_ops() const;

  std::shared_ptr<Cluster> cluster_;
  Devices worker_device_;                     // where a worker's own values lie
  std::unique_ptr<CrossDeviceOps> host_ops_;  // null: with one device, the strategy's ops do
  ReductionToOneDevice local_ops_;            // of what is equal everywhere
  std::mutex failure_mutex_;
  std::exception_ptr failure_;  // what has left a run first, and the others know of
};

}  // namespace crossdevice::detail
