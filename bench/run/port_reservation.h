// SPDX-License-Identifier: Apache-2.0
/// A TCP port that rank 0 may listen on and nobody else gets meanwhile.
#pragma once

#include <cstdint>

#include "run/descriptor.h"

namespace crossdevice::run {

/// The kernel picks a free port for a socket of ours, which stays bound to it and never listens. As long as it is bound, the kernel gives the
/// port to nobody who asks for any port, neither to listen nor to connect from. Rank 0 asks for this very port with SO_REUSEADDR, as our
/// socket has it too, and gets it: two such sockets may share a port as long as only one listens. What remains is a stranger who asks for
/// this very number, with SO_REUSEADDR, before rank 0 does.
class PortReservation {
 public:
  /// Errors   std::runtime_error: no port is free.
  PortReservation();
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  Descriptor socket_;
  std::uint16_t port_ = 0;
};

}  // namespace crossdevice::run
