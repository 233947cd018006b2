// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/reserved_port.h"

#include <cerrno>
#include <system_error>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

ReservedPort::ReservedPort(Reach reach)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(reach == Reach::LOOPBACK ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t size = sizeof address;
  if (socket_ < 0 || ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    const int error = errno;
    if (socket_ >= 0) ::close(socket_);
    throw UnavailableError("rank 0 has no free port to listen on: " +
                           std::generic_category().message(error));
  }
  number_ = ntohs(address.sin_port);
}

ReservedPort::~ReservedPort() {
  if (socket_ >= 0) ::close(socket_);
}

}  // namespace crossdevice::detail
