// SPDX-License-Identifier: Apache-2.0
/// A worker's connection to its chief: finds it, proves who it is, asks for the chief's proof, and notices when it is gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

#include "comm/detail/clock_comparison.h"
#include "comm/detail/control_connection.h"
#include "comm/detail/control_options.h"
#include "comm/detail/name_lookup.h"

namespace crossdevice::detail {

/// Threads  the io_context's alone.
class ChiefLink {
 public:
  enum class Fault {
    THEIRS,
    REFUSED,  // theirs: nobody listens at any address of the chief's host
    OWN       // this process lacks descriptors, memory or threads
  };
  struct Events {
    std::function<void(std::uint64_t cluster_id)> on_welcome;
    /// The chief does not want this worker, or this worker does not want the chief, or whoever is there will not do; see hear_of_misfit().
    std::function<void(const Refused&)> on_refused;
    /// What the chief says after it has proved who it is.
    std::function<void(const Frame&)> on_frame;
    /// What keeps the chief away: what the first attempt waits for; or that it could not be reached, or the connection has ended, and is tried again.
    std::function<void(const std::string& why, Fault fault)> on_absence;
    /// The connection has ended for good.
    std::function<void(const std::string& why)> on_lost;
  };

  ChiefLink(asio::io_context& io, const ControlPlaneOptions& options, MemberInfo self,
            Events events);
  ChiefLink(const ChiefLink&) = delete;
  ChiefLink& operator=(const ChiefLink&) = delete;

  /// Tries until it succeeds.
  void connect();
  /// All have met: the end of the connection is the end of the chief.
  void keep() { is_kept_ = true; }
  /// Does nothing while there is no chief.
  void send(ControlKind kind, const std::string& payload);
  /// See ChiefService::beat().
  std::chrono::steady_clock::time_point beat(bool was_asleep);
  /// Says goodbye and tries no more. No event comes any more.
  void leave();
  /// Whether that has been sent.
  [[nodiscard]] bool has_left() const { return !connection_ || !connection_->is_open(); }
  /// When a piece of what was said before has last been sent; only while it has not left.
  [[nodiscard]] std::chrono::steady_clock::time_point last_sent() const {
    return connection_->last_sent();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Attempt;
  void try_next(const std::shared_ptr<Attempt>& attempt, const std::string& why,
                Fault fault = Fault::THEIRS);
  void greet(asio::ip::tcp::socket socket);
  bool does_not_fit(const std::string& why);
  void hear_of_misfit(const std::string& why);
  void hear(const Frame& frame);
  void hear_refusal(Refused refused);
  void say_hello(const Frame& frame);
  void check_welcome(const Frame& frame);
  void compare_clocks();
  void hear_clock(const Frame& frame);
  void end(const std::string& why, Fault fault = Fault::THEIRS);
  void retry(const std::string& why, Fault fault = Fault::THEIRS);
  void wait_for(const std::string& what);
  void warn_of_absence();

  asio::io_context& io_;
  const ControlPlaneOptions& options_;
  MemberInfo self_;
  Events events_;
  NameLookup lookup_;
  asio::steady_timer retry_timer_;
  std::chrono::milliseconds next_retry_;
  Clock::time_point next_warning_;  // while they meet
  std::string last_error_;          // else what it waits for
  std::size_t num_tries_ = 0;
  std::size_t address_ = 0;                                // which of the chief's is tried
  std::map<std::size_t, Clock::time_point> misfit_since_;  // by address
  std::shared_ptr<ControlConnection> connection_;
  std::optional<Nonce> nonce_;  // of this connection's hello
  ClockComparison clocks_;
  bool is_welcome_ = false;
  bool is_kept_ = false;
  bool is_leaving_ = false;
};

}  // namespace crossdevice::detail
