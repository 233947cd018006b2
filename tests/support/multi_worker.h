// SPDX-License-Identifier: Apache-2.0
/// Short ways to what a worker's work needs: strategies and ops over all workers' host devices.
#pragma once

#include "crossdevice/comm/cluster.h"
#include "crossdevice/strategy/multi_worker_mirrored_strategy.h"

#include "support/values.h"
#include "support/worker_processes.h"

namespace crossdevice::testing {

/// CPU:0 .. CPU:n-1 of every worker.
inline MultiWorkerMirroredStrategyOptions on_workers(Cluster& cluster, std::size_t num_devices,
                                                     const CommunicationOptions& options = {}) {
  return {
      .communication_options = options, .devices = cpus(num_devices), .cluster = shared(cluster)};
}

}  // namespace crossdevice::testing
