// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/transport_kind.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/comm/job_news.h"
#include "crossdevice/comm/own_lateness_error.h"
#include "crossdevice/comm/told_chief_loss_error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/cluster_state.h"
#include "comm/detail/control_message.h"
#include "comm/detail/wait_span.h"

namespace crossdevice::detail {
namespace {

/// For what members say that they do.
constexpr std::chrono::milliseconds kAnswerTime{100};

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

void add(std::atomic<std::uint64_t>& counter, std::uint64_t more) {
  counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

}  // namespace

std::string names_of(const std::vector<RankInfo>& ranks) {
  std::string names;
  for (const RankInfo& each : ranks) names += (names.empty() ? "" : ", ") + to_string(each);
  return names.empty() ? "nobody" : names;
}

TransportFailure departure(const RankInfo& member, std::string_view how) {
  return {.code = StatusCode::UNAVAILABLE,
          .text = fmt::format("{} is gone: {}", to_string(member), how),
          .culprits = {member}};
}

/// The right to touch what is not atomic.
class TransportKind::Turn {
 public:
  explicit Turn(TransportKind& kind) : kind_(kind) {
    require_not_forked();
    take();
  }
  ~Turn() { kind_.give_back_turn(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  /// Who else has it is a stopper, which is quick.
  void take() {
    while (kind_.has_turn_.exchange(true, std::memory_order_seq_cst)) std::this_thread::yield();
  }

 private:
  TransportKind& kind_;
};

TransportKind::TransportKind(int rank, const std::vector<RankInfo>& members, bool spins,
                             std::chrono::nanoseconds stall_warning)
    : rank_(rank),
      serial_(next_serial()),
      stall_warning_(stall_warning),
      peers_(members.size()),
      patience_(spins) {
  active_.reserve(members.size());
  traffic_.reserve(members.size());  // so that end() allocates nothing
  for (std::size_t i = 0; i < members.size(); ++i) peers_[i].info = members[i];
}

// ---------------------------------------------------------------------------------------------- calls

void TransportKind::connect(std::span<const int> peers, const Deadline& deadline) {
  const Turn turn(*this);
  require_whole();
  for (const int each : peers) {
    if (each < 0 || each >= num_ranks() || each == rank_) {
      throw ValueError(
          fmt::format("rank {} cannot connect to rank {} of {}", rank_, each, num_ranks()));
    }
  }
  std::vector<int> missing;
  missing.reserve(peers.size());
  for (const int each : peers) {
    const bool is_new = std::find(missing.begin(), missing.end(), each) == missing.end();
    if (is_new && !peer(each).is_connected) missing.push_back(each);
  }
  if (missing.empty()) return;
  open(missing, deadline);
  if (has_failed()) throw_failure();
  for (const int each : missing) peer(each).is_connected = true;
}

void TransportKind::begin(const GroupOperationInfo& operation) {
  const Turn turn(*this);
  if (has_failed()) {
    if (!has_ended_.load(std::memory_order_relaxed)) end();
    traffic_.clear();  // it is of the operation before
    throw_failure();
  }
  if (num_under_way_ != 0) {
    throw FailedPreconditionError(
        fmt::format("{} messages of the operation before are under way", num_under_way_));
  }
  ++operation_count_;
  operation_ = pack_operation(operation);
  for (Peer& each : peers_) each.num_sends = each.num_receives = 0;
}

void TransportKind::send(int to, std::span<const std::byte> bytes, Transfer& transfer) {
  const Turn turn(*this);
  require_whole();
  Peer& peer = require_connected(to);
  require_free(transfer);
  begin_send(peer, bytes, transfer);
}

void TransportKind::receive(int from, std::span<std::byte> bytes, Transfer& transfer) {
  const Turn turn(*this);
  require_whole();
  Peer& peer = require_connected(from);
  require_free(transfer);
  begin_receive(peer, bytes, transfer);
}

void TransportKind::exchange(int with, std::span<const std::byte> out, Transfer& sending,
                             std::span<std::byte> in, Transfer& receiving,
                             const Deadline& deadline) {
  Turn turn(*this);
  require_whole();
  Peer& peer = require_connected(with);
  require_free(sending);
  require_free(receiving);
  if (&sending == &receiving) throw ValueError("an exchange takes two transfers, not one twice");
  begin_send(peer, out, sending);
  begin_receive(peer, in, receiving);
  wait_until(
      turn, [&] { return state_of(receiving).is_done && state_of(sending).is_done; }, deadline);
  take(sending);
  take(receiving);
}

void TransportKind::begin_send(Peer& peer, std::span<const std::byte> bytes, Transfer& transfer) {
  TransferState& state = begin_transfer(peer, bytes.size(), transfer);
  state.out = bytes.data();
  state.number = peer.num_sends++;
  state.is_send = true;
  start_send(peer, transfer);
}

void TransportKind::begin_receive(Peer& peer, std::span<std::byte> bytes, Transfer& transfer) {
  TransferState& state = begin_transfer(peer, bytes.size(), transfer);
  state.in = bytes.data();
  state.number = peer.num_receives++;
  start_receive(peer, transfer);
}

TransferState& TransportKind::begin_transfer(const Peer& peer, std::size_t size,
                                             Transfer& transfer) {
  TransferState& state = state_of(transfer);
  state = TransferState();
  state.size = size;
  state.transport = serial_;
  state.peer = peer.info.rank;
  state.is_under_way = true;
  ++num_under_way_;
  activate(peer.info.rank);
  return state;
}

bool TransportKind::poll() {
  const Turn turn(*this);
  require_whole();
  const bool has_moved = progress();
  if (has_failed()) throw_failure();
  return has_moved;
}

void TransportKind::look() {
  const Turn turn(*this);
  require_whole();
  look_everywhere();
  (void)progress();
  if (has_failed()) throw_failure();
}

void TransportKind::require_time_left(const Deadline& deadline) {
  if (!deadline.has_passed()) return;
  const Turn turn(*this);
  require_whole();
  record_failure(
      {.code = StatusCode::DEADLINE_EXCEEDED,
       .text = fmt::format("timed out: {} had not done its own part", to_string(info_of(rank_))),
       .culprits = {info_of(rank_)}});
  throw_failure();
}

void TransportKind::look_until(const Deadline& deadline) {
  Turn turn(*this);
  look_everywhere();
  // Over before the deadline is looked at, so that it is no failure.
  wait_until(
      turn, [&deadline] { return deadline.has_passed(); }, deadline);
}

void TransportKind::wait(const Deadline& deadline) {
  Turn turn(*this);
  wait_until(
      turn, [this] { return !completed_.is_empty() || num_under_way_ == 0; }, deadline);
}

void TransportKind::wait(Transfer& transfer, const Deadline& deadline) {
  TransferState& state = state_of(transfer);
  if (state.transport != serial_) {
    throw ValueError("a wait for a transfer that was not given to this transport");
  }
  Turn turn(*this);
  wait_until(
      turn, [&state] { return state.is_done; }, deadline);
  take(transfer);
}

void TransportKind::take(Transfer& transfer) {
  if (std::exchange(state_of(transfer).is_untaken, false)) completed_.remove(transfer);
}

Transfer* TransportKind::take_completed() {
  const Turn turn(*this);
  require_whole();
  if (completed_.is_empty()) return nullptr;
  Transfer& transfer = completed_.pop_front();
  state_of(transfer).is_untaken = false;
  return &transfer;
}

void TransportKind::stop(TransportFailure failure) {
  require_not_forked();
  fail_from_outside(std::move(failure));
}

TransportCounters TransportKind::counters() const {
  return {.messages_sent = messages_sent_.load(std::memory_order_relaxed),
          .messages_received = messages_received_.load(std::memory_order_relaxed),
          .bytes_sent = bytes_sent_.load(std::memory_order_relaxed),
          .bytes_received = bytes_received_.load(std::memory_order_relaxed)};
}

// ---------------------------------------------------------------------------------------------- waiting

template <class IsOver>
void TransportKind::wait_until(Turn& turn, IsOver is_over, const Deadline& deadline) {
  require_whole();
  if (is_over()) return;
  WaitSpan wait(kMessagesWait, [this] { return bytes_under_way(); });
  const Clock::time_point begin = Clock::now();
  Clock::time_point warning = begin + stall_warning_;
  patience_.reset();
  for (;;) {
    const bool has_moved = progress();
    if (has_failed()) throw_failure();
    if (is_over()) return;
    if (deadline.has_passed()) {
      record_failure(deadline_failure(begin));
      throw_failure();
    }
    if (has_moved) {
      patience_.reset();
    } else if (is_bulky() || patience_.is_exhausted()) {
      wait.set_long(begin);
      prepare_sleep();
      give_back_turn();
      sleep(std::min(deadline.moment(), warning));
      turn.take();
      if (Clock::now() >= warning) {
        warn_of_stall(turn);
        warning = Clock::now() + stall_warning_;
      }
    }
  }
}

std::uint64_t TransportKind::bytes_under_way() const {
  std::uint64_t sum = 0;
  for (const int rank : active_) {
    const Peer& each = peers_[static_cast<std::size_t>(rank)];
    for (const TransferQueue* queue : {&each.sends, &each.receives}) {
      for (Transfer* at = queue->first(); at != nullptr; at = state_of(*at).next) {
        sum += state_of(*at).size;
      }
    }
  }
  return sum;
}

std::vector<RankInfo> TransportKind::awaited() const {
  std::vector<RankInfo> ranks;
  for (const Peer& each : peers_) {
    if (each.has_transfers()) ranks.push_back(each.info);
  }
  return ranks;
}

TransportFailure TransportKind::deadline_failure(Clock::time_point begin) const {
  std::vector<RankInfo> ranks = awaited();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::string text =
      fmt::format("timed out after {:.3g} s: waiting for {}", seconds, names_of(ranks));
  return {
      .code = StatusCode::DEADLINE_EXCEEDED, .text = std::move(text), .culprits = std::move(ranks)};
}

/// Whoever is waited for is asked without the turn, which others may want meanwhile.
void TransportKind::warn_of_stall(Turn& turn) {
  std::vector<RankInfo> ranks = awaited();
  if (asked_ != nullptr) {
    std::vector<int> numbers;
    numbers.reserve(ranks.size());
    for (const RankInfo& each : ranks) numbers.push_back(each.rank);
    give_back_turn();
    const std::vector<std::string> operations =
        ClusterInside::ask(*asked_, numbers, Deadline::after(kAnswerTime));
    turn.take();
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].last_operation = operations[i];
  }
  log(LogSeverity::WARNING, fmt::format("rank {} still waits in {} for {}", rank_,
                                        describe(operation_), names_of(ranks)));
}

// ---------------------------------------------------------------------------------------------- checks

void TransportKind::require_whole() {
  if (has_failed()) throw_failure();
}

TransportKind::Peer& TransportKind::require_connected(int rank) {
  if (rank < 0 || rank >= num_ranks() || !peer(rank).is_connected) {
    throw ValueError(fmt::format("rank {} is not connected to rank {}", rank_, rank));
  }
  return peer(rank);
}

void TransportKind::require_free(Transfer& transfer) const {
  const TransferState& state = state_of(transfer);
  if (state.transport == serial_ && (state.is_under_way || state.is_untaken)) {
    throw ValueError("a transfer is given anew before it has been taken");
  }
}

// ---------------------------------------------------------------------------------------------- for the hooks

void TransportKind::activate(int rank) {
  Peer& each = peer(rank);
  if (each.is_active) return;
  each.is_active = true;
  active_.push_back(rank);
}

void TransportKind::complete(Transfer& transfer) {
  TransferState& state = state_of(transfer);
  state.is_under_way = false;
  state.is_untaken = true;
  state.is_done = true;
  completed_.push_back(transfer);
  --num_under_way_;
  add(state.is_send ? messages_sent_ : messages_received_, 1);
  add(state.is_send ? bytes_sent_ : bytes_received_, state.size);
}

void TransportKind::fail_by_operation(int from, std::uint64_t their_count,
                                      const GroupOperation& theirs) {
  record_failure({.code = StatusCode::INTERNAL,
                  .text = fmt::format("members make different calls: rank {} #{} {}, {} #{} {}",
                                      rank_, operation_count_, to_string(operation_),
                                      to_string(info_of(from)), their_count, to_string(theirs)),
                  .culprits = {info_of(from)}});
}

void TransportKind::fail_by_size(int from, std::uint64_t number, std::uint64_t their_size,
                                 std::size_t size) {
  record_failure(
      {.code = StatusCode::INTERNAL,
       .text = fmt::format("{} sends {} bytes where rank {} expects {} (message {} of {})",
                           to_string(info_of(from)), their_size, rank_, size, number,
                           to_string(operation_)),
       .culprits = {info_of(from)}});
}

void TransportKind::fail_by_want(int from) {
  record_failure({.code = StatusCode::RESOURCE_EXHAUSTED,
                  .text = fmt::format("rank {} has no memory for what {} sends", rank_,
                                      to_string(info_of(from))),
                  .culprits = {info_of(rank_)}});
}

// ---------------------------------------------------------------------------------------------- failing

void TransportKind::record_failure(TransportFailure failure) {
  const std::lock_guard lock(failure_mutex_);
  if (failure_.has_value()) return;
  failure_ = std::move(failure);
  has_failed_.store(true, std::memory_order_seq_cst);
}

std::shared_ptr<void> TransportKind::listen_to(Cluster& cluster,
                                               std::function<void(int rank)> has_left) {
  asked_ = &cluster;
  return cluster.listen(
      {.on_lost =
           [this, has_left = std::move(has_left)](const RankInfo& member, const std::string& why) {
             if (why == kHasLeft) {
               has_left(member.rank);
               return;
             }
             // The others are told too: that the chief is gone each finds for itself, one up to a heartbeat after the other, and would
             // meanwhile take this member, which ends its connections, for the one that is gone.
             fail_from_outside(departure(member, why));
           },
       .on_abort =
           [this](const RankInfo& origin, const std::string& text) {
             fail_from_outside({.code = StatusCode::ABORTED,
                                .text = abort_text(origin, text),
                                .culprits = {origin},
                                .is_known_to_all = true});
           }});
}

void TransportKind::fail_from_outside(TransportFailure failure) {
  record_failure(std::move(failure));
  wake();
  if (has_ended_.load(std::memory_order_acquire)) return;
  if (has_turn_.exchange(true, std::memory_order_seq_cst)) return;  // whoever has it looks
  give_back_turn();
}

void TransportKind::give_back_turn() {
  // First with the turn, then again without it: a failure may come in between.
  for (;;) {
    if (has_failed() && !has_ended_.load(std::memory_order_relaxed)) end();
    has_turn_.store(false, std::memory_order_seq_cst);
    if (!has_failed() || has_ended_.load(std::memory_order_acquire)) return;
    if (has_turn_.exchange(true, std::memory_order_seq_cst)) return;  // now that one looks
  }
}

void TransportKind::end() noexcept {
  const TransportFailure* failure = nullptr;
  {
    const std::lock_guard lock(failure_mutex_);
    failure = &*failure_;
  }
  note_traffic();
  tell(*failure);
  let_go();
  forget_all();
  has_ended_.store(true, std::memory_order_release);
}

/// While the transfers are still there.
void TransportKind::note_traffic() noexcept {
  traffic_.clear();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const Peer& each = peers_[i];
    if (each.num_sends == 0 && each.num_receives == 0) continue;
    std::uint64_t num_awaited = 0;
    for (Transfer* at = each.receives.first(); at != nullptr; at = state_of(*at).next) {
      ++num_awaited;
    }
    traffic_.push_back({.rank = static_cast<int>(i),
                        .num_sent = each.num_sends,
                        .num_received = each.num_receives - num_awaited,
                        .is_awaited = num_awaited > 0});
  }
}

void TransportKind::forget_all() noexcept {
  for (Peer& each : peers_) {
    each.sends.forget();
    each.receives.forget();
    each.is_active = false;
  }
  active_.clear();
  completed_.forget();
  num_under_way_ = 0;
}

void TransportKind::throw_failure() {
  if (!has_ended_.load(std::memory_order_relaxed)) end();
  linger();
  const TransportFailure& failure = *failure_;
  std::string text = failure.text;
  std::vector<RankInfo> culprits = failure.culprits;
  const int teller = failure.origin >= 0 ? failure.origin : rank_;
  const bool is_own_lateness = failure.code == StatusCode::DEADLINE_EXCEEDED &&
                               culprits.size() == 1 && culprits[0].rank == teller;
  if (failure.origin >= 0) {
    text = to_string(info_of(failure.origin)) + ": " + text;
    if (culprits.empty()) culprits.push_back(info_of(failure.origin));
  }
  OpErrorDetails details{.operation = {}, .culprits = std::move(culprits), .inputs_intact = true};
  if (is_own_lateness) throw OwnLatenessError(text, std::move(details));
  const bool is_of_chief = failure.origin >= 0 && failure.code == StatusCode::UNAVAILABLE &&
                           details.culprits.size() == 1 && asked_ != nullptr &&
                           ClusterInside::chief(*asked_) == details.culprits[0].rank;
  if (is_of_chief) throw ToldChiefLossError(text, std::move(details), info_of(failure.origin));
  throw_op_error(failure.code, text, std::move(details));
}

}  // namespace crossdevice::detail
