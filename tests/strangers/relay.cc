// SPDX-License-Identifier: Apache-2.0
#include "strangers/relay.h"

#include <array>
#include <chrono>
#include <list>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "strangers/caller.h"

namespace crossdevice::strangers {

Relay::~Relay() {
  is_over_ = true;
  if (thread_.joinable()) thread_.join();
}

std::string Relay::said_by_caller() const {
  const std::lock_guard lock(mutex_);
  return said_by_caller_;
}

std::string Relay::said_by_listener() const {
  const std::lock_guard lock(mutex_);
  return said_by_listener_;
}

void Relay::carry_to(std::uint16_t port) {
  thread_ = std::thread([this, port] { run(port); });
}

void Relay::run(std::uint16_t port) {
  std::array<pollfd, 2> polled{};
  polled[0] = {listener_.descriptor(), POLLIN, 0};
  while (::poll(polled.data(), 1, 10) == 0) {
    if (is_over_) return;
  }
  const int caller = ::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
  while (!is_over_) {
    const Caller onwards({.port = port});
    if (!onwards.is_connected()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    polled = {pollfd{caller, POLLIN, 0}, pollfd{onwards.descriptor(), POLLIN, 0}};
    bool has_ended = false;
    while (!is_over_ && !has_ended) {
      if (::poll(polled.data(), polled.size(), 10) <= 0) continue;
      if (polled[0].revents != 0) {
        has_ended = !carry(caller, onwards.descriptor(), said_by_caller_);
      } else {
        has_ended = !carry(onwards.descriptor(), caller, said_by_listener_);
      }
    }
    break;
  }
  ::close(caller);
}

bool Relay::carry(int from, int to, std::string& record) {
  std::array<char, 65536> bytes{};
  const ssize_t count = ::recv(from, bytes.data(), bytes.size(), 0);
  if (count <= 0) return false;
  {
    const std::lock_guard lock(mutex_);
    record.append(bytes.data(), static_cast<std::size_t>(count));
  }
  return ::send(to, bytes.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL) == count;
}

Crowd::Crowd(std::vector<std::uint16_t> ports, std::size_t per_port, std::string from)
    : thread_([this, all = std::move(ports), per_port, address = std::move(from)] {
        run(all, per_port, address);
      }) {}

Crowd::~Crowd() {
  is_over_ = true;
  thread_.join();
}

void Crowd::run(const std::vector<std::uint16_t>& ports, std::size_t per_port,
                const std::string& from) {
  std::vector<std::list<Caller>> callers(ports.size());
  while (!is_over_) {
    for (std::size_t i = 0; i < ports.size(); ++i) {
      num_dropped_ += callers[i].remove_if([](const Caller& each) { return each.has_ended(); });
      while (!is_over_ && callers[i].size() < per_port) {
        callers[i].emplace_back(Where{.port = ports[i], .from = from});
        if (callers[i].back().is_connected()) continue;
        callers[i].pop_back();  // nobody listens there any more
        break;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace crossdevice::strangers
