// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/seeker.h"

#include <utility>

#include "crossdevice/core/error.h"

#include "comm/detail/host_port.h"
#include "comm/detail/tcp_socket.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {

using asio::ip::tcp;

Seeker::Seeker(asio::io_context& io, SeekerProof proof, Seek question, int rank,
               std::vector<std::string> addresses, std::optional<SeekerPatience> patience,
               OnDone on_done)
    : io_(io),
      proof_(std::move(proof)),
      question_(std::move(question)),
      rank_(rank),
      addresses_(std::move(addresses)),
      patience_(patience),
      on_done_(std::move(on_done)),
      timer_(io) {}

void Seeker::cancel() {
  on_done_ = nullptr;
  timer_.cancel();
  std::error_code ignored;
  if (socket_) socket_->close(ignored);
  if (connection_) connection_->close();
  connection_.reset();  // its handlers hold this
}

void Seeker::done(SeekResult result) {
  const OnDone on_done = std::exchange(on_done_, nullptr);
  timer_.cancel();
  if (connection_ && !result.connection) connection_->close_after_sending();
  if (on_done) on_done(std::move(result));
}

void Seeker::try_next() {
  const std::shared_ptr<Seeker> self_for_now =
      shared_from_this();  // whoever is told may let go of it
  if (!on_done_) return;
  if (connection_) connection_->close();
  connection_.reset();
  std::error_code error;
  std::optional<tcp::endpoint> endpoint;
  while (next_ < addresses_.size() && !endpoint.has_value()) {
    HostPort address;
    try {
      address = parse_host_port(addresses_[next_++]);
    } catch (const ValueError&) {
      continue;  // the worker has said so itself, whatever it is
    }
    const asio::ip::address digits = asio::ip::make_address(address.host, error);
    if (error) continue;
    endpoint.emplace(digits, address.port);
    host_ = address.host;
  }
  if (!endpoint.has_value()) {
    return done({.is_silent = is_silent_,
                 .is_gone = all_refuse_ && !addresses_.empty(),
                 .hearsay = hearsay_,
                 .want = want_});
  }
  auto socket = std::make_shared<tcp::socket>(io_);
  if (const std::error_code failed = open_socket(*socket, endpoint->protocol())) {
    if (is_exhaustion(failed)) want_ = failed.message();
    all_refuse_ = false;
    return try_next();
  }
  socket_ = socket;
  begin_to_wait(&SeekerPatience::connection);
  socket->async_connect(*endpoint, [self = shared_from_this(), socket](std::error_code failed) {
    if (!self->on_done_) return;
    if (!failed && socket->is_open()) return self->greet(std::move(*socket));
    if (failed != asio::error::connection_refused) self->all_refuse_ = false;
    self->try_next();
  });
}

/// Of a stopped process's address nothing comes but the connection, which its system makes. What is heard from a living one begins the time anew, as does that there
/// is a connection: on a slow link each word takes long, and with TLS there are two before the first that is heard.
void Seeker::begin_to_wait(std::chrono::steady_clock::duration SeekerPatience::*patience) {
  if (!patience_.has_value()) return;
  timer_.expires_after(*patience_.*patience);
  timer_.async_wait([self = shared_from_this(), socket = socket_](std::error_code stopped) {
    // Not of a later address, or of what has been heard since, whose time has begun while this was on its way.
    if (stopped || self->socket_ != socket) return;
    if (self->timer_.expiry() > std::chrono::steady_clock::now()) return;
    self->all_refuse_ = false;
    std::error_code ignored;
    if (self->connection_) {
      self->is_silent_ = true;
      return self->try_next();
    }
    socket->close(ignored);
  });
}

void Seeker::greet(tcp::socket socket) {
  all_refuse_ = false;
  has_asked_ = false;
  begin_to_wait(&SeekerPatience::word);
  connection_ =
      std::make_shared<ControlConnection>(std::move(socket), proof_.tls, TlsChannel::Role::DIALLER);
  connection_->set_max_frame_bytes(kMaxSeekFrameBytes);
  connection_->start([self = shared_from_this()](const Frame& frame) { self->hear(frame); },
                     [self = shared_from_this()](const std::string&) { self->try_next(); });
}

void Seeker::hear(const Frame& frame) {
  if (frame.kind == ControlKind::CHALLENGE) return say_who_asks(frame);
  if (frame.kind == ControlKind::REFUSED) return hear_refusal(Refused::decode(frame.payload));
  if (frame.kind != ControlKind::FOUND) throw WireError("a stranger may not say this");
  Found found = Found::decode(frame.payload);
  if (!has_asked_ || !is_equal(found.mac, found.expected_mac(proof_.secret, question_.nonce))) {
    throw WireError("it does not hold the secret of this job");
  }
  if (found.rank != rank_) throw WireError("another worker lives there");
  if (found.takes_in && question_.call.empty()) {
    throw WireError("it takes in who has not asked for that");
  }
  SeekResult result{.found = std::move(found), .host = host_};
  if (result.found->takes_in) {
    connection_->set_max_frame_bytes(kMaxFrameBytes);
    result.connection = connection_;
  }
  done(std::move(result));
}

/// Whoever has taken the port of a worker that has ended can refuse as well as anybody: to the others that is as if nobody were there that they could meet.
void Seeker::hear_refusal(const Refused& refused) {
  if (has_asked_ && is_equal(refused.mac, refused.expected_mac(proof_.secret, question_.nonce))) {
    return done({.refused = refused});
  }
  hearsay_ = refused.as_hearsay();
  throw WireError(hearsay_);
}

void Seeker::say_who_asks(const Frame& frame) {
  const Challenge challenge = Challenge::decode(frame.payload);
  if (challenge.protocol != kControlProtocol) throw WireError("it speaks another protocol");
  begin_to_wait(&SeekerPatience::word);
  if (proof_.secret.empty() && !connection_->is_from_this_machine()) {
    throw WireError("without a secret only this machine is believed");
  }
  question_.nonce = make_nonce();
  question_.mac = question_.expected_mac(proof_.secret, challenge.nonce);
  has_asked_ = true;
  connection_->send(encode_frame(ControlKind::SEEK, question_.encode()));
}

}  // namespace crossdevice::detail
