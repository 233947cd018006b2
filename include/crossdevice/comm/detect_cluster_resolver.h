// SPDX-License-Identifier: Apache-2.0
/// Which launcher started this process.
#pragma once

#include <memory>

#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// The resolver of the launcher whose variables are there; a single process where there are none. The order of trust:
///
///   CROSSDEVICE_*   CROSSDEVICE_RANK           EnvironmentClusterResolver
///   TF_CONFIG       TF_CONFIG with a cluster   TFConfigClusterResolver
///   torchrun        RANK and WORLD_SIZE, or    TorchrunClusterResolver
///                   PET_NODE_RANK and PET_NNODES
///   Open MPI        OMPI_COMM_WORLD_RANK       OpenMpiClusterResolver
///   PMIx            PMIX_RANK                  PmixClusterResolver
///   MPICH           PMI_RANK and PMI_SIZE      MpichClusterResolver
///   Slurm           SLURM_STEP_NUM_TASKS and   SlurmClusterResolver
///                   SLURM_PROCID
///
/// Where several are there (srun --mpi=pmix) they must agree on rank and number of workers; the first that also
/// knows where rank 0 listens is taken, or else the first. CROSSDEVICE_LAUNCHER = crossdevice, tf_config, torchrun, openmpi, pmix, mpich,
/// slurm or none picks one, and nobody else is asked. Slurm is not there where its task is a daemon of Open MPI 4, as on the other nodes of an mpirun inside sbatch. CROSSDEVICE_NUM_WORKERS without CROSSDEVICE_RANK must agree too, and is what PMIx
/// lacks. What was found is logged once; with a warning where nobody is, but HOROVOD_RANK or HOROVOD_SIZE is set, or one of RANK and WORLD_SIZE, to another size than 1.
///
/// Errors   ValueError: two that disagree (named with their values), a launcher's incomplete or malformed variables, an unknown
///          CROSSDEVICE_LAUNCHER.
/// Threads  any.
[[nodiscard]] CROSSDEVICE_EXPORT std::unique_ptr<ClusterResolver> detect_cluster_resolver(
    const EnvironmentSource& source = process_environment());

}  // namespace crossdevice
