// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tcp_socket.h"

#include <cerrno>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crossdevice/core/own_want.h"

namespace crossdevice::detail {
namespace {

using asio::ip::tcp;

/// Of asio's own category, which is not the standard's: only so do its asio::error::would_block and others compare equal.
std::error_code last_error() { return {errno, asio::error::get_system_category()}; }

template <class Socket>
std::error_code own(Socket& socket, const tcp& protocol, int fd) {
  if (fd < 0) return last_error();
  std::error_code error;
  try {
    socket.assign(protocol, fd, error);
  } catch (...) {  // no memory
    ::close(fd);
    throw;
  }
  if (error) ::close(fd);
  return error;
}

int open_fd(const tcp& protocol) {
  return ::socket(protocol.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
}

int accept_fd(int listening, tcp::endpoint& from) {
  auto size = static_cast<socklen_t>(from.capacity());
  return ::accept4(listening, from.data(), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

}  // namespace

std::error_code open_socket(tcp::socket& socket, const tcp& protocol) {
  return own(socket, protocol, open_fd(protocol));
}

std::error_code open_acceptor(tcp::acceptor& acceptor, const tcp& protocol) {
  return own(acceptor, protocol, open_fd(protocol));
}

std::error_code accept_waiting(int listening, tcp::socket& socket, tcp::endpoint& from) {
  const int fd = accept_fd(listening, from);
  return own(socket, from.protocol(), fd);
}

std::error_code accept_waiting(int listening, tcp::socket& socket, tcp::endpoint& from,
                               Arrival* arrival, bool (*may_begin)(std::string_view first)) {
  *arrival = Arrival::WAITS;
  const int fd = accept_fd(listening, from);
  if (fd < 0) return last_error();
  char first[8];
  const ssize_t count = ::recv(fd, first, sizeof first, MSG_PEEK);
  if (count > 0) {
    const bool waits = may_begin == nullptr || may_begin({first, static_cast<std::size_t>(count)});
    if (!waits) *arrival = Arrival::HAS_SPOKEN;
  } else if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
    *arrival = Arrival::HAS_GONE;
  }
  if (*arrival == Arrival::WAITS) return own(socket, from.protocol(), fd);
  ::close(fd);
  return {};
}

/// Of a socket EAGAIN is no want of threads: nothing is there to be done.
bool is_exhaustion(const std::error_code& error) {
  return error.value() != EAGAIN && is_want(error);
}

}  // namespace crossdevice::detail
