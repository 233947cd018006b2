// SPDX-License-Identifier: Apache-2.0
/// A task of a Slurm job step: srun's child.
#pragma once

#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// SLURM_PROCID and SLURM_STEP_NUM_TASKS (in a step that has none SLURM_NTASKS); SLURM_LOCALID with SLURM_NODEID and SLURM_STEP_TASKS_PER_NODE ("4(x2),3") for the place on the
/// host. Only variables of a step count, which has a SLURM_STEP_NODELIST: a batch script sees SLURM_PROCID and SLURM_NTASKS too and is no worker.
///
/// Rank 0 listens on the first host of SLURM_STEP_NODELIST ("n[1-2],m5,o[3-4,06]"; 127.0.0.1 where it is the only one), where Slurm puts
/// task 0 unless the distribution is arbitrary, at port 61440 + SLURM_JOB_ID mod 4096. Two steps of one job at a time on one host want
/// the same port: give one of them CROSSDEVICE_CHIEF_ADDRESS, which wins over the address found here.
///
/// Errors   ValueError: incomplete, no numbers, lists that cannot be read.
class CROSSDEVICE_EXPORT SlurmClusterResolver : public ClusterResolver {
 public:
  explicit SlurmClusterResolver(EnvironmentSource source = process_environment());
  ~SlurmClusterResolver() override;

  /// Whether the variables are there that this launcher always sets.
  [[nodiscard]] static bool is_present(const EnvironmentSource& source);

 protected:
  [[nodiscard]] WorkerIdentity identity_implementation() const override;

 private:
  EnvironmentSource source_;
};

}  // namespace crossdevice
