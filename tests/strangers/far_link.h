// SPDX-License-Identifier: Apache-2.0
/// A long way to a port.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <thread>

#include "support/loopback_listener.h"

namespace crossdevice::strangers {

/// Carries connections over loopback to a port, of which whoever listens there believes that they come from 127.0.0.1 and are near: what is said takes a time each
/// way, as does that somebody has come.
class FarLink {
 public:
  FarLink(std::uint16_t port, std::chrono::milliseconds one_way);
  ~FarLink();
  FarLink(const FarLink&) = delete;
  FarLink& operator=(const FarLink&) = delete;

  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Piece {
    Clock::time_point due;
    std::string bytes;  // none: the end
  };
  struct Direction {
    int from = -1;
    int to = -1;
    bool has_ended = false;  // nothing more is read
    bool is_over = false;    // and all of it has been said
    std::list<Piece> pieces{};
  };
  struct Connection {
    Clock::time_point begins;
    int caller = -1;
    int listener = -1;
    Direction there{};
    Direction back{};
  };

  void run();
  void take_in();
  void begin(Connection& connection) const;
  void read(Direction& direction) const;
  static void say(Direction& direction);

  const std::uint16_t target_;
  const std::chrono::milliseconds one_way_;
  testing::LoopbackListener listener_{64};
  std::list<Connection> connections_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

}  // namespace crossdevice::strangers
