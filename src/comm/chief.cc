// SPDX-License-Identifier: Apache-2.0
/// Why no member waits for a round that cannot end: a round is open only while every member that has not contributed is present. One that goes
/// fails the rounds it is missing in (take_leave()); one that had gone before fails the round when the next one contributes (exchange()). A
/// failure breaks the group for good, so whoever comes later is told at once. Whoever is present either contributes, gives up, aborts or goes.
#include "comm/detail/chief.h"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/comm/job_news.h"

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

/// Of the frame that ends a round: its kind, the round, how many parts, and each part after its length. What no receiver takes must not be sent.
std::size_t answer_bytes(std::size_t num_parts, std::size_t num_bytes) {
  return 1 + 2 * sizeof(std::uint64_t) + sizeof(std::uint32_t) * (1 + num_parts) + num_bytes;
}

SharedFrame shared_frame(ControlKind kind, const std::string& payload) {
  return std::make_shared<const std::string>(encode_frame(kind, payload));
}

}  // namespace

Chief::Chief(ChiefOptions options, const RankInfo& self, Send send)
    : options_(std::move(options)),
      send_(std::move(send)),
      self_(self.rank),
      ending_for_want_(make_ending(self, "the chief has no memory for what it is told")),
      members_(static_cast<std::size_t>(options_.num_workers)) {
  for (int rank = 0; rank < options_.num_workers; ++rank) member(rank).info.rank = rank;
}

/// What makes a worker one of another job, or of another build of this one.
std::optional<std::string> Chief::mismatch_of(const Hello& hello) const {
  if (hello.library_version != options_.library_version) {
    return fmt::format("has crossdevice {}, the chief has {}", hello.library_version,
                       options_.library_version);
  }
  if (hello.num_workers != options_.num_workers) {
    return fmt::format("was told that there are {} workers, the chief that there are {}",
                       hello.num_workers, options_.num_workers);
  }
  return std::nullopt;
}

std::optional<Refused> Chief::refuse(const Hello& hello) {
  const int rank = hello.member.rank;
  const auto refusal = [](std::string text) {
    return Refused{
        .code = StatusCode::FAILED_PRECONDITION, .text = std::move(text), .culprits = {}};
  };
  // One of these is late, and concerns nobody here.
  // Where they meet first, a job without a name may be the same: the launcher's variables may not have come to all.
  const bool may_be_unnamed = options_.epoch == 1 && (hello.job == 0 || options_.job == 0);
  const bool is_other_job = hello.job != options_.job && !may_be_unnamed;
  if (is_other_job || hello.epoch != options_.epoch) {
    return refusal(fmt::format("host {}, pid {} comes from epoch {} of {} job, this is epoch {}",
                               hello.member.host, hello.member.pid, hello.epoch,
                               hello.job == options_.job ? "this" : "another", options_.epoch));
  }
  const bool is_rank = rank >= 0 && rank < options_.num_workers;
  if (is_cancelled()) {
    // It has been told now.
    if (is_rank && member(rank).presence == Presence::GONE &&
        member(rank).info.is_same_process(hello.member)) {
      member(rank).gone_text = kHasLeft;
    }
    return cancelled_;
  }
  if (const std::optional<std::string> mismatch = mismatch_of(hello)) {
    std::string text = fmt::format("rank {} (host {}, pid {}) {}", rank, hello.member.host,
                                   hello.member.pid, *mismatch);
    if (is_rank && member(rank).presence == Presence::ABSENT) {
      member(rank).info = hello.member;
      member(rank).refused_text = text;
    }
    return refusal(std::move(text));
  }
  if (!is_rank)
    return refusal(fmt::format("rank {} is outside [0, {})", rank, options_.num_workers));
  if (is_complete() && !comes_late(hello)) return held_by_another(hello);
  return std::nullopt;
}

bool Chief::comes_late(const Hello& hello) const {
  if (!is_complete()) return false;
  const Member& known = member(hello.member.rank);
  return known.info.is_same_process(hello.member) && known.gone_text != kHasLeft;
}

std::vector<SharedFrame> Chief::past_of(int rank) const {
  const std::string why = is_present(rank) ? "it has come again" : member(rank).gone_text;
  const std::string text =
      fmt::format("gave rank {} up, which had not heard that all had come: {}", rank, why);
  return {shared_frame(ControlKind::MEMBERS, everybody().encode()),
          shared_frame(ControlKind::ABORT, Abort{self_, text}.encode())};
}

bool Chief::is_contested(const Hello& hello) const {
  const MemberInfo& claimant = hello.member;
  if (is_complete() || !is_present(claimant.rank)) return false;
  // Who is that process itself has lost its connection, and comes again before the end of that is known here.
  return !member(claimant.rank).info.is_same_process(claimant);
}

Refused Chief::held_by_another(const Hello& hello) const {
  const MemberInfo& claimant = hello.member;
  const MemberInfo& holder = member(claimant.rank).info;
  return {.text = fmt::format("host {}, pid {} claims rank {}, which host {}, pid {} {}",
                              claimant.host, claimant.pid, claimant.rank, holder.host, holder.pid,
                              is_present(claimant.rank) ? "holds already" : "has held before")};
}

void Chief::admit(const Hello& hello) {
  const int rank = hello.member.rank;
  const bool is_new = member(rank).presence == Presence::ABSENT;
  // What was known of this rank may be another process's, which held it before.
  member(rank) = {.info = hello.member, .presence = Presence::PRESENT};
  if (is_new) ++num_admitted_;
  if (!is_complete()) return;
  send_to_all(shared_frame(ControlKind::MEMBERS, everybody().encode()));
  // One that came and went meanwhile is missed from the start.
  for (int each = 0; each < options_.num_workers; ++each) {
    if (!is_present(each)) take_leave(each, std::string(member(each).gone_text));
  }
}

Members Chief::everybody() const {
  Members all;
  all.members.reserve(members_.size());
  for (const Member& each : members_) all.members.push_back(each.info);
  return all;
}

std::vector<int> Chief::absent() const {
  std::vector<int> ranks;
  for (const Member& each : members_) {
    if (each.presence == Presence::ABSENT) ranks.push_back(each.info.rank);
  }
  return ranks;
}

std::vector<int> Chief::gone() const {
  std::vector<int> ranks;
  for (const Member& each : members_) {
    if (each.presence == Presence::GONE) ranks.push_back(each.info.rank);
  }
  return ranks;
}

bool Chief::is_spoiled() const {
  return !is_complete() && std::all_of(members_.begin(), members_.end(), [](const Member& each) {
    return each.presence != Presence::ABSENT || !each.refused_text.empty();
  });
}

std::string Chief::describe_absent() const {
  std::string text;
  std::string refusals;
  for (const int rank : absent()) {
    const auto index = static_cast<std::size_t>(rank);
    const bool is_known =
        index < options_.addresses_by_rank.size() && !options_.addresses_by_rank[index].empty();
    text += fmt::format("{}rank {}{}", text.empty() ? "" : ", ", rank,
                        is_known ? fmt::format(" (at {})", options_.addresses_by_rank[index]) : "");
    if (!member(rank).refused_text.empty()) refusals += "; refused: " + member(rank).refused_text;
  }
  std::string left;
  for (const int rank : gone()) {
    left += fmt::format("{}{}: {}", left.empty() ? "; came and went: " : ", ",
                        to_string(rank_info(rank)), member(rank).gone_text);
  }
  return text + refusals + left;
}

Refused Chief::cancel_meeting(StatusCode code, const std::string& text,
                              const std::vector<int>& culprits) {
  Refused refused{.code = code, .text = text, .culprits = {}};
  std::vector<int> missing = culprits;
  if (missing.empty()) {
    for (int rank = 0; rank < options_.num_workers; ++rank) {
      if (!is_present(rank)) missing.push_back(rank);
    }
  }
  for (const int rank : missing) refused.culprits.push_back(rank_info(rank));
  const SharedFrame frame = shared_frame(ControlKind::REFUSED, refused.encode());
  cancelled_ = refused;
  send_to_all(frame);
  return refused;
}

bool Chief::is_anybody_in_doubt() const {
  return is_cancelled() && std::any_of(members_.begin(), members_.end(), [](const Member& each) {
           return each.presence == Presence::GONE && each.gone_text != kHasLeft;
         });
}

void Chief::handle(int rank, const Frame& frame) {
  if (!is_present(rank)) return;
  switch (frame.kind) {
    case ControlKind::EXCHANGE:
      exchange(rank, Exchange::decode(frame.payload));
      return;
    case ControlKind::WHO_IS_MISSING: {
      const RoundId id = WhoIsMissing::decode(frame.payload).id;
      send(rank, ControlKind::MISSING, Missing{id, missing(id)}.encode());
      return;
    }
    case ControlKind::ASK:
      for (const RankInfo& each : missing(WhoIsMissing::decode(frame.payload).id)) {
        send(each.rank, ControlKind::ASK, Ask{}.encode());
      }
      return;
    case ControlKind::GIVE_UP:
      give_up(rank, GiveUp::decode(frame.payload));
      return;
    case ControlKind::ABORT:
      stop_all(rank, Abort::decode(frame.payload));
      return;
    case ControlKind::POST:
      pass_on(rank, Post::decode(frame.payload));
      return;
    case ControlKind::WHAT_THEY_DO:
      ask(rank, WhatTheyDo::decode(frame.payload));
      return;
    case ControlKind::HEARTBEAT:
      member(rank).operation = Heartbeat::decode(frame.payload).operation;
      answer_for(rank);
      return;
    case ControlKind::GOODBYE:
      take_leave(rank, kHasLeft);
      return;
    case ControlKind::CHALLENGE:
    case ControlKind::HELLO:
    case ControlKind::WELCOME:
    case ControlKind::REFUSED:
    case ControlKind::MEMBERS:
    case ControlKind::EXCHANGED:
    case ControlKind::EXCHANGE_FAILED:
    case ControlKind::MISSING:
    case ControlKind::MEMBER_LOST:
    case ControlKind::SEEK:
    case ControlKind::FOUND:
    case ControlKind::PREPARE:
    case ControlKind::PROMISE:
    case ControlKind::PROPOSE:
    case ControlKind::ACCEPT:
    case ControlKind::CHOSEN:
    case ControlKind::CLOCK:  // which the service answers
    case ControlKind::DOING:
      break;
  }
  throw WireError(fmt::format("rank {} sent a frame of kind {}, which no member of a cluster sends",
                              rank, static_cast<int>(frame.kind)));
}

void Chief::await_anew(int rank) {
  if (is_complete() || !is_present(rank)) return;
  member(rank).presence = Presence::ABSENT;
  --num_admitted_;
}

void Chief::lost(int rank, const std::string& text) {
  if (is_present(rank)) take_leave(rank, text);
}

bool Chief::is_present(int rank) const {
  return members_[static_cast<std::size_t>(rank)].presence == Presence::PRESENT;
}

std::size_t Chief::num_present() const {
  return static_cast<std::size_t>(
      std::count_if(members_.begin(), members_.end(),
                    [](const Member& each) { return each.presence == Presence::PRESENT; }));
}

/// Where a rank stands in the group that it names.
std::size_t Chief::index_of(int rank, const std::vector<int>& members) const {
  const auto position = std::find(members.begin(), members.end(), rank);
  const bool are_ranks = std::all_of(members.begin(), members.end(), [this](int each) {
    return each >= 0 && each < options_.num_workers;
  });
  std::vector<int> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  const bool is_anybody_named_twice =
      std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  // Who is named twice gives one part only, and the round would wait for the other.
  if (position == members.end() || !are_ranks || is_anybody_named_twice) {
    throw WireError(fmt::format("rank {} sent a round of a group that it is not in", rank));
  }
  return static_cast<std::size_t>(position - members.begin());
}

void Chief::exchange(int rank, Exchange message) {
  const auto reject = [&](const Failure& failure) {
    send(rank, ControlKind::EXCHANGE_FAILED,
         ExchangeFailed{message.id, failure.code, failure.text, failure.culprits}.encode());
  };
  if (aborted_) return reject(*aborted_);
  if (const auto broken = failures_.find(message.id.group); broken != failures_.end()) {
    return reject(broken->second);
  }
  if (message.members.empty()) {
    for (int each = 0; each < options_.num_workers; ++each) message.members.push_back(each);
  }
  const std::size_t index = index_of(rank, message.members);
  const auto [entry, is_new] = rounds_.try_emplace(message.id);
  Round& round = entry->second;
  if (is_new) {
    round.members = message.members;
    round.parts.resize(round.members.size());
    round.has_part.resize(round.members.size());
    round.kind = message.kind;
    round.first = rank;
  }
  if (round.members == message.members && round.has_part[index]) {
    throw WireError(fmt::format("rank {} sent its part of a round twice", rank));
  }
  if (round.kind != message.kind || round.members != message.members) {
    const Failure failure{StatusCode::INTERNAL,
                          round.kind == message.kind
                              ? fmt::format("{}: rank {} and rank {} name different members",
                                            round.kind, round.first, rank)
                              : fmt::format("ranks make different calls: rank {} {}, rank {} {}",
                                            round.first, round.kind, rank, message.kind),
                          {rank_info(rank)}};
    fail(message.id, failure);
    return reject(failure);
  }
  round.num_bytes += message.bytes.size();
  if (const std::size_t size = answer_bytes(round.members.size(), round.num_bytes);
      size > kMaxFrameBytes) {
    const Failure failure{
        StatusCode::RESOURCE_EXHAUSTED,
        fmt::format("{}: with rank {}'s part of {} bytes all parts together take {} bytes, more "
                    "than the {} that one round may carry",
                    round.kind, rank, message.bytes.size(), size, kMaxFrameBytes),
        {}};
    fail(message.id, failure);
    return reject(failure);
  }
  round.has_part[index] = true;
  round.parts[index] = std::move(message.bytes);
  if (++round.num_parts == round.members.size()) {
    complete(message.id, round);
  } else if (const std::optional<Failure> failure = failure_of_gone(round)) {
    fail(message.id, *failure);
  }
}

void Chief::give_up(int rank, const GiveUp& message) {
  const auto entry = rounds_.find(message.id);
  if (entry == rounds_.end()) return;  // it has ended meanwhile, and the answer is on its way
  const Round& round = entry->second;
  const auto position = std::find(round.members.begin(), round.members.end(), rank);
  if (position == round.members.end() ||
      !round.has_part[static_cast<std::size_t>(position - round.members.begin())]) {
    throw WireError(fmt::format("rank {} gives up a round that it is not in", rank));
  }
  const std::vector<RankInfo> culprits = missing(message.id);
  std::string text = message.text + ": waiting for ";
  for (std::size_t i = 0; i < culprits.size(); ++i) {
    text += (i == 0 ? "" : ", ") + to_string(culprits[i]);
  }
  fail(message.id, {StatusCode::DEADLINE_EXCEEDED, text, culprits});
}

void Chief::pass_on(int rank, const Post& message) {
  const bool are_ranks = std::all_of(message.to.begin(), message.to.end(), [this](int each) {
    return each >= 0 && each < options_.num_workers;
  });
  const bool are_too_many = message.to.size() > static_cast<std::size_t>(options_.num_workers);
  if (message.from != rank || !are_ranks || are_too_many) {
    throw WireError(
        fmt::format("rank {} sends a post that is not its own, or not to members", rank));
  }
  const SharedFrame frame = shared_frame(ControlKind::POST, message.encode());
  for (const int to : message.to) {
    if (is_present(to)) send_(to, frame);
  }
}

void Chief::ask(int rank, const WhatTheyDo& message) {
  const bool are_ranks = std::all_of(message.ranks.begin(), message.ranks.end(), [this](int each) {
    return each >= 0 && each < options_.num_workers;
  });
  if (!are_ranks || message.ranks.size() > static_cast<std::size_t>(options_.num_workers)) {
    throw WireError(fmt::format("rank {} asks what somebody does who is no member", rank));
  }
  std::erase_if(questions_, [rank](const auto& each) { return each.second.asker == rank; });
  for (const int each : message.ranks) {
    const bool is_final = !is_present(each);
    send(rank, ControlKind::DOING,
         Doing{message.number, each, member(each).operation, is_final}.encode());
    if (is_final) continue;
    questions_.emplace(each, Question{rank, message.number});
    send(each, ControlKind::ASK, Ask{}.encode());
  }
}

/// To all that wait for word of this rank.
void Chief::answer_for(int rank) {
  const auto [begin, end] = questions_.equal_range(rank);
  for (auto each = begin; each != end; ++each) {
    const Question& question = each->second;
    send(question.asker, ControlKind::DOING,
         Doing{question.number, rank, member(rank).operation, /*is_final=*/true}.encode());
  }
  questions_.erase(begin, end);
}

void Chief::stop_all(int rank, const Abort& message) {
  if (aborted_) return;
  end_all(make_ending(rank_info(rank), message.text));
  while (!rounds_.empty()) fail(RoundId(rounds_.begin()->first), *aborted_);
}

void Chief::end_for_want() noexcept {
  if (aborted_ || !is_complete()) return;
  rounds_.clear();  // who waits in one hears what has ended all
  end_all(std::move(ending_for_want_));
}

Chief::Ending Chief::make_ending(const RankInfo& origin, const std::string& text) {
  return {.failure = {StatusCode::ABORTED, abort_text(origin, text), {origin}},
          .frame = shared_frame(ControlKind::ABORT, Abort{origin.rank, text}.encode())};
}

void Chief::end_all(Ending ending) {
  aborted_ = std::move(ending.failure);
  send_to_all(ending.frame);
}

/// What may throw comes first: once the failure is known, all are told.
void Chief::fail(const RoundId& id, const Failure& failure) {
  const SharedFrame frame =
      shared_frame(ControlKind::EXCHANGE_FAILED,
                   ExchangeFailed{id, failure.code, failure.text, failure.culprits}.encode());
  failures_.try_emplace(id.group, failure);
  const auto entry = rounds_.find(id);
  if (entry == rounds_.end()) return;
  const Round round = std::move(entry->second);
  rounds_.erase(entry);
  for (std::size_t i = 0; i < round.members.size(); ++i) {
    if (round.has_part[i] && is_present(round.members[i])) send_(round.members[i], frame);
  }
}

void Chief::complete(const RoundId& id, Round& round) {
  SharedFrame
      frame;  // one for all: many parts for each of many members may be more than there is memory
  try {
    frame = shared_frame(ControlKind::EXCHANGED, Exchanged{id, std::move(round.parts)}.encode());
  } catch (const std::bad_alloc&) {
    // Were it thrown, whose part came last would be taken for lost, and all others would wait for ever.
    return fail(id, {StatusCode::RESOURCE_EXHAUSTED,
                     round.kind + ": the chief has no memory for all parts together",
                     {}});
  }
  for (const int to : round.members) {
    if (is_present(to)) send_(to, frame);
  }
  rounds_.erase(id);
}

void Chief::take_leave(int rank, const std::string& text) {
  const SharedFrame frame = shared_frame(ControlKind::MEMBER_LOST, MemberLost{rank, text}.encode());
  member(rank).presence = Presence::GONE;
  member(rank).gone_text = text;
  answer_for(rank);
  std::erase_if(questions_, [rank](const auto& each) { return each.second.asker == rank; });
  if (!is_complete()) return;  // they will be told when they are told who is there
  send_to_all(frame);
  std::vector<std::pair<RoundId, Failure>> failed;
  for (const auto& [id, round] : rounds_) {
    if (const std::optional<Failure> failure = failure_of_gone(round)) {
      failed.emplace_back(id, *failure);
    }
  }
  for (const auto& [id, failure] : failed) fail(id, failure);
}

std::optional<Chief::Failure> Chief::failure_of_gone(const Round& round) const {
  for (std::size_t i = 0; i < round.members.size(); ++i) {
    const Member& each = members_[static_cast<std::size_t>(round.members[i])];
    if (round.has_part[i] || each.presence != Presence::GONE) continue;
    const RankInfo culprit = rank_info(round.members[i]);
    return Failure{StatusCode::UNAVAILABLE,
                   fmt::format("{}: {} is gone: {}", round.kind, to_string(each.info.rank_info()),
                               each.gone_text),
                   {culprit}};
  }
  return std::nullopt;
}

std::vector<RankInfo> Chief::missing(const RoundId& id) const {
  std::vector<RankInfo> ranks;
  const auto entry = rounds_.find(id);
  if (entry == rounds_.end()) return ranks;
  const Round& round = entry->second;
  for (std::size_t i = 0; i < round.members.size(); ++i) {
    if (!round.has_part[i]) ranks.push_back(rank_info(round.members[i]));
  }
  return ranks;
}

RankInfo Chief::rank_info(int rank) const {
  const Member& each = members_[static_cast<std::size_t>(rank)];
  RankInfo info = each.info.rank_info();
  info.last_operation = each.operation;
  return info;
}

void Chief::send(int rank, ControlKind kind, const std::string& payload) {
  if (is_present(rank)) send_(rank, shared_frame(kind, payload));
}

void Chief::send_to_all(const SharedFrame& frame) {
  for (int to = 0; to < options_.num_workers; ++to) {
    if (is_present(to)) send_(to, frame);
  }
}

}  // namespace crossdevice::detail
