// SPDX-License-Identifier: Apache-2.0
#include "strangers/caller.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <stdexcept>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crossdevice::strangers {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLongest{60};

sockaddr_in address_of(const std::string& address, std::uint16_t port) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_port = htons(port);
  if (::inet_pton(AF_INET, address.c_str(), &made.sin_addr) != 1) {
    throw std::invalid_argument("no IPv4 address: " + address);
  }
  return made;
}

}  // namespace

Caller::Caller(const Where& where) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in from = address_of(where.from.empty() ? "0.0.0.0" : where.from, 0);
  const sockaddr_in to = address_of(where.address, where.port);
  if (!where.tls_secret.empty()) {
    tls_ = std::make_unique<detail::TlsChannel>(detail::TlsKey::make(where.tls_secret),
                                                detail::TlsChannel::Role::DIALLER, "");
  }
  if (fd_ >= 0 && ::bind(fd_, reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0 &&
      ::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
    return;
  }
  error_ = errno;
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Caller::~Caller() {
  if (fd_ >= 0) ::close(fd_);
}

Caller::Caller(Caller&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), error_(other.error_), tls_(std::move(other.tls_)) {}

std::size_t Caller::say(std::string_view bytes) const {
  if (tls_) {
    if (!shake_hands(Clock::now() + kLongest)) return 0;
    const std::size_t count = tls_->write({}, std::as_bytes(std::span(bytes)));
    flush();
    return count;
  }
  const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return count < 0 ? 0 : static_cast<std::size_t>(count);
}

std::optional<std::string> Caller::hear_all(std::chrono::milliseconds limit) const {
  std::string heard;
  const Clock::time_point end = Clock::now() + limit;
  for (;;) {
    const std::optional<std::string> piece = hear_some(4096, end);
    if (!piece.has_value()) return std::nullopt;
    if (piece->empty()) return heard;
    heard += *piece;
  }
}

std::optional<std::string> Caller::hear(std::size_t size, std::chrono::milliseconds limit) const {
  std::string heard;
  const Clock::time_point end = Clock::now() + limit;
  while (heard.size() < size) {
    const std::optional<std::string> piece = hear_some(size - heard.size(), end);
    if (!piece.has_value() || piece->empty()) return std::nullopt;
    heard += *piece;
  }
  return heard;
}

std::optional<std::string> Caller::hear_some(std::size_t size, Time limit) const {
  std::string piece(size, '\0');
  std::optional<std::size_t> count;
  if (!tls_) {
    count = receive(piece.data(), piece.size(), limit);
  } else {
    try {
      if (!shake_hands(limit)) return Clock::now() < limit ? std::optional("") : std::nullopt;
      while ((count = tls_->read(std::as_writable_bytes(std::span(piece)))) == 0U) {
        const std::span<std::byte> room = tls_->room();
        count = receive(reinterpret_cast<char*>(room.data()), room.size(), limit);
        if (count.value_or(0) == 0 || tls_->has_ended()) break;
        tls_->take_in(*count);
      }
    } catch (const detail::TlsError&) {
      count = 0;  // it has been told why, which is an end
    }
  }
  if (!count.has_value()) return std::nullopt;
  piece.resize(*count);
  return piece;
}

std::optional<std::size_t> Caller::receive(char* bytes, std::size_t size, Time limit) const {
  for (;;) {
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now());
    pollfd polled{fd_, POLLIN, 0};
    if (rest.count() <= 0 || ::poll(&polled, 1, static_cast<int>(rest.count())) == 0) {
      return std::nullopt;
    }
    const ssize_t count = ::recv(fd_, bytes, size, 0);
    if (count < 0 && errno == EINTR) continue;
    return static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  }
}

bool Caller::shake_hands(Time limit) const {
  try {
    while (!tls_->shake_hands()) {
      flush();
      const std::span<std::byte> room = tls_->room();
      const std::size_t count =
          receive(reinterpret_cast<char*>(room.data()), room.size(), limit).value_or(0);
      if (count == 0) return false;
      tls_->take_in(count);
    }
  } catch (const detail::TlsError&) {
    flush();
    return false;
  }
  flush();
  return true;
}

/// So few bytes that a connection takes them.
void Caller::flush() const {
  while (!tls_->outgoing().empty()) {
    const std::span<const std::byte> bytes = tls_->outgoing();
    const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    tls_->drop_outgoing(count > 0 ? static_cast<std::size_t>(count) : bytes.size());
  }
}

std::optional<detail::Frame> Caller::hear_frame() const {
  const std::optional<std::string> head = hear(detail::kFrameHeadBytes);
  if (!head.has_value()) return std::nullopt;
  const std::optional<std::string> body =
      hear(detail::decode_frame_head(*head, detail::kMaxFrameBytes));
  if (!body.has_value()) return std::nullopt;
  return detail::decode_frame_body(*body);
}

detail::Nonce Caller::hear_challenge() const {
  const std::optional<detail::Frame> frame = hear_frame();
  if (!frame.has_value() || frame->kind != detail::ControlKind::CHALLENGE) {
    throw std::runtime_error("no challenge came");
  }
  return detail::Challenge::decode(frame->payload).nonce;
}

bool Caller::has_ended() const {
  char piece[4096];
  for (;;) {
    const ssize_t count = ::recv(fd_, piece, sizeof piece, MSG_DONTWAIT);
    if (count > 0 || (count < 0 && errno == EINTR)) continue;
    return count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
}

}  // namespace crossdevice::strangers
