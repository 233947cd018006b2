// SPDX-License-Identifier: Apache-2.0
/// Who touches what. The io_context has one thread, and everything in "the control thread's" below is its alone: sockets, timers, the chief. What
/// other threads and it share is guarded by mutex_; the condition variable is notified after every change that a waiter looks at. Listeners run on
/// the control thread under listener_mutex_, which nobody holds while taking mutex_ and calling out.
///
/// Why every wait ends. join(): at its deadline (plus a second for the chief's list of names). exchange(): the chief answers every round (see
/// chief.cc) or is noticed to be gone: its connection ends, or it is silent for heartbeat_timeout; at the deadline the round is given up, and
/// the answer to that is waited for two seconds at most. The destructor waits for kLinger at most.
#include "comm/detail/control_plane.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <asio/connect.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/ip/v6_only.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/version.h"
#include "crossdevice/device/service_thread.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/chief.h"
#include "comm/detail/control_connection.h"
#include "comm/detail/host_port.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxPartBytes = std::size_t{1} << 20;
constexpr std::chrono::seconds kHandshakeTime{5};
constexpr std::chrono::seconds kConnectTime{3};
constexpr std::chrono::milliseconds kFirstRetry{20};
constexpr std::chrono::milliseconds kLastRetry{500};
constexpr std::chrono::seconds kChiefsAnswer{2};
constexpr std::chrono::seconds kLinger{5};
/// Strangers whose handshake is under way; more are turned away until one of them is done.
constexpr std::size_t kMaxStrangers = 256;

[[noreturn]] void throw_status(StatusCode code, const std::string& text,
                               std::vector<RankInfo> culprits) {
  OpErrorDetails details{.operation = {}, .culprits = std::move(culprits), .inputs_intact = true};
  switch (code) {
    case StatusCode::CANCELLED:
      throw CancelledError(text, std::move(details));
    case StatusCode::DEADLINE_EXCEEDED:
      throw DeadlineExceededError(text, std::move(details));
    case StatusCode::FAILED_PRECONDITION:
      throw FailedPreconditionError(text, std::move(details));
    case StatusCode::ABORTED:
      throw AbortedError(text, std::move(details));
    case StatusCode::UNAVAILABLE:
      throw UnavailableError(text, std::move(details));
    case StatusCode::UNIMPLEMENTED:
      throw UnimplementedError(text, std::move(details));
    case StatusCode::RESOURCE_EXHAUSTED:
      throw ResourceExhaustedError(text, std::move(details));
    case StatusCode::INTERNAL:
      throw InternalError(text, std::move(details));
  }
  throw InternalError(text, std::move(details));
}

std::chrono::nanoseconds nanoseconds(std::chrono::duration<double> time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time);
}

/// The moment, or one that a condition variable can still count to.
Clock::time_point wake_up(const Deadline& deadline, Clock::time_point latest) {
  return std::min(deadline.moment(), latest);
}

}  // namespace

class ControlPlane::State : public std::enable_shared_from_this<ControlPlane::State> {
 public:
  explicit State(const ControlPlaneOptions& options) : options_(options) {
    self_.rank = options_.rank;
    self_.host = options_.host;
    self_.host_id = options_.host_id;
    self_.pid = ::getpid();
  }

  void meet(const Deadline& deadline);
  void leave();
  std::vector<std::string> exchange(const RoundId& id, const std::vector<int>& members,
                                    const std::string& kind, std::string bytes,
                                    const Deadline& deadline);
  void abort(const std::string& text);
  void set_operation(std::string operation) {
    const std::lock_guard lock(mutex_);
    operation_ = std::move(operation);
  }
  std::shared_ptr<void> listen(MembershipListener listener);

  [[nodiscard]] const std::vector<MemberInfo>& members() const { return members_; }
  [[nodiscard]] std::uint64_t cluster_id() const { return cluster_id_; }

 private:
  struct Pending {
    std::string kind;
    std::optional<std::vector<std::string>> parts;
    std::optional<ExchangeFailed> failure;
    [[nodiscard]] bool has_ended() const { return parts.has_value() || failure.has_value(); }
  };
  /// Why nothing can be exchanged any more.
  struct End {
    StatusCode code;
    std::string text;
    std::vector<RankInfo> culprits;
  };

  [[nodiscard]] bool is_chief() const { return options_.rank == 0; }
  void post_to_chief(ControlKind kind, std::string payload);

  // The control thread's.
  void open_chief();
  void accept_next();
  void greet(tcp::socket socket);
  void answer_hello(const std::shared_ptr<ControlConnection>& connection, const Nonce& challenge,
                    const Frame& frame);
  void begin_session(const std::shared_ptr<ControlConnection>& connection, int rank);
  void drop_member(int rank, const std::string& why);
  void connect();
  void retry(const std::string& why);
  void greet_chief(tcp::socket socket);
  void say_hello(const Frame& frame);
  void check_welcome(const Frame& frame);
  void hear_stranger(const Frame& frame);
  void hear(const Frame& frame);
  void lose_chief(const std::string& why);
  void beat();
  void await_farewells(Clock::time_point latest);
  void to_chief(ControlKind kind, const std::string& payload);

  void end(End reason);
  void tell_lost(const RankInfo& member, const std::string& why);
  void tell_abort(const RankInfo& origin, const std::string& text);
  void warn_of_stall(const Missing& missing);
  [[nodiscard]] RankInfo info_of(int rank) const;

  const ControlPlaneOptions options_;
  MemberInfo self_;

  asio::io_context io_{1};
  std::thread thread_;

  // The control thread's.
  asio::steady_timer beat_timer_{io_};
  std::optional<tcp::acceptor> acceptor_;
  std::unique_ptr<Chief> chief_;
  std::map<int, std::shared_ptr<ControlConnection>> sessions_;  // of the chief: members by rank
  std::set<std::shared_ptr<ControlConnection>> strangers_;      // of the chief
  std::map<int, Clock::time_point> last_heard_of_;              // of the chief
  std::shared_ptr<ControlConnection> connection_;               // to the chief
  tcp::resolver resolver_{io_};
  asio::steady_timer retry_timer_{io_};
  std::chrono::milliseconds next_retry_ = kFirstRetry;
  Clock::time_point last_heard_;  // of the chief
  Clock::time_point last_beat_;
  Nonce nonce_{};
  bool is_welcome_ = false;
  bool chief_says_goodbye_ = false;

  // Written before meet() returns, constant afterwards.
  std::vector<MemberInfo> members_;
  std::uint64_t cluster_id_ = 0;

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable changed_;
  bool all_are_there_ = false;
  bool is_leaving_ = false;
  bool has_left_ = false;
  bool has_connection_ = false;
  std::string last_connection_error_;
  std::optional<End> end_;
  std::map<RoundId, Pending*> pending_;
  std::string operation_;

  std::recursive_mutex listener_mutex_;  // guards the following
  std::list<MembershipListener> listeners_;
  std::vector<std::pair<RankInfo, std::string>> lost_;
  std::optional<std::pair<RankInfo, std::string>> aborted_;
};

// ---------------------------------------------------------------------------------------------- meeting

void ControlPlane::State::meet(const Deadline& deadline) {
  if (is_chief()) open_chief();
  auto guard = asio::make_work_guard(io_);
  if (!is_chief()) asio::post(io_, [this] { connect(); });
  last_beat_ = Clock::now();
  asio::post(io_, [this] { beat(); });
  thread_ = start_service_thread("xdev-control", [this, work = std::move(guard)] { io_.run(); });

  std::unique_lock lock(mutex_);
  const auto is_over = [this] { return all_are_there_ || end_.has_value(); };
  const Clock::time_point far = Clock::now() + std::chrono::hours(24 * 365);
  changed_.wait_until(lock, wake_up(deadline, far), is_over);
  if (!is_over() && is_chief()) {
    asio::post(io_, [this] {
      const std::vector<int> absent = chief_->absent();
      if (absent.empty()) return;  // the last one came just now
      std::string ranks;
      for (const int rank : absent) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
      const Refused refused = chief_->cancel_meeting(
          fmt::format("{} of {} workers did not come in time to the chief at {}: rank {}",
                      absent.size(), options_.num_workers, options_.chief_address, ranks));
      end({refused.code, refused.text, refused.culprits});
    });
    changed_.wait(lock, is_over);
  } else if (!is_over()) {
    // Who has not come is the chief's to say; its deadline is about ours.
    if (has_connection_) changed_.wait_for(lock, std::chrono::seconds(1), is_over);
    if (!is_over()) {
      end_ =
          End{StatusCode::DEADLINE_EXCEEDED,
              has_connection_ ? fmt::format("not all of {} workers came in time to the chief at {}",
                                            options_.num_workers, options_.chief_address)
                              : fmt::format("the chief (rank 0) at {} did not answer in time: {}",
                                            options_.chief_address, last_connection_error_),
              has_connection_ ? std::vector<RankInfo>() : std::vector<RankInfo>{{.rank = 0}}};
    }
  }
  if (end_.has_value()) {
    const End reason = *end_;
    lock.unlock();
    leave();
    throw_status(reason.code, reason.text, reason.culprits);
  }
}

void ControlPlane::State::open_chief() {
  const Nonce random = make_nonce();
  for (std::size_t i = 0; i < 8; ++i) cluster_id_ = cluster_id_ << 8U | random[i];
  chief_ = std::make_unique<Chief>(
      ChiefOptions{.num_workers = options_.num_workers,
                   .cluster_id = cluster_id_,
                   .library_version = library_version_string()},
      [this](int rank, std::string frame) {
        if (rank == options_.rank) {
          // Later, so that the chief is not called while it calls.
          asio::post(io_, [this, bytes = std::move(frame)] {
            hear(decode_frame_body(std::string_view(bytes).substr(kFrameHeadBytes)));
          });
        } else if (const auto session = sessions_.find(rank); session != sessions_.end()) {
          session->second->send(std::move(frame));
        }
      });
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
  chief_->admit(hello);
}

void ControlPlane::State::accept_next() {
  acceptor_->async_accept([this](std::error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error && strangers_.size() < kMaxStrangers) greet(std::move(socket));
    if (!error) return accept_next();
    // Out of descriptors, most likely: they do not come back faster for being asked for at once.
    auto pause = std::make_shared<asio::steady_timer>(io_, kFirstRetry);
    pause->async_wait([this, pause](std::error_code stopped) {
      if (!stopped && acceptor_.has_value() && acceptor_->is_open()) accept_next();
    });
  });
}

void ControlPlane::State::greet(tcp::socket socket) {
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

void ControlPlane::State::answer_hello(const std::shared_ptr<ControlConnection>& connection,
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
    refused = chief_->refusal_of(hello);
  }
  if (refused.has_value()) {
    log(LogSeverity::WARNING, "a worker was refused: " + refused->text);
    connection->send(encode_frame(ControlKind::REFUSED, refused->encode()));
    connection->close_after_sending();
    return;
  }
  Welcome welcome;
  welcome.cluster_id = cluster_id_;
  welcome.mac = welcome.expected_mac(options_.secret, hello.nonce);
  connection->set_max_frame_bytes(kMaxFrameBytes);
  connection->send(encode_frame(ControlKind::WELCOME, welcome.encode()));
  begin_session(connection, hello.member.rank);
  chief_->admit(hello);
}

void ControlPlane::State::begin_session(const std::shared_ptr<ControlConnection>& connection,
                                        int rank) {
  sessions_[rank] = connection;
  last_heard_of_[rank] = Clock::now();
  connection->take_over(
      [this, rank](const Frame& frame) {
        last_heard_of_[rank] = Clock::now();
        chief_->handle(rank, frame);
        if (!chief_->is_present(rank)) drop_member(rank, "it has left");
      },
      [this, rank](const std::string& why) { drop_member(rank, "its connection ended: " + why); });
}

void ControlPlane::State::drop_member(int rank, const std::string& why) {
  const auto session = sessions_.find(rank);
  if (session == sessions_.end()) return;
  session->second->close_after_sending();
  sessions_.erase(session);
  last_heard_of_.erase(rank);
  chief_->lost(rank, why);
}

void ControlPlane::State::connect() {
  const HostPort address = parse_host_port(options_.chief_address);
  resolver_.async_resolve(
      address.host, std::to_string(address.port),
      [this](std::error_code error, const tcp::resolver::results_type& endpoints) {
        if (error == asio::error::operation_aborted) return;
        if (error) return retry(error.message());
        auto socket = std::make_shared<tcp::socket>(io_);
        auto timer = std::make_shared<asio::steady_timer>(io_, kConnectTime);
        timer->async_wait([socket](std::error_code stopped) {
          std::error_code ignored;
          if (!stopped) socket->close(ignored);
        });
        asio::async_connect(*socket, endpoints,
                            [this, socket, timer](std::error_code failed, const tcp::endpoint&) {
                              timer->cancel();
                              if (!failed && socket->is_open()) {
                                return greet_chief(std::move(*socket));
                              }
                              retry(failed ? failed.message() : "it does not answer");
                            });
      });
}

void ControlPlane::State::retry(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    last_connection_error_ = why;
    has_connection_ = false;
    if (is_leaving_) return;
  }
  if (connection_) connection_->close();
  connection_.reset();
  is_welcome_ = false;
  retry_timer_.expires_after(next_retry_);
  next_retry_ = std::min(2 * next_retry_, kLastRetry);
  retry_timer_.async_wait([this](std::error_code stopped) {
    if (!stopped) connect();
  });
}

void ControlPlane::State::greet_chief(tcp::socket socket) {
  connection_ = std::make_shared<ControlConnection>(std::move(socket));
  last_heard_ = Clock::now();
  connection_->start(
      [this](const Frame& frame) {
        last_heard_ = Clock::now();
        hear(frame);
      },
      [this](const std::string& why) { lose_chief("its connection ended: " + why); });
}

void ControlPlane::State::say_hello(const Frame& frame) {
  const Challenge challenge = Challenge::decode(frame.payload);
  if (options_.secret.empty() && !connection_->is_from_this_machine()) {
    return end({StatusCode::FAILED_PRECONDITION,
                fmt::format("the chief at {} is on another machine, which needs a secret: set "
                            "CROSSDEVICE_SECRET_FILE on all workers",
                            options_.chief_address),
                {}});
  }
  nonce_ = make_nonce();
  Hello hello;
  hello.library_version = library_version_string();
  hello.num_workers = options_.num_workers;
  hello.member = self_;
  hello.nonce = nonce_;
  hello.mac = hello.expected_mac(options_.secret, challenge.nonce);
  connection_->send(encode_frame(ControlKind::HELLO, hello.encode()));
}

void ControlPlane::State::check_welcome(const Frame& frame) {
  const Welcome welcome = Welcome::decode(frame.payload);
  if (!is_equal(welcome.mac, welcome.expected_mac(options_.secret, nonce_))) {
    throw WireError("it does not hold the secret of this job");
  }
  is_welcome_ = true;
  connection_->set_max_frame_bytes(kMaxFrameBytes);
  cluster_id_ = welcome.cluster_id;
  const std::lock_guard lock(mutex_);
  has_connection_ = true;
}

/// What comes from a chief that has not proved who it is.
void ControlPlane::State::hear_stranger(const Frame& frame) {
  if (frame.kind == ControlKind::CHALLENGE) return say_hello(frame);
  if (frame.kind == ControlKind::WELCOME) return check_welcome(frame);
  if (frame.kind != ControlKind::REFUSED) throw WireError("a stranger may not say this");
  const Refused refused = Refused::decode(frame.payload);
  end({refused.code, "the chief refuses this worker: " + refused.text, refused.culprits});
}

// ---------------------------------------------------------------------------------------------- being together

void ControlPlane::State::hear(const Frame& frame) {
  if (!is_chief() && !is_welcome_) return hear_stranger(frame);
  switch (frame.kind) {
    case ControlKind::REFUSED: {
      const Refused refused = Refused::decode(frame.payload);
      return end({refused.code, refused.text, refused.culprits});
    }
    case ControlKind::MEMBERS: {
      Members all = Members::decode(frame.payload);
      if (all.members.size() != static_cast<std::size_t>(options_.num_workers)) {
        throw WireError("the chief's list of members is not complete");
      }
      const std::lock_guard lock(mutex_);
      if (all_are_there_) throw WireError("the chief sends its members twice");
      members_ = std::move(all.members);
      all_are_there_ = true;
      changed_.notify_all();
      return;
    }
    case ControlKind::EXCHANGED: {
      Exchanged message = Exchanged::decode(frame.payload);
      const std::lock_guard lock(mutex_);
      if (const auto entry = pending_.find(message.id); entry != pending_.end()) {
        entry->second->parts = std::move(message.parts);
        changed_.notify_all();
      }
      return;
    }
    case ControlKind::EXCHANGE_FAILED: {
      ExchangeFailed message = ExchangeFailed::decode(frame.payload);
      const std::lock_guard lock(mutex_);
      if (const auto entry = pending_.find(message.id); entry != pending_.end()) {
        entry->second->failure = std::move(message);
        changed_.notify_all();
      }
      return;
    }
    case ControlKind::MISSING:
      return warn_of_stall(Missing::decode(frame.payload));
    case ControlKind::MEMBER_LOST: {
      const MemberLost message = MemberLost::decode(frame.payload);
      if (message.rank < 0 || message.rank >= options_.num_workers) throw WireError("no such rank");
      return tell_lost(info_of(message.rank), message.text);
    }
    case ControlKind::ABORT: {
      const Abort message = Abort::decode(frame.payload);
      if (message.origin < 0 || message.origin >= options_.num_workers) {
        throw WireError("no such rank");
      }
      const RankInfo origin = info_of(message.origin);
      end({StatusCode::ABORTED,
           fmt::format("{} aborted: {}", to_string(origin), message.text),
           {origin}});
      return tell_abort(origin, message.text);
    }
    case ControlKind::HEARTBEAT:
      return;
    case ControlKind::GOODBYE:
      chief_says_goodbye_ = true;
      return;
    case ControlKind::CHALLENGE:
    case ControlKind::HELLO:
    case ControlKind::WELCOME:
    case ControlKind::EXCHANGE:
    case ControlKind::WHO_IS_MISSING:
    case ControlKind::GIVE_UP:
      break;
  }
  throw WireError("a chief does not say this");
}

void ControlPlane::State::lose_chief(const std::string& why) {
  bool was_complete = false;
  {
    const std::lock_guard lock(mutex_);
    was_complete = all_are_there_;
    if (is_leaving_) return;
  }
  // Before all are there it may just have begun to listen, or be another job's.
  if (!was_complete) return retry(why);
  const std::string text = chief_says_goodbye_ ? "it has left" : why;
  const RankInfo chief = info_of(0);
  end({StatusCode::UNAVAILABLE,
       fmt::format("the chief, {}, is gone: {}", to_string(chief), text),
       {chief}});
  tell_lost(chief, text);
}

void ControlPlane::State::beat() {
  const Clock::time_point now = Clock::now();
  const auto limit = nanoseconds(options_.heartbeat_timeout);
  // Who was stopped itself has heard nobody, which says nothing about them.
  const bool was_asleep = now - last_beat_ > limit / 2;
  last_beat_ = now;
  if (chief_) {
    std::vector<int> silent;
    for (auto& [rank, heard] : last_heard_of_) {
      if (was_asleep) heard = now;
      if (now - heard > limit) silent.push_back(rank);
    }
    const std::string text =
        fmt::format("no heartbeat for {} s", options_.heartbeat_timeout.count());
    for (const int rank : silent) drop_member(rank, text);
    for (const auto& [rank, session] : sessions_) {
      session->send(encode_frame(ControlKind::HEARTBEAT, Heartbeat{}.encode()));
    }
  } else if (connection_ && is_welcome_) {
    if (was_asleep) last_heard_ = now;
    if (now - last_heard_ > limit) {
      connection_->close();
      lose_chief(fmt::format("no heartbeat for {} s", options_.heartbeat_timeout.count()));
    }
  }
  std::string operation;
  {
    const std::lock_guard lock(mutex_);
    operation = operation_;
  }
  to_chief(ControlKind::HEARTBEAT, Heartbeat{operation}.encode());
  beat_timer_.expires_after(limit / 4);
  beat_timer_.async_wait([this](std::error_code stopped) {
    if (!stopped) beat();
  });
}

void ControlPlane::State::to_chief(ControlKind kind, const std::string& payload) {
  if (chief_) {
    chief_->handle(options_.rank, {kind, payload});
  } else if (connection_ && is_welcome_) {
    connection_->send(encode_frame(kind, payload));
  }
}

void ControlPlane::State::post_to_chief(ControlKind kind, std::string payload) {
  asio::post(io_, [this, kind, bytes = std::move(payload)] { to_chief(kind, bytes); });
}

std::vector<std::string> ControlPlane::State::exchange(const RoundId& id,
                                                       const std::vector<int>& members,
                                                       const std::string& kind, std::string bytes,
                                                       const Deadline& deadline) {
  require_not_forked();
  if (bytes.size() > kMaxPartBytes) {
    throw ValueError(fmt::format("{}: {} bytes, more than the {} that one round may carry", kind,
                                 bytes.size(), kMaxPartBytes));
  }
  Pending pending{.kind = kind, .parts = std::nullopt, .failure = std::nullopt};
  const Clock::time_point begin = Clock::now();
  const auto stall = nanoseconds(options_.stall_warning);
  std::unique_lock lock(mutex_);
  if (end_.has_value()) {
    const End reason = *end_;
    lock.unlock();
    throw_status(reason.code, kind + ": " + reason.text, reason.culprits);
  }
  pending_.emplace(id, &pending);
  const std::string operation = operation_;
  post_to_chief(ControlKind::EXCHANGE, Exchange{id, members, kind, std::move(bytes)}.encode());

  const auto is_over = [&] { return pending.has_ended() || end_.has_value(); };
  Clock::time_point warning = begin + stall;
  while (!changed_.wait_until(lock, wake_up(deadline, warning), is_over)) {
    if (deadline.has_passed()) {
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      post_to_chief(ControlKind::GIVE_UP,
                    GiveUp{id, fmt::format("{} timed out after {:.3g} s", kind, seconds)}.encode());
      changed_.wait_for(lock, kChiefsAnswer, is_over);
      break;
    }
    warning = Clock::now() + stall;
    post_to_chief(ControlKind::WHO_IS_MISSING, WhoIsMissing{id}.encode());
  }
  pending_.erase(id);
  if (pending.parts.has_value()) return std::move(*pending.parts);
  std::optional<End> reason;
  if (pending.failure.has_value()) {
    reason = End{pending.failure->code, pending.failure->text, pending.failure->culprits};
  } else if (end_.has_value()) {
    reason = End{end_->code, kind + ": " + end_->text, end_->culprits};
  }
  lock.unlock();
  if (reason.has_value()) throw_status(reason->code, reason->text, reason->culprits);
  const RankInfo chief = info_of(0);
  throw DeadlineExceededError(
      fmt::format("{} timed out: the chief, {}, does not answer", kind, to_string(chief)),
      {.operation = {}, .culprits = {chief}, .inputs_intact = true});
}

void ControlPlane::State::abort(const std::string& text) {
  post_to_chief(ControlKind::ABORT, Abort{options_.rank, text}.encode());
}

std::shared_ptr<void> ControlPlane::State::listen(MembershipListener listener) {
  const std::lock_guard lock(listener_mutex_);
  for (const auto& [member, why] : lost_) {
    if (listener.on_lost) listener.on_lost(member, why);
  }
  if (aborted_.has_value() && listener.on_abort) {
    listener.on_abort(aborted_->first, aborted_->second);
  }
  const auto position = listeners_.insert(listeners_.end(), std::move(listener));
  return {nullptr, [self = shared_from_this(), position](void*) {
            const std::lock_guard guard(self->listener_mutex_);
            self->listeners_.erase(position);
          }};
}

void ControlPlane::State::end(End reason) {
  const std::lock_guard lock(mutex_);
  if (!end_.has_value()) end_ = std::move(reason);
  changed_.notify_all();
}

void ControlPlane::State::tell_lost(const RankInfo& member, const std::string& why) {
  const std::lock_guard lock(listener_mutex_);
  lost_.emplace_back(member, why);
  for (const MembershipListener& listener : listeners_) {
    if (listener.on_lost) listener.on_lost(member, why);
  }
}

void ControlPlane::State::tell_abort(const RankInfo& origin, const std::string& text) {
  const std::lock_guard lock(listener_mutex_);
  if (aborted_.has_value()) return;
  aborted_.emplace(origin, text);
  for (const MembershipListener& listener : listeners_) {
    if (listener.on_abort) listener.on_abort(origin, text);
  }
}

void ControlPlane::State::warn_of_stall(const Missing& missing) {
  std::string kind;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = pending_.find(missing.id);
    if (entry == pending_.end() || missing.ranks.empty()) return;
    kind = entry->second->kind;
  }
  std::string ranks;
  for (const RankInfo& rank : missing.ranks) ranks += (ranks.empty() ? "" : ", ") + to_string(rank);
  log(LogSeverity::WARNING,
      fmt::format("rank {} still waits in {} for {}", options_.rank, kind, ranks));
}

RankInfo ControlPlane::State::info_of(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return index < members_.size() ? members_[index].rank_info() : RankInfo{.rank = rank};
}

// ---------------------------------------------------------------------------------------------- leaving

void ControlPlane::State::leave() {
  {
    const std::lock_guard lock(mutex_);
    if (is_leaving_) return;
    is_leaving_ = true;
  }
  asio::post(io_, [this] {
    beat_timer_.cancel();
    retry_timer_.cancel();
    resolver_.cancel();
    std::error_code ignored;
    if (acceptor_.has_value()) acceptor_->close(ignored);
    for (const auto& stranger : strangers_) stranger->close();
    strangers_.clear();
    if (!is_chief() && connection_) {
      if (is_welcome_) connection_->send(encode_frame(ControlKind::GOODBYE, ""));
      connection_->close_after_sending();
    }
    if (chief_) chief_->handle(options_.rank, {ControlKind::GOODBYE, ""});
    for (const auto& [rank, session] : sessions_) {
      session->send(encode_frame(ControlKind::GOODBYE, ""));
    }
    await_farewells(Clock::now() + kLinger);
  });
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_left_; });
  }
  io_.stop();
  thread_.join();
}

/// Until what was said last has been sent. The chief stays until the others have left, so that it reaches them.
void ControlPlane::State::await_farewells(Clock::time_point latest) {
  const bool has_sent_all = sessions_.empty() && (!connection_ || !connection_->is_open());
  if (has_sent_all || Clock::now() >= latest) {
    const std::lock_guard lock(mutex_);
    has_left_ = true;
    changed_.notify_all();
    return;
  }
  retry_timer_.expires_after(std::chrono::milliseconds(1));
  retry_timer_.async_wait([this, latest](std::error_code) { await_farewells(latest); });
}

// ---------------------------------------------------------------------------------------------- ControlPlane

ControlPlane::ControlPlane(std::shared_ptr<State> state) : state_(std::move(state)) {}

std::shared_ptr<ControlPlane> ControlPlane::join(const ControlPlaneOptions& options,
                                                 const Deadline& deadline) {
  require_not_forked();
  if (options.num_workers < 1 || options.rank < 0 || options.rank >= options.num_workers) {
    throw ValueError(fmt::format("rank {} of {} workers", options.rank, options.num_workers));
  }
  if (options.num_workers > 1) (void)parse_host_port(options.chief_address);
  auto state = std::make_shared<State>(options);
  state->meet(deadline);
  return std::shared_ptr<ControlPlane>(new ControlPlane(std::move(state)));
}

ControlPlane::~ControlPlane() {
  if (is_forked_child()) {
    (void)new std::shared_ptr<State>(std::move(state_));  // its thread is the parent's
    return;
  }
  state_->leave();
}

const std::vector<MemberInfo>& ControlPlane::members() const { return state_->members(); }
std::uint64_t ControlPlane::cluster_id() const { return state_->cluster_id(); }

std::vector<std::string> ControlPlane::exchange(const RoundId& id, const std::vector<int>& members,
                                                const std::string& kind, std::string bytes,
                                                const Deadline& deadline) {
  return state_->exchange(id, members, kind, std::move(bytes), deadline);
}

void ControlPlane::abort(const std::string& text) { state_->abort(text); }
void ControlPlane::set_operation(std::string operation) {
  state_->set_operation(std::move(operation));
}
std::shared_ptr<void> ControlPlane::listen(MembershipListener listener) {
  return state_->listen(std::move(listener));
}

}  // namespace crossdevice::detail
