// SPDX-License-Identifier: Apache-2.0
/// The chief on the network: takes in workers that prove who they are, carries their frames to the chief and back, and notices who is gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "comm/detail/chief.h"
#include "comm/detail/control_connection.h"
#include "comm/detail/control_options.h"
#include "comm/detail/reception.h"

namespace crossdevice::detail {

/// Threads  the io_context's alone (open() before it runs, too).
class ChiefService {
 public:
  /// `to_self` takes what the chief says to the worker in its own process.
  ChiefService(asio::io_context& io, const ControlPlaneOptions& options, MemberInfo self,
               std::function<void(const Frame&)> to_self);
  ChiefService(const ChiefService&) = delete;
  ChiefService& operator=(const ChiefService&) = delete;

  /// Listens, unless there is a single worker, and takes in its own one.
  ///
  /// Errors   UnavailableError: the address cannot be listened on.
  void open();
  [[nodiscard]] std::uint64_t cluster_id() const { return cluster_id_; }
  /// What the worker in its own process says.
  void handle_own(const Frame& frame) { chief_.handle(self_.rank, frame); }
  /// Tells those who came who did not, or which of them will not, because they have ended (`gone`); nothing if all have come.
  std::optional<Refused> cancel_meeting(const std::vector<int>& gone = {});
  /// To be called four times per heartbeat_timeout, and at the moment that the call before returned: then somebody may have been silent for too long.
  /// `was_asleep`: this process has been stopped since, so that it cannot know who was silent.
  std::chrono::steady_clock::time_point beat(bool was_asleep);
  /// This process has no memory for what it has to do: all are told so.
  void end_for_want() noexcept { chief_.end_for_want(); }
  /// The own worker leaves, nobody is taken in any more. The others may still end what they are in. Where the meeting was cancelled, whoever still comes is told so.
  void say_goodbye();
  /// Whether somebody is on the way to whom nobody else will say that the meeting was cancelled; who could not be taken in comes when those go who were.
  [[nodiscard]] bool is_anybody_in_doubt() const {
    return chief_.is_cancelled() && (chief_.is_anybody_in_doubt() || reception_.has_strangers() ||
                                     has_leaving_claimants() || !reception_.want().empty());
  }
  [[nodiscard]] bool is_cancelled() const { return chief_.is_cancelled(); }
  [[nodiscard]] bool is_alone() const { return sessions_.empty(); }
  /// Whether nothing that was said is still to be sent.
  [[nodiscard]] bool has_sent_all() const;
  /// To be called again and again after the goodbye: when a piece of what had been said until then has last been sent. What the others go on saying to each
  /// other does not count.
  [[nodiscard]] std::chrono::steady_clock::time_point last_sent();

 private:
  using Clock = std::chrono::steady_clock;
  using Connection = std::shared_ptr<ControlConnection>;
  /// Two processes want one rank before all have come: who holds it keeps it by answering `nonce` in time, or by coming again, and loses it with its
  /// connection. So a worker that was restarted gets the rank of its dead predecessor, whose end nobody may have noticed yet. One that lives but is stopped
  /// for longer, or has no connection at that moment, loses it too: nothing has been exchanged yet, and it is refused by name when it comes again.
  struct Contest {
    std::uint64_t nonce;  // a new one for each contest, so that no older answer is one
    Connection claimant;  // has proved that it holds the secret, and is not welcome yet
    Hello hello;          // of the claimant
    asio::steady_timer limit;
  };
  void send(int rank, SharedFrame frame) noexcept;
  void hear(int rank, const Frame& frame);
  [[nodiscard]] Clock::time_point silent_at(const ControlConnection& session) const;
  void answer_hello(const Connection& connection, const Nonce& challenge, const Frame& frame);
  [[nodiscard]] std::optional<Refused> doubt(const Connection& connection, const Nonce& challenge,
                                             const Hello& hello) const;
  [[nodiscard]] std::optional<Refused> judge(const Hello& hello);
  [[nodiscard]] Refused prove(Refused refused, const Hello& hello) const;
  void refuse_stranger(const Connection& stranger, std::string_view reason, const Refused& refused);
  [[nodiscard]] std::string describe_refused() const;
  void welcome(const Connection& connection, const Hello& hello);
  void say_welcome(const Connection& connection, const Hello& hello);
  void tell_past(const Connection& connection, const Hello& hello);
  void begin_session(const Connection& connection, int rank);
  [[nodiscard]] std::optional<Refused> contest(const Connection& claimant, const Hello& hello);
  void await_answer(int rank, std::uint64_t nonce, bool is_first_time);
  void hear_answer(int rank, std::uint64_t answers);
  void pass_on(int rank);
  void refuse_claimant(int rank, const Refused& refused);
  void refuse_claimants(const Refused& refused);
  [[nodiscard]] bool has_leaving_claimants() const;
  Refused end_meeting(StatusCode code, const std::string& text,
                      const std::vector<int>& culprits = {});
  void tell_clock(int rank, const Frame& question);
  void end_spoiled_meeting();
  [[nodiscard]] std::string describe_address() const;
  void warn_of_absence();
  [[nodiscard]] Clock::time_point end_for_want_of_descriptors();
  void drop_member(int rank, const std::string& why);

  asio::io_context& io_;
  const ControlPlaneOptions& options_;
  MemberInfo self_;
  std::function<void(const Frame&)> to_self_;
  std::uint64_t cluster_id_;
  Clock::time_point next_warning_;  // while they meet
  Chief chief_;
  Reception reception_;
  std::optional<Clock::time_point> wants_since_;  // descriptors for those who come
  std::string doubted_;                 // what was last said to who holds no proof, or another one
  std::map<int, Connection> sessions_;  // by rank
  std::map<int, Contest> contests_;     // by rank: only while it is held, and before all have come
  std::vector<std::weak_ptr<ControlConnection>> leaving_claimants_;  // are told why
  std::optional<Clock::time_point> all_sent_;                        // when last_sent() found so
};

}  // namespace crossdevice::detail
