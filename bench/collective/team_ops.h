// SPDX-License-Identifier: Apache-2.0
/// The ops that a run measures, and who takes part.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "crossdevice/comm/nccl_clique.h"

#include "collective/arguments.h"
#include "collective/team.h"
#include "support/named_ops.h"

namespace crossdevice::bench {

struct TeamOps {
  programs::NamedOps ops;
  std::string algorithm;  ///< what combines the values
  Team team;
  std::function<std::string(std::size_t size_bytes)> explain;  ///< none where nobody is to be asked
  std::function<std::string()> explain_packs;                  ///< the same
  std::shared_ptr<detail::NcclClique>
      raw_nccl;  ///< of all workers' GPUs, for raw NCCL; null: hosts, no NCCL, or one process
};

/// The cluster of the workers that a launcher has started, and `arguments.devices` where these are for them to share out. Collective.
///
/// Errors   as Cluster::join(). ArgumentError: there is no GPU for this worker.
[[nodiscard]] std::shared_ptr<Cluster> meet_workers(Arguments& arguments);

/// This process alone with the ops that the arguments name (no cluster), or the workers of `cluster` with CollectiveAllReduce. Then it is collective.
///
/// Errors   as the ops' constructors. ArgumentError: --netns, but the workers are not on so many hosts.
[[nodiscard]] TeamOps make_team_ops(const Arguments& arguments,
                                    const std::shared_ptr<Cluster>& cluster);

}  // namespace crossdevice::bench
