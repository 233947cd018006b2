// SPDX-License-Identifier: Apache-2.0
/// A TCP port that rank 0 may listen on and nobody else gets meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "crossdevice/core/export.h"

namespace crossdevice::detail {

/// The kernel picks a free port for a socket of ours, which stays bound to it and never listens: a connection to it is refused. As long as it is bound, the
/// kernel gives the port to nobody who asks for any port, neither to listen nor to connect from. Rank 0 asks for this very port with SO_REUSEADDR, as our
/// socket has it too, and gets it: two such sockets may share a port as long as only one listens. What remains is a stranger who asks for
/// this very number, with SO_REUSEADDR, before rank 0 does. Programs that rank 0 may start meanwhile do not inherit the socket.
class CROSSDEVICE_EXPORT ReservedPort {
 public:
  enum class Reach : std::uint8_t { LOOPBACK, ALL_INTERFACES };

  /// Errors   UnavailableError: no port is free.
  explicit ReservedPort(Reach reach = Reach::LOOPBACK);
  ~ReservedPort();
  ReservedPort(ReservedPort&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), number_(other.number_) {}
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  ReservedPort& operator=(ReservedPort&&) = delete;

  [[nodiscard]] std::uint16_t number() const { return number_; }
  /// For workers on this machine.
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(number_); }

 private:
  int socket_;  // -1: another holds it
  std::uint16_t number_ = 0;
};

}  // namespace crossdevice::detail
