// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/stranger_places.h"

#include <algorithm>
#include <cmath>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "comm/detail/plain_address.h"

namespace crossdevice::detail {
namespace {

/// Times what is needed, as the next round trip may take longer than the first.
constexpr int kAllowance = 2;

asio::ip::address counted(const asio::ip::address& from) {
  asio::ip::address address = plain_address(from);
  if (!address.is_v6()) return address;
  asio::ip::address_v6::bytes_type bytes = address.to_v6().to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), std::uint8_t{0});
  return asio::ip::address_v6(bytes);
}

}  // namespace

StrangerPlaces::Clock::duration StrangerPlaces::delay_at(Clock::time_point now) const {
  const double half_lives = std::chrono::duration<double>(now - noted_at_) / kHalfLife;
  return std::chrono::duration_cast<Clock::duration>(delay_ *
                                                     std::exp2(-std::max(half_lives, 0.0)));
}

void StrangerPlaces::note_delay(Clock::duration delay, Clock::time_point now) {
  delay_ = std::max(std::min<Clock::duration>(delay, kLongestStay), delay_at(now));
  noted_at_ = now;
}

StrangerPlaces::Clock::duration StrangerPlaces::stay_of(int socket, bool is_encrypted,
                                                        Clock::time_point now) const {
  tcp_info info{};
  socklen_t size = sizeof info;
  const bool is_known = ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
  const std::chrono::microseconds round_trip(is_known ? info.tcpi_rtt : 0);
  // Each way there is one that must notice what has come.
  const Clock::duration turn = round_trip + 2 * delay_at(now);
  return std::clamp<Clock::duration>(kAllowance * (is_encrypted ? 2 : 1) * turn, kLeastStay,
                                     kLongestStay);
}

StrangerPlaces::Place::Place(StrangerPlaces& all, const asio::ip::address& from,
                             Clock::time_point since, Clock::duration stay)
    : all_(&all),
      address_(all.num_taken_.try_emplace(counted(from), 0).first),
      since_(since),
      until_(since + stay) {
  ++address_->second;
}

void StrangerPlaces::Place::leave() {
  if (all_ == nullptr) return;
  if (--address_->second == 0) all_->num_taken_.erase(address_);
  all_ = nullptr;
}

}  // namespace crossdevice::detail
