// SPDX-License-Identifier: Apache-2.0
/// A worker whose launcher speaks to us: crossdevice-run, or a script that exports CROSSDEVICE_RANK and its companions.
#pragma once

#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// CROSSDEVICE_RANK and CROSSDEVICE_NUM_WORKERS, both needed; CROSSDEVICE_LOCAL_RANK and CROSSDEVICE_LOCAL_NUM_WORKERS, both or
/// neither; CROSSDEVICE_CHIEF_ADDRESS, needed for more than one worker. Empty counts as unset.
class CROSSDEVICE_EXPORT EnvironmentClusterResolver : public ClusterResolver {
 public:
  explicit EnvironmentClusterResolver(EnvironmentSource source = process_environment());
  ~EnvironmentClusterResolver() override;

 protected:
  [[nodiscard]] WorkerIdentity identity_implementation() const override;

 private:
  EnvironmentSource source_;
};

}  // namespace crossdevice
