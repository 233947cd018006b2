// SPDX-License-Identifier: Apache-2.0
/// A worker that a PMIx launcher started: prterun, srun --mpi=pmix.
#pragma once

#include <optional>

#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// PMIX_RANK. PMIx keeps the number of workers behind a query of its library, so that somebody has to give it: the constructor's
/// argument, or CROSSDEVICE_NUM_WORKERS. No address is in the variables either: CROSSDEVICE_CHIEF_ADDRESS, or CallbackClusterResolver.
///
/// Errors   ValueError: incomplete, no numbers, a number of workers that nobody gives.
class CROSSDEVICE_EXPORT PmixClusterResolver : public ClusterResolver {
 public:
  explicit PmixClusterResolver(EnvironmentSource source = process_environment(),
                               std::optional<int> num_workers = std::nullopt);
  ~PmixClusterResolver() override;

  /// Whether the variables are there that PMIx always sets.
  [[nodiscard]] static bool is_present(const EnvironmentSource& source);

 protected:
  [[nodiscard]] WorkerIdentity identity_implementation() const override;

 private:
  EnvironmentSource source_;
  std::optional<int> num_workers_;
};

}  // namespace crossdevice
