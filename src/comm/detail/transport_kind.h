// SPDX-License-Identifier: Apache-2.0
/// What all transports have in common: checks, queues, waiting, failing. A kind supplies the protected hooks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/comm/transport.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"

#include "comm/detail/spin_patience.h"
#include "comm/detail/transfer_queue.h"

namespace crossdevice::detail {

/// Why a transport is broken.
struct TransportFailure {
  StatusCode code = StatusCode::INTERNAL;
  std::string text;
  std::vector<RankInfo> culprits;
  int origin = -1;               // who said so first; -1: this member
  bool is_known_to_all = false;  // the control plane has told everybody
};

/// That of who has gone without a word to this member, or before it has done its part.
[[nodiscard]] TransportFailure departure(const RankInfo& member, std::string_view how);

/// Public calls: see Transport.
///
/// Threads. One thread at a time uses it, its owner; others may stop it. Everything but the failure is the turn's: whoever holds the turn may touch
/// queues and call hooks. The owner takes it for each call and lets go of it while it sleeps. A failure is recorded by anybody (record_failure), and
/// acted upon (end(): tell the others, let go of all transfers) by whoever has the turn next.
///
/// Why a failure is always acted upon, though stop() never waits for the turn: the stopper writes has_failed_, then tries to take the turn. If that
/// fails somebody holds it, who reads has_failed_ after giving it back. All four accesses are sequentially consistent, so at least one of the two
/// sees the other.
class TransportKind {
 public:
  using Clock = Deadline::Clock;

  virtual ~TransportKind() = default;
  TransportKind(const TransportKind&) = delete;
  TransportKind& operator=(const TransportKind&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int num_ranks() const { return static_cast<int>(peers_.size()); }
  void connect(std::span<const int> peers, const Deadline& deadline);
  void begin(const GroupOperationInfo& operation);
  void send(int to, std::span<const std::byte> bytes, Transfer& transfer);
  void receive(int from, std::span<std::byte> bytes, Transfer& transfer);
  void exchange(int with, std::span<const std::byte> out, Transfer& sending,
                std::span<std::byte> in, Transfer& receiving, const Deadline& deadline);
  bool poll();
  void look();
  void require_time_left(const Deadline& deadline);
  void look_until(const Deadline& deadline);
  void wait(const Deadline& deadline);
  void wait(Transfer& transfer, const Deadline& deadline);
  [[nodiscard]] Transfer* take_completed();
  void stop(TransportFailure failure);
  [[nodiscard]] TransportCounters counters() const;
  [[nodiscard]] std::span<const PeerTraffic> traffic_at_end() const { return traffic_; }

  /// To be called once, before the destructor, while the hooks are still there.
  virtual void close() = 0;

 protected:
  struct Peer {
    RankInfo info;
    TransferQueue sends;
    TransferQueue receives;
    std::uint64_t num_sends = 0;  // of this operation
    std::uint64_t num_receives = 0;
    bool is_connected = false;
    bool is_active = false;  // named in active_
    [[nodiscard]] bool has_transfers() const { return !sends.is_empty() || !receives.is_empty(); }
  };

  /// `spins`: whether a waiter may keep its core for a moment; not where there are more members than cores. `stall_warning`: after how long a wait is
  /// spoken of.
  TransportKind(int rank, const std::vector<RankInfo>& members, bool spins,
                std::chrono::nanoseconds stall_warning = std::chrono::seconds(30));

  // Hooks, called with the turn unless said otherwise. None throws but open(); what goes wrong is recorded.

  virtual void open(std::span<const int> peers, const Deadline& deadline) = 0;
  /// The transfer is in its peer's queue, unless the kind queues by itself.
  virtual void start_send(Peer& peer, Transfer& transfer) = 0;
  virtual void start_receive(Peer& peer, Transfer& transfer) = 0;
  /// Moves what can be moved; whether anything moved. Bounded, so that a waiter looks at its deadline in between.
  virtual bool progress() = 0;
  /// The next progress() looks at members that nothing is expected from, too: a message of this very operation that says another one is a failure.
  virtual void look_everywhere() {}
  /// Whether a waiter had better sleep at once: what is on its way takes longer than waking up, and asking for it would hold it up.
  [[nodiscard]] virtual bool is_bulky() const { return false; }
  /// The last thing before sleep().
  virtual void prepare_sleep() {}
  /// Without the turn, on the owner's thread: returns at `until`, or when something has come since the last progress() began, or after wake().
  virtual void sleep(Clock::time_point until) = 0;
  /// On any thread: ends sleep(), now or next.
  virtual void wake() noexcept = 0;
  /// Tells the other members, without waiting. Called once, before let_go().
  virtual void tell(const TransportFailure& failure) noexcept = 0;
  /// Nobody but the owner's thread touches the queued transfers' memory afterwards.
  virtual void let_go() noexcept = 0;
  /// Waits, a moment at most, until what was told has left.
  virtual void linger() noexcept {}

  // For the hooks.

  [[nodiscard]] Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const RankInfo& info_of(int rank) const {
    return peers_[static_cast<std::size_t>(rank)].info;
  }
  [[nodiscard]] bool is_anything_under_way() const { return num_under_way_ != 0; }
  [[nodiscard]] std::uint64_t operation_count() const { return operation_count_; }
  [[nodiscard]] const GroupOperation& operation() const { return operation_; }
  /// Calls `move(peer)` for each peer with transfers; whether any returned true.
  template <class Move>
  bool for_active(Move move);
  /// The transfer is done; it is in no queue any more.
  void complete(Transfer& transfer);
  /// Any thread; the first one counts. The owner throws it when it next looks.
  void record_failure(TransportFailure failure);
  /// The same, and acts upon it if nobody has the turn.
  void fail_from_outside(TransportFailure failure);
  /// From now on what the control plane says of members ends the transport, for all of them. `has_left` (any thread): a member's departure, which is no
  /// failure by itself. Until the handle ends.
  [[nodiscard]] std::shared_ptr<void> listen_to(Cluster& cluster,
                                                std::function<void(int rank)> has_left);
  [[nodiscard]] bool has_failed() const { return has_failed_.load(std::memory_order_seq_cst); }
  /// A peer's message belongs to another operation.
  void fail_by_operation(int from, std::uint64_t their_count, const GroupOperation& theirs);
  /// A peer's message has another size.
  void fail_by_size(int from, std::uint64_t number, std::uint64_t their_size, std::size_t size);
  /// There is no memory here for what a peer says.
  void fail_by_want(int from);
  /// What the destructor of a kind does first: lets go of everything, without touching the transfers.
  void forget_all() noexcept;

 private:
  class Turn;
  template <class IsOver>
  void wait_until(Turn& turn, IsOver is_over, const Deadline& deadline);
  void require_whole();
  Peer& require_connected(int rank);
  void require_free(Transfer& transfer) const;
  void begin_send(Peer& peer, std::span<const std::byte> bytes, Transfer& transfer);
  void begin_receive(Peer& peer, std::span<std::byte> bytes, Transfer& transfer);
  TransferState& begin_transfer(const Peer& peer, std::size_t size, Transfer& transfer);
  void take(Transfer& transfer);
  void give_back_turn();
  void note_traffic() noexcept;
  void end() noexcept;
  void activate(int rank);
  [[noreturn]] void throw_failure();
  [[nodiscard]] TransportFailure deadline_failure(Clock::time_point begin) const;
  [[nodiscard]] std::uint64_t bytes_under_way() const;
  [[nodiscard]] std::vector<RankInfo> awaited() const;
  void warn_of_stall(Turn& turn);

  const int rank_;
  const std::uint64_t serial_;
  const std::chrono::nanoseconds stall_warning_;
  const Cluster* asked_ = nullptr;  // what members do, and who is the chief; null: nobody knows

  std::atomic<bool> has_turn_{false};
  // The turn's.
  std::vector<Peer> peers_;
  std::vector<int> active_;  // never grows beyond what is reserved
  TransferQueue completed_;
  std::vector<PeerTraffic> traffic_;  // when it ended; never grows beyond what is reserved
  std::size_t num_under_way_ = 0;
  SpinPatience patience_;
  std::uint64_t operation_count_ = 0;
  GroupOperation operation_;

  std::atomic<bool> has_ended_{false};   // written with the turn
  std::atomic<bool> has_failed_{false};  // after failure_
  mutable std::mutex failure_mutex_;
  std::optional<TransportFailure> failure_;  // constant once it is there

  std::atomic<std::uint64_t> messages_sent_{0};  // these four: written with the turn
  std::atomic<std::uint64_t> messages_received_{0};
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
};

template <class Move>
bool TransportKind::for_active(Move move) {
  bool has_moved = false;
  for (std::size_t i = 0; i < active_.size();) {
    Peer& each = peer(active_[i]);
    if (each.has_transfers() && move(active_[i])) has_moved = true;
    if (each.has_transfers()) {
      ++i;
      continue;
    }
    each.is_active = false;
    active_[i] = active_.back();
    active_.pop_back();
  }
  return has_moved;
}

/// All of them: "rank 1 (host b, pid 4), rank 2 (...)".
[[nodiscard]] std::string names_of(const std::vector<RankInfo>& ranks);

}  // namespace crossdevice::detail
