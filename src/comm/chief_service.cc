// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/chief_service.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include <asio/post.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/trace_clock.h"
#include "crossdevice/core/version.h"

#include "comm/detail/host_port.h"
#include "comm/detail/listening_socket.h"
#include "comm/detail/local_addresses.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

/// How long who holds a rank that another process claims has for its answer; half of heartbeat_timeout where that is less.
constexpr std::chrono::seconds kAnswerTime{1};

/// So long a chief hopes for descriptors where all come at once.
constexpr std::chrono::seconds kWantTime{1};

/// What is said of who comes from another machine and goes at once, as a worker does there that has no secret.
constexpr const char* kNoSecretThere =
    "a worker that did not come over loopback has no secret: set CROSSDEVICE_SECRET_FILE on all "
    "workers";

std::uint64_t make_random_number() {
  std::uint64_t number = 0;
  const Nonce random = make_nonce();
  for (std::size_t i = 0; i < sizeof number; ++i) number = number << 8U | random[i];
  return number;
}

}  // namespace

ChiefService::ChiefService(asio::io_context& io, const ControlPlaneOptions& options,
                           MemberInfo self, std::function<void(const Frame&)> to_self)
    : io_(io),
      options_(options),
      self_(std::move(self)),
      to_self_(std::move(to_self)),
      cluster_id_(make_random_number()),
      next_warning_(Clock::now() + whole_time(options.stall_warning)),
      chief_({.num_workers = options.num_workers,
              .library_version = library_version_string(),
              .job = options.job,
              .epoch = options.epoch,
              .addresses_by_rank = options.addresses_by_rank},
             self_.rank_info(),
             [this](int rank, SharedFrame frame) { send(rank, std::move(frame)); }),
      reception_(
          io, [this](const std::shared_ptr<ControlConnection>& connection, const Nonce& challenge,
                     const Frame& frame) { answer_hello(connection, challenge, frame); }) {}

/// Whoever cannot be told for want of memory sees the end of its connection: that the chief is gone.
void ChiefService::send(int rank, SharedFrame frame) noexcept {
  const auto session = sessions_.find(rank);
  try {
    if (rank == self_.rank) {
      // Later, so that the chief is not called while it calls.
      asio::post(io_, [this, bytes = std::move(frame)] {
        to_self_(decode_frame_body(std::string_view(*bytes).substr(kFrameHeadBytes)));
      });
    } else if (session != sessions_.end()) {
      session->second->send(std::move(frame));
    }
  } catch (const std::exception&) {
    if (session != sessions_.end()) session->second->close();
  }
}

void ChiefService::open() {
  if (options_.num_workers > 1) {
    const HostPort address = parse_host_port(options_.chief_address);
    const std::shared_ptr<ListeningSocket> listener =
        options_.listener ? options_.listener
                          : ListeningSocket::open(address.host, address.port, "the chief (rank 0)");
    reception_.open(listener->acceptor(io_), fmt::format("the chief (rank {})", self_.rank),
                    kMaxStrangerFrameBytes, options_.tls);
  }
  Hello hello;
  hello.library_version = library_version_string();
  hello.num_workers = options_.num_workers;
  hello.job = options_.job;
  hello.epoch = options_.epoch;
  hello.member = self_;
  chief_.admit(hello);
}

/// Nothing: it holds the secret.
std::optional<Refused> ChiefService::doubt(const Connection& connection, const Nonce& challenge,
                                           const Hello& hello) const {
  if (options_.secret.empty() && !connection->is_from_this_machine()) {
    return Refused{.text = kOwnMachineOnly};
  }
  if (!is_equal(hello.mac, hello.expected_mac(options_.secret, challenge))) {
    const bool has_none = is_equal(hello.mac, hello.expected_mac("", challenge));
    return Refused{.text = options_.secret.empty() ? kSecretOnlyHere
                           : has_none              ? kSecretOnlyThere
                                                   : kDifferentSecrets};
  }
  return std::nullopt;
}

/// Nothing: the worker, which holds the secret, may come in, unless its rank is contested.
std::optional<Refused> ChiefService::judge(const Hello& hello) {
  std::optional<Refused> refused = chief_.refuse(hello);
  // This very process holds its rank without a connection, whoever else says that it is this process.
  if (!refused.has_value() && hello.member.rank == self_.rank) {
    refused = chief_.held_by_another(hello);
  }
  return refused;
}

/// To who has said `hello`, and has proved with it that it holds the secret.
Refused ChiefService::prove(Refused refused, const Hello& hello) const {
  refused.mac = refused.expected_mac(options_.secret, hello.nonce);
  return refused;
}

void ChiefService::refuse_stranger(const Connection& stranger, std::string_view reason,
                                   const Refused& refused) {
  reception_.refuse(stranger, reason, refused.text);
  stranger->send(encode_frame(ControlKind::REFUSED, refused.encode()));
  stranger->close_after_sending();
}

void ChiefService::answer_hello(const Connection& connection, const Nonce& challenge,
                                const Frame& frame) {
  // A worker says no more to a machine that it cannot trust. Both ends of a connection see alike whether it stays on this machine, so one that
  // goes so on it is no worker, and says nothing about a secret.
  if (frame.kind == ControlKind::GOODBYE && !connection->is_from_this_machine()) {
    doubted_ = kNoSecretThere;
    return refuse_stranger(connection, kNoSecretThere, {.text = kNoSecretThere});
  }
  if (frame.kind != ControlKind::HELLO) throw WireError("expected a hello");
  if (const std::uint32_t protocol = protocol_of(frame.payload); protocol != kControlProtocol) {
    // The reason is of those whose word is not proved: one of few, whatever they say.
    return refuse_stranger(
        connection, "protocol",
        {.text = fmt::format("this worker speaks protocol {}, the chief at {} speaks {}", protocol,
                             options_.chief_address, kControlProtocol)});
  }
  const Hello hello = Hello::decode(frame.payload);
  if (const std::optional<Refused> doubted = doubt(connection, challenge, hello)) {
    doubted_ = doubted->text;
    return refuse_stranger(connection, doubted->text, *doubted);
  }
  std::optional<Refused> refused = judge(hello);
  if (!refused.has_value() && chief_.is_contested(hello)) {
    refused = contest(connection, hello);
    if (!refused.has_value()) return;
  }
  if (!refused.has_value()) {
    return chief_.comes_late(hello) ? tell_past(connection, hello) : welcome(connection, hello);
  }
  refuse_stranger(connection, refused->text, prove(*refused, hello));
  end_spoiled_meeting();
}

void ChiefService::say_welcome(const Connection& connection, const Hello& hello) {
  Welcome welcome;
  welcome.cluster_id = cluster_id_;
  welcome.mac = welcome.expected_mac(options_.secret, hello.nonce);
  connection->set_max_frame_bytes(kMaxFrameBytes);
  connection->send(encode_frame(ControlKind::WELCOME, welcome.encode()));
}

/// The session that it may still have stays: this hello may be older than that one, and have been under way for longer.
void ChiefService::tell_past(const Connection& connection, const Hello& hello) {
  const int rank = hello.member.rank;
  log(LogSeverity::WARNING,
      fmt::format("rank {} has come to the chief (rank {}) again, and had not heard that all had "
                  "come: it can meet the others in a rebuild alone",
                  rank, self_.rank));
  say_welcome(connection, hello);
  for (SharedFrame& frame : chief_.past_of(rank)) connection->send(std::move(frame));
  connection->close_after_sending();
}

void ChiefService::welcome(const Connection& connection, const Hello& hello) {
  say_welcome(connection, hello);
  begin_session(connection, hello.member.rank);
  chief_.admit(hello);
  // A holder that comes again lives. And when all have come, nothing changes hands any more.
  const auto refuse = [this](int rank) {
    const Hello late = contests_.at(rank).hello;
    refuse_claimant(rank, chief_.held_by_another(late));
  };
  if (contests_.contains(hello.member.rank)) refuse(hello.member.rank);
  while (chief_.is_complete() && !contests_.empty()) refuse(contests_.begin()->first);
  end_spoiled_meeting();
}

Refused ChiefService::end_meeting(StatusCode code, const std::string& text,
                                  const std::vector<int>& culprits) {
  Refused refused = chief_.cancel_meeting(code, text, culprits);
  refuse_claimants(refused);
  return refused;
}

/// Not at the first one that does not fit: those who come later than that would find no chief that tells them.
void ChiefService::end_spoiled_meeting() {
  if (!chief_.is_spoiled()) return;
  (void)end_meeting(StatusCode::FAILED_PRECONDITION,
                    fmt::format("the workers do not fit together: {}", chief_.describe_absent()));
}

void ChiefService::begin_session(const Connection& connection, int rank) {
  // The same process's, which has lost it: its end, noticed later, must not be taken for the new one's.
  if (const auto replaced = sessions_.find(rank); replaced != sessions_.end()) {
    replaced->second->close();
  }
  sessions_[rank] = connection;
  connection->count_as_heard();  // it may have waited, as a claimant
  const std::weak_ptr<ControlConnection> weak = connection;
  connection->take_over([this, rank](const Frame& frame) { hear(rank, frame); },
                        [this, rank, weak](const std::string& why) {
                          // Nothing is wrong with who has said what there is no memory for.
                          const Connection ended = weak.lock();
                          if (ended && ended->has_lacked_memory()) chief_.end_for_want();
                          drop_member(rank, "its connection ended: " + why);
                        });
}

void ChiefService::hear(int rank, const Frame& frame) {
  try {
    if (frame.kind == ControlKind::CLOCK) return tell_clock(rank, frame);
    chief_.handle(rank, frame);
    if (!chief_.is_present(rank)) return drop_member(rank, kHasLeft);
    if (frame.kind == ControlKind::HEARTBEAT && contests_.contains(rank)) {
      hear_answer(rank, Heartbeat::decode(frame.payload).answers);
    }
  } catch (const std::bad_alloc&) {
    if (!chief_.is_complete()) throw;  // it comes again
    chief_.end_for_want();
  }
}

// ---------------------------------------------------------------------------------------------- contests

/// Begins one, or says why not.
std::optional<Refused> ChiefService::contest(const Connection& claimant, const Hello& hello) {
  const int rank = hello.member.rank;
  const auto take_over = [&] {
    claimant->take_over([](const Frame&) { throw WireError("it speaks before it is welcome"); },
                        [this, rank](const std::string&) { contests_.erase(rank); });
  };
  if (const auto open = contests_.find(rank); open != contests_.end()) {
    Contest& running = open->second;
    const MemberInfo& other = running.hello.member;
    if (!other.is_same_process(hello.member)) {
      return Refused{.text = fmt::format("host {}, pid {} claims rank {}, which host {}, pid {} "
                                         "claims already",
                                         hello.member.host, hello.member.pid, rank, other.host,
                                         other.pid)};
    }
    running.claimant->close();  // it has lost that connection, and comes again
    running.claimant = claimant;
    running.hello = hello;
    take_over();
    return std::nullopt;
  }
  std::uint64_t nonce = 0;
  while (nonce == 0) nonce = make_random_number();
  contests_.emplace(rank, Contest{nonce, claimant, hello, asio::steady_timer(io_)});
  take_over();
  sessions_.at(rank)->send(encode_frame(ControlKind::ASK, Ask{nonce}.encode()));
  await_answer(rank, nonce, /*is_first_time=*/true);
  return std::nullopt;
}

/// Twice, the second time for a quarter as long: a chief that was stopped itself finds its time over before it has read what came meanwhile.
void ChiefService::await_answer(int rank, std::uint64_t nonce, bool is_first_time) {
  const Clock::duration patience =
      std::min<Clock::duration>(kAnswerTime, whole_time(options_.heartbeat_timeout) / 2);
  asio::steady_timer& limit = contests_.at(rank).limit;
  limit.expires_after(is_first_time ? patience : patience / 4);
  limit.async_wait([this, rank, nonce, is_first_time](std::error_code stopped) {
    // One that is cancelled may have ended already: then this is another contest, or none.
    const auto open = contests_.find(rank);
    if (stopped || open == contests_.end() || open->second.nonce != nonce) return;
    if (is_first_time) return await_answer(rank, nonce, /*is_first_time=*/false);
    drop_member(rank, "it does not answer, and another process claims its rank");
  });
}

void ChiefService::hear_answer(int rank, std::uint64_t answers) {
  const auto open = contests_.find(rank);
  if (answers != open->second.nonce) return;
  refuse_claimant(rank, chief_.held_by_another(open->second.hello));
}

/// To the claimant, the holder being gone.
void ChiefService::pass_on(int rank) {
  const auto open = contests_.extract(rank);
  if (open.empty()) return;
  const Contest& won = open.mapped();
  log(LogSeverity::WARNING,
      fmt::format("the chief (rank {}) gives rank {} to host {}, pid {}", self_.rank, rank,
                  won.hello.member.host, won.hello.member.pid));
  welcome(won.claimant, won.hello);
}

void ChiefService::refuse_claimant(int rank, const Refused& refused) {
  const auto open = contests_.extract(rank);
  const Connection& claimant = open.mapped().claimant;
  const Refused proved = prove(refused, open.mapped().hello);
  log_once(fmt::format("contested rank {}", rank), LogSeverity::WARNING,
           fmt::format("the chief (rank {}) refused a worker: {}", self_.rank, refused.text));
  claimant->send(encode_frame(ControlKind::REFUSED, proved.encode()));
  claimant->close_after_sending();
  std::erase_if(leaving_claimants_, [](const auto& each) { return each.expired(); });
  leaving_claimants_.emplace_back(claimant);
}

void ChiefService::refuse_claimants(const Refused& refused) {
  while (!contests_.empty()) refuse_claimant(contests_.begin()->first, refused);
}

bool ChiefService::has_leaving_claimants() const {
  return std::any_of(leaving_claimants_.begin(), leaving_claimants_.end(),
                     [](const auto& each) { return !each.expired(); });
}

// ---------------------------------------------------------------------------------------------- being there

void ChiefService::tell_clock(int rank, const Frame& question) {
  ClockReading reading = ClockReading::decode(question.payload);
  reading.answered_ns = trace_clock_ns();
  reading.clock = trace_clock_id();
  sessions_.at(rank)->send(encode_frame(ControlKind::CLOCK, reading.encode()));
}

void ChiefService::drop_member(int rank, const std::string& why) {
  const auto session = sessions_.find(rank);
  if (session == sessions_.end()) return;
  session->second->close_after_sending();
  sessions_.erase(session);
  if (contests_.contains(rank)) {
    chief_.await_anew(rank);
  } else if (!chief_.is_complete() && !chief_.is_cancelled()) {
    // The others are not told yet: whoever restarts it, as Kubernetes does, finds the meeting as it was. If nobody does, all hear of it as soon as the last
    // one has come.
    log(LogSeverity::WARNING,
        fmt::format("rank {} came and went before all of {} workers had come to the chief (rank "
                    "{}): {}; another process may take its place",
                    rank, options_.num_workers, self_.rank, why));
  }
  chief_.lost(rank, why);
  pass_on(rank);
}

std::optional<Refused> ChiefService::cancel_meeting(const std::vector<int>& gone) {
  const std::vector<int> absent = chief_.absent();
  if (absent.empty()) return std::nullopt;
  if (!gone.empty()) {
    return end_meeting(
        StatusCode::UNAVAILABLE,
        fmt::format("rank {} ended before all of {} workers had come to the chief at {}",
                    fmt::join(gone, ", "), options_.num_workers, options_.chief_address),
        gone);
  }
  const std::string text =
      fmt::format("{} of {} workers did not come in time to the chief at {}{}: {}{}", absent.size(),
                  options_.num_workers, options_.chief_address, describe_address(),
                  chief_.describe_absent(), describe_refused());
  if (reception_.want().empty()) return end_meeting(StatusCode::DEADLINE_EXCEEDED, text);
  // Then the absent may well be there, and the next meeting must be held by somebody else.
  return end_meeting(StatusCode::RESOURCE_EXHAUSTED,
                     text + "; the chief cannot take in who comes: " + reception_.want(),
                     {self_.rank});
}

/// Those whom nobody can prove to be of the job, but who may well be; empty: nobody of that kind has come.
std::string ChiefService::describe_refused() const {
  std::string text;
  if (!reception_.misfit().empty()) text += "; one came, but " + reception_.misfit();
  if (!doubted_.empty()) text += "; one came, and was told: " + doubted_;
  return text;
}

/// Why nobody may reach it; empty: no reason is known.
std::string ChiefService::describe_address() const {
  const std::string host = parse_host_port(options_.chief_address).host;
  if (!is_elsewhere(interface_addresses(), host)) return "";
  return fmt::format(" (this machine has no address {}: right only where it is mapped to one)",
                     host);
}

/// Who waits for somebody who never comes would else hear nothing until the deadline.
void ChiefService::warn_of_absence() {
  if (chief_.is_complete() || Clock::now() < next_warning_) return;
  next_warning_ = Clock::now() + whole_time(options_.stall_warning);
  log(LogSeverity::WARNING,
      fmt::format("rank {} at {}{} still waits for {} of {} workers: {}{}", self_.rank,
                  options_.chief_address, describe_address(), chief_.absent().size(),
                  options_.num_workers, chief_.describe_absent(), describe_refused()));
}

/// Those who have chosen an epoch come at once, and wait for this worker alone, which would lack as much in the next one: it must not keep them until the deadline.
/// Where they meet for the first time some may come much later, and there may be descriptors then. Returns when to look again.
std::chrono::steady_clock::time_point ChiefService::end_for_want_of_descriptors() {
  const bool lacks_some = options_.epoch > 1 && !chief_.is_complete() && !chief_.is_cancelled() &&
                          !reception_.want().empty();
  if (!lacks_some) {
    wants_since_.reset();
    return Clock::time_point::max();
  }
  if (!wants_since_.has_value()) wants_since_ = Clock::now();
  if (Clock::now() >= *wants_since_ + kWantTime) (void)cancel_meeting();
  return *wants_since_ + kWantTime;
}

std::chrono::steady_clock::time_point ChiefService::beat(bool was_asleep) {
  warn_of_absence();
  const Clock::time_point look_again = end_for_want_of_descriptors();
  const Clock::time_point now = Clock::now();
  std::vector<int> silent;
  for (const auto& [rank, session] : sessions_) {
    if (was_asleep) session->count_as_heard();
    if (now >= silent_at(*session)) silent.push_back(rank);
  }
  const bool is_complete = chief_.is_complete();
  if (!is_complete) {
    for (const int rank : silent)
      chief_.await_anew(rank);  // all, before the first one's claimant completes the meeting
  }
  for (const int rank : silent) {
    const std::string why =
        fmt::format("no heartbeat for {} s", options_.heartbeat_timeout.count());
    if (is_complete) {
      // If it is only stopped, it reads this first when it goes on, before the end of the connection.
      sessions_.at(rank)->send(
          encode_frame(ControlKind::ABORT,
                       Abort{self_.rank, fmt::format("gave rank {} up: {}", rank, why)}.encode()));
    }
    drop_member(rank, why);
  }
  Clock::time_point next = look_again;
  for (const auto& [rank, session] : sessions_) {
    session->send(encode_frame(ControlKind::HEARTBEAT, Heartbeat{}.encode()));
    next = std::min(next, silent_at(*session));
  }
  return next;
}

/// When it has been silent for too long, if it goes on so.
std::chrono::steady_clock::time_point ChiefService::silent_at(
    const ControlConnection& session) const {
  return session.last_heard() + whole_time(options_.heartbeat_timeout);
}

bool ChiefService::has_sent_all() const {
  return std::all_of(sessions_.begin(), sessions_.end(),
                     [](const auto& each) { return each.second->has_sent_all(); });
}

std::chrono::steady_clock::time_point ChiefService::last_sent() {
  if (!all_sent_.has_value() && has_sent_all()) all_sent_ = Clock::now();
  if (all_sent_.has_value()) return *all_sent_;
  Clock::time_point last{};
  for (const auto& [rank, session] : sessions_) last = std::max(last, session->last_sent());
  return last;
}

void ChiefService::say_goodbye() {
  if (!chief_.is_cancelled()) reception_.close();
  refuse_claimants({.code = StatusCode::UNAVAILABLE, .text = "the chief leaves"});
  chief_.handle(self_.rank, {ControlKind::GOODBYE, ""});
  for (const auto& [rank, session] : sessions_) {
    session->send(encode_frame(ControlKind::GOODBYE, ""));
  }
}

}  // namespace crossdevice::detail
