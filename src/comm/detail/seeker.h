// SPDX-License-Identifier: Apache-2.0
/// One attempt to find a worker of the job where it listens, and to ask it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

#include "comm/detail/control_connection.h"
#include "comm/detail/meeting_message.h"

namespace crossdevice::detail {

/// What came of an attempt.
struct SeekResult {
  std::optional<Found> found{};      ///< its answer
  std::optional<Refused> refused{};  ///< it does not want this worker, and is of the job
  bool is_silent = false;            ///< there was a connection, but no word came in time
  bool is_gone = false;  ///< nobody listens at any of its addresses: the process has ended
  std::shared_ptr<ControlConnection> connection{};  ///< where it takes this worker in
  std::string host{};                               ///< under which it was reached
  std::string hearsay{};  ///< why somebody who is not believed refuses; empty: nobody does
  std::string want{};     ///< of this process, to connect to an address; empty: of nothing
};

/// With what it proves that it is of the job, and encrypts (null: it does not).
struct SeekerProof {
  std::string secret;
  std::shared_ptr<const TlsKey> tls{};
};

/// How long it waits at each address: for a connection; for whoever listens there to say something, and then for its answer.
struct SeekerPatience {
  std::chrono::steady_clock::duration connection{};
  std::chrono::steady_clock::duration word{};
};

/// Tries a worker's addresses in turn. Addresses are digits; at some of them somebody else may live, who is not believed.
///
/// Memory   keeps itself alive until it is done.
/// Threads  the io_context's alone.
class Seeker : public std::enable_shared_from_this<Seeker> {
 public:
  using OnDone = std::function<void(SeekResult)>;

  /// `question`: without nonce and proof. `patience`: nothing: as long as it takes.
  Seeker(asio::io_context& io, SeekerProof proof, Seek question, int rank,
         std::vector<std::string> addresses, std::optional<SeekerPatience> patience,
         OnDone on_done);

  void start() { try_next(); }
  /// on_done is not called any more.
  void cancel();
  [[nodiscard]] int rank() const { return rank_; }

 private:
  void try_next();
  void begin_to_wait(std::chrono::steady_clock::duration SeekerPatience::*patience);
  void greet(asio::ip::tcp::socket socket);
  void hear(const Frame& frame);
  void hear_refusal(const Refused& refused);
  void say_who_asks(const Frame& frame);
  void done(SeekResult result);

  asio::io_context& io_;
  SeekerProof proof_;
  Seek question_;
  int rank_;
  std::vector<std::string> addresses_;
  std::optional<SeekerPatience> patience_;
  OnDone on_done_;
  asio::steady_timer timer_;
  std::size_t next_ = 0;
  bool all_refuse_ = true;  // connections, so far
  bool is_silent_ = false;  // somebody was, so far
  bool has_asked_ = false;  // on this connection: no answer is older than its question
  std::string hearsay_;
  std::string want_;
  std::string host_;
  std::shared_ptr<asio::ip::tcp::socket> socket_;  // that is being connected
  std::shared_ptr<ControlConnection> connection_;
};

}  // namespace crossdevice::detail
