// SPDX-License-Identifier: Apache-2.0
/// A worker that torchrun started, or one pod of a Kubeflow job.
#pragma once

#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// torchrun, or whoever exports its variables: RANK and WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE (both or neither), MASTER_ADDR and
/// MASTER_PORT (needed for more than one worker). Where torchrun itself listens on MASTER_PORT, as TORCHELASTIC_USE_AGENT_STORE=True
/// tells, rank 0 listens on 61440 + (MASTER_PORT + 1) mod 4096 instead, which is never the same. Where LOCAL_WORLD_SIZE says that all workers are on this
/// host, rank 0 listens on 127.0.0.1, whatever MASTER_ADDR is.
///
/// Kubeflow's Trainer and PyTorchJob write PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT for torchrun to read. A program
/// that runs in such a pod without torchrun (no LOCAL_RANK) is one worker with all of the pod's devices, whatever PET_NPROC_PER_NODE
/// says, which is logged once.
///
/// CROSSDEVICE_CHIEF_ADDRESS wins over the address found here.
///
/// Errors   ValueError: incomplete, no numbers, PET_NNODES a range (an elastic job has no fixed number of workers).
class CROSSDEVICE_EXPORT TorchrunClusterResolver : public ClusterResolver {
 public:
  explicit TorchrunClusterResolver(EnvironmentSource source = process_environment());
  ~TorchrunClusterResolver() override;

  /// Whether the variables are there that this launcher always sets.
  [[nodiscard]] static bool is_present(const EnvironmentSource& source);

 protected:
  [[nodiscard]] WorkerIdentity identity_implementation() const override;

 private:
  EnvironmentSource source_;
};

}  // namespace crossdevice
