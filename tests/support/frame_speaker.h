// SPDX-License-Identifier: Apache-2.0
/// Whoever is at the other end of a control connection, and says what a test makes it say: FrameSpeaker is one connection, SpeakersAddress is where one listens.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "comm/detail/control_message.h"
#include "support/loopback_listener.h"

namespace crossdevice::testing {

/// What waits here for the other end waits so long at most; then it is as if the connection had ended.
inline constexpr std::chrono::seconds kSpeakersPatience{30};

/// Threads  one at a time.
class FrameSpeaker {
 public:
  explicit FrameSpeaker(int fd) : fd_(fd) {
    const timeval patience{.tv_sec = kSpeakersPatience.count(), .tv_usec = 0};
    (void)::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    (void)::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  }
  ~FrameSpeaker() { ::close(fd_); }
  FrameSpeaker(const FrameSpeaker&) = delete;
  FrameSpeaker& operator=(const FrameSpeaker&) = delete;

  /// Connects to that port of 127.0.0.1; where nobody listens the connection has ended.
  [[nodiscard]] static std::unique_ptr<FrameSpeaker> dial(std::uint16_t port) {
    return dial(port, [](int) {});
  }
  /// The same, over a line on which little is under way at a time: what is said and not heard stays with whoever says it.
  [[nodiscard]] static std::unique_ptr<FrameSpeaker> dial_thinly(std::uint16_t port) {
    return dial(port, [](int fd) {
      const int receive_bytes = 32 << 10;
      const int segment_bytes = 1000;
      (void)::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
      (void)::setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment_bytes, sizeof segment_bytes);
    });
  }

  void say(detail::ControlKind kind, std::string_view payload) const {
    say(detail::encode_frame(kind, payload));
  }
  /// Bytes that need be no whole frame. Whether the connection takes them.
  bool say(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  /// Says to `other` all that it hears, until one of the connections ends, which then says nothing more to the other.
  void carry_to(const FrameSpeaker& other) const {
    std::array<char, 4096> bytes{};
    for (;;) {
      const ssize_t count = ::recv(fd_, bytes.data(), bytes.size(), 0);
      if (count <= 0 || !other.say({bytes.data(), static_cast<std::size_t>(count)})) break;
    }
    (void)::shutdown(other.fd_, SHUT_WR);
  }
  /// Neither says anything any more: who hears finds the end. On any thread.
  void hang_up() const { (void)::shutdown(fd_, SHUT_RDWR); }
  /// The next frame; nothing: the connection has ended.
  [[nodiscard]] std::optional<detail::Frame> hear() const {
    return hear([] {});
  }
  /// The same, with `pause` called before each 16 KiB of it.
  template <class Pause>
  requires std::is_invocable_v<Pause>
  [[nodiscard]] std::optional<detail::Frame> hear(Pause pause) const {
    std::array<char, detail::kFrameHeadBytes> head{};
    if (!read(head.data(), head.size())) return std::nullopt;
    std::string body(detail::decode_frame_head({head.data(), head.size()}, detail::kMaxFrameBytes),
                     '\0');
    constexpr std::size_t piece = std::size_t{16} << 10;
    for (std::size_t begin = 0; begin < body.size(); begin += piece) {
      pause();
      if (!read(body.data() + begin, std::min(piece, body.size() - begin))) return std::nullopt;
    }
    return detail::decode_frame_body(body);
  }
  /// What the next frame of that kind says; nothing: the connection has ended before it.
  [[nodiscard]] std::optional<std::string> hear(detail::ControlKind kind) const {
    std::optional<detail::Frame> frame = hear();
    while (frame.has_value() && frame->kind != kind) frame = hear();
    if (!frame.has_value()) return std::nullopt;
    return frame->payload;
  }

 private:
  template <class Prepare>
  [[nodiscard]] static std::unique_ptr<FrameSpeaker> dial(std::uint16_t port, Prepare prepare) {
    auto speaker = std::make_unique<FrameSpeaker>(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    prepare(speaker->fd_);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    (void)::connect(speaker->fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    return speaker;
  }
  [[nodiscard]] bool read(char* to, std::size_t size) const {
    for (std::size_t done = 0; done < size;) {
      const ssize_t count = ::recv(fd_, to + done, size - done, 0);
      if (count <= 0) return false;
      done += static_cast<std::size_t>(count);
    }
    return true;
  }
  int fd_;
};

/// At a port of 127.0.0.1 that the kernel picks.
class SpeakersAddress {
 public:
  explicit SpeakersAddress(int backlog = 100) : listener_(backlog) {}
  [[nodiscard]] std::string text() const { return listener_.address(); }
  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }
  void stop() const { ::shutdown(listener_.descriptor(), SHUT_RDWR); }
  /// The next one that comes; nothing: it was stopped, or nobody has for a long while.
  [[nodiscard]] std::unique_ptr<FrameSpeaker> accept() const {
    pollfd waited{listener_.descriptor(), POLLIN, 0};
    constexpr std::chrono::milliseconds patience = kSpeakersPatience;
    if (::poll(&waited, 1, static_cast<int>(patience.count())) != 1) return nullptr;
    const int fd = ::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    return fd < 0 ? nullptr : std::make_unique<FrameSpeaker>(fd);
  }

 private:
  LoopbackListener listener_;
};

}  // namespace crossdevice::testing
