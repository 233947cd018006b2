// SPDX-License-Identifier: Apache-2.0
/// A network and the threads of its members, of which one runs at a time. A seed says who runs next, which message moves next, how much of it, when
/// a transfer is reported done and when a member wakes up: whatever the contract of transports (transport.h) leaves open, and nothing else. The same
/// seed replays the same run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "crossdevice/comm/group_operation.h"
#include "crossdevice/comm/transport.h"

#include "comm/detail/transport_kind.h"
#include "support/baton.h"
#include "support/choices.h"

namespace crossdevice::testing {

/// Open     messages of one pair are matched in order, and move and end in any; bytes of a message move in any order. Bytes may leave before a
///          receive waits for them. A send may be done as soon as its bytes have been read, or not before the receive's owner knows of them.
/// Checks   (violations()) memory of a send changes before the send is done; memory of a receive is written by anybody else before the receive is
///          done; a transfer begins whose memory another one still writes, or that writes what another one still reads; a thread ends with transfers
///          under way; members make different calls; nobody can go on; no end after kMaxSteps. What a member reads of a receive too early shows in
///          its result: what lies there until the bytes come is noise, drawn when the message's head is compared.
/// Threads  those of members call it while they have the turn, from enter() to leave(); anybody before the first one enters and after the last
///          one has left.
class DrawnNetwork {
 public:
  /// Above what any run of a few hundred messages takes.
  static constexpr std::size_t kMaxSteps = 3'000'000;

  /// What it asks of a member's transport. Called on any member's thread.
  class Member {
   public:
    virtual ~Member() = default;
    virtual void hear(detail::TransportFailure failure, int teller) = 0;
    virtual void hear_of_another_call(int from, std::uint64_t their_count,
                                      const GroupOperation& theirs) = 0;
    virtual void hear_of_another_size(int from, std::uint64_t number, std::size_t theirs,
                                      std::size_t mine) = 0;
    virtual void be_stopped(const std::string& text) = 0;
  };
  /// What is to go wrong, and when.
  struct Fault {
    enum class Kind : std::uint8_t {
      STOP,   ///< somebody calls the member's stop()
      RESET,  ///< its connections break
    };
    Kind kind = Kind::STOP;
    std::size_t step = 0;
    std::size_t rank = 0;
  };
  /// In which operation a transfer began.
  struct Call {
    std::uint64_t count = 0;
    GroupOperation operation;
  };

  DrawnNetwork(std::size_t num_ranks, std::uint64_t seed);
  ~DrawnNetwork();
  DrawnNetwork(const DrawnNetwork&) = delete;
  DrawnNetwork& operator=(const DrawnNetwork&) = delete;

  void plan(const Fault& fault) { fault_ = fault; }

  /// Runs `work` for each rank on a thread of its own, in turns. What each threw, as text; "" where nothing.
  std::vector<std::string> run(const std::function<void(std::size_t rank)>& work);
  /// For threads that others have made. Takes turns from when the last one has come.
  void enter(std::size_t rank);
  void leave(std::size_t rank);

  [[nodiscard]] std::size_t num_ranks() const { return ranks_.size(); }
  /// Over everything that was drawn and what came of it.
  [[nodiscard]] std::uint64_t trace() const { return trace_; }
  [[nodiscard]] std::size_t num_steps() const { return num_steps_; }
  [[nodiscard]] bool has_fault_come() const { return has_fault_come_; }
  [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }
  /// The last events, a line each, for who looks for the cause of a violation.
  [[nodiscard]] std::string last_events() const;

  // For the transports.

  void attach(std::size_t rank, Member& member);
  void detach(std::size_t rank);
  void start_send(std::size_t from, std::size_t to, Transfer& transfer, const Call& call);
  void start_receive(std::size_t to, std::size_t from, Transfer& transfer, const Call& call);
  /// Others may run, and messages move, before it returns.
  void pass(std::size_t me);
  [[nodiscard]] std::uint64_t num_events(std::size_t rank) const { return ranks_[rank].num_events; }
  /// Until there are other than `seen` events; sometimes for no reason.
  void sleep(std::size_t me, std::uint64_t seen);
  void wake(std::size_t rank) noexcept { ++ranks_[rank].num_events; }
  /// A transfer of this rank that is done, or null, though there may be one.
  [[nodiscard]] Transfer* take_done(std::size_t rank);
  /// Whether a progress() that has moved nothing says otherwise.
  [[nodiscard]] bool claims_progress() { return choices_.once_in(temper_.idle_progress); }
  /// Whether what `rank` has under way with a member that has left can still end.
  [[nodiscard]] bool may_still_end(std::size_t rank, std::size_t peer) const;
  [[nodiscard]] bool has_left(std::size_t rank) const { return ranks_[rank].has_left; }
  void tell_all(std::size_t teller, const detail::TransportFailure& failure);
  void let_go(std::size_t rank);

 private:
  enum class Event : std::uint8_t {
    TURN,
    SLEEP,
    SEND,
    RECEIVE,
    COMPARE,
    READ,
    WRITE,
    SEND_ENDS,
    RECEIVE_ENDS,
    DONE,
    NEWS,
    FAULT,
    LEAVE
  };
  enum class Life : std::uint8_t { RUNS, SLEEPS, OVER };
  /// How a run is, drawn once: what is rare in one run is common in another.
  struct Temper {
    std::size_t network_share = 8;  // of 16 steps, where both can go on
    std::size_t eager_share = 8;    // of 16 messages: leave before they are waited for
    std::size_t late_share = 4;     // of 16 sends: end after the receiver knows
    std::size_t max_chunks = 3;
    std::size_t idle_progress = 8;
    std::size_t withheld = 4;     // one in so many looks finds nothing though there is something
    std::size_t false_alarm = 0;  // one in so many turns goes to a sleeper; 0: none
    bool keeps_pairs_in_order = false;
    enum class Pick : std::uint8_t { ANY, OLDEST, NEWEST, BY_PAIR } pick = Pick::ANY;
    bool has_priorities = false;
  };
  struct Rank {
    Life life = Life::RUNS;
    Member* member = nullptr;
    bool has_left = false;
    std::uint64_t num_events = 0;
    std::uint64_t seen = 0;  // while it sleeps
    std::size_t weight = 1;  // how often it runs
    std::vector<Transfer*> done{};
  };
  struct Chunk {
    std::size_t begin = 0;
    std::size_t count = 0;
    bool is_read = false;
    bool is_written = false;
  };
  /// A send, the receive that it is matched with, and what is between them. Either may be missing, and is null once it is over.
  struct Message {
    std::size_t from = 0;
    std::size_t to = 0;
    std::size_t number = 0;  // of the pair
    Transfer* send = nullptr;
    Transfer* receive = nullptr;
    const std::byte* source = nullptr;
    std::byte* target = nullptr;
    std::size_t size = 0;
    std::size_t wanted_size = 0;
    Call call;                         // the sender's
    Call wanted_call;                  // the receiver's
    std::vector<std::byte> sent{};     // the source when the send began
    std::vector<std::byte> carried{};  // what was read of it
    std::vector<std::byte>
        untouched{};  // what the target holds as long as only the network writes there
    std::vector<Chunk> chunks{};
    std::size_t num_read = 0;
    std::size_t num_written = 0;
    bool is_eager = false;  // its bytes leave before they are waited for
    bool is_late = false;   // its send ends after the receive
    bool has_send = false;  // has begun
    bool has_receive = false;
    bool is_compared = false;
    bool is_send_over = false;  // reported done, or let go of
    bool is_receive_over = false;
    bool is_receive_done = false;
    bool is_send_queued = false;  // about to be reported
    bool is_receive_queued = false;
  };
  struct Pair {
    std::deque<Message*> unmatched{};  // all of them sends, or all receives
    std::size_t num_messages = 0;
    std::size_t weight = 1;
  };
  struct News {
    std::size_t to = 0;
    int teller = 0;
    detail::TransportFailure failure;
  };
  struct Note {
    Event event = Event::TURN;
    std::size_t a = 0;
    std::size_t b = 0;
    std::size_t c = 0;
    std::size_t d = 0;
  };

  void draw_temper();
  void note(Event event, std::size_t a, std::size_t b = 0, std::size_t c = 0, std::size_t d = 0);
  void complain(const std::string& text);
  [[nodiscard]] Pair& pair(std::size_t from, std::size_t to) {
    return pairs_[from * ranks_.size() + to];
  }
  Message& message_of(std::size_t from, std::size_t to, bool is_send);
  void require_apart(const Message& of, bool is_send);
  void require_unread(const Message& message, std::size_t begin, std::size_t count,
                      const char* when);
  void require_unwritten(const Message& message, std::size_t begin, std::size_t count,
                         const char* when);
  void list_moves(Message& message, std::vector<Event>& moves) const;
  [[nodiscard]] bool is_held_up(const Message& message) const;
  void move(Message& message, Event how);
  void compare(Message& message);
  void read(Message& message);
  void write(Message& message);
  void bury();

  [[nodiscard]] bool act();
  [[nodiscard]] std::size_t next_thread(const std::vector<std::size_t>& awake);
  void bring_fault();
  void report_standstill();
  void end_everything(const std::string& why);

  Choices choices_;
  Temper temper_;
  Baton baton_;
  std::vector<Rank> ranks_;
  std::vector<Pair> pairs_;
  std::vector<std::unique_ptr<Message>> messages_;  // alive, in the order in which they began
  std::vector<News> news_;
  std::vector<Message*> movable_;  // of one step
  std::vector<Event> moves_;
  std::optional<Fault> fault_;
  bool has_fault_come_ = false;
  bool is_being_ended_ = false;

  std::mutex outside_;  // guards the next one, and members that leave after their last turn
  std::size_t num_entered_ = 0;

  std::size_t num_steps_ = 0;
  std::uint64_t trace_ = 0xcbf29ce484222325;
  std::size_t num_notes_ = 0;
  std::array<Note, 48> notes_{};  // the last ones
  std::vector<std::string> violations_;
};

/// By rank; each goes to the thread of its rank. They hold on to the network, which outlives them.
[[nodiscard]] std::vector<std::unique_ptr<Transport>> make_drawn_transports(DrawnNetwork& network);

}  // namespace crossdevice::testing
