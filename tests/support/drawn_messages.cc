// SPDX-License-Identifier: Apache-2.0
/// What becomes of messages: see drawn_network.h. The moves of one message are compare (its head, which matches send and receive), read and write (a
/// chunk), and the ends of its send and its receive.
#include <algorithm>
#include <cstring>
#include <functional>

#include <fmt/format.h>

#include "comm/detail/transfer_queue.h"
#include "support/drawn_network.h"

namespace crossdevice::testing {
namespace {

using detail::state_of;

bool overlap(const std::byte* a, std::size_t a_size, const std::byte* b, std::size_t b_size) {
  const std::less<const std::byte*> is_before;
  return a_size > 0 && b_size > 0 && is_before(a, b + b_size) && is_before(b, a + a_size);
}

}  // namespace

DrawnNetwork::Message& DrawnNetwork::message_of(std::size_t from, std::size_t to, bool is_send) {
  Pair& of = pair(from, to);
  if (!of.unmatched.empty() &&
      (is_send ? of.unmatched.front()->has_receive : of.unmatched.front()->has_send)) {
    Message& matched = *of.unmatched.front();
    of.unmatched.pop_front();
    return matched;
  }
  auto message = std::make_unique<Message>();
  message->from = from;
  message->to = to;
  message->number = of.num_messages++;
  of.unmatched.push_back(message.get());
  messages_.push_back(std::move(message));
  return *messages_.back();
}

void DrawnNetwork::start_send(std::size_t from, std::size_t to, Transfer& transfer,
                              const Call& call) {
  Message& message = message_of(from, to, true);
  const detail::TransferState& state = state_of(transfer);
  message.send = &transfer;
  message.has_send = true;
  message.source = state.out;
  message.size = state.size;
  message.call = call;
  message.sent.assign(state.out, state.out + state.size);
  message.carried.resize(state.size);
  message.is_eager = choices_.below(16) < temper_.eager_share;
  message.is_late = choices_.below(16) < temper_.late_share;
  const std::size_t num_cuts = choices_.below(std::min(temper_.max_chunks, state.size));
  std::vector<std::size_t> ends{state.size};
  for (std::size_t i = 0; i < num_cuts; ++i) ends.push_back(1 + choices_.below(state.size));
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    message.chunks.push_back({.begin = begin, .count = end - begin});
    begin = end;
  }
  note(Event::SEND, from, to, message.number, state.size);
  require_apart(message, true);
}

void DrawnNetwork::start_receive(std::size_t to, std::size_t from, Transfer& transfer,
                                 const Call& call) {
  Message& message = message_of(from, to, false);
  const detail::TransferState& state = state_of(transfer);
  message.receive = &transfer;
  message.has_receive = true;
  message.target = state.in;
  message.wanted_size = state.size;
  message.wanted_call = call;
  message.untouched.assign(state.in, state.in + state.size);
  note(Event::RECEIVE, to, from, message.number, state.size);
  require_apart(message, false);
}

/// Of the same rank's transfers: nobody else writes what this one reads or writes, nor reads what it writes.
void DrawnNetwork::require_apart(const Message& of, bool is_send) {
  const std::size_t rank = is_send ? of.from : of.to;
  const std::byte* const begin = is_send ? of.source : of.target;
  const std::size_t size = is_send ? of.size : of.wanted_size;
  for (const std::unique_ptr<Message>& each : messages_) {
    if (each->to == rank && each->receive != nullptr && (is_send || each.get() != &of) &&
        overlap(begin, size, each->target, each->wanted_size)) {
      complain(
          fmt::format("rank {} {} message {} {} rank {} where message {} from rank {} is still "
                      "to be written",
                      rank, is_send ? "sends" : "receives", of.number, is_send ? "to" : "from",
                      is_send ? of.to : of.from, each->number, each->from));
    }
    if (!is_send && each->from == rank && each->send != nullptr &&
        overlap(begin, size, each->source, each->size)) {
      complain(
          fmt::format("rank {} receives message {} from rank {} where message {} to rank {} is "
                      "still to be read",
                      rank, of.number, of.from, each->number, each->to));
    }
  }
}

void DrawnNetwork::require_unread(const Message& message, std::size_t begin, std::size_t count,
                                  const char* when) {
  if (count == 0 || std::memcmp(message.source + begin, message.sent.data() + begin, count) == 0) {
    return;
  }
  complain(fmt::format("rank {} has overwritten bytes of message {} to rank {}, seen {}",
                       message.from, message.number, message.to, when));
}

void DrawnNetwork::require_unwritten(const Message& message, std::size_t begin, std::size_t count,
                                     const char* when) {
  if (count == 0 ||
      std::memcmp(message.target + begin, message.untouched.data() + begin, count) == 0) {
    return;
  }
  complain(fmt::format("rank {} has written where message {} from rank {} comes, seen {}",
                       message.to, message.number, message.from, when));
}

/// Whether an earlier message of its pair has to go first.
bool DrawnNetwork::is_held_up(const Message& message) const {
  if (!temper_.keeps_pairs_in_order) return false;
  return std::ranges::any_of(messages_, [&](const std::unique_ptr<Message>& each) {
    return each->from == message.from && each->to == message.to && each->number < message.number &&
           !each->is_receive_done && !each->is_receive_over;
  });
}

void DrawnNetwork::list_moves(Message& message, std::vector<Event>& moves) const {
  const bool is_sending = message.has_send && !message.is_send_over;
  const bool is_receiving = message.has_receive && !message.is_receive_over;
  const bool is_whole = message.num_read == message.chunks.size();
  if (!message.is_compared && message.has_send && is_receiving && (is_sending || is_whole)) {
    moves.push_back(Event::COMPARE);
  }
  if (is_sending && !is_whole && (message.is_eager || message.is_compared) &&
      !is_held_up(message)) {
    moves.push_back(Event::READ);
  }
  if (is_receiving && message.is_compared && message.num_written < message.num_read) {
    moves.push_back(Event::WRITE);
  }
  const bool is_there = message.has_send && message.num_written == message.chunks.size();
  if (is_sending && !message.is_send_queued && is_whole &&
      (message.is_late ? message.is_receive_done : message.is_eager || is_there)) {
    moves.push_back(Event::SEND_ENDS);
  }
  if (is_receiving && !message.is_receive_queued && message.is_compared && is_there &&
      !is_held_up(message)) {
    moves.push_back(Event::RECEIVE_ENDS);
  }
}

void DrawnNetwork::move(Message& message, Event how) {
  note(how, message.from, message.to, message.number);
  switch (how) {
    case Event::COMPARE:
      return compare(message);
    case Event::READ:
      return read(message);
    case Event::WRITE:
      return write(message);
    case Event::SEND_ENDS:
      message.is_send_queued = true;
      ranks_[message.from].done.push_back(message.send);
      return wake(message.from);
    case Event::RECEIVE_ENDS:
      message.is_receive_queued = true;
      ranks_[message.to].done.push_back(message.receive);
      return wake(message.to);
    case Event::TURN:
    case Event::SLEEP:
    case Event::SEND:
    case Event::RECEIVE:
    case Event::DONE:
    case Event::NEWS:
    case Event::FAULT:
    case Event::LEAVE:
      break;
  }
  complain("the network makes a move that is none");
}

void DrawnNetwork::compare(Message& message) {
  Member* const receiver = ranks_[message.to].member;
  const Call& sent = message.call;
  const Call& wanted = message.wanted_call;
  if (sent.count != wanted.count || sent.operation != wanted.operation) {
    complain(fmt::format("rank {} sends in call {} what rank {} receives in call {}", message.from,
                         sent.count, message.to, wanted.count));
    message.is_receive_over = true;
    return receiver->hear_of_another_call(static_cast<int>(message.from), sent.count,
                                          sent.operation);
  }
  if (message.size != message.wanted_size) {
    complain(fmt::format("rank {} sends {} bytes where rank {} expects {}", message.from,
                         message.size, message.to, message.wanted_size));
    message.is_receive_over = true;
    return receiver->hear_of_another_size(static_cast<int>(message.from), message.number,
                                          message.size, message.wanted_size);
  }
  message.is_compared = true;
  require_unwritten(message, 0, message.size, "when its head came");
  // Noise, so that whoever reads it before it is done gets a wrong result.
  std::uint64_t noise = choices_.seed() | 1;
  for (std::byte& byte : message.untouched) {
    noise = noise * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(noise >> 56);
  }
  if (message.size > 0) std::memcpy(message.target, message.untouched.data(), message.size);
}

void DrawnNetwork::read(Message& message) {
  std::size_t at = choices_.below(message.chunks.size() - message.num_read);
  for (Chunk& chunk : message.chunks) {
    if (chunk.is_read || at-- != 0) continue;
    require_unread(message, chunk.begin, chunk.count, "while it was being sent");
    if (chunk.count > 0) {
      std::memcpy(message.carried.data() + chunk.begin, message.source + chunk.begin, chunk.count);
    }
    chunk.is_read = true;
    ++message.num_read;
    return;
  }
}

void DrawnNetwork::write(Message& message) {
  std::size_t at = choices_.below(message.num_read - message.num_written);
  for (Chunk& chunk : message.chunks) {
    if (!chunk.is_read || chunk.is_written || at-- != 0) continue;
    require_unwritten(message, chunk.begin, chunk.count, "while it was coming");
    if (chunk.count > 0) {
      std::memcpy(message.target + chunk.begin, message.carried.data() + chunk.begin, chunk.count);
      std::memcpy(message.untouched.data() + chunk.begin, message.carried.data() + chunk.begin,
                  chunk.count);
    }
    chunk.is_written = true;
    ++message.num_written;
    return;
  }
}

Transfer* DrawnNetwork::take_done(std::size_t rank) {
  Rank& me = ranks_[rank];
  if (me.done.empty()) return nullptr;
  if (choices_.once_in(temper_.withheld)) {
    wake(rank);  // it is still to be looked at
    return nullptr;
  }
  const auto at = me.done.begin() + static_cast<std::ptrdiff_t>(choices_.below(me.done.size()));
  Transfer* const done = *at;
  me.done.erase(at);
  for (const std::unique_ptr<Message>& each : messages_) {
    if (each->send == done) {
      require_unread(*each, 0, each->size, "when it was done");
      each->send = nullptr;
      each->is_send_over = true;
    } else if (each->receive == done) {
      require_unwritten(*each, 0, each->size, "when it was done");
      each->receive = nullptr;
      each->is_receive_done = each->is_receive_over = true;
    } else {
      continue;
    }
    note(Event::DONE, rank, each->from, each->to, each->number);
    break;
  }
  bury();
  return done;
}

bool DrawnNetwork::may_still_end(std::size_t rank, std::size_t peer) const {
  // The peer has nothing under way any more: what it has sent is on its way, and what it has received it knows of.
  return std::ranges::any_of(messages_, [&](const std::unique_ptr<Message>& each) {
    if (each->from == peer && each->to == rank && each->receive != nullptr) {
      return each->has_send && each->num_read == each->chunks.size();
    }
    return each->from == rank && each->to == peer && each->send != nullptr &&
           (each->is_receive_done || each->is_send_queued);
  });
}

void DrawnNetwork::let_go(std::size_t rank) {
  ranks_[rank].done.clear();
  for (const std::unique_ptr<Message>& each : messages_) {
    if (each->from == rank && each->send != nullptr) {
      each->send = nullptr;
      each->is_send_over = true;
    }
    if (each->to == rank && each->receive != nullptr) {
      each->receive = nullptr;
      each->is_receive_over = true;
    }
  }
  bury();
}

/// Forgets messages that are over on both sides.
void DrawnNetwork::bury() {
  std::erase_if(messages_, [](const std::unique_ptr<Message>& each) {
    return each->is_send_over && each->is_receive_over;
  });
}

}  // namespace crossdevice::testing
