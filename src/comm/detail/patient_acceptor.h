// SPDX-License-Identifier: Apache-2.0
/// A socket that listens, and wakes its thread only while somebody waits for who comes: Asio leaves a socket in its epoll set for good, where each connection wakes
/// the thread, whether it is wanted then or not.
#pragma once

#include <new>
#include <system_error>
#include <utility>

#include <asio/error.hpp>
#include <asio/ip/tcp.hpp>
#include <unistd.h>

namespace crossdevice::detail {

/// Threads  those of the acceptor's io_context, one at a time.
class PatientAcceptor {
 public:
  /// `acceptor`: listens.
  explicit PatientAcceptor(asio::ip::tcp::acceptor acceptor)
      : acceptor_(std::move(acceptor)), protocol_(acceptor_.local_endpoint().protocol()) {
    acceptor_.native_non_blocking(true);
  }
  ~PatientAcceptor() { close(); }
  PatientAcceptor(const PatientAcceptor&) = delete;
  PatientAcceptor& operator=(const PatientAcceptor&) = delete;

  [[nodiscard]] bool is_open() const { return acceptor_.is_open() || unwatched_ >= 0; }
  /// Whoever waits is told so.
  void close() {
    std::error_code ignored;
    acceptor_.close(ignored);
    if (unwatched_ >= 0) ::close(std::exchange(unwatched_, -1));
  }
  /// For accept_waiting().
  [[nodiscard]] int native_handle() {
    return unwatched_ >= 0 ? unwatched_ : acceptor_.native_handle();
  }

  /// Calls `handler`, once, when somebody is there; or, with an error, when it is closed. Returns why it cannot, for want of memory or of room in the kernel's epoll
  /// sets: `handler` then is not called. Not to be tried again at once: Asio keeps what it had made for it.
  template <class Handler>
  [[nodiscard]] std::error_code async_wait(Handler&& handler) try {
    if (unwatched_ >= 0) {
      std::error_code error;
      acceptor_.assign(protocol_, unwatched_, error);
      if (error) return error;
      unwatched_ = -1;
    }
    acceptor_.async_wait(asio::ip::tcp::acceptor::wait_read, std::forward<Handler>(handler));
    return {};
  } catch (const std::bad_alloc&) {
    return asio::error::no_memory;
  }
  /// Until the next async_wait(); nobody waits.
  void look_away() {
    if (acceptor_.is_open()) unwatched_ = acceptor_.release();
  }

 private:
  asio::ip::tcp::acceptor acceptor_;
  asio::ip::tcp protocol_;
  int unwatched_ = -1;  // while acceptor_ does not have it
};

}  // namespace crossdevice::detail
