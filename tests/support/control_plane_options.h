// SPDX-License-Identifier: Apache-2.0
/// How a worker of a test meets the others over the control plane.
#pragma once

#include <cstdint>
#include <string>

#include "comm/detail/control_plane.h"

namespace crossdevice::detail {

inline ControlPlaneOptions options_of(int rank, int num_workers, std::uint16_t port) {
  return {.rank = rank,
          .num_workers = num_workers,
          .chief_address = "127.0.0.1:" + std::to_string(port),
          .secret = "secret",
          .host = "host" + std::to_string(rank),
          .host_id = "machine"};
}

}  // namespace crossdevice::detail
