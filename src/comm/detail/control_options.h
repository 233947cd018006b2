// SPDX-License-Identifier: Apache-2.0
/// What a worker must know to meet the others.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace crossdevice::detail {

struct ControlPlaneOptions {
  int rank = 0;
  int num_workers = 1;
  /// "host:port" or "[address]:port" of the chief, which listens there; unused for a single worker.
  std::string chief_address;
  /// Where each rank should be, as far as the launcher says: "host:port" by rank, for messages. Empty: it does not say.
  std::vector<std::string> addresses_by_rank{};
  std::string secret;
  std::string host;
  std::string host_id;
  /// How long a silent member counts as alive.
  std::chrono::duration<double> heartbeat_timeout{10};
  /// After how long a wait is spoken of on the log.
  std::chrono::duration<double> stall_warning{30};
};

}  // namespace crossdevice::detail
