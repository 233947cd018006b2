// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/listening_socket.h"

#include <utility>
#include <vector>

#include <asio/ip/v6_only.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/own_want.h"

#include "comm/detail/host_port.h"
#include "comm/detail/local_addresses.h"
#include "comm/detail/tcp_socket.h"

namespace crossdevice::detail {

using asio::ip::tcp;

std::shared_ptr<ListeningSocket> ListeningSocket::open(const std::string& host, std::uint16_t port,
                                                       const std::string& who) try {
  std::error_code error;
  const asio::ip::address given = asio::ip::make_address(host, error);
  const bool is_local = (!error && given.is_loopback()) || host == "localhost";
  // On loopback nobody else shall reach it; elsewhere the name may stand for any of this machine's addresses.
  tcp::endpoint endpoint(tcp::v6(), port);
  if (is_local && !error) endpoint = tcp::endpoint(given, port);
  if (is_local && error) endpoint = tcp::endpoint(asio::ip::address_v4::loopback(), port);
  asio::io_context io;
  tcp::acceptor acceptor(io);
  error = open_acceptor(acceptor, endpoint.protocol());
  if (error && !is_local) {  // a machine without IPv6
    endpoint = tcp::endpoint(tcp::v4(), port);
    error = open_acceptor(acceptor, endpoint.protocol());
  }
  if (!error && endpoint.protocol() == tcp::v6() && !is_local) {
    acceptor.set_option(asio::ip::v6_only(false), error);
  }
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(4096, error);
  if (!error) endpoint = acceptor.local_endpoint(error);
  if (error) {
    const bool is_taken = error == asio::error::address_in_use;
    throw_op_error(
        is_exhaustion(error) ? StatusCode::RESOURCE_EXHAUSTED : StatusCode::UNAVAILABLE,
        fmt::format("{} cannot listen at {}: {}{}", who, join_host_port(host, port),
                    error.message(),
                    is_taken ? " (by another job, or by this process, where it has joined already "
                               "and has still that cluster)"
                             : ""));
  }
  return std::make_shared<ListeningSocket>(Passkey(), endpoint, acceptor.release());
} catch (...) {
  rethrow_own_want(fmt::format("{} cannot listen at {}", who, join_host_port(host, port)));
}

std::shared_ptr<ListeningSocket> ListeningSocket::open_beside(const std::string& host,
                                                              std::uint16_t taken) {
  std::shared_ptr<ListeningSocket> first = open(host, 0, "this worker");
  if (first->port() != taken) return first;
  return open(host, 0, "this worker");  // while `first` holds the other port
}

ListeningSocket::~ListeningSocket() {
  if (fd_ >= 0) ::close(fd_);
}

std::vector<std::string> ListeningSocket::published_addresses() const {
  std::vector<std::string> addresses;
  if (endpoint_.address().is_loopback()) {
    addresses.push_back(join_host_port(endpoint_.address().to_string(), port()));
    const EnvironmentSource source = process_environment();
    if (source(kSocketInterfaceVariable).has_value()) {
      note_unused_interfaces(interface_addresses(), source);
    }
    return addresses;
  }
  const std::vector<std::string> hosts = local_addresses();
  addresses.reserve(hosts.size());
  for (const std::string& each : hosts) {
    addresses.push_back(join_host_port(each, port()));
  }
  if (addresses.empty()) addresses.push_back(join_host_port("127.0.0.1", port()));
  return addresses;
}

tcp::acceptor ListeningSocket::acceptor(asio::io_context& io) {
  return {io, endpoint_.protocol(), std::exchange(fd_, -1)};
}

}  // namespace crossdevice::detail
