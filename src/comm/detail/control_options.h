// SPDX-License-Identifier: Apache-2.0
/// What a worker must know to meet the others.
#pragma once

#include <chrono>
#include <string>

namespace crossdevice::detail {

struct ControlPlaneOptions {
  int rank = 0;
  int num_workers = 1;
  /// "host:port" or "[address]:port" of the chief, which listens there; unused for a single worker.
  std::string chief_address;
  std::string secret;
  std::string host;
  std::string host_id;
  /// How long a silent member counts as alive.
  std::chrono::duration<double> heartbeat_timeout{10};
  /// After how long a wait is spoken of on the log.
  std::chrono::duration<double> stall_warning{30};
};

}  // namespace crossdevice::detail
