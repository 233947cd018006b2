// SPDX-License-Identifier: Apache-2.0
// The workers meet, compare what they have, and get ops over all their devices.
#include "crossdevice/strategy/multi_worker_mirrored_strategy.h"

#include <string>
#include <utility>
#include <vector>

#include "crossdevice/comm/argument_agreement.h"
#include "crossdevice/comm/default_devices.h"
#include "crossdevice/comm/detect_cluster_resolver.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/own_want.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "strategy/detail/multi_worker_extended.h"

namespace crossdevice {

namespace {

constexpr const char* kName = "MultiWorkerMirroredStrategy";

void require_distinct(const Devices& devices) {
  for (const Device& device : devices) device.require_present();
  if (devices.has_duplicates()) {
    throw ValueError(std::string(kName) + ": expected distinct devices, got " +
                     devices.to_string());
  }
}

/// What must be the same on every worker: "2 devices of type CPU, implementation AUTO".
std::string common_part(const Devices& devices, const CommunicationOptions& options) {
  bool has_host = false;
  bool has_gpu = false;
  for (const Device& device : devices) (device.is_host() ? has_host : has_gpu) = true;
  return std::to_string(devices.size()) + (devices.size() == 1 ? " device" : " devices") +
         " of type " + (has_host ? "CPU" : "") + (has_host && has_gpu ? " and " : "") +
         (has_gpu ? "GPU" : "") + ", implementation " +
         std::string(to_string(options.implementation)) +
         (options.deterministic ? ", deterministic" : "") +
         (options.grouping_independent ? ", grouping_independent" : "");
}

/// Throws on all workers where one of them has something wrong, or another number of devices.
void require_same_on_all(Cluster& cluster, const Devices& devices,
                         const CommunicationOptions& options, const Deadline& deadline) {
  const std::vector<std::string> all = agree_on_arguments(
      cluster,
      [&] {
        options.validate();
        require_distinct(devices);
        return common_part(devices, options);
      },
      deadline);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw ValueError(std::string(kName) + ": the workers differ: " + to_string(cluster.worker(0)) +
                     " has " + all[0] + "; " + to_string(cluster.worker(static_cast<int>(rank))) +
                     " has " + all[rank]);
  }
}

}  // namespace

struct MultiWorkerMirroredStrategy::Parts {
  std::shared_ptr<const ClusterResolver> resolver;
  std::shared_ptr<Cluster> cluster;
  std::shared_ptr<StrategyExtended> extended;
};

MultiWorkerMirroredStrategy::Parts MultiWorkerMirroredStrategy::prepare(
    const MultiWorkerMirroredStrategyOptions& options) {
  if (options.cluster != nullptr && options.cluster_resolver != nullptr) {
    throw ValueError(std::string(kName) +
                     ": a cluster has met already and needs no resolver: expected one of the two");
  }
  if (options.cluster == nullptr || options.cluster->num_workers() == 1) {
    // Before the workers meet: the others' join() names who does not come. Once they have met all hear what is wrong.
    options.communication_options.validate();
    require_distinct(options.devices);
  }
  Parts parts{.resolver = options.cluster_resolver, .cluster = options.cluster, .extended = {}};
  if (parts.cluster == nullptr) {
    if (parts.resolver == nullptr) parts.resolver = detect_cluster_resolver();
    parts.cluster = Cluster::join(*parts.resolver, options.join_options);
  }
  Cluster& cluster = *parts.cluster;
  // One for all that follows.
  const Deadline deadline = meeting_deadline(options.communication_options.timeout_seconds);
  const auto num_workers = static_cast<std::size_t>(cluster.num_workers());
  const auto rank = static_cast<std::size_t>(cluster.rank());

  detail::StrategyConfiguration configuration;
  // Asked by all workers, whichever of them have been given a list.
  configuration.devices = num_workers > 1 ? default_devices(cluster, deadline) : default_devices();
  if (!options.devices.empty()) configuration.devices = options.devices;
  const std::size_t num_devices = configuration.devices.size();
  if (num_workers > 1) {
    require_same_on_all(cluster, configuration.devices, options.communication_options, deadline);
  }
  configuration.communication_options = options.communication_options;
  configuration.num_replicas_in_sync = num_devices * num_workers;
  configuration.first_replica_id = num_devices * rank;
  configuration.num_workers = num_workers;
  configuration.worker_rank = rank;
  configuration.cross_device_ops = options.cross_device_ops;
  if (configuration.cross_device_ops == nullptr) {
    configuration.cross_device_ops = std::make_shared<CollectiveAllReduce>(
        configuration.devices, static_cast<int>(num_devices * num_workers),
        options.communication_options, parts.cluster, deadline);
  }
  parts.extended = std::make_shared<detail::MultiWorkerExtended>(std::move(configuration),
                                                                 parts.cluster, deadline);
  return parts;
}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(
    const MultiWorkerMirroredStrategyOptions& options) try
    : MultiWorkerMirroredStrategy(prepare(options)) {
} catch (...) {
  detail::rethrow_own_want(kName);
}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Parts parts)
    : Strategy(std::move(parts.extended)),
      resolver_(std::move(parts.resolver)),
      cluster_(std::move(parts.cluster)) {}

MultiWorkerMirroredStrategy::~MultiWorkerMirroredStrategy() = default;

}  // namespace crossdevice
