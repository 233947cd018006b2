// SPDX-License-Identifier: Apache-2.0
/// Who makes room where strangers take one of so many places, and more come.
///
/// One of the job says who it is as soon as the challenge has reached it: its answer comes one round trip after it was taken in, with TLS two. So nobody makes room
/// before a stay is over that is twice as long, as the system has measured the round trip while it connected, within bounds: what is close is not held up by
/// what is far, and who is far gets the time that it needs. Where this process itself comes late to look, its machine is busy, and perhaps the other one's is:
/// that time counts like the link's. And it is always one from the address that has most places who goes, though others are there longer:
/// a flood from one address crowds out itself alone. Of IPv6 the first 64 bits are the address, as whoever has one has the others, too.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <utility>

#include <asio/ip/address.hpp>
#include <asio/ip/tcp.hpp>

namespace crossdevice::detail {

/// Counts the places of each address. Outlives its places.
///
/// Threads  one at a time.
class StrangerPlaces {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLeastStay{50};
  static constexpr std::chrono::milliseconds kLongestStay{1000};

  /// One place, taken for as long as it lives.
  class Place {
   public:
    Place(StrangerPlaces& all, const asio::ip::address& from, Clock::time_point since,
          Clock::duration stay);
    ~Place() { leave(); }
    Place(Place&& other) noexcept
        : all_(std::exchange(other.all_, nullptr)),
          address_(other.address_),
          since_(other.since_),
          until_(other.until_) {}
    Place& operator=(Place&& other) noexcept {
      leave();
      all_ = std::exchange(other.all_, nullptr);
      address_ = other.address_;
      since_ = other.since_;
      until_ = other.until_;
      return *this;
    }
    [[nodiscard]] Clock::time_point since() const { return since_; }
    /// When its stay is over.
    [[nodiscard]] Clock::time_point until() const { return until_; }
    /// How many places its address has.
    [[nodiscard]] std::size_t num_beside() const { return address_->second; }

   private:
    using Address = std::map<asio::ip::address, std::size_t>::iterator;
    void leave();
    StrangerPlaces* all_;
    Address address_;
    Clock::time_point since_;
    Clock::time_point until_;
  };

  /// How long who has come may stay where others wait; `socket`: connected.
  [[nodiscard]] Clock::duration stay_of(int socket, bool is_encrypted, Clock::time_point now) const;
  /// Whoever hands out places was to look at them that long ago. It counts half as much after each kHalfLife.
  void note_delay(Clock::duration delay, Clock::time_point now);
  static constexpr std::chrono::milliseconds kHalfLife{250};

 private:
  [[nodiscard]] Clock::duration delay_at(Clock::time_point now) const;

  std::map<asio::ip::address, std::size_t> num_taken_;  // of each address that has any
  Clock::duration delay_{};                             // at noted_at_
  Clock::time_point noted_at_{};
};

/// Which of `places`, of which there are some, makes room next, at its until() or later: of those from the address that has most, the one whose stay is over first.
/// `place_of(one)` is its Place.
template <class List, class PlaceOf>
[[nodiscard]] typename List::iterator next_to_go(List& places, const PlaceOf& place_of) {
  return std::min_element(places.begin(), places.end(), [&](const auto& one, const auto& other) {
    const StrangerPlaces::Place& a = place_of(one);
    const StrangerPlaces::Place& b = place_of(other);
    if (a.num_beside() != b.num_beside()) return a.num_beside() > b.num_beside();
    return a.until() < b.until();
  });
}

}  // namespace crossdevice::detail
