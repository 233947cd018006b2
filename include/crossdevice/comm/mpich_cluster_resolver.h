// SPDX-License-Identifier: Apache-2.0
/// A worker that MPICH's or Intel MPI's mpiexec started, or another one that speaks PMI.
#pragma once

#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// PMI_RANK and PMI_SIZE; MPI_LOCALRANKID and MPI_LOCALNRANKS (both or neither). Uses the variables only, never PMI itself.
///
/// PMI tells no address in its variables: CROSSDEVICE_CHIEF_ADDRESS (mpiexec -genv) does, or CallbackClusterResolver needs none.
///
/// Errors   ValueError: incomplete, no numbers.
class CROSSDEVICE_EXPORT MpichClusterResolver : public ClusterResolver {
 public:
  explicit MpichClusterResolver(EnvironmentSource source = process_environment());
  ~MpichClusterResolver() override;

  /// Whether the variables are there that this launcher always sets.
  [[nodiscard]] static bool is_present(const EnvironmentSource& source);

 protected:
  [[nodiscard]] WorkerIdentity identity_implementation() const override;

 private:
  EnvironmentSource source_;
};

}  // namespace crossdevice
