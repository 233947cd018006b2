// SPDX-License-Identifier: Apache-2.0
/// Where rank 0 will listen, when no launcher says so but the workers can already exchange bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "crossdevice/comm/cluster_resolver.h"

#include "comm/detail/listening_socket.h"

namespace crossdevice::detail {

struct AgreedChief {
  /// Equal on all workers, at least one: a loopback address where all are on one machine, else all of rank 0's that are not (CROSSDEVICE_SOCKET_IFNAME
  /// narrows them).
  std::vector<std::string> addresses;
  std::shared_ptr<ListeningSocket> listener;  ///< at these addresses; on rank 0 alone
};

/// Rank 0 holds its port from before it tells the others until it listens: nobody can take it meanwhile.
///
/// Ranks    collective.
/// Errors   ValueError: as ClusterResolver::all_gather(), and what it has brought cannot be read. UnavailableError: rank 0 has no port, cannot listen, or has only loopback addresses for workers elsewhere.
[[nodiscard]] AgreedChief agree_on_chief(const ClusterResolver& resolver, int rank);

}  // namespace crossdevice::detail
