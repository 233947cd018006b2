// SPDX-License-Identifier: Apache-2.0
/// A worker that Open MPI's mpirun started.
#pragma once

#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK and _LOCAL_SIZE. Uses the variables only, never MPI itself.
///
/// Where rank 0 listens: on one host, 127.0.0.1. On several, the host that mpirun runs on, at whichever of its addresses answers, as Open MPI 4 tells in OMPI_MCA_orte_hnp_uri:
/// mpirun puts rank 0 there unless it is told otherwise (--nolocal, a host file without it). Open MPI 5 does not tell: the address is
/// empty then. The port is 61440 to 65535, computed from the job's number (which Open MPI counts in steps of 4096) or from
/// PMIX_NAMESPACE, so that all workers find the same one without talking.
///
/// CROSSDEVICE_CHIEF_ADDRESS (mpirun -x) wins over the address found here; CallbackClusterResolver needs no address.
///
/// Errors   ValueError: incomplete, no numbers, a URI that cannot be read.
class CROSSDEVICE_EXPORT OpenMpiClusterResolver : public ClusterResolver {
 public:
  explicit OpenMpiClusterResolver(EnvironmentSource source = process_environment());
  ~OpenMpiClusterResolver() override;

  /// Whether the variables are there that this launcher always sets.
  [[nodiscard]] static bool is_present(const EnvironmentSource& source);

 protected:
  [[nodiscard]] WorkerIdentity identity_implementation() const override;

 private:
  EnvironmentSource source_;
};

}  // namespace crossdevice
