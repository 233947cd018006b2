// SPDX-License-Identifier: Apache-2.0
#include "strangers/caller.h"

#include <cerrno>
#include <stdexcept>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crossdevice::strangers {
namespace {

constexpr int kLongestMs = 60000;

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

Caller::Caller(Caller&& other) noexcept : fd_(std::exchange(other.fd_, -1)), error_(other.error_) {}

std::size_t Caller::say(std::string_view bytes) const {
  const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return count < 0 ? 0 : static_cast<std::size_t>(count);
}

std::optional<std::string> Caller::hear_all(std::chrono::milliseconds limit) const {
  std::string heard;
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd polled{fd_, POLLIN, 0};
    if (rest.count() <= 0 || ::poll(&polled, 1, static_cast<int>(rest.count())) == 0) {
      return std::nullopt;
    }
    char piece[4096];
    const ssize_t count = ::recv(fd_, piece, sizeof piece, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return heard;
    heard.append(piece, static_cast<std::size_t>(count));
  }
}

std::optional<std::string> Caller::hear(std::size_t size) const {
  std::string heard(size, '\0');
  for (std::size_t done = 0; done < size;) {
    pollfd polled{fd_, POLLIN, 0};
    if (::poll(&polled, 1, kLongestMs) == 0) return std::nullopt;
    const ssize_t count = ::recv(fd_, heard.data() + done, size - done, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    done += static_cast<std::size_t>(count);
  }
  return heard;
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
