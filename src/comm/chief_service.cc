// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/chief_service.h"

#include <algorithm>
#include <utility>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/trace_clock.h"
#include "crossdevice/core/version.h"

#include "comm/detail/host_port.h"
#include "comm/detail/listening_socket.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

std::uint64_t make_cluster_id() {
  std::uint64_t id = 0;
  const Nonce random = make_nonce();
  for (std::size_t i = 0; i < sizeof id; ++i) id = id << 8U | random[i];
  return id;
}

}  // namespace

ChiefService::ChiefService(asio::io_context& io, const ControlPlaneOptions& options,
                           MemberInfo self, std::function<void(const Frame&)> to_self)
    : io_(io),
      options_(options),
      self_(std::move(self)),
      to_self_(std::move(to_self)),
      cluster_id_(make_cluster_id()),
      next_warning_(Clock::now() + whole_time(options.stall_warning)),
      chief_({.num_workers = options.num_workers,
              .library_version = library_version_string(),
              .job = options.job,
              .epoch = options.epoch,
              .addresses_by_rank = options.addresses_by_rank},
             [this](int rank, std::string frame) { send(rank, std::move(frame)); }),
      reception_(
          io, [this](const std::shared_ptr<ControlConnection>& connection, const Nonce& challenge,
                     const Frame& frame) { answer_hello(connection, challenge, frame); }) {}

void ChiefService::send(int rank, std::string frame) {
  if (rank == self_.rank) {
    // Later, so that the chief is not called while it calls.
    asio::post(io_, [this, bytes = std::move(frame)] {
      to_self_(decode_frame_body(std::string_view(bytes).substr(kFrameHeadBytes)));
    });
  } else if (const auto session = sessions_.find(rank); session != sessions_.end()) {
    session->second->send(std::move(frame));
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

void ChiefService::answer_hello(const std::shared_ptr<ControlConnection>& connection,
                                const Nonce& challenge, const Frame& frame) {
  if (frame.kind != ControlKind::HELLO) throw WireError("expected a hello");
  const Hello hello = Hello::decode(frame.payload);
  std::optional<Refused> refused;
  std::string reason;  // of those whose word is not proved: one of few, whatever they say
  if (hello.protocol != kControlProtocol) {
    refused = Refused{.text = fmt::format("rank {} speaks protocol {}, the chief speaks {}",
                                          hello.member.rank, hello.protocol, kControlProtocol)};
    reason = "protocol";
  } else if (options_.secret.empty() && !connection->is_from_this_machine()) {
    refused = Refused{.text =
                          "without a secret the chief takes workers of its own machine only: "
                          "set CROSSDEVICE_SECRET_FILE on all workers"};
  } else if (!is_equal(hello.mac, hello.expected_mac(options_.secret, challenge))) {
    refused = Refused{.text = kDifferentSecrets};
  } else {
    refused = chief_.refuse(hello);
  }
  if (refused.has_value()) {
    reception_.refuse(connection, reason.empty() ? refused->text : reason, refused->text);
    connection->send(encode_frame(ControlKind::REFUSED, refused->encode()));
    connection->close_after_sending();
    end_spoiled_meeting();
    return;
  }
  Welcome welcome;
  welcome.cluster_id = cluster_id_;
  welcome.mac = welcome.expected_mac(options_.secret, hello.nonce);
  connection->set_max_frame_bytes(kMaxFrameBytes);
  connection->send(encode_frame(ControlKind::WELCOME, welcome.encode()));
  begin_session(connection, hello.member.rank);
  chief_.admit(hello);
  end_spoiled_meeting();
}

/// Not at the first one that does not fit: those who come later than that would find no chief that tells them.
void ChiefService::end_spoiled_meeting() {
  if (!chief_.is_spoiled()) return;
  chief_.cancel_meeting(
      StatusCode::FAILED_PRECONDITION,
      fmt::format("the workers do not fit together: {}", chief_.describe_absent()));
}

void ChiefService::begin_session(const std::shared_ptr<ControlConnection>& connection, int rank) {
  sessions_[rank] = connection;
  last_heard_of_[rank] = Clock::now();
  connection->take_over(
      [this, rank](const Frame& frame) {
        last_heard_of_[rank] = Clock::now();
        if (frame.kind == ControlKind::CLOCK) return tell_clock(rank, frame);
        chief_.handle(rank, frame);
        if (!chief_.is_present(rank)) drop_member(rank, kHasLeft);
      },
      [this, rank](const std::string& why) { drop_member(rank, "its connection ended: " + why); });
}

void ChiefService::tell_clock(int rank, const Frame& question) {
  ClockReading reading = ClockReading::decode(question.payload);
  reading.answered_ns = trace_clock_ns();
  reading.clock = trace_clock_id();
  send(rank, encode_frame(ControlKind::CLOCK, reading.encode()));
}

void ChiefService::drop_member(int rank, const std::string& why) {
  const auto session = sessions_.find(rank);
  if (session == sessions_.end()) return;
  session->second->close_after_sending();
  sessions_.erase(session);
  last_heard_of_.erase(rank);
  chief_.lost(rank, why);
}

std::optional<Refused> ChiefService::cancel_meeting() {
  const std::vector<int> absent = chief_.absent();
  if (absent.empty()) return std::nullopt;
  return chief_.cancel_meeting(
      StatusCode::DEADLINE_EXCEEDED,
      fmt::format("{} of {} workers did not come in time to the chief at {}: {}{}", absent.size(),
                  options_.num_workers, options_.chief_address, chief_.describe_absent(),
                  reception_.misfit().empty() ? "" : "; one came, but " + reception_.misfit()));
}

/// Who waits for somebody who never comes would else hear nothing until the deadline.
void ChiefService::warn_of_absence() {
  if (chief_.is_complete() || Clock::now() < next_warning_) return;
  next_warning_ = Clock::now() + whole_time(options_.stall_warning);
  log(LogSeverity::WARNING, fmt::format("rank {} at {} still waits for {} of {} workers: {}",
                                        self_.rank, options_.chief_address, chief_.absent().size(),
                                        options_.num_workers, chief_.describe_absent()));
}

void ChiefService::beat(bool was_asleep) {
  warn_of_absence();
  const Clock::time_point now = Clock::now();
  std::vector<int> silent;
  for (auto& [rank, heard] : last_heard_of_) {
    if (was_asleep) heard = now;
    if (now - heard > options_.heartbeat_timeout) silent.push_back(rank);
  }
  for (const int rank : silent) {
    const std::string why =
        fmt::format("no heartbeat for {} s", options_.heartbeat_timeout.count());
    if (chief_.is_complete()) {
      // If it is only stopped, it reads this first when it goes on, before the end of the connection.
      sessions_.at(rank)->send(
          encode_frame(ControlKind::ABORT,
                       Abort{self_.rank, fmt::format("gave rank {} up: {}", rank, why)}.encode()));
    } else {
      chief_.await_anew(rank);
    }
    drop_member(rank, why);
  }
  for (const auto& [rank, session] : sessions_) {
    session->send(encode_frame(ControlKind::HEARTBEAT, Heartbeat{}.encode()));
  }
}

bool ChiefService::has_sent_all() const {
  return std::all_of(sessions_.begin(), sessions_.end(),
                     [](const auto& each) { return each.second->has_sent_all(); });
}

void ChiefService::say_goodbye() {
  if (!chief_.is_cancelled()) reception_.close();
  chief_.handle(self_.rank, {ControlKind::GOODBYE, ""});
  for (const auto& [rank, session] : sessions_) {
    session->send(encode_frame(ControlKind::GOODBYE, ""));
  }
}

}  // namespace crossdevice::detail
