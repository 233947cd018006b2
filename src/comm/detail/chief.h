// SPDX-License-Identifier: Apache-2.0
/// What the chief of a cluster knows and decides: who is there, and how far every round has come. No sockets, no clocks, no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/detail/control_message.h"

namespace crossdevice::detail {

/// How a cluster is told to meet.
struct ChiefOptions {
  int num_workers = 1;
  std::string library_version;
  /// Which cluster of which job this is; see ControlPlaneOptions.
  std::uint64_t job = 0;
  std::uint64_t epoch = 1;
  /// Where each rank should be, as far as anybody said so; empty: nobody did.
  std::vector<std::string> addresses_by_rank{};
};

/// Events in, frames out. A rank that breaks the protocol gets a WireError from handle(): its connection should be closed and lost() be said.
///
/// Threads  one at a time.
class Chief {
 public:
  /// Delivers a frame to a member that is present; must not call back.
  using Send = std::function<void(int rank, SharedFrame frame)>;

  /// `self`: the worker in whose process it is.
  Chief(ChiefOptions options, const RankInfo& self, Send send);

  /// Why a worker whose proof has been checked may not take part; nothing: it may. Remembered for those who wait for that rank.
  [[nodiscard]] std::optional<Refused> refuse(const Hello& hello);
  /// Whether a worker that may take part claims the rank of another process that is there, before all have come. Nothing has been exchanged yet, so that the
  /// rank may change hands: the holder keeps it by showing that it is alive; else await_anew() and lost() are to be said of it. Both have proved that they
  /// hold the job's secret, so that whoever can take a rank away from a worker that does not answer could as well have come first.
  [[nodiscard]] bool is_contested(const Hello& hello) const;
  /// What who claims a rank is told whose holder keeps it.
  [[nodiscard]] Refused held_by_another(const Hello& hello) const;
  /// Whether a worker that may take part has come before, and so have all others: it comes again, so that it has not heard that, and its link is why. It is
  /// no member any more, or is none as soon as the end of that connection is known on which it was to hear it; see past_of().
  [[nodiscard]] bool comes_late(const Hello& hello) const;
  /// What one that comes late is told behind its welcome: who is there, and that it has been given up. The same reads who was stopped meanwhile, when it
  /// goes on: to its program the meeting went well, its next call fails, and it may meet the others anew. It has given its part to no round, since it has
  /// heard of no member.
  [[nodiscard]] std::vector<SharedFrame> past_of(int rank) const;
  /// Takes in a worker that may, and whose rank is not contested; before all have come. When the last one comes all are told who is there.
  void admit(const Hello& hello);
  /// Whether everybody has come.
  [[nodiscard]] bool is_complete() const { return num_admitted_ == members_.size(); }
  /// Ranks that have not come yet.
  [[nodiscard]] std::vector<int> absent() const;
  /// Whether everybody has come or was refused because its program is another one: nobody is worth waiting for.
  [[nodiscard]] bool is_spoiled() const;
  /// The meeting ends without the absent, for which `culprits` are to blame (nobody: all of them, and who came and went): those who came are told, and so is whoever comes later: nobody may any
  /// more. Returns what they are told.
  Refused cancel_meeting(StatusCode code, const std::string& text,
                         const std::vector<int>& culprits = {});
  [[nodiscard]] bool is_cancelled() const { return cancelled_.has_value(); }
  /// Whether somebody who had come has lost its connection meanwhile, and so does not know yet that the meeting was cancelled.
  [[nodiscard]] bool is_anybody_in_doubt() const;
  /// "rank 1 (at b:2222), rank 3 (at d:2222)", why some of them were refused, and who came and went meanwhile.
  [[nodiscard]] std::string describe_absent() const;

  /// A frame from a member. Where there is no memory for it, a std::bad_alloc leaves this half done: end_for_want() is to be said.
  void handle(int rank, const Frame& frame);
  /// The chief's own worker, whose process has no memory for what it is told: as if it had aborted, which is why all are told that and not that somebody else is
  /// gone. Needs none but what `send` does.
  void end_for_want() noexcept;
  /// A member's connection has ended, or it is silent for too long. Does nothing for one that has gone before.
  void lost(int rank, const std::string& text);
  /// Not all have come yet, and a member that had is silent: it may be the network that is, so that it is waited for again. Does nothing later.
  void await_anew(int rank);
  [[nodiscard]] bool is_present(int rank) const;
  /// How many members are still there.
  [[nodiscard]] std::size_t num_present() const;

 private:
  enum class Presence : std::uint8_t { ABSENT, PRESENT, GONE };
  struct Member {
    MemberInfo info;
    Presence presence = Presence::ABSENT;
    std::string operation{};     // of its last heartbeat
    std::string gone_text{};     // why it has gone
    std::string refused_text{};  // why one that claimed this rank was refused
  };
  struct Round {
    std::vector<int> members;
    std::vector<std::string> parts;
    std::vector<bool> has_part;
    std::size_t num_parts = 0;
    std::size_t num_bytes = 0;  // of the parts
    std::string kind;
    int first = -1;  // who began it
  };
  struct Question {
    int asker;
    std::uint64_t number;  // of its WhatTheyDo
  };
  struct Failure {
    StatusCode code;
    std::string text;
    std::vector<RankInfo> culprits;
  };

  struct Ending {
    Failure failure;
    SharedFrame frame;  // that says so
  };
  [[nodiscard]] static Ending make_ending(const RankInfo& origin, const std::string& text);
  void end_all(Ending ending);

  [[nodiscard]] std::size_t index_of(int rank, const std::vector<int>& members) const;
  void exchange(int rank, Exchange message);
  void give_up(int rank, const GiveUp& message);
  void pass_on(int rank, const Post& message);
  void ask(int rank, const WhatTheyDo& message);
  void answer_for(int rank);
  void stop_all(int rank, const Abort& message);
  void fail(const RoundId& id, const Failure& failure);
  void complete(const RoundId& id, Round& round);
  void take_leave(int rank, const std::string& text);
  [[nodiscard]] std::vector<int> gone() const;
  [[nodiscard]] std::optional<Failure> failure_of_gone(const Round& round) const;
  [[nodiscard]] std::optional<std::string> mismatch_of(const Hello& hello) const;
  [[nodiscard]] std::vector<RankInfo> missing(const RoundId& id) const;
  [[nodiscard]] RankInfo rank_info(int rank) const;
  [[nodiscard]] Members everybody() const;
  [[nodiscard]] Member& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Member& member(int rank) const {
    return members_[static_cast<std::size_t>(rank)];
  }
  void send(int rank, ControlKind kind, const std::string& payload);
  void send_to_all(const SharedFrame& frame);

  ChiefOptions options_;
  Send send_;
  int self_;
  Ending ending_for_want_;  // made while there is memory
  std::vector<Member> members_;
  std::size_t num_admitted_ = 0;
  std::multimap<int, Question> questions_;     // that wait for word of that rank
  std::map<RoundId, Round> rounds_;            // that are open
  std::map<std::uint64_t, Failure> failures_;  // of broken groups
  std::optional<Failure> aborted_;             // breaks every group
  std::optional<Refused> cancelled_;           // what was said when the meeting was
};

}  // namespace crossdevice::detail
