// SPDX-License-Identifier: Apache-2.0
/// Why strangers neither block nor break it. What they send is read into arrays of fixed size, and compared; whoever has not proved who it is within
/// kHandshakeTime is dropped. When there are kMaxStrangers, the others wait in the kernel until one of them makes room (StrangerPlaces), which none does before it
/// had the time that its link needs: so a member gets in between any number of silent ones, and tries again until the deadline.
///
/// Why both sides count the same connection. A dialler that has waited for its welcome for too long gives the connection up and dials again, perhaps just
/// when the listener, which was held up, gets to the hello. So the listener counts none before the dialler has said that it does. A dialler greets
/// on one connection at a time, closes it before it greets on another, and greets on none after its HERE unless that one has ended: of all living connections
/// a listener has welcomed for a rank at most one ever carries a HERE, and that is the one which the dialler counts. Until then the listener keeps each of them
/// for as long as its other side does: no clock of its own could tell a HERE that is late from one that does not come. Where the network parts
/// the two, what was given up may look open for ever; therefore the oldest goes when there are kMaxWelcomed: the dialler has greeted that often since.
///
/// A connection that counts may still end without a word, when the other side's process has; then that rank is waited for until its end is heard elsewhere.
#include "comm/detail/tcp_meeting.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include <asio/buffer.hpp>
#include <asio/ip/address.hpp>
#include <asio/ip/v6_only.hpp>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crossdevice/core/error.h"

#include "comm/detail/plain_address.h"
#include "comm/detail/tcp_socket.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

using asio::ip::tcp;

constexpr std::chrono::seconds kHandshakeTime{3};
constexpr std::chrono::seconds kConnectTime{3};
constexpr std::chrono::milliseconds kFirstRetry{10};
constexpr std::chrono::milliseconds kLastRetry{500};
/// Between the first tries of a peer's addresses.
constexpr std::chrono::milliseconds kStagger{50};
constexpr std::chrono::milliseconds kPause{20};
/// How often is_over() is asked while nothing happens.
constexpr std::chrono::milliseconds kLook{100};
/// How long nobody is dialled or taken in for want of descriptors before that is an error: another one's may be given back.
constexpr std::chrono::seconds kExhaustedTime{3};
constexpr std::size_t kMaxStrangers = 128;
/// Of one rank.
constexpr std::ptrdiff_t kMaxWelcomed = 8;
constexpr std::size_t kMaxAddresses = 16;
constexpr int kBacklog = 4096;

/// Whether the other side may still speak, or has spoken: what it said before it ended is to be read.
bool is_open(int fd, bool has_input) {
  if (has_input) return true;
  char ignored = 0;
  const ssize_t count = ::recv(fd, &ignored, 1, MSG_PEEK | MSG_DONTWAIT);
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

}  // namespace

/// Who has connected, and has not yet proved who it is, or not yet said that it has heard the welcome.
struct TcpMeeting::Stranger {
  Stranger(tcp::socket connected, tcp::endpoint other_side, StrangerPlaces::Place taken)
      : from(std::move(other_side)),
        place(std::move(taken)),
        socket(std::move(connected)),
        timer(socket.get_executor()) {}
  void close() {
    std::error_code ignored;
    words.forget();
    socket.close(ignored);
    timer.cancel();
    place.reset();
  }
  tcp::endpoint from;
  std::optional<StrangerPlaces::Place> place;  // until it has proved who it is, or is sent away
  tcp::socket socket;
  TlsSocket words{socket};
  asio::steady_timer timer;
  Nonce challenge = make_nonce();
  ChallengeBytes challenge_bytes = encode_challenge(challenge);
  HelloBytes hello_bytes{};
  int rank = -1;  // once it is proved
  WelcomeBytes welcome_bytes{};
  HereBytes here_bytes{};
};

/// The tries to reach a peer at one of its addresses.
struct TcpMeeting::Dial {
  Dial(asio::io_context& io, int peer, tcp::endpoint target)
      : rank(peer), endpoint(std::move(target)), socket(io), timer(io) {}
  void close() {
    std::error_code ignored;
    words.forget();
    socket.close(ignored);
    timer.cancel();
  }
  int rank;
  tcp::endpoint endpoint;
  tcp::socket socket;
  TlsSocket words{socket};
  asio::steady_timer timer;
  std::chrono::milliseconds next_retry = kFirstRetry;
  bool is_over = false;
  bool is_greeting = false;  // one per rank at a time, since the first living one counts
  bool has_challenge = false;
  Nonce challenge{};
  Nonce nonce{};
  ChallengeBytes challenge_bytes{};
  HelloBytes hello_bytes{};
  WelcomeBytes welcome_bytes{};
};

TcpMeeting::TcpMeeting(TcpMeetingOptions options)
    : options_(std::move(options)), endpoints_(static_cast<std::size_t>(options_.num_ranks)) {
  log_.set_door(fmt::format("rank {}'s transport", options_.rank));
  if (options_.num_ranks > 1) listen();
}

TcpMeeting::~TcpMeeting() {
  for (const Connected& each : connected_) ::close(each.socket);
}

// ---------------------------------------------------------------------------------------------- listening

void TcpMeeting::listen() {
  std::vector<tcp::endpoint> candidates = {{tcp::v6(), 0}, {tcp::v4(), 0}};
  if (options_.is_loopback_only) {
    candidates = {{asio::ip::address_v4::loopback(), 0}, {asio::ip::address_v6::loopback(), 0}};
  }
  std::error_code error;
  for (const tcp::endpoint& each : candidates) {
    error = open_acceptor(acceptor_, each.protocol());
    std::error_code ignored;
    if (!error && !options_.is_loopback_only && each.protocol() == tcp::v6()) {
      acceptor_.set_option(asio::ip::v6_only(false), error);  // IPv4 too
    }
    if (!error) acceptor_.bind(each, error);
    if (!error) acceptor_.listen(kBacklog, error);
    if (!error) port_ = acceptor_.local_endpoint(error).port();
    if (!error) return;
    acceptor_.close(ignored);
  }
  throw UnavailableError("cannot listen for the other members: " + error.message());
}

std::string TcpMeeting::announcement() const {
  WireWriter writer;
  writer.number(port_);
  std::error_code ignored;
  const bool is_v6_loopback = port_ != 0 && options_.is_loopback_only &&
                              acceptor_.local_endpoint(ignored).protocol() == tcp::v6();
  writer.text(is_v6_loopback ? "::1" : "127.0.0.1");
  writer.list(options_.is_loopback_only ? std::vector<std::string>() : options_.addresses,
              [](WireWriter& to, const std::string& address) { to.text(address); });
  return writer.take();
}

void TcpMeeting::learn(int rank, std::string_view announcement, bool is_beside) {
  WireReader reader(announcement);
  const auto port = reader.number<std::uint16_t>();
  const std::string loopback = reader.text();
  std::vector<std::string> addresses =
      reader.list<std::string>([](WireReader& from) { return from.text(); });
  reader.require_end();
  addresses.resize(std::min(addresses.size(), kMaxAddresses));
  // Without an address of its own it can only be here, whatever it says about its machine.
  const bool is_here = is_beside || options_.is_loopback_only || addresses.empty();
  if (is_here) addresses.insert(addresses.begin(), loopback);
  std::vector<tcp::endpoint>& endpoints = endpoints_[static_cast<std::size_t>(rank)];
  endpoints.clear();
  for (const std::string& each : addresses) {
    std::error_code error;
    const asio::ip::address address = asio::ip::make_address(each, error);
    if (error) throw WireError("no address: " + each);
    if (options_.is_loopback_only && !address.is_loopback()) continue;
    endpoints.emplace_back(address, port);
  }
}

void TcpMeeting::accept_next() {
  is_accepting_ = true;
  acceptor_.async_wait(tcp::acceptor::wait_read, [this](std::error_code error) {
    is_accepting_ = false;
    if (error) return;
    if (const std::optional<Clock::time_point> until = make_room()) return accept_at(*until);
    tcp::endpoint from;
    tcp::socket socket(io_);
    error = accept_waiting(acceptor_.native_handle(), socket, from);
    if (!error) {
      exhausted_since_.reset();
      greet(std::move(socket), from);
    } else if (is_exhaustion(error)) {
      // They do not come back faster for being asked for at once, and perhaps not at all.
      note_exhaustion(error.value());
      return accept_at(Clock::now() + kPause);
    }
    accept_next();
  });
}

void TcpMeeting::accept_at(Clock::time_point when) {
  accept_timer_.expires_at(when);
  accept_timer_.async_wait([this, when](std::error_code stopped) {
    if (stopped || is_accepting_ || accept_timer_.expiry() != when) return;
    const Clock::time_point now = Clock::now();
    places_.note_delay(now - when, now);
    accept_next();
  });
}

/// Nothing where there is a place now, else when to look again.
std::optional<TcpMeeting::Clock::time_point> TcpMeeting::make_room() {
  if (strangers_.size() < kMaxStrangers) return std::nullopt;
  const auto place_of = [](const auto& each) -> const StrangerPlaces::Place& {
    return *each->place;
  };
  const auto chosen = next_to_go(strangers_, place_of);
  const Clock::time_point until = (*chosen)->place->until();
  if (until > Clock::now()) return until;
  turn_away(**chosen, "it did not say who it is while others waited");
  strangers_.erase(chosen);
  return std::nullopt;
}

void TcpMeeting::greet(tcp::socket socket, const tcp::endpoint& from) {
  if (options_.secret.empty() && !plain_address(from.address()).is_loopback()) {
    return log_.note(from, "elsewhere", "without a secret only this machine is believed");
  }
  std::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  const Clock::duration stay =
      places_.stay_of(socket.native_handle(), options_.tls != nullptr, Clock::now());
  auto stranger = std::make_shared<Stranger>(
      std::move(socket), from, StrangerPlaces::Place(places_, from.address(), Clock::now(), stay));
  strangers_.push_back(stranger);
  stranger->timer.expires_after(kHandshakeTime);
  stranger->timer.async_wait([this, stranger](std::error_code stopped) {
    if (stopped || !stranger->socket.is_open()) return;
    turn_away(*stranger, "it did not say who it is in time");
    strangers_.remove(stranger);
  });
  stranger->words.begin(setting(TlsChannel::Role::LISTENER));
  stranger->words.write(asio::buffer(stranger->challenge_bytes),
                        [stranger](std::error_code, std::size_t) {});
  stranger->words.read(
      asio::buffer(stranger->hello_bytes),
      [this, stranger](std::error_code error, std::size_t) { hear_stranger(stranger, error); });
}

void TcpMeeting::hear_stranger(const std::shared_ptr<Stranger>& stranger, std::error_code error) {
  if (!stranger->socket.is_open()) return;  // turned away
  if (stranger->words.trouble() != TlsTrouble::NONE) {
    const std::string reason = stranger->words.text_of(error);
    log_.note(stranger->from, reason, reason);
  } else if (error && stranger->words.has_heard()) {
    log_.note(stranger->from, "nonsense", "it did not say who it is");
  } else if (error) {
    // As a member does that has been taken in at another address.
    log_.note_visit(stranger->from, StrangerLog::kWithoutAWord);
  }
  const bool is_welcome = !error && answer(*stranger);
  if (is_welcome) {
    stranger->timer.cancel();
    stranger->place.reset();
    await_here(stranger);
  } else {
    stranger->close();
  }
  strangers_.remove(stranger);
}

void TcpMeeting::turn_away(Stranger& stranger, const char* reason) {
  log_.note(stranger.from, reason, reason);
  stranger.close();
}

/// Whether it is one that may come, and has been told so.
bool TcpMeeting::answer(Stranger& stranger) {
  try {
    const TcpHello hello = decode_hello(stranger.hello_bytes);
    check_hello(hello, options_.secret, stranger.challenge);
    const TcpPair& pair = hello.pair;
    if (pair.cluster_id != options_.cluster_id || pair.listener != options_.rank) {
      throw WireError("it looks for somebody else");
    }
    if (pair.dialler < 0 || pair.dialler >= options_.rank) throw WireError("no such rank dials");
    // It may have given up already, and tries again.
    if (!is_open(stranger.socket.native_handle(), stranger.words.has_input())) return false;
    if (met_.contains(pair.dialler) && !drop_if_gone(pair.dialler)) {
      throw WireError(fmt::format("it claims rank {}, which is connected", pair.dialler));
    }
    stranger.welcome_bytes = encode_welcome(options_.secret, pair, stranger.challenge, hello.nonce);
    // So few bytes fit into the buffer of a new connection.
    std::error_code error;
    stranger.words.write_now(asio::buffer(stranger.welcome_bytes), error);
    if (error) throw WireError("it does not listen");
    stranger.rank = pair.dialler;
    return true;
  } catch (const WireError& error) {
    log_.note(stranger.from, error.what(), error.what());
    return false;
  }
}

void TcpMeeting::await_here(const std::shared_ptr<Stranger>& stranger) {
  const auto is_same_rank = [&](const std::shared_ptr<Stranger>& each) {
    return each->rank == stranger->rank;
  };
  if (std::ranges::count_if(welcomed_, is_same_rank) >= kMaxWelcomed) {
    const auto oldest = std::ranges::find_if(welcomed_, is_same_rank);
    (*oldest)->close();
    welcomed_.erase(oldest);
  }
  welcomed_.push_back(stranger);
  last_errors_[stranger->rank] = "it came, and does not say whether it has heard the answer";
  stranger->words.read(asio::buffer(stranger->here_bytes),
                       [this, stranger](std::error_code error, std::size_t) {
                         if (stranger->socket.is_open()) hear_here(stranger, error);
                       });
}

void TcpMeeting::hear_here(const std::shared_ptr<Stranger>& stranger, std::error_code error) {
  welcomed_.remove(stranger);
  try {
    if (error) {
      last_errors_[stranger->rank] = "it came, and ended the connection";
    } else if (check_here(stranger->here_bytes); !met_.contains(stranger->rank)) {
      keep(stranger->rank, stranger->socket, stranger->words);
      std::erase_if(welcomed_, [&](const std::shared_ptr<Stranger>& each) {
        if (each->rank != stranger->rank) return false;
        each->close();
        return true;
      });
    }
  } catch (const WireError& nonsense) {
    log_.note(stranger->from, nonsense.what(), nonsense.what());
  }
  stranger->close();
}

/// Of those that are here a member may just have come, or be at another address too; but none has begun to say who it is and then waited.
void TcpMeeting::drop_strangers() {
  for (const auto& each : strangers_) {
    if (each->words.has_heard() && each->place->until() <= Clock::now()) {
      log_.note(each->from, "unfinished", StrangerLog::kOnlyBegun);
    } else {
      log_.note_visit(each->from, StrangerLog::kNotYet);
    }
    each->close();
  }
  strangers_.clear();
}

// ---------------------------------------------------------------------------------------------- dialling

void TcpMeeting::dial(int rank) {
  std::chrono::milliseconds delay{0};
  for (const tcp::endpoint& each : endpoints_[static_cast<std::size_t>(rank)]) {
    auto dial = std::make_shared<Dial>(io_, rank, each);
    dials_.push_back(dial);
    dial->timer.expires_after(delay);
    dial->timer.async_wait([this, dial](std::error_code stopped) {
      if (!stopped && !dial->is_over) connect(dial);
    });
    delay += kStagger;
  }
}

void TcpMeeting::connect(const std::shared_ptr<Dial>& dial) {
  if (met_.contains(dial->rank)) return;
  const std::error_code error = open_socket(dial->socket, dial->endpoint.protocol());
  if (error) {
    note_exhaustion(error.value());
    return retry(dial, error.message());
  }
  exhausted_since_.reset();
  dial->timer.expires_after(kConnectTime);
  dial->timer.async_wait([dial](std::error_code stopped) {
    std::error_code ignored;
    if (!stopped) dial->socket.close(ignored);
  });
  dial->socket.async_connect(dial->endpoint, [this, dial](std::error_code failed) {
    if (dial->is_over) return;
    dial->timer.cancel();
    if (failed) return retry(dial, failed.message());
    std::error_code ignored;
    dial->socket.set_option(tcp::no_delay(true), ignored);
    // It says something as soon as it meets, too; until then this may wait.
    dial->words.begin(setting(TlsChannel::Role::DIALLER));
    dial->words.read(asio::buffer(dial->challenge_bytes),
                     [this, dial](std::error_code ended, std::size_t) {
                       if (dial->is_over) return;
                       if (ended) return retry(dial, dial->words.text_of(ended));
                       say_hello(dial);
                     });
  });
}

void TcpMeeting::say_hello(const std::shared_ptr<Dial>& dial) {
  if (met_.contains(dial->rank)) return;
  dial->has_challenge = true;
  const bool is_another_greeting =
      std::any_of(dials_.begin(), dials_.end(), [&](const std::shared_ptr<Dial>& each) {
        return each->rank == dial->rank && each->is_greeting;
      });
  if (is_another_greeting) return;
  dial->is_greeting = true;
  try {
    dial->challenge = decode_challenge(dial->challenge_bytes);
  } catch (const TlsError& error) {
    // It waits for TLS; this tells it who came.
    std::error_code ignored;
    dial->words.write_now(asio::buffer(encode_here()), ignored);
    return retry(dial, error.what());
  } catch (const WireError& error) {
    return retry(dial, error.what());
  }
  dial->nonce = make_nonce();
  dial->hello_bytes =
      encode_hello(options_.secret, {options_.cluster_id, options_.rank, dial->rank},
                   dial->challenge, dial->nonce);
  dial->timer.expires_after(kHandshakeTime);
  dial->timer.async_wait([dial](std::error_code stopped) {
    std::error_code ignored;
    if (!stopped) dial->socket.close(ignored);
  });
  dial->words.write(asio::buffer(dial->hello_bytes), [dial](std::error_code, std::size_t) {});
  dial->words.read(asio::buffer(dial->welcome_bytes),
                   [this, dial](std::error_code error, std::size_t) {
                     if (dial->is_over) return;
                     dial->timer.cancel();
                     if (error) {
                       return retry(dial, "it refuses this member: " + dial->words.text_of(error));
                     }
                     hear_welcome(dial);
                   });
}

void TcpMeeting::hear_welcome(const std::shared_ptr<Dial>& dial) {
  try {
    check_welcome(dial->welcome_bytes, options_.secret,
                  {options_.cluster_id, options_.rank, dial->rank}, dial->challenge, dial->nonce);
  } catch (const WireError& error) {
    return retry(dial, error.what());
  }
  if (met_.contains(dial->rank)) return;
  const HereBytes here = encode_here();
  std::error_code error;  // so few bytes fit into the buffer of a new connection
  dial->words.write_now(asio::buffer(here), error);
  if (error) return retry(dial, "it ended the connection: " + error.message());
  keep(dial->rank, dial->socket, dial->words);
  for (const auto& each : dials_) {
    if (each->rank != dial->rank) continue;
    each->is_over = true;
    each->close();
  }
}

void TcpMeeting::retry(const std::shared_ptr<Dial>& dial, const std::string& why) {
  last_errors_[dial->rank] =
      fmt::format("{}:{}: {}", dial->endpoint.address().to_string(), dial->endpoint.port(), why);
  dial->close();
  if (met_.contains(dial->rank)) return;
  const bool was_greeting = std::exchange(dial->is_greeting, false);
  dial->has_challenge = false;
  dial->timer.expires_after(dial->next_retry);
  dial->next_retry = std::min(2 * dial->next_retry, kLastRetry);
  dial->timer.async_wait([this, dial](std::error_code stopped) {
    if (!stopped && !dial->is_over) connect(dial);
  });
  if (!was_greeting) return;
  for (const auto& each : dials_) {
    if (each->rank == dial->rank && each->has_challenge) return say_hello(each);
  }
}

// ---------------------------------------------------------------------------------------------- meeting

TlsSetting TcpMeeting::setting(TlsChannel::Role role) const {
  return {.key = options_.tls, .role = role, .plain_greeting = kTcpGreeting};
}

void TcpMeeting::keep(int rank, tcp::socket& socket, TlsSocket& words) {
  connected_.reserve(connected_.size() + 1);  // what may throw comes before the socket is nobody's
  met_.insert(rank);
  std::error_code error;
  std::unique_ptr<TlsChannel> tls = words.take_channel();
  const int fd = socket.release(error);
  if (error || fd < 0) {
    met_.erase(rank);
    return;
  }
  last_errors_.erase(rank);
  connected_.push_back({rank, fd, std::move(tls)});
}

/// Forgets a connection whose other side has ended it without a word. One that was taken is nobody's to judge here.
bool TcpMeeting::drop_if_gone(int rank) {
  const auto kept = std::find_if(connected_.begin(), connected_.end(),
                                 [rank](const Connected& each) { return each.rank == rank; });
  if (kept == connected_.end()) return false;
  if (is_open(kept->socket, kept->tls && kept->tls->has_input())) return false;
  ::close(kept->socket);
  connected_.erase(kept);
  met_.erase(rank);
  last_errors_[rank] = "it came, and ended the connection";
  return true;
}

/// Looks at everybody's connection; who has gone again is dialled again, or waited for.
bool TcpMeeting::have_all_come(std::span<const int> peers) {
  const auto is_there = [this](int each) { return met_.contains(each); };
  if (!std::all_of(peers.begin(), peers.end(), is_there)) return false;
  std::vector<int> kept;
  kept.reserve(connected_.size());
  for (const Connected& each : connected_) kept.push_back(each.rank);
  for (const int each : kept) {
    const bool is_wanted = std::find(peers.begin(), peers.end(), each) != peers.end();
    if (drop_if_gone(each) && is_wanted && each > options_.rank) dial(each);
  }
  return std::all_of(peers.begin(), peers.end(), is_there);
}

void TcpMeeting::meet(std::span<const int> peers, const Deadline& deadline,
                      const std::function<bool()>& is_over) {
  io_.restart();
  if (!is_accepting_ && acceptor_.is_open()) accept_next();
  for (const int each : peers) {
    if (each > options_.rank && !met_.contains(each)) dial(each);
  }
  while (!have_all_come(peers)) {
    if (io_.stopped()) io_.restart();
    if (is_over() || deadline.has_passed() || is_exhausted()) break;
    io_.run_one_until(std::min(deadline.moment(), Clock::now() + kLook));
  }
  for (const auto& each : dials_) {
    each->is_over = true;
    each->close();
  }
  dials_.clear();
  drop_strangers();
  if (is_exhausted() && !have_all_come(peers)) {
    throw ResourceExhaustedError("cannot connect to the other members: " +
                                 std::generic_category().message(exhaustion_));
  }
}

void TcpMeeting::note_exhaustion(int error) {
  if (!exhausted_since_.has_value()) exhausted_since_ = Clock::now();
  exhaustion_ = error;
}

bool TcpMeeting::is_exhausted() const {
  return exhausted_since_.has_value() && Clock::now() - *exhausted_since_ > kExhaustedTime;
}

std::vector<TcpMeeting::Connected> TcpMeeting::take_connected() {
  if (met_.size() + 1 == static_cast<std::size_t>(options_.num_ranks)) {
    std::error_code ignored;
    acceptor_.close(ignored);
    accept_timer_.cancel();
  }
  return std::exchange(connected_, {});
}

/// A dialler reads them behind the welcome; what it has said meanwhile is read away, so that the end of the connection does not overtake them.
void TcpMeeting::dismiss(std::string_view words) noexcept {
  for (const auto& each : welcomed_) {
    const int fd = each->socket.native_handle();
    std::error_code unheard;
    each->words.write_now(asio::buffer(words), unheard);
    std::array<char, 256> ignored{};
    while (::recv(fd, ignored.data(), ignored.size(), MSG_DONTWAIT) > 0) {
    }
    each->close();
  }
  welcomed_.clear();
}

bool TcpMeeting::has_met(int rank) const {
  return met_.contains(rank) ||
         std::ranges::any_of(welcomed_, [rank](const auto& each) { return each->rank == rank; });
}

std::string TcpMeeting::last_error(int rank) const {
  const auto entry = last_errors_.find(rank);
  return entry == last_errors_.end() ? "" : entry->second;
}

}  // namespace crossdevice::detail
