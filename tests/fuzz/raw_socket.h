// SPDX-License-Identifier: Apache-2.0
/// Sockets of a peer that says whatever a fuzzer makes it say, over loopback, without waiting for anybody.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fuzz_target.h"

namespace crossdevice::fuzz {

/// One end of a connection. Ended by a reset: a million runs must not leave a million sockets that wait.
class RawSocket {
 public:
  RawSocket() = default;
  explicit RawSocket(int fd) : fd_(fd) {
    FUZZ_EXPECT(fd_ >= 0);
    const linger reset{.l_onoff = 1, .l_linger = 0};
    (void)::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    const int now = 1;  // a second word would wait for 40 ms until the first one is acknowledged
    (void)::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
  }
  ~RawSocket() { close(); }
  RawSocket(RawSocket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), has_ended_(other.has_ended_) {}
  RawSocket& operator=(RawSocket&& other) noexcept {
    if (this == &other) return *this;
    close();
    fd_ = std::exchange(other.fd_, -1);
    has_ended_ = other.has_ended_;
    return *this;
  }

  /// To a port of this machine where somebody listens. Where all numbers of its own end are taken, it waits for one to become free, for 5 s.
  [[nodiscard]] static RawSocket to(std::uint16_t port) {
    RawSocket client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = loopback(port);
    int result = -1;
    for (int tries = 0; tries < 100 && result != 0; ++tries) {
      result = ::connect(client.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
      if (result != 0 && errno == EISCONN) result = 0;
      // A signal, the fuzzer's timer's, interrupts the call, and not what it has begun.
      const bool goes_on = errno == EADDRNOTAVAIL || errno == EINTR || errno == EALREADY;
      if (result != 0 && !goes_on) break;
      if (result != 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    FUZZ_EXPECT(result == 0);
    return client;
  }
  [[nodiscard]] static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  /// The other side has ended its direction, or all.
  [[nodiscard]] bool has_ended() const { return has_ended_; }
  void say(std::string_view bytes) {
    if (is_open()) (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  /// What has come.
  [[nodiscard]] std::string hear() {
    std::string heard;
    char piece[4096];
    while (is_open()) {
      const ssize_t count = ::recv(fd_, piece, sizeof piece, MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) continue;
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) has_ended_ = true;
      if (count <= 0) break;
      heard.append(piece, static_cast<std::size_t>(count));
    }
    return heard;
  }
  /// Says nothing more, and still hears.
  void end() {
    if (is_open()) (void)::shutdown(fd_, SHUT_WR);
  }
  void close() {
    if (is_open()) ::close(std::exchange(fd_, -1));
  }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_ = -1;
  bool has_ended_ = false;
};

/// Where the tested side connects to.
class RawListener {
 public:
  /// `at`: an IPv4 address of this machine.
  explicit RawListener(int num_waiting = 16, const std::string& at = "127.0.0.1")
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in address = RawSocket::loopback(0);
    FUZZ_EXPECT(::inet_pton(AF_INET, at.c_str(), &address.sin_addr) == 1);
    socklen_t size = sizeof address;
    FUZZ_EXPECT(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size) == 0);
    FUZZ_EXPECT(::listen(fd_, num_waiting) == 0);
    FUZZ_EXPECT(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
  }
  ~RawListener() { ::close(fd_); }
  RawListener(const RawListener&) = delete;
  RawListener& operator=(const RawListener&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] int fd() const { return fd_; }
  /// Who has come; a socket that is not open: nobody.
  [[nodiscard]] RawSocket accept() const {
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    return fd < 0 ? RawSocket() : RawSocket(fd);
  }

 private:
  int fd_;
  std::uint16_t port_ = 0;
};

/// Where nobody is taken in, as at a process that has been stopped: as many as may wait do so already, and who comes hears nothing.
class DeafListener {
 public:
  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }

 private:
  RawListener listener_{0};
  RawSocket waiting_ = RawSocket::to(listener_.port());
};

}  // namespace crossdevice::fuzz
