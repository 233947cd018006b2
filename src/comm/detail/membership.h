// SPDX-License-Identifier: Apache-2.0
/// What a worker hears of its cluster from the chief: who is in it, how its rounds end, and what has ended them all. It has no connection and no thread: whoever has
/// them brings what the chief says and takes along what is said to the chief.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/deadline.h"

#include "comm/detail/control_message.h"
#include "comm/detail/membership_news.h"

namespace crossdevice::detail {

/// Threads  any, but for what is the control thread's: one at a time calls that. What both share is guarded by mutex_; the condition variable is notified after
///          every change that a waiter looks at. Listeners run on the control thread, or on whoever's ends this membership here, under the lock of MembershipNews,
///          which nobody takes while holding mutex_.
class Membership {
 public:
  using Clock = std::chrono::steady_clock;
  using End = Refused;  // why nothing can be exchanged any more

  /// For who may still have something to say of a round.
  struct Patience {
    /// What a call ends later than an inquest where the chief is stopped or cut off. One that lives answers at once, but on a machine that is busy.
    std::chrono::nanoseconds chiefs_answer = std::chrono::milliseconds(250);
    /// So long before a round is given up, those that it misses are asked what they do: what the last heartbeat said may be seconds old.
    std::chrono::nanoseconds question = std::chrono::milliseconds(200);
  };
  struct Options {
    int rank = 0;
    int num_workers = 1;
    std::chrono::nanoseconds stall_warning{};
    Patience patience{};
  };
  struct Events {
    /// Says that to the chief, behind what was said before. On any thread; must not wait.
    std::function<void(ControlKind kind, std::string payload)> say;
    /// All have come. On the control thread, under mutex_.
    std::function<void()> on_members;
    /// The chief asks what this worker does. On the control thread.
    std::function<void(std::uint64_t nonce)> on_question;
  };

  Membership(const Options& options, Events events);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// The control thread's: what the chief says, once it has proved who it is.
  ///
  /// Errors   WireError: nothing that a chief says.
  void hear(const Frame& frame);
  /// The control thread's.
  void lose_chief(const std::string& why);

  /// Until all have come or something has ended this, at latest until then; whether one of these is so.
  bool await_meeting(Clock::time_point latest);
  /// Ends it, unless all have come or something has ended it.
  void end_meeting(End reason);
  /// Why not all have come.
  [[nodiscard]] std::optional<End> meeting_failure() const;
  /// By rank. Constant once all have come.
  [[nodiscard]] const std::vector<MemberInfo>& members() const { return members_; }
  [[nodiscard]] RankInfo info_of(int rank) const;

  /// The following as ControlPlane's.
  std::vector<std::string> exchange(const RoundId& id, const std::vector<int>& members,
                                    const std::string& kind, std::string bytes,
                                    const Deadline& deadline, const RoundListener& on_end);
  void give_up(const RoundId& id, const std::string& text);
  void post(std::uint64_t group, std::vector<int> to, std::string bytes);
  std::vector<std::string> ask(const std::vector<int>& ranks, const Deadline& deadline);
  /// One that a call of this worker's waits in: "barrier #5"; empty: none. Those whose failure somebody listens to accompany other calls, and do not count.
  [[nodiscard]] std::string round_under_way() const;
  void stop_all(const std::string& text);
  void stop_here(int origin, const std::string& text);

  /// The first reason counts.
  void end(End reason);
  /// Others go on without this worker, which counts for more than any reason before.
  void leave_out(const std::string& text);
  [[nodiscard]] MembershipNews& news() { return news_; }

 private:
  struct Pending {
    std::string kind;
    std::size_t num_parts;
    RoundListener on_end;
    std::optional<std::vector<std::string>> parts{};
    std::optional<ExchangeFailed> failure{};
    std::optional<std::string> given_up{};  // by another thread, which says why
    [[nodiscard]] bool has_ended() const { return parts.has_value() || failure.has_value(); }
  };
  /// A round's place among those that wait. Whichever way its caller leaves, an exception for want of memory too, nobody writes to it afterwards. Made before
  /// the caller takes mutex_, so that it ends after the caller has let go of it.
  struct Waiting {
    Membership& membership;
    const RoundId& id;
    bool is_listed = false;
    ~Waiting() {
      if (!is_listed) return;
      const std::lock_guard lock(membership.mutex_);
      membership.pending_.erase(id);
    }
  };

  struct Question {
    const std::vector<int>& ranks;
    std::vector<std::string> operations;  // in their order
    std::size_t num_answers = 0;
  };

  void hear_members(Members all);
  void hear_doing(Doing message);
  void hear_parts(Exchanged message);
  void hear_failure(ExchangeFailed message);
  void require_rank(int rank) const;
  void require_ranks(const std::vector<RankInfo>& ranks) const;
  void warn_of_stall(const Missing& missing);
  Pending* find_open(const RoundId& id);
  void await_answer(std::unique_lock<std::mutex>& lock, const RoundId& id, Pending& pending,
                    const Deadline& deadline);

  const Options options_;
  const Events events_;
  bool chief_says_goodbye_ = false;  // the control thread's
  std::vector<MemberInfo> members_;  // the control thread's until all have come
  MembershipNews news_;

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable changed_;
  bool all_are_there_ = false;
  std::optional<End> end_;
  std::map<RoundId, Pending*> pending_;
  std::map<std::uint64_t, Question*> questions_;  // that wait for answers
  std::uint64_t num_questions_ = 0;
};

}  // namespace crossdevice::detail
