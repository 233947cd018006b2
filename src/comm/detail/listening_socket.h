// SPDX-License-Identifier: Apache-2.0
/// A socket that listens, before it belongs to an io_context.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

namespace crossdevice::detail {

/// Threads  none of its own; one owner.
class ListeningSocket {
  struct Passkey {};  // makes the constructor open()'s alone

 public:
  /// Listens at `port` (0: a free one) of this machine: on loopback alone where `host` is a loopback address or "localhost", else on all addresses, IPv6
  /// and IPv4.
  ///
  /// Errors   UnavailableError, or where this process lacks descriptors or memory ResourceExhaustedError; both begin with `who`.
  [[nodiscard]] static std::shared_ptr<ListeningSocket> open(const std::string& host,
                                                             std::uint16_t port,
                                                             const std::string& who);
  /// At a free port that is not `taken`: somebody who is about to listen there may not do so yet.
  ///
  /// Errors   as open().
  [[nodiscard]] static std::shared_ptr<ListeningSocket> open_beside(const std::string& host,
                                                                    std::uint16_t taken);
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  [[nodiscard]] std::uint16_t port() const { return endpoint_.port(); }
  /// Where others find it: "host:port" of the loopback address that it listens on, or of each of local_addresses() (of loopback where there is none).
  ///
  /// Errors   as local_addresses().
  [[nodiscard]] std::vector<std::string> published_addresses() const;
  /// Gives it to `io`; once.
  [[nodiscard]] asio::ip::tcp::acceptor acceptor(asio::io_context& io);

  ListeningSocket(Passkey /*key*/, asio::ip::tcp::endpoint endpoint, int fd)
      : endpoint_(std::move(endpoint)), fd_(fd) {}

 private:
  asio::ip::tcp::endpoint endpoint_;
  int fd_;
};

}  // namespace crossdevice::detail
