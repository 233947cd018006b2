// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/reception.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/log.h"

#include "comm/detail/tcp_socket.h"
#include "comm/detail/tls_channel.h"

namespace crossdevice::detail {
namespace {

using asio::ip::tcp;

constexpr std::chrono::seconds kHandshakeTime{5};
constexpr std::chrono::milliseconds kPause{20};
/// A look that comes so late has stood still.
constexpr std::chrono::milliseconds kLate{10};
/// So many at a time are no crowd.
constexpr std::size_t kFew = 16;
/// So many are taken in at once; then what those who are here have said is heard, before more are taken in or somebody is sent away for having said nothing.
constexpr std::size_t kAtOnce = 16;

}  // namespace

void Reception::open(tcp::acceptor acceptor, std::string door, std::size_t max_frame_bytes,
                     std::shared_ptr<const TlsKey> tls) {
  acceptor_.emplace(std::move(acceptor));
  log_.set_door(std::move(door));
  max_frame_bytes_ = max_frame_bytes;
  tls_ = std::move(tls);
  await_next();
}

void Reception::close() {
  if (acceptor_.has_value()) acceptor_->close();
  look_timer_.cancel();
  for (Place& each : places_) {
    if (each.stranger) note_closing(each);
    each.send_away();
  }
  places_.clear();
}

bool Reception::has_strangers() const {
  return std::any_of(places_.begin(), places_.end(),
                     [](const Place& each) { return !each.is_empty(); });
}

// ---------------------------------------------------------------------------------------------- places

/// Nothing where a place is free now, else when to look again.
std::optional<Reception::Clock::time_point> Reception::make_room() {
  const Clock::time_point now = Clock::now();
  places_.remove_if(
      [&](const Place& each) { return each.is_empty() && each.place.since() + kLeastTime <= now; });
  if (places_.size() < kPlaces) return std::nullopt;
  const auto place_in = [](const Place& each) -> const StrangerPlaces::Place& {
    return each.place;
  };
  const auto chosen = next_to_go(places_, place_in);
  if (chosen->place.until() > now) return chosen->place.until();
  if (chosen->stranger) {
    turn_away(*chosen, "slow", "it did not say who it is while others waited");
  } else {
    chosen->send_away();
  }
  places_.erase(chosen);
  return std::nullopt;
}

Reception::Places::iterator Reception::place_of(const Connection& stranger) {
  return std::find_if(places_.begin(), places_.end(),
                      [&](const Place& each) { return each.stranger == stranger; });
}

void Reception::Place::send_away() {
  if (limit) limit->cancel();
  limit.reset();
  if (stranger) stranger->close();
  stranger.reset();
  if (const Connection leaving = refused.lock()) leaving->close();
}

/// Whoever is turned away, most of whom are not of the job: others may follow.
void Reception::note_stranger(const tcp::endpoint& from, std::string_view reason,
                              std::string_view text) {
  wary_until_ = Clock::now() + kWary;
  log_.note(from, reason, text);
}

/// Whoever is here when nobody is received any more. One of the job may just have come, but has not begun to say so and then waited.
void Reception::note_closing(const Place& place) {
  if (place.stranger->has_heard() && place.place.until() <= Clock::now()) {
    log_.note(place.from, "unfinished", StrangerLog::kOnlyBegun);
  } else {
    log_.note_visit(place.from, StrangerLog::kNotYet);
  }
}

/// The place stays taken for its least time.
void Reception::turn_away(Place& place, std::string_view reason, std::string_view text) {
  note_stranger(place.from, reason, text);
  place.send_away();
}

void Reception::refuse(const Connection& stranger, std::string_view reason, std::string_view text) {
  const auto place = place_of(stranger);
  if (place == places_.end()) return;
  note_stranger(place->from, reason, text);
  place->refused = std::exchange(place->stranger, nullptr);
  place->limit->expires_after(kHandshakeTime);
  place->limit->async_wait([weak = place->refused](std::error_code stopped) {
    const Connection late = weak.lock();
    if (!stopped && late) late->close();
  });
}

// ---------------------------------------------------------------------------------------------- coming

void Reception::await_next() {
  const std::error_code trouble = acceptor_->async_wait([this](std::error_code error) {
    is_waiting_ = false;
    if (!error) look();
  });
  if (trouble) {
    wary_until_ = Clock::now() + kWary;  // looks instead, and asks again later
    return look_at(Clock::now() + kBunch);
  }
  is_waiting_ = true;
}

void Reception::go_on() {
  if (!is_waiting_ && acceptor_.has_value() && acceptor_->is_open()) {
    look_at(Clock::now() + kPause);
  }
}

/// A timer that is cancelled may have ended already.
void Reception::look_at(Clock::time_point when) {
  acceptor_->look_away();
  look_timer_.expires_at(when);
  look_timer_.async_wait([this, when](std::error_code stopped) {
    is_waiting_ = false;
    if (stopped || !acceptor_->is_open()) return;
    const Clock::time_point now = Clock::now();
    stranger_places_.note_delay(now - when, now);
    // After a standstill what has come meanwhile is heard before somebody is sent away for having said nothing.
    if (now - when >= kLate && !std::exchange(has_put_off_, true)) return look_at(now);
    has_put_off_ = false;
    look();
  });
  is_waiting_ = true;
}

/// Takes in who waits, as far as there is room.
void Reception::look() {
  for (std::size_t i = 0; i < kAtOnce; ++i) {
    if (const std::optional<Clock::time_point> until = make_room()) return look_at(*until);
    tcp::socket socket(io_);
    tcp::endpoint from;
    Arrival arrival = Arrival::WAITS;
    // One of the job speaks when it has heard the challenge; or begins TLS, and hears that it is not spoken here.
    const std::error_code error = accept_waiting(acceptor_->native_handle(), socket, from, &arrival,
                                                 tls_ == nullptr ? is_tls : nullptr);
    want_ = is_exhaustion(error) ? error.message() : "";
    if (!error) {
      receive(std::move(socket), from, arrival);
    } else if (error == asio::error::would_block || error == asio::error::try_again) {
      const Clock::time_point now = Clock::now();
      return places_.size() > kFew || now < wary_until_ ? look_at(now + kBunch) : await_next();
    } else if (error != asio::error::connection_aborted && error != asio::error::interrupted) {
      // Out of descriptors, most likely: they do not come back faster for being asked for at once.
      return look_at(Clock::now() + kPause);
    }
  }
  look_at(Clock::now());
}

/// Where nobody is behind it to hear of an error, a stranger is turned away, and may come again.
void Reception::receive(tcp::socket socket, const tcp::endpoint& from, Arrival arrival) {
  try {
    if (arrival == Arrival::WAITS) return greet(std::move(socket), from);
    places_.push_back(
        {.from = from, .place = {stranger_places_, from.address(), Clock::now(), kLeastTime}});
    if (arrival == Arrival::HAS_GONE) return log_.note_visit(from, StrangerLog::kWithoutAWord);
    note_stranger(from, "nonsense", "it did not say who it is: it spoke before it was spoken to");
  } catch (const std::exception& error) {
    log_once("reception", LogSeverity::WARNING,
             std::string("somebody who wanted to connect was turned away: ") + error.what());
  }
}

void Reception::greet(tcp::socket socket, const tcp::endpoint& from) {
  const Nonce challenge = make_nonce();  // first: it may throw
  const Clock::duration stay =
      stranger_places_.stay_of(socket.native_handle(), tls_ != nullptr, Clock::now());
  auto connection =
      std::make_shared<ControlConnection>(std::move(socket), tls_, TlsChannel::Role::LISTENER);
  connection->set_max_frame_bytes(max_frame_bytes_);
  auto limit = std::make_shared<asio::steady_timer>(io_, kHandshakeTime);
  places_.push_back({.from = from,
                     .place = {stranger_places_, from.address(), Clock::now(), stay},
                     .stranger = connection,
                     .limit = limit});
  const std::weak_ptr<ControlConnection> weak = connection;
  limit->async_wait([this, weak](std::error_code stopped) {
    const Connection late = weak.lock();
    if (stopped || !late) return;
    const auto place = place_of(late);
    if (place == places_.end()) return;
    turn_away(*place, "late",
              fmt::format("it did not say who it is within {} s", kHandshakeTime.count()));
  });
  connection->start(
      [this, weak, challenge](const Frame& answer) {
        if (const Connection stranger = weak.lock()) hear(stranger, challenge, answer);
      },
      [this, weak](const std::string& why) {
        if (const Connection stranger = weak.lock()) hear_end(stranger, why);
      });
  connection->send(encode_frame(ControlKind::CHALLENGE, Challenge{.nonce = challenge}.encode()));
}

void Reception::hear_end(const Connection& stranger, const std::string& why) {
  const auto place = place_of(stranger);
  if (place == places_.end()) return;
  const TlsTrouble trouble = stranger->trouble();
  const bool is_misfit =
      trouble == TlsTrouble::OTHER_SIDE_IS_PLAIN || trouble == TlsTrouble::OTHER_SIDE_IS_ENCRYPTED;
  if (is_misfit) misfit_ = why;
  if (is_misfit || trouble == TlsTrouble::OTHER_SECRET) {
    note_stranger(place->from, why, why);
  } else if (stranger->has_heard()) {
    note_stranger(place->from, "nonsense", "it did not say who it is: " + why);
  } else {
    // As one of the job may that has given up waiting, or has ended.
    log_.note_visit(place->from, StrangerLog::kWithoutAWord);
  }
  place->send_away();
}

/// What leaves `on_answer_` as an exception ends the connection, and so comes to the handler above.
void Reception::hear(const Connection& stranger, const Nonce& challenge, const Frame& answer) {
  const auto place = place_of(stranger);
  if (place == places_.end()) return;
  place->limit->cancel();
  on_answer_(stranger, challenge, answer);
  const auto left = place_of(stranger);
  if (left != places_.end()) places_.erase(left);  // one of the job
}

}  // namespace crossdevice::detail
