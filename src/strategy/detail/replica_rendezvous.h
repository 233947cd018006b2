// SPDX-License-Identifier: Apache-2.0
/// Where the replicas of one run meet: the last to come carries out the call for all.
///
/// A round is one collective call. Each replica that arrives leaves its call in its slot and waits; the last one compares the calls, executes
/// them, and sets every slot's outcome.
///
/// Why it is right
///   Exclusion   slots, counts and errors change under mutex_ only. An executor exists only while all replicas have arrived, so there is one at
///               most, and nobody can arrive, leave or fail meanwhile.
///   Visibility  what a replica wrote before it arrived reaches the executor through mutex_; what the executor wrote reaches a waiting replica
///               through its slot's outcome (released, acquired).
///   Lifetime    a call lives on its replica's stack. The replica leaves only after its outcome is set, and who sets it - the executor at the
///               end of the round, or a replica that gives up, returns or fails before all have come - does not touch the calls afterwards.
///   Errors      round_error_ is read only by replicas of a failed round, and written next when all of them have arrived again.
///   End         a wait ends when the round does (the operation has a deadline of its own, a merge function is the user's), when its
///               deadline passes before all have come, or when a replica has left and so never will come. After a deadline the run is broken, since
///               the replicas are out of step: every later call fails at once.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "crossdevice/core/error.h"

#include "strategy/detail/replica_call.h"

namespace crossdevice::detail {

struct RendezvousSettings {
  std::size_t num_replicas = 1;
  std::size_t first_replica_id = 0;
  /// A replica that has waited so long without a deadline says so in the log; then after twice as long, ...
  std::chrono::nanoseconds stall_warning = std::chrono::seconds(10);
};

class ReplicaRendezvous {
 public:
  explicit ReplicaRendezvous(const RendezvousSettings& settings);
  ~ReplicaRendezvous();
  ReplicaRendezvous(const ReplicaRendezvous&) = delete;
  ReplicaRendezvous& operator=(const ReplicaRendezvous&) = delete;

  /// A run begins: nobody waits, nothing has gone wrong.
  void begin();
  /// Blocks until every replica has made its call and they have been carried out together.
  ///
  /// Errors   as ReplicaContext; what ReplicaCall::execute throws, on every replica.
  void call(std::size_t replica, ReplicaCall& call);
  /// The replica's function has returned.
  void leave(std::size_t replica) noexcept;
  /// The replica's function has thrown.
  void leave(std::size_t replica, const std::exception_ptr& error) noexcept;
  /// What the first replica that failed threw; null: none did. After all have left.
  [[nodiscard]] std::exception_ptr take_first_error();

 private:
  enum class Outcome : std::uint8_t { WAITING, DONE, FAILED, ABANDONED };
  enum class Presence : std::uint8_t { RUNNING, RETURNED, THREW };
  struct alignas(64) Slot {  // a cache line each: a waiting replica watches its own
    std::atomic<Outcome> outcome = Outcome::DONE;
    Presence presence = Presence::RUNNING;  // guarded by mutex_, as all below
    ReplicaCall* call = nullptr;            // set while it waits for this round
    std::uint64_t num_calls = 0;
    CallKind last_kind = CallKind::ALL_REDUCE;
  };
  /// Why no round of this run can complete any more.
  struct Broken {
    enum class Reason : std::uint8_t { NOTHING, DEADLINE, FAILURE } reason = Reason::NOTHING;
    std::string text;
    OpErrorDetails details;
  };

  void execute_round();
  void wait(std::size_t replica, const ReplicaCall& call);
  [[nodiscard]] bool wait_awake(const Slot& slot, const Deadline& deadline) const;
  void wait_asleep(std::unique_lock<std::mutex>& lock, std::size_t replica,
                   const ReplicaCall& call);

  // Under mutex_:
  void release_all(Outcome outcome);
  void give_up(const ReplicaCall& call);
  void describe_timeout(const ReplicaCall& call);
  void record_failure(std::size_t replica, const std::exception_ptr& error);
  void warn_of_stall(std::unique_lock<std::mutex>& lock, std::size_t replica,
                     const ReplicaCall& call, std::chrono::nanoseconds waited);
  [[noreturn]] void throw_abandoned(std::size_t replica, const ReplicaCall& call, bool was_waiting);
  [[nodiscard]] std::vector<RankInfo> missing_replicas() const;
  [[nodiscard]] RankInfo info(std::size_t replica) const;
  [[nodiscard]] std::size_t id(std::size_t replica) const {
    return settings_.first_replica_id + replica;
  }

  const RendezvousSettings settings_;
  const std::size_t num_spins_;
  std::mutex mutex_;
  std::unique_ptr<std::condition_variable> changed_;  // see the destructor
  std::vector<Slot> slots_;
  std::vector<ReplicaCall*> round_;  // the executor's; kept so that rounds allocate nothing
  std::size_t num_waiting_ = 0;
  std::size_t num_sleeping_ = 0;
  std::size_t num_left_ = 0;
  std::size_t first_arrived_ = 0;  // of this round: the one that warns
  bool is_executing_ = false;
  std::exception_ptr round_error_;
  std::exception_ptr first_error_;
  Broken broken_;
};

}  // namespace crossdevice::detail
