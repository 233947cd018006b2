// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/silent_links.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace crossdevice::detail {
namespace {

constexpr std::chrono::seconds kBehindHeartbeats{2};
constexpr std::chrono::milliseconds kBetweenLooks{500};
/// For the answer to the last try.
constexpr std::chrono::milliseconds kAnswerTime{1000};
/// Longer than this makes no difference, and can be counted.
constexpr std::chrono::seconds kLongestHeartbeat{16384};

/// Whether the other machine answers nothing: neither for so long, nor what was sent again at the end of that time. So a pause that is shorter is survived: what is
/// sent again after it is answered. (The system doubles the time between its tries: it is known after twice the limit at the latest.) Probes of a window that is closed
/// do not count, as some are minutes apart; there the other end asks.
bool is_silent(int socket, std::chrono::milliseconds limit) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  const std::chrono::milliseconds since_answer(info.tcpi_last_ack_recv);
  const std::chrono::milliseconds since_try(info.tcpi_last_data_sent);
  return info.tcpi_unacked > 0 && info.tcpi_retransmits >= 2 && since_try >= kAnswerTime &&
         since_answer - since_try >= limit;
}

}  // namespace

SilentLinks::SilentLinks(std::chrono::duration<double> heartbeat_timeout)
    : limit_(std::chrono::ceil<std::chrono::seconds>(
                 std::min<std::chrono::duration<double>>(heartbeat_timeout, kLongestHeartbeat)) +
             kBehindHeartbeats) {}

void SilentLinks::watch(int socket) const {
  constexpr int kYes = 1;
  constexpr int kMostQuestions = 12;
  // All of them unanswered, from the first to a time after the last, is the limit: a shorter pause leaves one that is answered.
  const int limit = static_cast<int>(limit_.count());
  const int between = (limit + kMostQuestions - 1) / kMostQuestions;
  const int questions = (limit + between - 1) / between;
  // Where the kernel takes none of this, the connection ends when it gives up, as that of another program does.
  (void)::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &kYes, sizeof kYes);
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &between, sizeof between);
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &questions, sizeof questions);
}

void SilentLinks::look(std::span<const pollfd> sockets, std::span<const int> ranks,
                       Clock::time_point now) {
  if (now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    if (!is_silent(sockets[i].fd, limit_)) continue;
    found_ = ranks[i];
    next_look_ = now;
  }
}

TransportFailure SilentLinks::failure(const RankInfo& member) const {
  return {.code = StatusCode::UNAVAILABLE,
          .text = fmt::format(
              "{} cannot be reached: what was sent to it has not been answered for more than {} s",
              to_string(member), limit_.count()),
          .culprits = {member}};
}

}  // namespace crossdevice::detail
