// SPDX-License-Identifier: Apache-2.0
/// Hearing the chief, and what ends everything. Rounds: control_rounds.cc.
#include "comm/detail/membership.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/comm/job_news.h"
#include "crossdevice/core/error.h"

#include "comm/detail/wire.h"

namespace crossdevice::detail {

Membership::Membership(const Options& options, Events events)
    : options_(options), events_(std::move(events)) {}

// ---------------------------------------------------------------------------------------------- meeting

bool Membership::await_meeting(Clock::time_point latest) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, latest, [this] { return all_are_there_ || end_.has_value(); });
}

void Membership::end_meeting(End reason) {
  const std::lock_guard lock(mutex_);
  if (!all_are_there_ && !end_.has_value()) end_ = std::move(reason);
}

std::optional<Membership::End> Membership::meeting_failure() const {
  const std::lock_guard lock(mutex_);
  return all_are_there_ ? std::nullopt : end_;
}

RankInfo Membership::info_of(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return index < members_.size() ? members_[index].rank_info() : RankInfo{.rank = rank};
}

// ---------------------------------------------------------------------------------------------- hearing the chief

void Membership::hear(const Frame& frame) {
  switch (frame.kind) {
    case ControlKind::REFUSED: {
      Refused refused = Refused::decode(frame.payload);
      require_ranks(refused.culprits);
      return end(std::move(refused));
    }
    case ControlKind::MEMBERS:
      return hear_members(Members::decode(frame.payload));
    case ControlKind::EXCHANGED:
      return hear_parts(Exchanged::decode(frame.payload));
    case ControlKind::EXCHANGE_FAILED:
      return hear_failure(ExchangeFailed::decode(frame.payload));
    case ControlKind::MISSING:
      return warn_of_stall(Missing::decode(frame.payload));
    case ControlKind::DOING:
      return hear_doing(Doing::decode(frame.payload));
    case ControlKind::MEMBER_LOST: {
      const MemberLost message = MemberLost::decode(frame.payload);
      require_rank(message.rank);
      return news_.tell_lost(info_of(message.rank), message.text);
    }
    case ControlKind::ABORT: {
      const Abort message = Abort::decode(frame.payload);
      require_rank(message.origin);
      return stop_here(message.origin, message.text);
    }
    case ControlKind::POST: {
      const Post message = Post::decode(frame.payload);
      require_rank(message.from);
      return news_.tell_post(message.group, message.from, message.bytes);
    }
    case ControlKind::HEARTBEAT:
      return;
    case ControlKind::GOODBYE:
      chief_says_goodbye_ = true;
      return;
    case ControlKind::ASK:
      return events_.on_question(Ask::decode(frame.payload).nonce);
    case ControlKind::CHALLENGE:
    case ControlKind::HELLO:
    case ControlKind::WELCOME:
    case ControlKind::EXCHANGE:
    case ControlKind::WHO_IS_MISSING:
    case ControlKind::GIVE_UP:
    case ControlKind::WHAT_THEY_DO:
    case ControlKind::SEEK:
    case ControlKind::FOUND:
    case ControlKind::PREPARE:
    case ControlKind::PROMISE:
    case ControlKind::PROPOSE:
    case ControlKind::ACCEPT:
    case ControlKind::CHOSEN:
    case ControlKind::CLOCK:  // the link's
      break;
  }
  throw WireError("a chief does not say this");
}

void Membership::hear_members(Members all) {
  if (all.members.size() != static_cast<std::size_t>(options_.num_workers)) {
    throw WireError("the chief's list of members is not complete");
  }
  for (std::size_t rank = 0; rank < all.members.size(); ++rank) {
    // What comes later is said of ranks, which others count with.
    if (all.members[rank].rank != static_cast<int>(rank)) {
      throw WireError("the chief's list of members is not by rank");
    }
  }
  const std::lock_guard lock(mutex_);
  if (all_are_there_) throw WireError("the chief sends its members twice");
  members_ = std::move(all.members);
  all_are_there_ = true;
  events_.on_members();
  changed_.notify_all();
}

void Membership::require_rank(int rank) const {
  if (rank < 0 || rank >= options_.num_workers) throw WireError("no such rank");
}

void Membership::require_ranks(const std::vector<RankInfo>& ranks) const {
  for (const RankInfo& each : ranks) require_rank(each.rank);
}

void Membership::lose_chief(const std::string& why) {
  const std::string text = chief_says_goodbye_ ? kHasLeft : why;
  const RankInfo chief = info_of(0);
  news_.tell_lost(chief, text);
  end({StatusCode::UNAVAILABLE,
       fmt::format("the chief, {}, is gone: {}", to_string(chief), text),
       {chief}});
}

// ---------------------------------------------------------------------------------------------- what this worker says

void Membership::post(std::uint64_t group, std::vector<int> to, std::string bytes) {
  const Post message{group, options_.rank, std::move(to), std::move(bytes)};
  events_.say(ControlKind::POST, message.encode());
}

std::vector<std::string> Membership::ask(const std::vector<int>& ranks, const Deadline& deadline) {
  Question question{.ranks = ranks, .operations = std::vector<std::string>(ranks.size())};
  std::unique_lock lock(mutex_);
  if (end_.has_value() || ranks.empty()) return question.operations;
  const std::uint64_t number = ++num_questions_;
  const auto entry = questions_.emplace(number, &question).first;
  lock.unlock();
  try {
    events_.say(ControlKind::WHAT_THEY_DO, WhatTheyDo{number, ranks}.encode());
  } catch (...) {
    lock.lock();
    questions_.erase(entry);
    throw;
  }
  lock.lock();
  changed_.wait_until(lock, std::min(deadline.moment(), Clock::now() + options_.patience.question),
                      [&] { return question.num_answers == ranks.size() || end_.has_value(); });
  questions_.erase(entry);
  return std::move(question.operations);
}

void Membership::hear_doing(Doing message) {
  const std::lock_guard lock(mutex_);
  const auto entry = questions_.find(message.number);
  if (entry == questions_.end()) return;
  Question& question = *entry->second;
  const auto place = std::find(question.ranks.begin(), question.ranks.end(), message.rank);
  if (place == question.ranks.end()) throw WireError("a word of somebody else");
  question.operations[static_cast<std::size_t>(place - question.ranks.begin())] =
      std::move(message.operation);
  if (message.is_final && ++question.num_answers == question.ranks.size()) changed_.notify_all();
}

std::string Membership::round_under_way() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, pending] : pending_) {
    if (!pending->has_ended() && !pending->on_end.on_failure) return pending->kind;
  }
  return {};
}

void Membership::stop_all(const std::string& text) {
  events_.say(ControlKind::ABORT, Abort{options_.rank, text}.encode());
}

// ---------------------------------------------------------------------------------------------- ending

void Membership::stop_here(int rank, const std::string& text) {
  const RankInfo origin = info_of(rank);
  news_.tell_abort(origin, text);  // first: who is woken by the end finds that all have heard it
  end({StatusCode::ABORTED, abort_text(origin, text), {origin}});
}

void Membership::end(End reason) {
  const std::lock_guard lock(mutex_);
  if (!end_.has_value()) end_ = std::move(reason);
  changed_.notify_all();
}

void Membership::leave_out(const std::string& text) {
  news_.tell_end(info_of(options_.rank), text);
  const std::lock_guard lock(mutex_);
  end_ = End{StatusCode::ABORTED, text, {}};
  changed_.notify_all();
}

}  // namespace crossdevice::detail
