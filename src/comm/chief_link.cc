// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/chief_link.h"

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/trace_clock.h"
#include "crossdevice/core/version.h"

#include "comm/detail/host_port.h"
#include "comm/detail/tcp_socket.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

using asio::ip::tcp;

constexpr std::chrono::seconds kConnectTime{3};
constexpr std::chrono::milliseconds kFirstRetry{20};
constexpr std::chrono::milliseconds kLastRetry{500};
/// So long whoever listens at an address must have said so before it is taken for the chief, with which this worker does not fit.
constexpr std::chrono::seconds kMisfitTime{2};
constexpr const char* kRefusal = "the chief refuses this worker: ";
// What is missing when the time is over.
constexpr const char* kNoAddress = "its name could not be resolved yet: nobody has answered";
constexpr const char* kNoAnswer =
    "no answer to the connection attempts: the host is down, or a firewall drops them";
constexpr const char* kNoWord = "it takes connections, but does not say who it is";

bool is_about_secrets(std::string_view text) {
  return text == kDifferentSecrets || text == kSecretOnlyThere || text == kSecretOnlyHere ||
         text == kOwnMachineOnly;
}

}  // namespace

struct ChiefLink::Attempt {
  explicit Attempt(asio::io_context& io) : socket(io), timer(io) {}
  std::vector<tcp::endpoint> endpoints;
  std::size_t next = 0;
  std::size_t num_refused = 0;
  bool is_over = false;
  tcp::socket socket;
  asio::steady_timer timer;
};

ChiefLink::ChiefLink(asio::io_context& io, const ControlPlaneOptions& options, MemberInfo self,
                     Events events)
    : io_(io),
      options_(options),
      self_(std::move(self)),
      events_(std::move(events)),
      lookup_(io, options.resolve),
      retry_timer_(io),
      next_retry_(kFirstRetry),
      next_warning_(Clock::now() + whole_time(options.stall_warning)) {}

void ChiefLink::connect() {
  const std::size_t num_addresses = options_.more_chief_addresses.size() + 1;
  address_ = num_tries_++ % num_addresses;
  const HostPort address = parse_host_port(
      address_ == 0 ? options_.chief_address : options_.more_chief_addresses[address_ - 1]);
  std::error_code is_name;
  (void)asio::ip::make_address(address.host, is_name);
  wait_for(is_name ? kNoAddress : kNoAnswer);
  try {
    lookup_.start(address.host, address.port, [this](const FoundEndpoints& found) {
      if (!found.error.empty()) return retry(found.error);
      wait_for(kNoAnswer);
      auto attempt = std::make_shared<Attempt>(io_);
      attempt->endpoints = found.endpoints;
      attempt->timer.expires_after(kConnectTime);
      attempt->timer.async_wait([attempt](std::error_code stopped) {
        std::error_code ignored;
        if (stopped) return;
        attempt->is_over = true;
        attempt->socket.close(ignored);
      });
      try_next(attempt, "it has no address");
    });
  } catch (const ResourceExhaustedError& error) {
    retry(error.what(), Fault::OWN);  // there may be threads again in a moment
  }
}

/// Its addresses, one after the other, until the time is over.
void ChiefLink::try_next(const std::shared_ptr<Attempt>& attempt, const std::string& why,
                         Fault fault) {
  if (is_leaving_ || attempt->is_over || attempt->next == attempt->endpoints.size()) {
    attempt->timer.cancel();
    const bool is_refused =
        !attempt->endpoints.empty() && attempt->num_refused == attempt->endpoints.size();
    if (!is_leaving_) retry(why, is_refused ? Fault::REFUSED : fault);
    return;
  }
  const tcp::endpoint& endpoint = attempt->endpoints[attempt->next++];
  const std::error_code error = open_socket(attempt->socket, endpoint.protocol());
  if (error) {
    return try_next(attempt, error.message(), is_exhaustion(error) ? Fault::OWN : Fault::THEIRS);
  }
  attempt->socket.async_connect(endpoint, [this, attempt](std::error_code failed) {
    if (failed || is_leaving_ || !attempt->socket.is_open()) {
      std::error_code ignored;
      attempt->socket.close(ignored);
      if (failed == asio::error::connection_refused) ++attempt->num_refused;
      // That of an attempt whose time is over is our own doing.
      return try_next(attempt, failed && !attempt->is_over ? failed.message() : kNoAnswer);
    }
    attempt->timer.cancel();
    greet(std::move(attempt->socket));
  });
}

void ChiefLink::send(ControlKind kind, const std::string& payload) {
  if (is_welcome_) connection_->send(encode_frame(kind, payload));
}

void ChiefLink::wait_for(const std::string& what) {
  if (num_tries_ > 1) return;  // why the one before has failed says more
  last_error_ = what;
  events_.on_absence(what, Fault::THEIRS);
}

/// Who waits for somebody who never comes would else hear nothing until the deadline.
void ChiefLink::warn_of_absence() {
  if (is_kept_ || is_leaving_ || Clock::now() < next_warning_) return;
  next_warning_ = Clock::now() + whole_time(options_.stall_warning);
  log(LogSeverity::WARNING,
      is_welcome_
          ? fmt::format("rank {} still waits for other workers to come to the chief at {}, which "
                        "says who they are",
                        self_.rank, options_.chief_address)
          : fmt::format("rank {} still waits for the chief (rank 0) at {}: {}", self_.rank,
                        options_.chief_address, last_error_));
}

std::chrono::steady_clock::time_point ChiefLink::beat(bool was_asleep) {
  constexpr auto kNever = std::chrono::steady_clock::time_point::max();
  warn_of_absence();
  if (!connection_ || is_leaving_) return kNever;
  if (was_asleep) connection_->count_as_heard();
  const Clock::time_point silent_at =
      connection_->last_heard() + whole_time(options_.heartbeat_timeout);
  if (Clock::now() < silent_at) {
    compare_clocks();
    return silent_at;
  }
  const std::string why = fmt::format("no heartbeat for {} s", options_.heartbeat_timeout.count());
  // If it is only stopped, it reads this first when it goes on, before the end of the connection. Before all have met it is tried again.
  if (is_kept_) send(ControlKind::ABORT, Abort{self_.rank, "gave the chief up: " + why}.encode());
  connection_->close_after_sending();
  end(why);
  return kNever;
}

void ChiefLink::leave() {
  send(ControlKind::GOODBYE, "");
  is_leaving_ = true;
  lookup_.cancel();
  retry_timer_.cancel();
  if (connection_) connection_->close_after_sending();
}

void ChiefLink::greet(tcp::socket socket) {
  connection_ = std::make_shared<ControlConnection>(std::move(socket), options_.tls,
                                                    TlsChannel::Role::DIALLER);
  nonce_.reset();  // what was recorded of an earlier connection is worth nothing on this one
  wait_for(kNoWord);
  connection_->start([this](const Frame& frame) { hear(frame); },
                     [this](const std::string& why) {
                       if (does_not_fit(why)) return;
                       const bool is_own_want = connection_->has_lacked_memory();
                       end("its connection ended: " + why,
                           is_own_want ? Fault::OWN : Fault::THEIRS);
                     });
}

/// Whether the chief encrypts and this worker does not, or the other way round, or both with different secrets.
bool ChiefLink::does_not_fit(const std::string& why) {
  switch (connection_->trouble()) {
    case TlsTrouble::OTHER_SIDE_IS_PLAIN:
    case TlsTrouble::OTHER_SIDE_IS_ENCRYPTED:
      hear_of_misfit(fmt::format("this worker and the chief at {} do not fit: {}",
                                 options_.chief_address, why));
      return true;
    case TlsTrouble::OTHER_SECRET:
      hear_of_misfit(std::string(kRefusal) + kDifferentSecrets);
      return true;
    case TlsTrouble::BROKEN:
    case TlsTrouble::NONE:
      return false;
  }
  return false;
}

/// Whoever listens has another secret than this worker, or speaks otherwise, so that it can prove nothing: a chief of that kind is not to be told from a stranger
/// who says so. So it is as if nobody were there. But whoever has set the job up wrongly should not wait for the deadline to hear of it. So where the workers meet
/// for the first time, and nothing but this is heard at one address for kMisfitTime, the call ends, with words of this worker's own: a stranger can bring
/// that about only where it keeps the chief from its address, without which nobody meets. Later all have met with the one secret, and it is never the chief.
void ChiefLink::hear_of_misfit(const std::string& why) {
  const Clock::time_point now = Clock::now();
  const auto known = misfit_since_.find(address_);
  const Clock::time_point since = known == misfit_since_.end() ? now : known->second;
  if (options_.epoch == 1 && now - since >= kMisfitTime) return events_.on_refused({.text = why});
  retry(why);
  misfit_since_[address_] = since;
}

void ChiefLink::hear(const Frame& frame) {
  if (is_welcome_ && frame.kind == ControlKind::CLOCK) return hear_clock(frame);
  if (is_welcome_) return events_.on_frame(frame);
  if (frame.kind == ControlKind::CHALLENGE) return say_hello(frame);
  if (frame.kind == ControlKind::WELCOME) return check_welcome(frame);
  if (frame.kind != ControlKind::REFUSED) throw WireError("a stranger may not say this");
  hear_refusal(Refused::decode(frame.payload));
}

void ChiefLink::hear_refusal(Refused refused) {
  if (nonce_.has_value() && is_equal(refused.mac, refused.expected_mac(options_.secret, *nonce_))) {
    refused.text = kRefusal + refused.text;
    return events_.on_refused(refused);
  }
  if (is_about_secrets(refused.text)) return hear_of_misfit(kRefusal + refused.text);
  retry(refused.as_hearsay());
}

void ChiefLink::say_hello(const Frame& frame) {
  const Challenge challenge = Challenge::decode(frame.payload);
  if (challenge.protocol != kControlProtocol) {
    return hear_of_misfit(fmt::format("the chief at {} speaks protocol {}, this worker speaks {}",
                                      options_.chief_address, challenge.protocol,
                                      kControlProtocol));
  }
  if (options_.secret.empty() && !connection_->is_from_this_machine()) {
    // Else it would wait for this worker without a word; who this is is nobody's business there.
    connection_->send(encode_frame(ControlKind::GOODBYE, ""));
    return events_.on_refused(
        {.text =
             fmt::format("the chief at {} is not at a loopback address, which needs a secret: set "
                         "CROSSDEVICE_SECRET_FILE on all workers",
                         options_.chief_address)});
  }
  nonce_ = make_nonce();
  Hello hello;
  hello.library_version = library_version_string();
  hello.num_workers = options_.num_workers;
  hello.job = options_.job;
  hello.epoch = options_.epoch;
  hello.member = self_;
  hello.nonce = *nonce_;
  hello.mac = hello.expected_mac(options_.secret, challenge.nonce);
  connection_->send(encode_frame(ControlKind::HELLO, hello.encode()));
}

void ChiefLink::check_welcome(const Frame& frame) {
  const Welcome welcome = Welcome::decode(frame.payload);
  if (!nonce_.has_value() ||
      !is_equal(welcome.mac, welcome.expected_mac(options_.secret, *nonce_))) {
    throw WireError("it does not hold the secret of this job");
  }
  is_welcome_ = true;
  connection_->set_max_frame_bytes(kMaxFrameBytes);
  events_.on_welcome(welcome.cluster_id);
  compare_clocks();
}

/// For whoever brings the traces of all workers together.
void ChiefLink::compare_clocks() {
  if (!is_welcome_ || !is_trace_written()) return;
  if (const std::optional<ClockReading> question = clocks_.begin(trace_clock_ns())) {
    send(ControlKind::CLOCK, question->encode());
  }
}

void ChiefLink::hear_clock(const Frame& frame) {
  const ClockComparison::Step step =
      clocks_.hear(ClockReading::decode(frame.payload), trace_clock_ns());
  if (step.question.has_value()) send(ControlKind::CLOCK, step.question->encode());
  if (step.result.has_value()) note_clock_offset(*step.result);
}

void ChiefLink::end(const std::string& why, Fault fault) {
  if (is_leaving_) return;
  is_welcome_ = false;
  if (is_kept_) {
    connection_.reset();  // else every beat() would find it silent, and lose it again
    return events_.on_lost(why);
  }
  retry(why, fault);  // it may just have begun to listen, or be another job's
}

void ChiefLink::retry(const std::string& why, Fault fault) {
  events_.on_absence(why, fault);
  last_error_ = why;
  if (connection_) connection_->close();
  connection_.reset();
  is_welcome_ = false;
  clocks_.cancel();
  misfit_since_.erase(address_);
  retry_timer_.expires_after(next_retry_);
  next_retry_ = std::min(2 * next_retry_, kLastRetry);
  retry_timer_.async_wait([this](std::error_code stopped) {
    if (!stopped && !is_leaving_) connect();
  });
}

}  // namespace crossdevice::detail
