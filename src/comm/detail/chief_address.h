// SPDX-License-Identifier: Apache-2.0
/// Where rank 0 will listen, when no launcher says so but the workers can already exchange bytes.
#pragma once

#include <string>
#include <vector>

#include "crossdevice/comm/cluster_resolver.h"

namespace crossdevice::detail {

/// Equal on all workers, at least one: a loopback address where all are on one machine, else all of rank 0's that are not (CROSSDEVICE_SOCKET_IFNAME narrows
/// them). The port was free a moment ago; whoever takes it before rank 0 listens makes that fail with an UnavailableError.
///
/// Ranks    collective.
/// Errors   ValueError: as ClusterResolver::all_gather(). UnavailableError: rank 0 has no port, or only loopback addresses for workers elsewhere.
[[nodiscard]] std::vector<std::string> agree_on_chief_addresses(const ClusterResolver& resolver,
                                                                int rank);

}  // namespace crossdevice::detail
