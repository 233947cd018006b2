// SPDX-License-Identifier: Apache-2.0
/// The ops that a run measures, and who takes part.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

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
};

/// This process alone with the ops that the arguments name, or the workers of its cluster with CollectiveAllReduce. Then it is collective.
///
/// Errors   as Cluster::join() and the ops' constructors. ArgumentError: --netns, but the workers are not on so many hosts.
[[nodiscard]] TeamOps make_team_ops(const Arguments& arguments);

}  // namespace crossdevice::bench
