// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/mpich_cluster_resolver.h"

#include <utility>

#include "comm/detail/launcher_variables.h"

namespace crossdevice {

using detail::LauncherVariables;

MpichClusterResolver::MpichClusterResolver(EnvironmentSource source) : source_(std::move(source)) {}

MpichClusterResolver::~MpichClusterResolver() = default;

bool MpichClusterResolver::is_present(const EnvironmentSource& source) {
  const LauncherVariables variables("", source);
  return variables.find("PMI_RANK").has_value() && variables.find("PMI_SIZE").has_value();
}

WorkerIdentity MpichClusterResolver::identity_implementation() const {
  WorkerIdentity identity;
  identity.launcher = "MPICH";
  const LauncherVariables variables(identity.launcher, source_);
  const LauncherVariables::Place place = variables.require_place("PMI_RANK", "PMI_SIZE");
  identity.rank = place.rank;
  identity.num_workers = place.size;
  identity.task_index = place.rank;
  if (const auto local = variables.find_place("MPI_LOCALRANKID", "MPI_LOCALNRANKS")) {
    identity.local_rank = local->rank;
    identity.local_num_workers = local->size;
  }
  if (place.size > 1) identity.chief_address = variables.find_chief_address();
  return identity;
}

}  // namespace crossdevice
