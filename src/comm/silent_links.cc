// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/silent_links.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace crossdevice::detail {
namespace {

constexpr std::chrono::seconds kBehindHeartbeats{2};
constexpr std::chrono::milliseconds kBetweenLooks{500};
/// The kernel's, for its questions.
constexpr int kMaxSeconds = 32767;

/// How long the other machine has answered nothing, though it was sent something more than once; 0: all is answered, or may still be.
std::chrono::milliseconds unanswered_for(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  // One packet is lost now and then. Probes ask whose window is closed; each of them is answered.
  constexpr int kTries = 2;
  const bool is_unanswered = info.tcpi_retransmits >= kTries || info.tcpi_probes >= kTries;
  return std::chrono::milliseconds(is_unanswered ? info.tcpi_last_ack_recv : 0);
}

}  // namespace

SilentLinks::SilentLinks(std::chrono::duration<double> heartbeat_timeout)
    : limit_(std::chrono::ceil<std::chrono::seconds>(
                 std::min(heartbeat_timeout, std::chrono::duration<double>(kMaxSeconds / 2.0))) +
             kBehindHeartbeats) {}

void SilentLinks::watch(int socket) const {
  constexpr int kYes = 1;
  constexpr int kQuestions = 4;
  const int total = static_cast<int>(limit_.count());
  const int between = std::max(1, total / (kQuestions + 2));
  const int before = std::max(1, total - kQuestions * between);
  // Where the kernel takes none of this, the connection ends when it gives up, as that of another program does.
  (void)::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &kYes, sizeof kYes);
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &before, sizeof before);
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &kQuestions, sizeof kQuestions);
}

void SilentLinks::look(std::span<const pollfd> sockets, std::span<const int> ranks,
                       Clock::time_point now) {
  if (now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    if (unanswered_for(sockets[i].fd) < limit_) continue;
    found_ = ranks[i];
    next_look_ = now;
  }
}

TransportFailure SilentLinks::failure(const RankInfo& member) const {
  return {.code = StatusCode::UNAVAILABLE,
          .text = fmt::format(
              "{} cannot be reached: what was sent to it has not been answered for {} s",
              to_string(member), limit_.count()),
          .culprits = {member}};
}

}  // namespace crossdevice::detail
