// SPDX-License-Identifier: Apache-2.0
// The strategy outside any scope.
#include "strategy/detail/default_strategy.h"

#include <memory>

#include "crossdevice/ops/reduction_to_one_device.h"

#include "strategy/detail/replica_runner.h"

namespace crossdevice::detail {

namespace {

class DefaultStrategy final : public Strategy {
 public:
  DefaultStrategy()
      : Strategy(std::make_shared<StrategyExtended>(
            StrategyConfiguration{.devices = {"CPU:0"},
                                  .cross_device_ops = std::make_shared<ReductionToOneDevice>(),
                                  .num_replicas_in_sync = 1})) {}
};

}  // namespace

Strategy& default_strategy() {
  static Strategy& strategy = *new DefaultStrategy;
  return strategy;
}

ReplicaContext& default_replica_context() {
  // One per thread: a context keeps what its call in progress needs.
  thread_local ReplicaRunner runner(default_strategy());
  return runner.context(0);
}

}  // namespace crossdevice::detail
