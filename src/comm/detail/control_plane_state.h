// SPDX-License-Identifier: Apache-2.0
/// What a ControlPlane is to its own files.
///
/// Who touches what. The io_context has one thread, and everything in "the control thread's" below is its alone: sockets, timers, the chief, and what
/// Membership says of it. What other threads and it share is guarded by mutex_; the condition variable is notified after every change that a waiter looks at.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
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
#include "comm/detail/membership.h"
#include "comm/detail/operations_under_way.h"

namespace crossdevice::detail {

class ControlPlane::State : public std::enable_shared_from_this<ControlPlane::State> {
 public:
  explicit State(const ControlPlaneOptions& options);
  void meet(const Deadline& deadline);
  void leave();
  void supersede(const std::string& text, bool is_left_out);
  void set_operation(std::string operation) {
    const std::lock_guard lock(mutex_);
    operation_ = std::move(operation);
  }
  void enter_operation(std::string_view kind, std::uint64_t sequence) {
    operations_.enter(kind, sequence);
  }
  void leave_operation() { operations_.leave(); }
  std::shared_ptr<void> add_operations(std::function<std::string()> read);
  std::shared_ptr<void> listen(MembershipListener listener);

  [[nodiscard]] Membership& membership() { return membership_; }
  [[nodiscard]] std::uint64_t cluster_id() const { return cluster_id_; }

 private:
  [[nodiscard]] bool is_chief() const { return options_.rank == 0; }
  bool has_chief_given_up();
  void end_farewells();
  void end_meeting(const std::vector<int>& gone);

  // The control thread's.
  ChiefLink::Events link_events();
  Membership::Events membership_events();
  void beat();
  [[nodiscard]] std::string operation();
  void say_operation(std::uint64_t answers);
  void say_farewell();
  void await_farewells(std::chrono::steady_clock::time_point begin);
  [[nodiscard]] Refused want_of(const std::string& what) const;
  void to_chief(ControlKind kind, const std::string& payload);

  const ControlPlaneOptions options_;
  asio::io_context io_{1};
  std::thread thread_;
  Membership membership_;

  // The control thread's.
  asio::steady_timer beat_timer_{io_};
  asio::steady_timer farewell_timer_{io_};
  std::optional<ChiefService> chief_;  // one of the two
  std::optional<ChiefLink> link_;
  std::chrono::steady_clock::time_point last_beat_;
  Refused want_of_memory_;                                         // made while there was some
  std::optional<std::chrono::steady_clock::time_point> told_all_;  // that the meeting was cancelled

  // Written before meet() returns, constant afterwards.
  std::uint64_t cluster_id_ = 0;

  std::atomic<bool> is_superseded_{false};
  std::atomic<std::chrono::steady_clock::time_point> leave_by_{};
  OperationsUnderWay operations_;
  std::atomic<bool> lacks_means_{false};  // to reach the chief, or for anything

  std::mutex readers_mutex_;  // guards the next; held while they are called
  std::list<std::function<std::string()>> readers_;

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable changed_;
  bool is_leaving_ = false;
  bool has_left_ = false;
  bool has_connection_ = false;
  std::string last_connection_error_ = "no attempt to connect has begun yet";
  std::optional<std::chrono::steady_clock::time_point> refused_since_;  // by the chief's host
  std::string operation_;
};

}  // namespace crossdevice::detail
