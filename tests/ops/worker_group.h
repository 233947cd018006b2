// SPDX-License-Identifier: Apache-2.0
/// The ops of one worker among others, and its part of their values.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/values.h"
#include "support/worker_processes.h"

namespace crossdevice::testing {

/// Ops over CPU:0 .. CPU:n-1 of every worker, and which replicas are this worker's.
struct Group {
  Group(Cluster& all, std::size_t num_devices, const CommunicationOptions& options = {})
      : devices(cpus(num_devices)),
        first(num_devices * static_cast<std::size_t>(all.rank())),
        size(num_devices * static_cast<std::size_t>(all.num_workers())),
        ops(devices, static_cast<int>(size), options, shared(all)) {}

  /// Component r is make(replica id).
  template <class F>
  [[nodiscard]] PerReplica value(F make) const {
    std::vector<Tensor> components;
    components.reserve(devices.size());
    for (std::size_t d = 0; d < devices.size(); ++d) {
      components.push_back(vector_of(make(first + d), devices[d]));
    }
    return PerReplica(components);
  }
  /// The same of sparse values: make(replica id, device).
  template <class F>
  [[nodiscard]] PerReplica sparse(F make) const {
    std::vector<IndexedSlices> components;
    components.reserve(devices.size());
    for (std::size_t d = 0; d < devices.size(); ++d) {
      components.push_back(make(first + d, devices[d]));
    }
    return PerReplica(std::move(components));
  }

  Devices devices;
  std::size_t first;
  std::size_t size;
  CollectiveAllReduce ops;
};

}  // namespace crossdevice::testing
