// SPDX-License-Identifier: Apache-2.0
/// Whose turn it is: the thread that has the turn draws, moves messages itself, and hands the turn on when a thread is drawn.
#include "support/drawn_network.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace crossdevice::testing {
namespace {

constexpr std::uint64_t kPrime = 0x100000001b3;
/// Enough to see what is wrong.
constexpr std::size_t kMaxViolations = 8;
/// Where a run changes its priorities, once in so many turns.
constexpr std::size_t kPriorityTurns = 50;

}  // namespace

DrawnNetwork::DrawnNetwork(std::size_t num_ranks, std::uint64_t seed)
    : choices_(seed), baton_(num_ranks), ranks_(num_ranks), pairs_(num_ranks * num_ranks) {
  draw_temper();
}
DrawnNetwork::~DrawnNetwork() = default;

void DrawnNetwork::draw_temper() {
  constexpr std::size_t kShares[] = {1, 4, 8, 12, 15};
  constexpr std::size_t kAllOrNone[] = {0, 4, 8, 16};
  constexpr std::size_t kNumChunks[] = {1, 3, 64};
  constexpr std::size_t kOften[] = {2, 4, 16};
  constexpr std::size_t kAlarms[] = {0, 0, 8, 64};
  constexpr Temper::Pick kPicks[] = {Temper::Pick::ANY, Temper::Pick::OLDEST, Temper::Pick::NEWEST,
                                     Temper::Pick::BY_PAIR};
  constexpr std::size_t kWeights[] = {1, 1, 4, 32};
  temper_ = {.network_share = choices_.one_of(kShares),
             .eager_share = choices_.one_of(kAllOrNone),
             .late_share = choices_.one_of(kAllOrNone),
             .max_chunks = choices_.one_of(kNumChunks),
             .idle_progress = choices_.one_of(kOften),
             .withheld = choices_.one_of(kOften),
             .false_alarm = choices_.one_of(kAlarms),
             .keeps_pairs_in_order = choices_.once_in(3),
             .pick = choices_.one_of(kPicks),
             .has_priorities = choices_.once_in(3)};
  for (Rank& rank : ranks_) rank.weight = choices_.one_of(kWeights);
  for (Pair& each : pairs_) each.weight = choices_.one_of(kWeights);
}

// ---------------------------------------------------------------------------------------------- threads

std::vector<std::string> DrawnNetwork::run(const std::function<void(std::size_t rank)>& work) {
  std::vector<std::string> errors(num_ranks());
  std::vector<std::thread> threads;
  threads.reserve(num_ranks());
  for (std::size_t rank = 0; rank < num_ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      enter(rank);
      try {
        work(rank);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
      leave(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void DrawnNetwork::enter(std::size_t rank) {
  bool is_last = false;
  {
    const std::lock_guard lock(outside_);
    is_last = ++num_entered_ == num_ranks();
  }
  // Who comes last is no matter of the seed, so it decides nothing.
  if (is_last) {
    const std::size_t first = choices_.below(num_ranks());
    note(Event::TURN, first);
    baton_.give(first);
  }
  baton_.await(rank);
}

void DrawnNetwork::leave(std::size_t rank) {
  for (const std::unique_ptr<Message>& each : messages_) {
    const bool is_send = each->from == rank && each->send != nullptr;
    if (!is_send && (each->to != rank || each->receive == nullptr)) continue;
    complain(fmt::format("rank {} ends though message {} {} rank {} is under way", rank,
                         each->number, is_send ? "to" : "from", is_send ? each->to : each->from));
    let_go(rank);
    break;
  }
  note(Event::LEAVE, rank);
  ranks_[rank].life = Life::OVER;
  pass(rank);
}

void DrawnNetwork::sleep(std::size_t me, std::uint64_t seen) {
  ranks_[me].seen = seen;
  ranks_[me].life = Life::SLEEPS;
  note(Event::SLEEP, me);
  pass(me);
}

void DrawnNetwork::pass(std::size_t me) {
  for (;;) {
    ++num_steps_;
    bring_fault();
    std::vector<std::size_t> awake;
    bool is_over = true;
    for (std::size_t rank = 0; rank < num_ranks(); ++rank) {
      const Rank& each = ranks_[rank];
      is_over = is_over && each.life == Life::OVER;
      if (each.life == Life::RUNS || (each.life == Life::SLEEPS && each.num_events != each.seen)) {
        awake.push_back(rank);
      }
    }
    if (is_over) return;
    if (num_steps_ > kMaxSteps && !is_being_ended_) {
      complain(fmt::format("no end after {} steps", kMaxSteps));
      end_everything("no end");
      continue;
    }
    const bool prefers_network = awake.empty() || choices_.below(16) < temper_.network_share;
    if (prefers_network && act()) continue;
    if (awake.empty()) {
      report_standstill();
      continue;
    }
    const std::size_t next = next_thread(awake);
    note(Event::TURN, next);
    ranks_[next].life = Life::RUNS;
    if (next == me) return;
    const bool comes_back = ranks_[me].life != Life::OVER;
    baton_.give(next);
    if (comes_back) baton_.await(me);
    return;
  }
}

std::size_t DrawnNetwork::next_thread(const std::vector<std::size_t>& awake) {
  if (temper_.false_alarm != 0 && choices_.once_in(temper_.false_alarm)) {
    const std::size_t rank = choices_.below(num_ranks());
    if (ranks_[rank].life == Life::SLEEPS) return rank;
  }
  if (temper_.has_priorities) {
    if (choices_.once_in(kPriorityTurns)) {
      std::swap(ranks_[choices_.below(num_ranks())].weight,
                ranks_[choices_.below(num_ranks())].weight);
    }
    // One in a few is anybody, so that nobody keeps the turn for ever.
    if (!choices_.once_in(4)) {
      return *std::ranges::max_element(awake, {}, [&](std::size_t r) { return ranks_[r].weight; });
    }
  }
  std::vector<std::size_t> weights;
  weights.reserve(awake.size());
  for (const std::size_t rank : awake) weights.push_back(ranks_[rank].weight);
  return awake[choices_.weighted(weights)];
}

/// Moves a message, or brings news; false: there is nothing to move.
bool DrawnNetwork::act() {
  movable_.clear();
  for (const std::unique_ptr<Message>& each : messages_) {
    moves_.clear();
    list_moves(*each, moves_);
    if (!moves_.empty()) movable_.push_back(each.get());
  }
  if (!news_.empty() && (movable_.empty() || choices_.once_in(3))) {
    const auto at = news_.begin() + static_cast<std::ptrdiff_t>(choices_.below(news_.size()));
    News news = std::move(*at);
    news_.erase(at);
    note(Event::NEWS, news.to, static_cast<std::size_t>(news.teller));
    if (Member* const member = ranks_[news.to].member; member != nullptr) {
      member->hear(std::move(news.failure), news.teller);
    }
    return true;
  }
  if (movable_.empty()) return false;
  std::size_t at = choices_.below(movable_.size());
  if (temper_.pick == Temper::Pick::OLDEST && !choices_.once_in(8)) at = 0;
  if (temper_.pick == Temper::Pick::NEWEST && !choices_.once_in(8)) at = movable_.size() - 1;
  if (temper_.pick == Temper::Pick::BY_PAIR) {
    std::vector<std::size_t> weights;
    weights.reserve(movable_.size());
    for (const Message* each : movable_) weights.push_back(pair(each->from, each->to).weight);
    at = choices_.weighted(weights);
  }
  moves_.clear();
  list_moves(*movable_[at], moves_);
  move(*movable_[at], moves_[choices_.below(moves_.size())]);
  return true;
}

// ---------------------------------------------------------------------------------------------- members

void DrawnNetwork::attach(std::size_t rank, Member& member) { ranks_[rank].member = &member; }

void DrawnNetwork::detach(std::size_t rank) {
  const std::lock_guard lock(outside_);
  let_go(rank);
  ranks_[rank].member = nullptr;
  ranks_[rank].has_left = true;
  for (std::size_t each = 0; each < num_ranks(); ++each) wake(each);
}

void DrawnNetwork::tell_all(std::size_t teller, const detail::TransportFailure& failure) {
  for (std::size_t to = 0; to < num_ranks(); ++to) {
    if (to == teller) continue;
    news_.push_back({.to = to, .teller = static_cast<int>(teller), .failure = failure});
  }
}

void DrawnNetwork::bring_fault() {
  if (!fault_.has_value() || has_fault_come_ || num_steps_ < fault_->step) return;
  has_fault_come_ = true;
  const Rank& victim = ranks_[fault_->rank];
  if (victim.member == nullptr) return;
  note(Event::FAULT, fault_->rank, static_cast<std::size_t>(fault_->kind));
  if (fault_->kind == Fault::Kind::STOP) {
    victim.member->be_stopped("a fault that was drawn");
  } else {
    victim.member->hear(
        {.code = StatusCode::UNAVAILABLE, .text = "its connections broke", .culprits = {}},
        static_cast<int>(fault_->rank));
  }
}

void DrawnNetwork::report_standstill() {
  std::string text = "nobody can go on:";
  for (std::size_t rank = 0; rank < num_ranks(); ++rank) {
    if (ranks_[rank].life == Life::OVER) continue;
    std::string what;
    for (const std::unique_ptr<Message>& each : messages_) {
      if (each->to == rank && each->receive != nullptr) {
        what += fmt::format(" for message {} from rank {} ({}),", each->number, each->from,
                            each->has_send ? "sent" : "not sent");
      }
      if (each->from == rank && each->send != nullptr) {
        what += fmt::format(" for message {} to rank {} ({}),", each->number, each->to,
                            each->has_receive ? "received" : "not received");
      }
    }
    text += fmt::format(" rank {} waits{}", rank, what.empty() ? " for nothing;" : what);
    text.back() = ';';
  }
  complain(text);
  end_everything("nobody can go on");
}

void DrawnNetwork::end_everything(const std::string& why) {
  is_being_ended_ = true;
  for (std::size_t rank = 0; rank < num_ranks(); ++rank) {
    if (ranks_[rank].member == nullptr) continue;
    ranks_[rank].member->hear({.code = StatusCode::INTERNAL, .text = why, .culprits = {}},
                              static_cast<int>(rank));
  }
}

// ---------------------------------------------------------------------------------------------- what is told

void DrawnNetwork::note(Event event, std::size_t a, std::size_t b, std::size_t c, std::size_t d) {
  for (const std::size_t value : {static_cast<std::size_t>(event), a, b, c, d}) {
    trace_ = (trace_ ^ value) * kPrime;
  }
  notes_[num_notes_++ % notes_.size()] = {.event = event, .a = a, .b = b, .c = c, .d = d};
}

void DrawnNetwork::complain(const std::string& text) {
  if (violations_.size() < kMaxViolations) violations_.push_back(text);
}

std::string DrawnNetwork::last_events() const {
  const auto line = [](const Note& n) {
    switch (n.event) {
      case Event::TURN:
        return fmt::format("rank {} runs", n.a);
      case Event::SLEEP:
        return fmt::format("rank {} sleeps", n.a);
      case Event::SEND:
        return fmt::format("rank {} sends message {} to rank {}, {} bytes", n.a, n.c, n.b, n.d);
      case Event::RECEIVE:
        return fmt::format("rank {} receives message {} from rank {}, {} bytes", n.a, n.c, n.b,
                           n.d);
      case Event::COMPARE:
        return fmt::format("message {} from {} to {}: its head comes", n.c, n.a, n.b);
      case Event::READ:
        return fmt::format("message {} from {} to {}: bytes leave", n.c, n.a, n.b);
      case Event::WRITE:
        return fmt::format("message {} from {} to {}: bytes come", n.c, n.a, n.b);
      case Event::SEND_ENDS:
        return fmt::format("message {} from {} to {}: has been sent", n.c, n.a, n.b);
      case Event::RECEIVE_ENDS:
        return fmt::format("message {} from {} to {}: has come", n.c, n.a, n.b);
      case Event::DONE:
        return fmt::format("rank {} learns that message {} from {} to {} is done", n.a, n.d, n.b,
                           n.c);
      case Event::NEWS:
        return fmt::format("rank {} hears of a failure from rank {}", n.a, n.b);
      case Event::FAULT:
        return fmt::format("the fault comes to rank {}", n.a);
      case Event::LEAVE:
        return fmt::format("rank {} ends", n.a);
    }
    return std::string();
  };
  std::string text;
  const std::size_t count = std::min(num_notes_, notes_.size());
  for (std::size_t i = num_notes_ - count; i < num_notes_; ++i) {
    text += line(notes_[i % notes_.size()]) + '\n';
  }
  return text;
}

}  // namespace crossdevice::testing
