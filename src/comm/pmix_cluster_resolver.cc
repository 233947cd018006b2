// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/pmix_cluster_resolver.h"

#include <utility>

#include <fmt/format.h>

#include "comm/detail/launcher_variables.h"

namespace crossdevice {

using detail::LauncherVariables;

PmixClusterResolver::PmixClusterResolver(EnvironmentSource source, std::optional<int> num_workers)
    : source_(std::move(source)), num_workers_(num_workers) {}

PmixClusterResolver::~PmixClusterResolver() = default;

bool PmixClusterResolver::is_present(const EnvironmentSource& source) {
  return LauncherVariables("", source).find("PMIX_RANK").has_value();
}

WorkerIdentity PmixClusterResolver::identity_implementation() const {
  WorkerIdentity identity;
  identity.launcher = "PMIx";
  const LauncherVariables variables(identity.launcher, source_);
  identity.rank = variables.require_number("PMIX_RANK", 0, detail::kMaxWorkers);
  identity.task_index = identity.rank;
  const std::optional<int> size =
      num_workers_.has_value() ? num_workers_
                               : variables.find_number(kNumWorkersVariable, 1, detail::kMaxWorkers);
  if (!size.has_value()) {
    throw ValueError(fmt::format(
        "PMIx: PMIX_RANK is {}, but no variable says how many workers there are: set {}",
        identity.rank, kNumWorkersVariable));
  }
  identity.num_workers = *size;
  identity.job_id = variables.find(detail::kPmixNamespaceVariable).value_or("");
  if (*size > 1) identity.chief_address = variables.find_chief_address();
  return identity;
}

}  // namespace crossdevice
