// SPDX-License-Identifier: Apache-2.0
/// Who touches what. A Pair is one direction between two members. Its sender queues transfers, its receiver copies them, and between them lies the
/// pair's mutex: the links of the queue from `first_uncopied` on, and the memory of these transfers, are touched by the receiver only while it holds the
/// mutex and has found the transfer in the queue. So a sender that takes its transfers out of the queue under the mutex has its memory to itself.
/// Transfers before `first_uncopied` are the sender's alone: the receiver has left them behind before it counts them in num_copied (release), which is
/// how the sender learns of them.
#include "crossdevice/comm/in_process_transport.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/usable_cores.h"

#include "comm/detail/transport_kind.h"

namespace crossdevice {
namespace {

using detail::departure;
using detail::state_of;
using detail::TransferState;
using detail::TransportFailure;
using detail::TransportKind;

/// Copied without letting go of the mutex: how long a sender that gives up may have to wait.
constexpr std::size_t kChunkBytes = std::size_t{128} << 10;
/// Copied from one peer before the next one's turn.
constexpr std::size_t kTurnBytes = std::size_t{1} << 20;

/// What one member sleeps on. Who makes something for it to look at counts `num_events` up; so nothing is overlooked that came after the
/// number was read.
class Bell {
 public:
  [[nodiscard]] std::uint64_t num_events() const {
    return num_events_.load(std::memory_order_seq_cst);
  }
  void ring() noexcept {
    num_events_.fetch_add(1, std::memory_order_seq_cst);
    if (!is_sleeping_.load(std::memory_order_seq_cst)) return;
    { const std::lock_guard lock(mutex_); }  // it has begun to wait, or has not yet looked
    changed_.notify_all();
  }
  /// Until there are other than `seen` events.
  void sleep(std::uint64_t seen, std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(mutex_);
    is_sleeping_.store(true, std::memory_order_seq_cst);
    changed_.wait_until(lock, until, [&] { return num_events() != seen; });
    is_sleeping_.store(false, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> num_events_{0};
  std::atomic<bool> is_sleeping_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct Pair {
  std::mutex mutex;  // guards the next three, and see above
  Transfer* first_uncopied = nullptr;
  std::uint64_t operation_count = 0;  // what the uncopied belong to
  GroupOperation operation;
  std::atomic<std::uint64_t> num_queued{0};
  std::atomic<std::uint64_t> num_copied{0};
};

class InProcessKind;

/// What the members share. Lives as long as the last of them.
struct Hub {
  explicit Hub(std::size_t num_ranks)
      : pairs(num_ranks * num_ranks), bells(num_ranks), have_left(num_ranks), kinds(num_ranks) {}
  [[nodiscard]] Pair& pair(int from, int to) {
    return pairs[static_cast<std::size_t>(from) * bells.size() + static_cast<std::size_t>(to)];
  }
  [[nodiscard]] Bell& bell(int rank) { return bells[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::atomic<bool>& has_left(int rank) {
    return have_left[static_cast<std::size_t>(rank)];
  }

  std::vector<Pair> pairs;
  std::vector<Bell> bells;
  std::vector<std::atomic<bool>> have_left;
  std::mutex kinds_mutex;             // guards the next one; taken before any other
  std::vector<InProcessKind*> kinds;  // null: it has left
};

class InProcessKind final : public TransportKind {
 public:
  InProcessKind(std::shared_ptr<Hub> hub, int rank, const std::vector<RankInfo>& members,
                bool spins)
      : TransportKind(rank, members, spins),
        hub_(std::move(hub)),
        num_taken_(members.size()),
        num_collected_(members.size()) {
    const std::lock_guard lock(hub_->kinds_mutex);
    hub_->kinds[static_cast<std::size_t>(rank)] = this;
  }
  void close() override;

 protected:
  void open(std::span<const int> /*peers*/, const Deadline& /*deadline*/) override {}
  void start_send(Peer& peer, Transfer& transfer) override;
  void start_receive(Peer& peer, Transfer& transfer) override { peer.receives.push_back(transfer); }
  bool progress() override;
  void sleep(Clock::time_point until) override { own_bell().sleep(num_seen_, until); }
  void wake() noexcept override { own_bell().ring(); }
  void tell(const TransportFailure& failure) noexcept override;
  void let_go() noexcept override;

 private:
  [[nodiscard]] Bell& own_bell() { return hub_->bell(rank()); }
  bool collect(int to);
  bool copy(int from);
  void look_at_unexpected();
  bool copy_chunk(Pair& pair, Transfer& transfer, std::size_t& num_bytes);
  void require_present(int member);
  /// What another member's thread calls.
  void hear(TransportFailure failure, int teller) {
    if (failure.origin < 0) failure.origin = teller;
    record_failure(std::move(failure));
    wake();
  }

  std::shared_ptr<Hub> hub_;
  std::uint64_t num_seen_ = 0;                // events when the last progress() began
  std::vector<std::uint64_t> num_taken_;      // copied here, by peer
  std::vector<std::uint64_t> num_collected_;  // sends known to be done, by peer
};

void InProcessKind::start_send(Peer& peer, Transfer& transfer) {
  const int to = peer.info.rank;
  Pair& pair = hub_->pair(rank(), to);
  {
    const std::lock_guard lock(pair.mutex);
    peer.sends.push_back(transfer);
    if (pair.first_uncopied == nullptr) pair.first_uncopied = &transfer;
    if (pair.operation_count != operation_count()) {
      pair.operation_count = operation_count();
      pair.operation = operation();
    }
    pair.num_queued.fetch_add(1, std::memory_order_release);
  }
  hub_->bell(to).ring();
}

bool InProcessKind::progress() {
  num_seen_ = own_bell().num_events();
  const bool has_any_moved = for_active([this](int each) {
    // Before the queues are looked at: what a member did before it left is seen then.
    const bool has_left = hub_->has_left(each).load(std::memory_order_acquire);
    bool has_moved = collect(each);
    has_moved = copy(each) || has_moved;
    if (has_left && !has_moved && peer(each).has_transfers()) {
      record_failure(departure(info_of(each), "it has left"));
    }
    return has_moved;
  });
  if (!has_any_moved) look_at_unexpected();
  return has_any_moved;
}

/// Who sends what nobody has asked for may be ahead of this member, but not at the same place in another call.
void InProcessKind::look_at_unexpected() {
  for (int from = 0; from < num_ranks(); ++from) {
    Pair& pair = hub_->pair(from, rank());
    if (pair.num_queued.load(std::memory_order_acquire) ==
        num_taken_[static_cast<std::size_t>(from)]) {
      continue;
    }
    const std::lock_guard lock(pair.mutex);
    if (pair.first_uncopied != nullptr && pair.operation_count == operation_count() &&
        pair.operation != operation()) {
      fail_by_operation(from, pair.operation_count, pair.operation);
    }
  }
}

/// Takes back what `to` has copied.
bool InProcessKind::collect(int to) {
  Peer& receiver = peer(to);
  if (receiver.sends.is_empty()) return false;
  const std::uint64_t num_copied =
      hub_->pair(rank(), to).num_copied.load(std::memory_order_acquire);
  std::uint64_t& num_collected = num_collected_[static_cast<std::size_t>(to)];
  const bool has_moved = num_collected != num_copied;
  for (; num_collected != num_copied; ++num_collected) complete(receiver.sends.pop_front());
  return has_moved;
}

bool InProcessKind::copy(int from) {
  Peer& sender = peer(from);
  Pair& pair = hub_->pair(from, rank());
  std::uint64_t& num_taken = num_taken_[static_cast<std::size_t>(from)];
  bool has_moved = false;
  for (std::size_t num_bytes = 0; num_bytes < kTurnBytes && !sender.receives.is_empty();) {
    if (pair.num_queued.load(std::memory_order_acquire) == num_taken) break;
    Transfer& transfer = *sender.receives.first();
    if (!copy_chunk(pair, transfer, num_bytes)) break;
    has_moved = true;
    const TransferState& state = state_of(transfer);
    if (state.moved < state.size) continue;
    ++num_taken;
    pair.num_copied.fetch_add(1, std::memory_order_release);
    hub_->bell(from).ring();
    sender.receives.remove(transfer);
    complete(transfer);
  }
  return has_moved;
}

/// False: there is nothing to copy, or it does not fit, which is recorded.
bool InProcessKind::copy_chunk(Pair& pair, Transfer& transfer, std::size_t& num_bytes) {
  TransferState& mine = state_of(transfer);
  const std::lock_guard lock(pair.mutex);
  if (pair.first_uncopied == nullptr) return false;  // its sender has let go of it
  const TransferState& theirs = state_of(*pair.first_uncopied);
  if (pair.operation_count != operation_count() || pair.operation != operation()) {
    fail_by_operation(mine.peer, pair.operation_count, pair.operation);
    return false;
  }
  if (theirs.size != mine.size) {
    fail_by_size(mine.peer, mine.number, theirs.size, mine.size);
    return false;
  }
  const std::size_t size = std::min(mine.size - mine.moved, kChunkBytes);
  if (size != 0) std::memcpy(mine.in + mine.moved, theirs.out + mine.moved, size);
  mine.moved += size;
  num_bytes += size + 1;  // empty messages count, too
  if (mine.moved == mine.size) pair.first_uncopied = theirs.next;
  return true;
}

void InProcessKind::tell(const TransportFailure& failure) noexcept {
  const std::lock_guard lock(hub_->kinds_mutex);
  for (InProcessKind* const each : hub_->kinds) {
    if (each != nullptr && each != this) each->hear(failure, rank());
  }
}

void InProcessKind::let_go() noexcept {
  for (int to = 0; to < num_ranks(); ++to) {
    Pair& pair = hub_->pair(rank(), to);
    const std::lock_guard lock(pair.mutex);
    pair.first_uncopied = nullptr;
  }
}

void InProcessKind::close() {
  {
    const std::lock_guard lock(hub_->kinds_mutex);  // nobody calls this one any more
    hub_->kinds[static_cast<std::size_t>(rank())] = nullptr;
  }
  let_go();
  forget_all();
  hub_->has_left(rank()).store(true, std::memory_order_release);
  for (int each = 0; each < num_ranks(); ++each) hub_->bell(each).ring();
}

}  // namespace

std::vector<std::unique_ptr<Transport>> make_in_process_transports(int num_ranks) {
  if (num_ranks < 1) throw ValueError(fmt::format("a transport among {} members", num_ranks));
  const auto count = static_cast<std::size_t>(num_ranks);
  const bool spins = count <= detail::usable_cores().size();
  auto hub = std::make_shared<Hub>(count);
  std::vector<RankInfo> members(count);
  for (int rank = 0; rank < num_ranks; ++rank) members[static_cast<std::size_t>(rank)].rank = rank;
  std::vector<std::unique_ptr<Transport>> transports;
  transports.reserve(count);
  for (int rank = 0; rank < num_ranks; ++rank) {
    transports.push_back(
        std::make_unique<Transport>(std::make_unique<InProcessKind>(hub, rank, members, spins)));
  }
  return transports;
}

}  // namespace crossdevice
