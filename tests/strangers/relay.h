// SPDX-License-Identifier: Apache-2.0
/// Who sits between two that talk, and who crowds at doors: strangers with a thread of their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/loopback_listener.h"

namespace crossdevice::strangers {

/// Carries what is said on one connection over loopback, both ways, and keeps it.
class Relay {
 public:
  Relay() = default;
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// Where to connect to, "127.0.0.1:4711".
  [[nodiscard]] std::string address() const { return listener_.address(); }
  /// Begins: whoever connects is connected to that port, once somebody listens there.
  void carry_to(std::uint16_t port);
  [[nodiscard]] std::string said_by_caller() const;
  [[nodiscard]] std::string said_by_listener() const;

 private:
  void run(std::uint16_t port);
  /// Whether more may come.
  bool carry(int from, int to, std::string& record);

  testing::LoopbackListener listener_{16};
  std::atomic<bool> is_over_{false};
  mutable std::mutex mutex_;  // guards the following
  std::string said_by_caller_;
  std::string said_by_listener_;
  std::thread thread_;
};

/// So many silent connections to each of some ports of loopback, for as long as it lives: where one is ended, another takes its place. `from`: their address.
class Crowd {
 public:
  Crowd(std::vector<std::uint16_t> ports, std::size_t per_port, std::string from = {});
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  /// How many the other side has sent away.
  [[nodiscard]] std::size_t num_dropped() const { return num_dropped_.load(); }

 private:
  void run(const std::vector<std::uint16_t>& ports, std::size_t per_port, const std::string& from);

  std::atomic<bool> is_over_{false};
  std::atomic<std::size_t> num_dropped_{0};
  std::thread thread_;
};

}  // namespace crossdevice::strangers
