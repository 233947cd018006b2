// SPDX-License-Identifier: Apache-2.0
/// Notices a link that carries nothing between two members, both of whom the control plane hears: there is another way, or another interface, to the chief. Where
/// nothing is on its way to the peer, the system asks its machine, and ends the connection if nothing comes back; where something is, the system would try for a
/// quarter of an hour, and so it is asked what has been answered. Whoever does not read is not silent: its machine answers. A pause of less than the limit is no silence.
#pragma once

#include <chrono>
#include <span>

#include <poll.h>

#include "comm/detail/transport_kind.h"

namespace crossdevice::detail {

/// Threads  one at a time.
class SilentLinks {
 public:
  using Clock = std::chrono::steady_clock;

  /// The limit is two seconds more than a member may be silent, of which the control plane tells. What nobody has sent anything over is known after the limit and a
  /// twelfth of it; else after twice the limit and a second at the latest.
  explicit SilentLinks(std::chrono::duration<double> heartbeat_timeout);

  /// Of a connection that has just been made.
  void watch(int socket) const;
  /// Looks at these sockets, of these ranks, if it is time; `now`: the time.
  void look(std::span<const pollfd> sockets, std::span<const int> ranks, Clock::time_point now);
  /// When to look again; at once, where somebody was found.
  [[nodiscard]] Clock::time_point next_look() const { return next_look_; }
  /// Whose link is silent; -1: nobody's.
  [[nodiscard]] int found() const { return found_; }
  [[nodiscard]] TransportFailure failure(const RankInfo& member) const;

 private:
  std::chrono::seconds limit_;
  Clock::time_point next_look_{};
  int found_ = -1;
};

}  // namespace crossdevice::detail
