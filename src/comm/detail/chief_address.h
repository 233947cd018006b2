// SPDX-License-Identifier: Apache-2.0
/// Where rank 0 will listen, when no launcher says so but the workers can already exchange bytes.
#pragma once

#include <string>

#include "crossdevice/comm/cluster_resolver.h"

namespace crossdevice::detail {

/// Equal on all workers: a loopback address where all are on one machine, else an address of rank 0's that is not (CROSSDEVICE_SOCKET_IFNAME picks the
/// interface). The port was free a moment ago; whoever takes it before rank 0 listens makes that fail with an UnavailableError.
///
/// Ranks    collective.
/// Errors   ValueError: as ClusterResolver::all_gather(). UnavailableError: rank 0 has no port, or only loopback addresses for workers elsewhere.
[[nodiscard]] std::string agree_on_chief_address(const ClusterResolver& resolver, int rank);

}  // namespace crossdevice::detail
