// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/chief_service.h"

#include <utility>

#include <asio/ip/v6_only.hpp>
#include <asio/post.hpp>
#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/version.h"

#include "comm/detail/host_port.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

using asio::ip::tcp;

constexpr std::chrono::seconds kHandshakeTime{5};
constexpr std::chrono::milliseconds kPause{20};
/// Strangers whose handshake is under way; more are turned away until one of them is done.
constexpr std::size_t kMaxStrangers = 256;

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
      chief_({.num_workers = options.num_workers,
              .library_version = library_version_string(),
              .addresses_by_rank = options.addresses_by_rank},
             [this](int rank, std::string frame) { send(rank, std::move(frame)); }) {}

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
    std::error_code error;
    const asio::ip::address given = asio::ip::make_address(address.host, error);
    const bool is_local = (!error && given.is_loopback()) || address.host == "localhost";
    // On loopback nobody else shall reach it; elsewhere the name may stand for any of this machine's addresses.
    tcp::endpoint endpoint(tcp::v6(), address.port);
    if (is_local && !error) endpoint = tcp::endpoint(given, address.port);
    if (is_local && error) endpoint = tcp::endpoint(asio::ip::address_v4::loopback(), address.port);
    acceptor_.emplace(io_);
    acceptor_->open(endpoint.protocol(), error);
    if (error && !is_local) {  // a machine without IPv6
      endpoint = tcp::endpoint(tcp::v4(), address.port);
      acceptor_->open(endpoint.protocol(), error);
    }
    if (!error && endpoint.protocol() == tcp::v6() && !is_local) {
      acceptor_->set_option(asio::ip::v6_only(false), error);
    }
    if (!error) acceptor_->set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_->bind(endpoint, error);
    if (!error) acceptor_->listen(4096, error);
    if (error) {
      throw UnavailableError(fmt::format("the chief (rank 0) cannot listen at {}: {}",
                                         options_.chief_address, error.message()));
    }
    accept_next();
  }
  Hello hello;
  hello.library_version = library_version_string();
  hello.num_workers = options_.num_workers;
  hello.member = self_;
  chief_.admit(hello);
}

void ChiefService::accept_next() {
  acceptor_->async_accept([this](std::error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error && strangers_.size() < kMaxStrangers) greet(std::move(socket));
    if (!error) return accept_next();
    // Out of descriptors, most likely: they do not come back faster for being asked for at once.
    auto pause = std::make_shared<asio::steady_timer>(io_, kPause);
    pause->async_wait([this, pause](std::error_code stopped) {
      if (!stopped && acceptor_.has_value() && acceptor_->is_open()) accept_next();
    });
  });
}

void ChiefService::greet(tcp::socket socket) {
  auto connection = std::make_shared<ControlConnection>(std::move(socket));
  strangers_.insert(connection);
  const Nonce challenge = make_nonce();
  auto timer = std::make_shared<asio::steady_timer>(io_, kHandshakeTime);
  const std::weak_ptr<ControlConnection> weak = connection;
  timer->async_wait([this, timer, weak](std::error_code stopped) {
    const std::shared_ptr<ControlConnection> late = weak.lock();
    if (stopped || !late || strangers_.erase(late) == 0) return;
    late->close();
  });
  connection->start(
      [this, weak, challenge, timer](const Frame& frame) {
        const std::shared_ptr<ControlConnection> stranger = weak.lock();
        timer->cancel();
        if (stranger) answer_hello(stranger, challenge, frame);
      },
      [this, weak, timer](const std::string&) {
        timer->cancel();
        if (const auto stranger = weak.lock()) strangers_.erase(stranger);
      });
  connection->send(encode_frame(ControlKind::CHALLENGE, Challenge{.nonce = challenge}.encode()));
}

void ChiefService::answer_hello(const std::shared_ptr<ControlConnection>& connection,
                                const Nonce& challenge, const Frame& frame) {
  strangers_.erase(connection);
  if (frame.kind != ControlKind::HELLO) throw WireError("expected a hello");
  const Hello hello = Hello::decode(frame.payload);
  std::optional<Refused> refused;
  if (hello.protocol != kControlProtocol) {
    refused = Refused{.text = fmt::format("rank {} speaks protocol {}, the chief speaks {}",
                                          hello.member.rank, hello.protocol, kControlProtocol)};
  } else if (options_.secret.empty() && !connection->is_from_this_machine()) {
    refused = Refused{.text =
                          "without a secret the chief takes workers of its own machine only: "
                          "set CROSSDEVICE_SECRET_FILE on all workers"};
  } else if (!is_equal(hello.mac, hello.expected_mac(options_.secret, challenge))) {
    refused = Refused{.text =
                          "this worker and the chief hold different secrets: "
                          "CROSSDEVICE_SECRET_FILE must name the same one on all workers"};
  } else {
    refused = chief_.refuse(hello);
  }
  if (refused.has_value()) {
    log(LogSeverity::WARNING, "a worker was refused: " + refused->text);
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
        chief_.handle(rank, frame);
        if (!chief_.is_present(rank)) drop_member(rank, kHasLeft);
      },
      [this, rank](const std::string& why) { drop_member(rank, "its connection ended: " + why); });
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
      fmt::format("{} of {} workers did not come in time to the chief at {}: {}", absent.size(),
                  options_.num_workers, options_.chief_address, chief_.describe_absent()));
}

void ChiefService::beat(bool was_asleep) {
  const Clock::time_point now = Clock::now();
  std::vector<int> silent;
  for (auto& [rank, heard] : last_heard_of_) {
    if (was_asleep) heard = now;
    if (now - heard > options_.heartbeat_timeout) silent.push_back(rank);
  }
  for (const int rank : silent) {
    drop_member(rank, fmt::format("no heartbeat for {} s", options_.heartbeat_timeout.count()));
  }
  for (const auto& [rank, session] : sessions_) {
    session->send(encode_frame(ControlKind::HEARTBEAT, Heartbeat{}.encode()));
  }
}

void ChiefService::say_goodbye() {
  std::error_code ignored;
  if (acceptor_.has_value()) acceptor_->close(ignored);
  for (const auto& stranger : strangers_) stranger->close();
  strangers_.clear();
  chief_.handle(self_.rank, {ControlKind::GOODBYE, ""});
  for (const auto& [rank, session] : sessions_) {
    session->send(encode_frame(ControlKind::GOODBYE, ""));
  }
}

}  // namespace crossdevice::detail
