// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/environment_cluster_resolver.h"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

#include "comm/detail/launcher_variables.h"

namespace crossdevice {

EnvironmentClusterResolver::EnvironmentClusterResolver(EnvironmentSource source)
    : source_(std::move(source)) {}

EnvironmentClusterResolver::~EnvironmentClusterResolver() = default;

WorkerIdentity EnvironmentClusterResolver::identity_implementation() const {
  const detail::LauncherVariables variables("CROSSDEVICE_*", source_);
  WorkerIdentity identity;
  identity.launcher = "CROSSDEVICE_*";
  const auto place = variables.require_place(kRankVariable, kNumWorkersVariable);
  identity.rank = place.rank;
  identity.num_workers = place.size;
  identity.task_index = place.rank;
  if (const auto local = variables.find_place(kLocalRankVariable, kLocalNumWorkersVariable)) {
    identity.local_rank = local->rank;
    identity.local_num_workers = local->size;
  }
  if (place.size == 1) return identity;
  const std::optional<std::string> chief = variables.find(kChiefAddressVariable);
  if (!chief.has_value()) {
    throw ValueError(fmt::format(
        "rank {} of {}, as {} says: {} is not set; give all workers the same host:port, where "
        "rank 0 listens",
        place.rank, place.size, kRankVariable, kChiefAddressVariable));
  }
  identity.chief_address = *chief;
  return identity;
}

}  // namespace crossdevice
