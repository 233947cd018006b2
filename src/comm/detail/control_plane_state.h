// SPDX-License-Identifier: Apache-2.0
/// What a ControlPlane is to its own files.
///
/// Who touches what. The io_context has one thread, and everything in "the control thread's" below is its alone: sockets, timers, the chief. What
/// other threads and it share is guarded by mutex_; the condition variable is notified after every change that a waiter looks at. Listeners run on
/// the control thread, or on whoever's stops this cluster here, under the lock of MembershipNews, which nobody takes while holding mutex_.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "comm/detail/chief_link.h"
#include "comm/detail/chief_service.h"
#include "comm/detail/control_plane.h"
#include "comm/detail/membership_news.h"
#include "comm/detail/operations_under_way.h"

namespace crossdevice::detail {

class ControlPlane::State : public std::enable_shared_from_this<ControlPlane::State> {
 public:
  explicit State(const ControlPlaneOptions& options);
  void meet(const Deadline& deadline);
  void leave();
  std::vector<std::string> exchange(const RoundId& id, const std::vector<int>& members,
                                    const std::string& kind, std::string bytes,
                                    const Deadline& deadline, const RoundListener& on_end);
  void give_up(const RoundId& id, const std::string& text);
  void post(std::uint64_t group, std::vector<int> to, std::string bytes);
  void stop_all(const std::string& text);
  void stop_here(int origin, const std::string& text);
  void supersede(const std::string& text, bool is_left_out);
  void set_operation(std::string operation) {
    const std::lock_guard lock(mutex_);
    operation_ = std::move(operation);
  }
  void enter_operation(std::string_view kind, std::uint64_t sequence) {
    operations_.enter(kind, sequence);
  }
  void leave_operation() { operations_.leave(); }
  std::shared_ptr<void> listen(MembershipListener listener);

  [[nodiscard]] const std::vector<MemberInfo>& members() const { return members_; }
  [[nodiscard]] std::uint64_t cluster_id() const { return cluster_id_; }

 private:
  struct Pending {
    std::string kind;
    RoundListener on_end;
    std::optional<std::vector<std::string>> parts;
    std::optional<ExchangeFailed> failure;
    std::optional<std::string> given_up;  // by another thread, which says why
    [[nodiscard]] bool has_ended() const { return parts.has_value() || failure.has_value(); }
  };
  /// A round's place among those that wait. Whichever way its caller leaves, an exception for want of memory too, nobody writes to it afterwards. Made before
  /// the caller takes mutex_, so that it ends after the caller has let go of it.
  struct Waiting {
    State& state;
    const RoundId& id;
    bool is_listed = false;
    ~Waiting() {
      if (!is_listed) return;
      const std::lock_guard lock(state.mutex_);
      state.pending_.erase(id);
    }
  };
  using End = Refused;  // why nothing can be exchanged any more

  [[nodiscard]] bool is_chief() const { return options_.rank == 0; }
  void post_to_chief(ControlKind kind, std::string payload);

  // The control thread's.
  ChiefLink::Events link_events();
  void hear(const Frame& frame);
  void hear_members(Members all);
  void hear_parts(Exchanged message);
  void hear_failure(ExchangeFailed message);
  void hear_abort(const Abort& message);
  void hear_post(const Post& message);
  void lose_chief(const std::string& why);
  void beat();
  void say_operation(std::uint64_t answers);
  void await_farewells(std::chrono::steady_clock::time_point begin);
  void to_chief(ControlKind kind, const std::string& payload);

  void end(End reason);
  void warn_of_stall(const Missing& missing);
  void await_answer(std::unique_lock<std::mutex>& lock, const RoundId& id, Pending& pending,
                    const Deadline& deadline);
  [[nodiscard]] RankInfo info_of(int rank) const;

  const ControlPlaneOptions options_;
  asio::io_context io_{1};
  std::thread thread_;

  // The control thread's.
  asio::steady_timer beat_timer_{io_};
  asio::steady_timer farewell_timer_{io_};
  std::optional<ChiefService> chief_;  // one of the two
  std::optional<ChiefLink> link_;
  std::chrono::steady_clock::time_point last_beat_;
  bool chief_says_goodbye_ = false;
  std::optional<std::chrono::steady_clock::time_point> told_all_;  // that the meeting was cancelled

  // Written before meet() returns, constant afterwards.
  std::vector<MemberInfo> members_;
  std::uint64_t cluster_id_ = 0;

  std::atomic<bool> is_superseded_{false};
  std::atomic<std::chrono::steady_clock::time_point> leave_by_{};
  OperationsUnderWay operations_;
  std::atomic<bool> lacks_means_{false};  // to reach the chief, or for anything

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable changed_;
  bool all_are_there_ = false;
  bool is_leaving_ = false;
  bool has_left_ = false;
  bool has_connection_ = false;
  std::string last_connection_error_ = "no attempt to connect has begun yet";
  std::optional<End> end_;
  std::map<RoundId, Pending*> pending_;
  std::string operation_;

  MembershipNews news_;
};

}  // namespace crossdevice::detail
