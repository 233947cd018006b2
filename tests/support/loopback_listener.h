// SPDX-License-Identifier: Apache-2.0
/// Where a test listens.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crossdevice::testing {

/// At a port of 127.0.0.1 that the kernel picks. `backlog`: so many may wait there to be accepted.
class LoopbackListener {
 public:
  explicit LoopbackListener(int backlog) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::listen(fd_, backlog) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      const int error = errno;
      ::close(fd_);
      throw std::system_error(error, std::generic_category(), "cannot listen on loopback");
    }
    port_ = ntohs(address.sin_port);
  }
  ~LoopbackListener() { ::close(fd_); }
  LoopbackListener(const LoopbackListener&) = delete;
  LoopbackListener& operator=(const LoopbackListener&) = delete;

  [[nodiscard]] int descriptor() const { return fd_; }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// "127.0.0.1:4711".
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  int fd_;
  std::uint16_t port_ = 0;
};

}  // namespace crossdevice::testing
