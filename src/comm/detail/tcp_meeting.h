// SPDX-License-Identifier: Apache-2.0
/// Where a member listens, and how it gets its connections: those to higher ranks by dialling, those to lower ranks by being dialled.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

#include "crossdevice/core/deadline.h"

#include "comm/detail/stranger_log.h"
#include "comm/detail/stranger_places.h"
#include "comm/detail/tcp_greeting.h"
#include "comm/detail/tls_socket.h"

namespace crossdevice::detail {

struct TcpMeetingOptions {
  int rank = 0;
  int num_ranks = 1;
  std::uint64_t cluster_id = 0;
  std::string secret;                   // may be empty where only loopback is used
  bool is_loopback_only = true;         // nobody else can reach it
  std::vector<std::string> addresses;   // to be told to the others, besides loopback
  std::shared_ptr<const TlsKey> tls{};  // connections are encrypted; null: they are not
};

/// Threads  one at a time, but for interrupt().
class TcpMeeting {
 public:
  /// Listens.
  ///
  /// Errors   UnavailableError: it cannot.
  explicit TcpMeeting(TcpMeetingOptions options);
  ~TcpMeeting();
  TcpMeeting(const TcpMeeting&) = delete;
  TcpMeeting& operator=(const TcpMeeting&) = delete;

  /// Where it listens, for the others' learn().
  [[nodiscard]] std::string announcement() const;
  /// `is_beside`: it is on this machine.
  ///
  /// Errors   WireError: no announcement.
  void learn(int rank, std::string_view announcement, bool is_beside);
  /// Its port, for tests.
  [[nodiscard]] std::uint16_t port() const { return port_; }

  /// Until all of `peers` are connected, the deadline has passed, or `is_over()` says so, which is asked after each interrupt() and every 100 ms or
  /// more often. Whoever has come, named or not, and has not gone again without a word, is in take_connected() afterwards.
  ///
  /// Errors   ResourceExhaustedError: for some seconds nobody could be taken in, because this process or the system has no descriptors left.
  void meet(std::span<const int> peers, const Deadline& deadline,
            const std::function<bool()>& is_over);
  /// A connection; the caller closes its socket.
  struct Connected {
    int rank = -1;
    int socket = -1;                    // without delay (TCP_NODELAY), not blocking
    std::unique_ptr<TlsChannel> tls{};  // null: nothing is encrypted
  };
  /// Once they are all there are, nobody is listened to any more.
  [[nodiscard]] std::vector<Connected> take_connected();
  /// Whether there is, or was, a connection to that rank, or one that it may count (see tcp_meeting.cc).
  [[nodiscard]] bool has_met(int rank) const;
  /// There will be no meeting any more: says `words` to whoever may count a connection that is not in take_connected() yet, and ends it.
  void dismiss(std::string_view words) noexcept;
  /// Why there is no connection to a peer yet; empty: it has not come.
  [[nodiscard]] std::string last_error(int rank) const;
  /// Any thread.
  void interrupt() noexcept { io_.stop(); }

 private:
  using Clock = Deadline::Clock;
  struct Stranger;
  struct Dial;

  void listen();
  void accept_next();
  void accept_at(Clock::time_point when);
  [[nodiscard]] std::optional<Clock::time_point> make_room();
  void greet(asio::ip::tcp::socket socket, const asio::ip::tcp::endpoint& from);
  void hear_stranger(const std::shared_ptr<Stranger>& stranger, std::error_code error);
  bool answer(Stranger& stranger);
  void await_here(const std::shared_ptr<Stranger>& stranger);
  void hear_here(const std::shared_ptr<Stranger>& stranger, std::error_code error);
  [[nodiscard]] TlsSetting setting(TlsChannel::Role role) const;
  void turn_away(Stranger& stranger, const char* reason);
  void dial(int rank);
  void connect(const std::shared_ptr<Dial>& dial);
  void say_hello(const std::shared_ptr<Dial>& dial);
  void hear_welcome(const std::shared_ptr<Dial>& dial);
  void retry(const std::shared_ptr<Dial>& dial, const std::string& why);
  void keep(int rank, asio::ip::tcp::socket& socket, TlsSocket& words);
  bool drop_if_gone(int rank);
  bool have_all_come(std::span<const int> peers);
  void drop_strangers();
  void note_exhaustion(int error);
  [[nodiscard]] bool is_exhausted() const;

  const TcpMeetingOptions options_;
  StrangerPlaces places_;  // outlives the handlers, which hold strangers
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  asio::ip::tcp::acceptor acceptor_{io_};
  asio::steady_timer accept_timer_{io_};
  bool is_accepting_ = false;
  std::optional<Clock::time_point> exhausted_since_;  // nobody can be dialled or taken in
  int exhaustion_ = 0;                                // why: an errno
  std::uint16_t port_ = 0;
  std::vector<std::vector<asio::ip::tcp::endpoint>> endpoints_;  // by rank, best first
  std::list<std::shared_ptr<Stranger>> strangers_;               // the oldest first
  /// The oldest first, kMaxWelcomed of a rank at most; kept from one meet() to the next.
  std::list<std::shared_ptr<Stranger>> welcomed_;
  StrangerLog log_;
  std::vector<std::shared_ptr<Dial>> dials_;
  std::set<int> met_;  // ranks that have, or had, a connection
  std::vector<Connected> connected_;
  std::map<int, std::string> last_errors_;
};

}  // namespace crossdevice::detail
