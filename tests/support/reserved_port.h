// SPDX-License-Identifier: Apache-2.0
/// A port of the loopback interface on which a test's chief may listen, and nobody else gets meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <system_error>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crossdevice::testing {

/// Bound for as long as it lives, never listened on by itself: a connection to it is refused until somebody else listens. Why the chief gets
/// it, and tests that ask for any port do not: bench/run/port_reservation.h.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (socket_ < 0 || ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::system_error(errno, std::generic_category(), "reserve a port");
    }
    number_ = ntohs(address.sin_port);
  }
  ~ReservedPort() { ::close(socket_); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;

  [[nodiscard]] std::uint16_t number() const { return number_; }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(number_); }

 private:
  int socket_;
  std::uint16_t number_ = 0;
};

}  // namespace crossdevice::testing
