// SPDX-License-Identifier: Apache-2.0
#include "strangers/far_link.h"

#include <array>
#include <cerrno>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crossdevice::strangers {
namespace {

void end(int& socket) {
  if (socket >= 0) ::close(std::exchange(socket, -1));
}

}  // namespace

FarLink::FarLink(std::uint16_t port, std::chrono::milliseconds one_way)
    : target_(port), one_way_(one_way), thread_([this] { run(); }) {}

FarLink::~FarLink() {
  is_over_ = true;
  thread_.join();
  for (Connection& each : connections_) {
    end(each.caller);
    end(each.listener);
  }
}

/// A millisecond more or less does not matter on a long way.
void FarLink::run() {
  while (!is_over_) {
    take_in();
    for (Connection& each : connections_) {
      if (each.listener < 0) begin(each);
      for (Direction* const direction : {&each.there, &each.back}) {
        read(*direction);
        say(*direction);
      }
    }
    std::erase_if(connections_, [](Connection& each) {
      if (!each.there.is_over || !each.back.is_over) return false;
      end(each.caller);
      end(each.listener);
      return true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void FarLink::take_in() {
  pollfd polled{listener_.descriptor(), POLLIN, 0};
  while (::poll(&polled, 1, 0) == 1) {
    const int caller = ::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    if (caller >= 0) connections_.push_back({.begins = Clock::now() + one_way_, .caller = caller});
  }
}

void FarLink::begin(Connection& connection) const {
  if (Clock::now() < connection.begins || connection.there.is_over) return;
  connection.listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(target_);
  if (::connect(connection.listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
      0) {
    connection.there.is_over = connection.back.is_over = true;
    return;
  }
  connection.there = {.from = connection.caller, .to = connection.listener};
  connection.back = {.from = connection.listener, .to = connection.caller};
}

void FarLink::read(Direction& direction) const {
  if (direction.from < 0 || direction.has_ended) return;
  std::array<char, 65536> bytes{};
  const ssize_t count = ::recv(direction.from, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  direction.has_ended = count <= 0;
  direction.pieces.push_back(
      {Clock::now() + one_way_,
       std::string(bytes.data(), count > 0 ? static_cast<std::size_t>(count) : 0)});
}

/// What is said here is little and fits into the sockets.
void FarLink::say(Direction& direction) {
  while (!direction.pieces.empty() && direction.pieces.front().due <= Clock::now()) {
    const std::string bytes = std::move(direction.pieces.front().bytes);
    direction.pieces.pop_front();
    direction.is_over = bytes.empty();
    if (bytes.empty()) {
      (void)::shutdown(direction.to, SHUT_WR);
    } else {
      (void)::send(direction.to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
  }
}

}  // namespace crossdevice::strangers
