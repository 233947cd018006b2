// SPDX-License-Identifier: Apache-2.0
/// What a member hears of the end of another, and what it makes of it:
///
///   STOPPED on the connection                    that failure, at once
///   the control plane: lost, or aborted          that failure, at once; everybody hears it
///   GOODBYE, then the end of the connection      nothing, unless a message is under way to or from there
///   the end of the connection without a word     UnavailableError, if within kGrace nothing of the above is heard: it has died, or has stopped
///                                                while this member did not read what it had sent before
///
/// The control plane's "it has left" counts for nobody who is connected: what that member sent before is still on its way. All of this is heard while
/// others are still waited for, too.
#include "crossdevice/comm/tcp_transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "crossdevice/core/usable_cores.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/cluster_state.h"
#include "comm/detail/control_message.h"
#include "comm/detail/event_descriptor.h"
#include "comm/detail/silent_links.h"
#include "comm/detail/sleep_in_poll.h"
#include "comm/detail/tcp_connection.h"
#include "comm/detail/tcp_introduction.h"
#include "comm/detail/tcp_meeting.h"
#include "comm/detail/transport_kind.h"
#include "comm/detail/wire.h"

namespace crossdevice {
namespace {

using detail::departure;
using detail::state_of;
using detail::TcpConnection;
using detail::TcpFrameKind;
using detail::TcpHead;
using detail::TcpMeeting;
using detail::TransferState;
using detail::TransportFailure;
using detail::TransportKind;

/// Moved to or from one peer before the next one's turn.
constexpr std::size_t kTurnBytes = std::size_t{1} << 20;
/// How long the control plane, or another member, has to say why a connection has ended.
constexpr std::chrono::milliseconds kGrace{300};
/// How long last words may take to leave: as long as some of them do, up to a limit. A call ends within a second of its deadline, of which what the others are
/// asked afterwards takes its part, too.
constexpr std::chrono::milliseconds kStandstill{100};
constexpr std::chrono::milliseconds kLinger{500};
/// Members that nothing is expected from are listened to when nothing else happens, and every so many turns.
constexpr std::uint32_t kTurnsBetweenLooks = 256;
/// While others are waited for.
constexpr std::chrono::milliseconds kBetweenLooks{50};
/// Takes longer than a sleep and the waking up.
constexpr std::size_t kBulkyBytes = std::size_t{128} << 10;
/// What a frame counts in a turn besides its payload.
constexpr std::size_t kFrameBytes = 128;
/// Frames up to this size are held back for those behind them.
constexpr std::size_t kSmallBytes = std::size_t{4} << 10;

std::string_view view_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class TcpKind final : public TransportKind {
 public:
  TcpKind(std::shared_ptr<Cluster> cluster, const std::vector<RankInfo>& members, bool spins,
          std::unique_ptr<TcpMeeting> meeting)
      : TransportKind(cluster->rank(), members, spins, cluster->stall_warning()),
        cluster_(std::move(cluster)),
        meeting_(std::move(meeting)),
        links_(members.size()),
        silent_links_(detail::ClusterInside::heartbeat_timeout(*cluster_)),
        have_left_(members.size()) {
    polled_.reserve(members.size() + 1);
    polled_ranks_.reserve(members.size() + 1);
    listen();
  }
  void close() override;

 protected:
  void open(std::span<const int> peers, const Deadline& deadline) override;
  void take_in_connected();
  void start_send(Peer& peer, Transfer& transfer) override;
  void start_receive(Peer& peer, Transfer& transfer) override { peer.receives.push_back(transfer); }
  bool progress() override;
  void look_everywhere() override { has_slept_ = true; }
  [[nodiscard]] bool is_bulky() const override { return is_bulky_; }
  void prepare_sleep() override;
  void sleep(Clock::time_point until) override;
  void wake() noexcept override {
    event_.set();
    meeting_->interrupt();
  }
  void tell(const TransportFailure& failure) noexcept override;
  void let_go() noexcept override {}  // nobody else touches their memory
  void linger() noexcept override;

 private:
  /// A peer, once there is a connection to it.
  struct Link {
    std::unique_ptr<TcpConnection> connection;
    bool has_said_goodbye = false;
    bool awaits_receive = false;  // a message is there that nobody has asked for
  };

  [[nodiscard]] Link& link(int rank) { return links_[static_cast<std::size_t>(rank)]; }
  void listen();
  void hear_connected();
  bool push(int to);
  bool pull(int from);
  TcpConnection::Result read(int from, std::span<std::byte> wanted, std::size_t& num_read);
  std::optional<std::span<std::byte>> take(int from, bool& has_moved);
  bool fits(int from, const TcpHead& head, const TransferState& state);
  void hear(int from, std::string_view stop);
  void note_end(int rank);
  void look_for_last_words(int rank);
  void fail_by_nonsense(int from, const char* what);
  void flush(bool until_delivered) noexcept;

  std::shared_ptr<Cluster> cluster_;
  std::unique_ptr<TcpMeeting> meeting_;
  detail::EventDescriptor event_;
  std::shared_ptr<void> listening_;

  // The turn's.
  std::vector<Link> links_;
  std::uint32_t num_turns_ = 0;
  int suspect_ = -1;  // whose connection has ended without a word
  Clock::time_point suspected_at_;
  bool has_lingered_ = false;
  bool is_bulky_ = false;  // in the last progress() something had to wait that has many bytes left

  // The owner's thread's.
  std::vector<pollfd> polled_;  // the event, then connections
  std::vector<int> polled_ranks_;
  Clock::time_point wake_up_ = Clock::time_point::max();
  bool has_slept_ = true;        // or wants to look at all connections for another reason
  Clock::time_point next_look_;  // while it connects
  detail::SilentLinks silent_links_;

  std::vector<std::atomic<bool>> have_left_;  // what the control plane says
};

void TcpKind::listen() {
  listening_ = listen_to(*cluster_, [this](int member) {
    have_left_[static_cast<std::size_t>(member)].store(true);
    meeting_->interrupt();
  });
}

// ---------------------------------------------------------------------------------------------- connecting

void TcpKind::open(std::span<const int> peers, const Deadline& deadline) {
  // Who has connected before it left may have been heard, or is to be.
  const auto has_left = [this](int each) {
    return have_left_[static_cast<std::size_t>(each)].load() && !link(each).connection &&
           !meeting_->has_met(each);
  };
  const auto is_over = [&] {
    hear_connected();
    return has_failed() || std::any_of(peers.begin(), peers.end(), has_left);
  };
  // A lower rank may have been taken in while others were waited for.
  std::vector<int> wanted;
  wanted.reserve(peers.size());
  for (const int each : peers) {
    if (!link(each).connection) wanted.push_back(each);
  }
  meeting_->meet(wanted, deadline, is_over);
  take_in_connected();
  std::vector<RankInfo> missing;
  std::string reasons;
  for (const int each : wanted) {
    if (link(each).connection) continue;
    if (has_left(each)) record_failure(departure(info_of(each), "it has left"));
    missing.push_back(info_of(each));
    const std::string reason = meeting_->last_error(each);
    if (!reason.empty()) reasons += fmt::format("; rank {} at {}", each, reason);
  }
  if (missing.empty() || has_failed()) return;
  std::string text =
      fmt::format("connecting timed out: waiting for {}{}", detail::names_of(missing), reasons);
  record_failure({.code = StatusCode::DEADLINE_EXCEEDED,
                  .text = std::move(text),
                  .culprits = std::move(missing)});
}

/// Without waiting, those too who have come just now: that one of them has failed, for instance, and that another will therefore never come.
void TcpKind::hear_connected() {
  const Clock::time_point now = Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  take_in_connected();
  prepare_sleep();
  sleep(now);
  (void)progress();
}

/// Sockets that no connection can be made of, for want of memory, are closed.
void TcpKind::take_in_connected() {
  std::vector<TcpMeeting::Connected> connected = meeting_->take_connected();
  std::size_t num_taken = 0;
  try {
    for (; num_taken < connected.size(); ++num_taken) {
      auto& [rank, socket, tls] = connected[num_taken];
      link(rank).connection = std::make_unique<TcpConnection>(socket, std::move(tls));
      silent_links_.watch(socket);
    }
  } catch (...) {
    for (; num_taken < connected.size(); ++num_taken) ::close(connected[num_taken].socket);
    throw;
  }
}

// ---------------------------------------------------------------------------------------------- moving

void TcpKind::start_send(Peer& peer, Transfer& transfer) {
  const bool is_first = peer.sends.is_empty();
  peer.sends.push_back(transfer);
  if (is_first) (void)push(peer.info.rank);
}

bool TcpKind::progress() {
  is_bulky_ = false;
  bool has_moved = for_active([this](int each) {
    const bool has_pushed = push(each);
    return (!peer(each).receives.is_empty() && pull(each)) || has_pushed;
  });
  if (std::exchange(has_slept_, false) || ++num_turns_ % kTurnsBetweenLooks == 0) {
    // First: a connection that has ended with messages in it that nobody has asked for.
    for (std::size_t i = 1; i < polled_.size(); ++i) {
      const int rank = polled_ranks_[i];
      const bool has_ended = (polled_[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
      if (has_ended && link(rank).awaits_receive) look_for_last_words(rank);
    }
    polled_.clear();
    for (int each = 0; each < num_ranks(); ++each) {
      if (link(each).connection && peer(each).receives.is_empty() && pull(each)) has_moved = true;
    }
  }
  if (silent_links_.found() >= 0 && !has_failed()) {
    record_failure(silent_links_.failure(info_of(silent_links_.found())));
  }
  if (suspect_ >= 0 && Clock::now() >= suspected_at_ + kGrace) {
    record_failure(link(suspect_).connection->was_unanswered()
                       ? silent_links_.failure(info_of(suspect_))
                       : departure(info_of(suspect_), "its connection ended"));
  }
  return has_moved;
}

bool TcpKind::push(int to) {
  detail::TransferQueue& sends = peer(to).sends;
  TcpConnection& connection = *link(to).connection;
  bool has_moved = false;
  for (std::size_t num_bytes = 0; num_bytes < kTurnBytes && !sends.is_empty();) {
    if (!connection.can_send() || connection.has_ended()) {
      note_end(to);
      break;
    }
    Transfer& transfer = *sends.first();
    TransferState& state = state_of(transfer);
    if (!connection.is_in_frame()) {
      const std::size_t size = std::min(state.size - state.moved, detail::kMaxTcpPayloadBytes);
      connection.begin_frame({.kind = TcpFrameKind::MESSAGE,
                              .payload_size = static_cast<std::uint32_t>(size),
                              .operation_count = operation_count(),
                              .number = state.number,
                              .size = state.size,
                              .offset = state.moved,
                              .operation = operation()});
    }
    const bool is_last = state.size - state.moved == connection.num_left();
    const bool more = !is_last || (state.size < kSmallBytes && state.next != nullptr);
    std::size_t num_sent = 0;
    const TcpConnection::Result result = connection.push(state.out + state.moved, more, num_sent);
    if (result == TcpConnection::Result::BLOCKED) {
      is_bulky_ = is_bulky_ || state.size - state.moved >= kBulkyBytes;
      break;
    }
    if (result == TcpConnection::Result::ENDED) {
      note_end(to);
      break;
    }
    has_moved = true;
    state.moved += num_sent;
    num_bytes += num_sent + kFrameBytes;
    if (connection.is_in_frame() || state.moved < state.size) continue;
    sends.remove(transfer);
    complete(transfer);
  }
  return has_moved;
}

bool TcpKind::pull(int from) {
  TcpConnection& connection = *link(from).connection;
  bool has_moved = false;
  try {
    for (std::size_t num_bytes = 0; num_bytes < kTurnBytes;) {
      const bool had_receives = !peer(from).receives.is_empty();
      const std::optional<std::span<std::byte>> wanted = take(from, has_moved);
      if (!wanted.has_value()) break;
      // Nothing is waited for any more.
      if (had_receives && peer(from).receives.is_empty() && !connection.may_end_next()) break;
      std::size_t num_read = 0;
      const TcpConnection::Result result =
          connection.has_ended() ? TcpConnection::Result::ENDED : read(from, *wanted, num_read);
      if (result == TcpConnection::Result::BLOCKED) {
        is_bulky_ = is_bulky_ || wanted->size() >= kBulkyBytes;
        break;
      }
      if (result == TcpConnection::Result::ENDED) {
        note_end(from);
        break;
      }
      has_moved = true;
      num_bytes += num_read + kFrameBytes;
    }
  } catch (const detail::WireError& error) {
    fail_by_nonsense(from, error.what());
  }
  return has_moved;
}

/// What the last receive does not want stays with the system, but for the kind of the next frame, which may be the last words of who has stopped waiting. Read
/// before this member answers, it would be acknowledged at once, in a packet of its own: Linux does so where two small segments have been read and none is left
/// to read. Of 8 bytes among 4 workers on 2 cores that took an eighth of the time.
TcpConnection::Result TcpKind::read(int from, std::span<std::byte> wanted, std::size_t& num_read) {
  TcpConnection& connection = *link(from).connection;
  Transfer* const first = peer(from).receives.first();
  if (first == nullptr) return connection.read({}, TcpConnection::kAsMuchAsThereIs, num_read);
  TransferState& state = state_of(*first);
  const std::size_t num_behind = state.size - state.moved - wanted.size();
  std::size_t max_ahead = TcpConnection::kAsMuchAsThereIs;
  if (!wanted.empty() && num_behind != 0) {
    max_ahead = connection.size_of_next_head();
  } else if (state.next == nullptr) {
    max_ahead = detail::kTcpKindBytes + (wanted.empty() ? connection.num_missing(num_behind) : 0);
  }
  const TcpConnection::Result result = connection.read(wanted, max_ahead, num_read);
  state.moved += num_read;
  return result;
}

/// Takes what has been read ahead. What the next read is to fill (nothing: read ahead); no value: nobody wants more.
std::optional<std::span<std::byte>> TcpKind::take(int from, bool& has_moved) {
  TcpConnection& connection = *link(from).connection;
  detail::TransferQueue& receives = peer(from).receives;
  link(from).awaits_receive = false;
  while (const TcpHead* const head = connection.head()) {
    if (head->kind == TcpFrameKind::STOPPED) {
      if (connection.ahead().size() < connection.num_expected()) break;
      hear(from, view_of(connection.ahead()));
      return std::nullopt;
    }
    if (head->kind == TcpFrameKind::GOODBYE) {
      link(from).has_said_goodbye = true;
      connection.end_frame();
      continue;
    }
    if (receives.is_empty()) {
      // It may be ahead of this member, but not at the same place in another call.
      if (head->operation_count == operation_count() && head->operation != operation()) {
        fail_by_operation(from, head->operation_count, head->operation);
        return std::nullopt;
      }
      link(from).awaits_receive = true;
      return std::nullopt;
    }
    Transfer& transfer = *receives.first();
    TransferState& state = state_of(transfer);
    if (!fits(from, *head, state)) return std::nullopt;
    const std::span<const std::byte> ahead = connection.ahead();
    if (!ahead.empty()) std::memcpy(state.in + state.moved, ahead.data(), ahead.size());
    state.moved += ahead.size();
    connection.skip(ahead.size());
    if (connection.num_expected() != 0) {
      return std::span(state.in + state.moved, connection.num_expected());
    }
    connection.end_frame();
    has_moved = true;
    if (state.moved < state.size) continue;
    receives.remove(transfer);
    complete(transfer);
  }
  return std::span<std::byte>();
}

/// Whether a frame carries the next bytes of that receive; if not, it is recorded.
bool TcpKind::fits(int from, const TcpHead& head, const TransferState& state) {
  if (head.operation_count != operation_count() || head.operation != operation()) {
    fail_by_operation(from, head.operation_count, head.operation);
  } else if (head.size != state.size) {
    fail_by_size(from, state.number, head.size, state.size);
  } else if (head.number != state.number ||
             head.offset + head.payload_size - link(from).connection->num_expected() !=
                 state.moved) {
    fail_by_nonsense(from, "a frame out of order");
  } else {
    return true;
  }
  return false;
}

void TcpKind::fail_by_nonsense(int from, const char* what) {
  record_failure(
      {.code = StatusCode::INTERNAL,
       .text = fmt::format("{} sends what cannot be: {}", to_string(info_of(from)), what),
       .culprits = {info_of(from)}});
}

// ---------------------------------------------------------------------------------------------- sleeping

void TcpKind::prepare_sleep() {
  polled_.clear();
  polled_ranks_.clear();
  polled_.push_back({.fd = event_.get(), .events = POLLIN, .revents = 0});
  polled_ranks_.push_back(rank());
  for (int each = 0; each < num_ranks(); ++each) {
    const Link& of = link(each);
    if (!of.connection || of.connection->has_ended()) continue;
    short events = POLLRDHUP;
    if (!of.awaits_receive) events |= POLLIN;
    if (!peer(each).sends.is_empty()) events |= POLLOUT;
    polled_.push_back({.fd = of.connection->socket(), .events = events, .revents = 0});
    polled_ranks_.push_back(each);
  }
  wake_up_ = suspect_ < 0 ? Clock::time_point::max() : suspected_at_ + kGrace;
  const bool is_any_ahead = std::any_of(links_.begin(), links_.end(), [](const Link& each) {
    return each.connection && !each.connection->has_ended() && each.connection->has_input() &&
           !each.awaits_receive;
  });
  if (is_any_ahead) wake_up_ = Clock::time_point::min();
}

void TcpKind::sleep(Clock::time_point until) {
  const Clock::time_point now = Clock::now();
  silent_links_.look(std::span(polled_).subspan(1), std::span(polled_ranks_).subspan(1), now);
  const int count = detail::sleep_in_poll(
      polled_, std::max(std::min({until, wake_up_, silent_links_.next_look()}), now) - now);
  if (count <= 0) polled_.clear();
  if (count > 0 && polled_[0].revents != 0) event_.empty();
  has_slept_ = true;
}

// ---------------------------------------------------------------------------------------------- ends

void TcpKind::hear(int from, std::string_view stop) {
  try {
    TransportFailure failure = detail::decode_stop(stop, num_ranks());
    if (failure.origin < 0) failure.origin = from;
    record_failure(std::move(failure));
  } catch (const detail::WireError& error) {
    fail_by_nonsense(from, error.what());
  }
}

void TcpKind::note_end(int rank) {
  look_for_last_words(rank);
  if (has_failed()) return;
  if (!link(rank).has_said_goodbye) {
    if (suspect_ >= 0) return;
    suspect_ = rank;
    suspected_at_ = Clock::now();
  } else if (peer(rank).has_transfers()) {
    record_failure(departure(info_of(rank), "it has left"));
  }
}

/// A peer that says nothing more may have said why, behind messages that nobody has asked for.
void TcpKind::look_for_last_words(int rank) {
  Link& of = link(rank);
  try {
    if (!of.connection->has_ended() && !of.connection->read_all()) {
      return fail_by_nonsense(rank, "more than anybody has asked for");
    }
    const TcpConnection::LastWords words = of.connection->last_words();
    if (words.kind == TcpFrameKind::STOPPED) return hear(rank, words.payload);
    if (words.kind == TcpFrameKind::GOODBYE) of.has_said_goodbye = true;
    if (of.has_said_goodbye || suspect_ >= 0) return;
    suspect_ = rank;
    suspected_at_ = Clock::now();
  } catch (const detail::WireError& error) {
    fail_by_nonsense(rank, error.what());
  } catch (const std::bad_alloc&) {
    fail_by_want(rank);
  }
}

void TcpKind::tell(const TransportFailure& failure) noexcept {
  if (failure.is_known_to_all) return;
  try {
    TransportFailure told = failure;
    if (told.origin < 0) told.origin = rank();
    const std::string frame =
        detail::encode_last_frame(TcpFrameKind::STOPPED, detail::encode_stop(told));
    for (int each = 0; each < num_ranks(); ++each) {
      if (!link(each).connection) continue;
      Transfer* const sending = peer(each).sends.first();
      const TransferState* const state = sending == nullptr ? nullptr : &state_of(*sending);
      link(each).connection->say_last(state == nullptr ? nullptr : state->out + state->moved,
                                      frame);
    }
    meeting_->dismiss(frame);
  } catch (const std::exception&) {
    // No memory for last words: the others see the connections end.
  }
}

void TcpKind::linger() noexcept {
  if (std::exchange(has_lingered_, true)) return;
  flush(/*until_delivered=*/false);
}

/// Until last words have left this process, or (until_delivered) this machine. Where a peer does not read, they are dropped: it sees the connection end.
void TcpKind::flush(bool until_delivered) noexcept {
  const Clock::time_point latest = Clock::now() + kLinger;
  Clock::time_point moved_at = Clock::now();
  std::size_t num_unsent = 0;
  for (;;) {
    pollfd waiting{.fd = -1, .events = POLLOUT, .revents = 0};
    bool is_delivered = true;
    std::size_t num_left = 0;
    for (const Link& each : links_) {
      if (!each.connection) continue;
      if (!each.connection->flush_last()) waiting.fd = each.connection->socket();
      num_left += each.connection->num_last_unsent();
      if (until_delivered) {
        each.connection->discard_input();  // they may be waiting to be taken in
        is_delivered = is_delivered && each.connection->has_delivered();
      }
    }
    if (waiting.fd < 0 && is_delivered) return;
    const Clock::time_point now = Clock::now();
    if (std::exchange(num_unsent, num_left) != num_left) moved_at = now;
    if (now >= std::min(latest, moved_at + kStandstill)) break;
    // One of them is enough to wait for; the pause bounds what the others lose by it.
    (void)detail::sleep_in_poll(std::span(&waiting, waiting.fd < 0 ? 0 : 1),
                                std::chrono::milliseconds(waiting.fd < 0 ? 1 : 5));
  }
  for (const Link& each : links_) {
    if (each.connection && each.connection->num_last_unsent() != 0) each.connection->drop_last();
  }
}

void TcpKind::close() {
  listening_.reset();  // nobody calls this one any more
  if (has_failed()) {
    flush(/*until_delivered=*/true);
  } else {
    const std::string goodbye = detail::encode_last_frame(TcpFrameKind::GOODBYE);
    for (const Link& each : links_) {
      // In the middle of a message there is no goodbye.
      if (each.connection && !each.connection->is_in_frame()) {
        each.connection->say_last(nullptr, goodbye);
        each.connection->discard_input();
      }
    }
    meeting_->dismiss(goodbye);
    // A goodbye behind bytes that its peer has not read yet; without it this worker would look dead.
    const bool is_held_up = std::any_of(links_.begin(), links_.end(), [](const Link& each) {
      return each.connection && each.connection->num_last_unsent() != 0;
    });
    if (is_held_up) flush(/*until_delivered=*/true);
  }
  forget_all();
  links_.clear();
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(std::shared_ptr<Cluster> cluster,
                                              const Deadline& deadline) {
  detail::require_not_forked();
  detail::TcpIntroduction introduction = detail::introduce_members(*cluster, deadline);
  const auto num_beside = static_cast<std::size_t>(cluster->num_local_workers());
  const bool spins = num_beside <= detail::usable_cores().size();
  return std::make_unique<Transport>(std::make_unique<TcpKind>(
      std::move(cluster), introduction.members, spins, std::move(introduction.meeting)));
}

}  // namespace crossdevice
