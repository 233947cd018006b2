// SPDX-License-Identifier: Apache-2.0
// How members find each other and choose the next epoch; meeting_state.h has the steps, succession.h the argument.
#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "comm/detail/host_port.h"
#include "comm/detail/meeting_state.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

/// How often what depends on time is looked at.
constexpr std::chrono::milliseconds kTick{20};
/// Between two rounds of asking.
constexpr std::chrono::milliseconds kRest{100};
/// For a connection to an address, for the first word of who listens there, and for its answer: a worker that is stopped never gives one.
constexpr std::chrono::milliseconds kAnswerTime{1000};
/// Whoever was silent for its time gets twice as much the next time: it may be behind a crowd of strangers, where whoever comes again begins to wait anew.
constexpr std::chrono::seconds kLongestAnswerTime{8};
/// So long whoever has come lets the others end what they do in the epoch that is to be succeeded.
constexpr std::chrono::seconds kCourtesy{1};
/// How much longer than its deadline a member waits for the candidate's word, whose deadline is about the same.
constexpr std::chrono::seconds kCandidatesAnswer{1};
/// So long one that lacks descriptors hopes for some: as long as others wait for its word, before they ask the next beside it.
constexpr std::chrono::milliseconds kWantTime = kAnswerTime;
/// What it lacks may be there in between, while somebody else has just gone.
constexpr std::chrono::milliseconds kWantPause = kWantTime / 2;

/// So many are asked at a time: each takes a descriptor.
constexpr std::size_t kMostAsked = 128;

/// How long one is waited for before the next is asked beside it: half as long for each that is silent, and soon not at all, so that all of them cost twice as
/// much as the first.
std::chrono::milliseconds hold_among(std::size_t num_silent) {
  constexpr std::size_t kMostHeldFor = 6;
  return num_silent < kMostHeldFor ? kAnswerTime / (1 << num_silent) : std::chrono::milliseconds(0);
}

}  // namespace

// ---------------------------------------------------------------------------------------------- asking

void MeetingPlace::State::tick() {
  if (!is_called()) return;
  check_deadline();
  check_want();
  if (!is_called()) return;
  beat();
  // Where a silent one's vote alone was missing, a list is chosen now that it is dropped, which may leave this worker out.
  if (!is_called()) return;
  if (Clock::now() >= ask_next_at_) {
    if (awaited_.has_value()) call_->silent.emplace(*awaited_, kAnswerTime);
    seek_next();
  }
  try_to_propose();
  try_to_choose();
  if (!is_called()) return;
  timer_.expires_after(kTick);
  timer_.async_wait([this](std::error_code stopped) {
    if (!stopped) tick();
  });
}

Seek MeetingPlace::State::question(bool only_tells) const {
  Seek seek;
  seek.job = job_;
  seek.rank = rank_;
  seek.epoch = epoch_;
  if (only_tells) return seek;
  seek.call = call_->request.call;
  seek.completed = call_->request.completed;
  seek.lost = call_->request.lost;
  return seek;
}

/// Whoever is in a candidate's hands may go to a lower one, until there is a proposal: where a candidate that all will go to is slow to answer, each of them waits
/// for it, and not only those that have no other.
bool MeetingPlace::State::may_ask(int rank) const {
  if (!is_called() || rank == rank_) return false;
  if (link_.has_value()) return rank < link_->rank && !link_->has_proposed;
  if (!candidate_.has_value()) return rank < rank_;
  return !candidate_->has_proposed();
}

bool MeetingPlace::State::is_to_be_asked(int rank) const {
  return may_ask(rank) && !sessions_.contains(rank) && !seekers_.contains(rank);
}

/// Below this rank all, above it those that have not come, once this worker is a candidate: first those that are silent, for which nobody waits, then one after
/// the other.
void MeetingPlace::State::seek_next() {
  awaited_.reset();
  if (next_asked_ == 0) ask_silent();
  while (is_called() && !link_.has_value() && next_asked_ < epoch_.members.size()) {
    const int rank = epoch_.members[next_asked_];
    if (!is_to_be_asked(rank) || call_->silent.contains(rank)) {
      ++next_asked_;
      continue;
    }
    if (seekers_.size() >= kMostAsked) {
      ask_next_at_ = Clock::now() + kTick;
      return;
    }
    ++next_asked_;
    const std::chrono::milliseconds hold = hold_among(call_->silent.size());
    if (hold > std::chrono::milliseconds(0)) {
      awaited_ = rank;
      ask_next_at_ = Clock::now() + hold;
      return ask(rank);
    }
    ask(rank);
  }
  if (!is_called()) return;
  next_asked_ = 0;
  if (!link_.has_value() && !candidate_.has_value()) return become_candidate();
  ask_next_at_ = Clock::now() + kRest;
}

/// In turn, where they are more than can be asked at a time.
void MeetingPlace::State::ask_silent() {
  std::vector<int> ranks;
  for (const auto& [rank, word] : call_->silent) {
    if (is_to_be_asked(rank)) ranks.push_back(rank);
  }
  const auto next = std::upper_bound(ranks.begin(), ranks.end(), last_silent_asked_);
  std::rotate(ranks.begin(), next, ranks.end());
  for (const int rank : ranks) {
    if (!is_to_be_asked(rank) || seekers_.size() >= kMostAsked) return;
    last_silent_asked_ = rank;
    ask(rank);
  }
}

void MeetingPlace::State::ask(int rank) {
  Seek seek = question(/*only_tells=*/rank > rank_);
  if (Clock::now() - call_->since >= kCourtesy) seek.rouses = call_->request.call;
  const auto silent = call_->silent.find(rank);
  const Clock::duration word = silent == call_->silent.end() ? kAnswerTime : silent->second;
  const auto seeker = std::make_shared<Seeker>(
      io_, SeekerProof{options_.secret, options_.tls}, std::move(seek), rank, addresses_of(rank),
      SeekerPatience{.connection = kAnswerTime, .word = word},
      [this, rank](SeekResult result) { hear_answer(rank, std::move(result)); });
  seekers_[rank] = seeker;
  seeker->start();
}

void MeetingPlace::State::ask_nobody() {
  // None of them calls back, so none is taken out meanwhile.
  for (const auto& [rank, seeker] : seekers_) seeker->cancel();
  seekers_.clear();
  awaited_.reset();
}

/// In the name of no epoch, so that nobody hears of one that it is just about to hear of from its candidate.
std::vector<int> MeetingPlace::State::find_gone(const std::vector<int>& ranks,
                                                Clock::time_point latest) {
  struct Inquiry {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t num_open = 0;
    std::vector<int> gone;
  };
  const auto inquiry = std::make_shared<Inquiry>();
  inquiry->num_open = ranks.size();
  asio::post(io_, [this, ranks, inquiry] {
    for (const int rank : ranks) {
      if (inquirers_.contains(rank)) continue;  // one that has not come back says nothing new
      Seek seek;
      seek.job = job_;
      seek.rank = rank_;
      const auto hear = [this, rank, inquiry](const SeekResult& result) {
        inquirers_.erase(rank);
        const std::lock_guard lock(inquiry->mutex);
        if (result.is_gone) inquiry->gone.push_back(rank);
        --inquiry->num_open;
        inquiry->changed.notify_all();
      };
      const auto inquirer = std::make_shared<Seeker>(
          io_, SeekerProof{options_.secret, options_.tls}, std::move(seek), rank,
          addresses_of(rank), SeekerPatience{kAnswerTime, kAnswerTime}, hear);
      inquirers_[rank] = inquirer;
      inquirer->start();
    }
  });
  std::unique_lock lock(inquiry->mutex);
  inquiry->changed.wait_until(lock, std::min(latest, Clock::now() + kAnswerTime),
                              [&] { return inquiry->num_open == 0 || !inquiry->gone.empty(); });
  return inquiry->gone;
}

std::vector<std::string> MeetingPlace::State::addresses_of(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return index < everyone_.size() ? everyone_[index].addresses : std::vector<std::string>();
}

void MeetingPlace::State::note_silence(int rank, const SeekResult& result) {
  if (result.found.has_value() || result.refused.has_value() || result.is_gone ||
      !result.hearsay.empty()) {
    call_->silent.erase(rank);
  } else if (result.want.empty()) {
    Clock::duration& word = call_->silent.emplace(rank, kAnswerTime).first->second;
    if (result.is_silent) word = std::min<Clock::duration>(2 * word, kLongestAnswerTime);
  }
}

void MeetingPlace::State::hear_answer(int rank, SeekResult result) {
  seekers_.erase(rank);
  const bool was_awaited = awaited_ == rank;
  if (was_awaited) awaited_.reset();
  if (!is_called()) {
    if (result.connection) result.connection->close_after_sending();
    return;
  }
  note_silence(rank, result);
  if (result.is_gone) {
    call_->gone.insert(rank);
  } else {
    call_->gone.erase(rank);
  }
  call_->hearsay[rank] = result.hearsay;
  call_->why_not_asking = result.want;
  if (result.refused.has_value() && result.refused->code == StatusCode::INTERNAL) {
    const MeetingFailure failure{result.refused->code, result.refused->text,
                                 result.refused->culprits};
    refuse_all(failure);
    return end_call(std::nullopt, failure);
  }
  const bool is_later = result.found.has_value() && result.found->epoch.number > epoch_.number;
  if (result.connection && !is_later && may_ask(rank)) return join(std::move(result));
  if (result.connection) result.connection->close_after_sending();
  if (is_later) return adopt(result.found->epoch);
  if (was_awaited) seek_next();
}

/// Questions to those below the candidate stay open.
void MeetingPlace::State::join(SeekResult result) {
  dissolve();
  leave_candidate();
  awaited_.reset();
  for (auto each = seekers_.upper_bound(result.found->rank); each != seekers_.end();) {
    each->second->cancel();
    each = seekers_.erase(each);
  }
  link_ = Link{result.connection, result.found->rank, result.host};
  link_->connection->take_over([this](const Frame& frame) { hear_candidate(frame); },
                               [this](const std::string&) { leave_candidate(); });
}

void MeetingPlace::State::hear_candidate(const Frame& frame) {
  const auto reply = [this](ControlKind kind, const std::string& payload) {
    link_->connection->send(encode_frame(kind, payload));
  };
  if (frame.kind == ControlKind::PREPARE) {
    const Ballot ballot = BallotMessage::decode(frame.payload).ballot;
    reply(ControlKind::PROMISE, PromiseMessage{voter_.promise(ballot)}.encode());
  } else if (frame.kind == ControlKind::PROPOSE) {
    const Vote proposal = VoteMessage::decode(frame.payload).vote;
    link_->has_proposed = true;
    reply(ControlKind::ACCEPT, BallotMessage{voter_.vote(proposal)}.encode());
  } else if (frame.kind == ControlKind::CHOSEN) {
    hear_chosen(Chosen::decode(frame.payload));
  } else if (frame.kind == ControlKind::REFUSED) {
    const Refused refused = Refused::decode(frame.payload);
    leave_candidate();
    end_call(std::nullopt, MeetingFailure{refused.code, refused.text, refused.culprits});
  } else if (frame.kind != ControlKind::HEARTBEAT) {
    throw WireError("a candidate does not say this");
  }
}

void MeetingPlace::State::hear_chosen(const Chosen& chosen) {
  if (chosen.epoch.number <= epoch_.number) throw WireError("an epoch that is over");
  const std::string host = link_->host;
  adopt(chosen.epoch);
  if (chosen.port == 0 || !chosen.epoch.has(rank_)) return;
  end_call(Meeting{chosen.epoch, chosen.completed, join_host_port(host, chosen.port), nullptr},
           std::nullopt);
}

void MeetingPlace::State::leave_candidate() {
  if (!link_.has_value()) return;
  link_->connection->close_after_sending();
  link_.reset();
  next_asked_ = 0;
  ask_next_at_ = Clock::now();
}

// ---------------------------------------------------------------------------------------------- being a candidate

/// Whoever is taken in relies on a place to meet. Where there is none to be had, as all descriptors are taken, this worker tries again.
void MeetingPlace::State::become_candidate() {
  if (!call_->listener) {
    try {
      const std::shared_ptr<ListeningSocket> listener =
          ListeningSocket::open(options_.chief_host, 0, "the new chief");
      // Now: when all have voted, the end of this would be taken for the end of whose vote came last.
      call_->chief_address = listener->published_addresses()[0];
      call_->listener = listener;
    } catch (const std::exception& error) {
      call_->why_not_listening = error.what();
      call_->lacks_means_to_listen = dynamic_cast<const ResourceExhaustedError*>(&error) != nullptr;
      ask_next_at_ = Clock::now() + kRest;
      return;
    }
  }
  call_->why_not_listening.clear();
  call_->lacks_means_to_listen = false;
  candidate_.emplace(epoch_, rank_, enough(), voter_);
  ask_next_at_ = Clock::now();
}

/// Asks everybody again, after the ballot has changed.
void MeetingPlace::State::prepare() {
  for (const auto& [rank, session] : sessions_) {
    session.connection->send(
        encode_frame(ControlKind::PREPARE, BallotMessage{candidate_->ballot()}.encode()));
  }
}

void MeetingPlace::State::try_to_propose() {
  if (!is_called() || !candidate_.has_value() || candidate_->has_proposed()) return;
  if (!candidate_->has_quorum()) {
    call_->quorum_since.reset();
    return;
  }
  const MeetingRequest& request = call_->request;
  if (!call_->quorum_since.has_value()) call_->quorum_since = Clock::now();
  const bool have_all_promised =
      std::all_of(sessions_.begin(), sessions_.end(),
                  [this](const auto& each) { return candidate_->has_promised(each.first); });
  if (!have_all_promised) return;
  if (!candidate_->is_bound()) {
    const std::vector<int> come = candidate_->come();
    const std::vector<int> awaited = expected();
    const bool is_everybody =
        std::includes(come.begin(), come.end(), awaited.begin(), awaited.end());
    const bool is_patience_over =
        !request.needs_all && Clock::now() - *call_->quorum_since >= request.patience;
    if (come.size() < enough() || (!is_everybody && !is_patience_over)) return;
  }
  const std::string frame =
      encode_frame(ControlKind::PROPOSE, VoteMessage{candidate_->propose()}.encode());
  for (const auto& [rank, session] : sessions_) session.connection->send(frame);
}

void MeetingPlace::State::try_to_choose() {
  if (!is_called() || !candidate_.has_value() || !candidate_->has_proposed()) return;
  const bool have_all_voted =
      std::all_of(sessions_.begin(), sessions_.end(),
                  [this](const auto& each) { return candidate_->has_vote_of(each.first); });
  if (!have_all_voted) return;  // or their connections end, at the latest for their silence
  if (!candidate_->is_chosen()) {
    candidate_->begin_again();
    return prepare();
  }
  Chosen chosen;
  chosen.epoch = {epoch_.number + 1, candidate_->proposal().members};
  const bool are_all_there =
      std::all_of(chosen.epoch.members.begin(), chosen.epoch.members.end(),
                  [this](int rank) { return rank == rank_ || sessions_.contains(rank); });
  Meeting meeting;
  meeting.epoch = chosen.epoch;
  meeting.completed = call_->request.completed;
  for (const auto& [rank, session] : sessions_) {
    meeting.completed = std::min(meeting.completed, session.completed);
  }
  chosen.completed = meeting.completed;
  if (are_all_there && chosen.epoch.has(rank_)) {
    meeting.listener = call_->listener;
    chosen.port = meeting.listener->port();
    meeting.chief_address = call_->chief_address;
  }
  for (const auto& [rank, session] : sessions_) {
    session.connection->send(encode_frame(ControlKind::CHOSEN, chosen.encode()));
  }
  const Epoch before = epoch_;
  adopt(chosen.epoch);
  tell_left_out(before);
  if (chosen.port != 0) end_call(std::move(meeting), std::nullopt);
}

/// No candidate any more: whoever was taken in asks again, from the lowest rank on.
void MeetingPlace::State::dissolve() {
  candidate_.reset();
  for (auto& [rank, session] : sessions_) session.connection->close_after_sending();
  sessions_.clear();
}

std::string MeetingPlace::State::describe(const std::vector<RankInfo>& ranks) {
  std::string text;
  for (const RankInfo& each : ranks) text += (text.empty() ? "" : ", ") + to_string(each);
  return text.empty() ? "nobody" : text;
}

/// In the members' numbers of the cluster that the call was made on.
std::vector<RankInfo> MeetingPlace::State::infos(const std::vector<int>& ranks) const {
  std::vector<RankInfo> infos;
  infos.reserve(ranks.size());
  for (const int rank : ranks) {
    const auto index = static_cast<std::size_t>(rank);
    infos.push_back(call_ != nullptr && index < call_->request.names.size()
                        ? call_->request.names[index]
                        : RankInfo{.rank = rank});
  }
  return infos;
}

std::vector<int> MeetingPlace::State::not_come() const {
  std::vector<int> ranks;
  for (const int rank : epoch_.members) {
    if (rank != rank_ && !sessions_.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::size_t MeetingPlace::State::enough() const {
  const std::size_t all = epoch_.members.size();
  if (call_->request.needs_all) return all;
  return call_->request.min_workers > 0 ? call_->request.min_workers : all / 2 + 1;
}

/// Who is worth waiting for.
std::vector<int> MeetingPlace::State::expected() const {
  if (call_->request.needs_all) return epoch_.members;
  std::set<int> gone = call_->gone;
  gone.insert(call_->request.lost.begin(), call_->request.lost.end());
  for (const auto& [rank, session] : sessions_)
    gone.insert(session.lost.begin(), session.lost.end());
  std::vector<int> ranks;
  for (const int rank : epoch_.members) {
    if (rank == rank_ || sessions_.contains(rank) || !gone.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

// ---------------------------------------------------------------------------------------------- time

void MeetingPlace::State::beat() {
  const Clock::time_point now = Clock::now();
  const auto limit = std::chrono::duration_cast<Clock::duration>(options_.heartbeat_timeout);
  // Who was stopped itself has heard nobody, which says nothing about them.
  const bool was_asleep = now - last_beat_ > limit / 2;
  if (now - last_beat_ < limit / 4) return;
  last_beat_ = now;
  const std::string frame = encode_frame(ControlKind::HEARTBEAT, "");
  std::vector<int> silent;
  for (auto& [rank, session] : sessions_) {
    if (was_asleep) session.connection->count_as_heard();
    if (now - session.connection->last_heard() > limit) silent.push_back(rank);
    session.connection->send(frame);
  }
  for (const int rank : silent) drop_member(rank);
  if (!link_.has_value()) return;
  if (was_asleep) link_->connection->count_as_heard();
  link_->connection->send(frame);
  if (now - link_->connection->last_heard() > limit) leave_candidate();
}

void MeetingPlace::State::check_deadline() {
  const MeetingRequest& request = call_->request;
  const auto num_gone = static_cast<std::size_t>(
      std::count_if(epoch_.members.begin(), epoch_.members.end(),
                    [this](int rank) { return call_->gone.contains(rank); }));
  if (!link_.has_value() && epoch_.members.size() - num_gone < enough()) {
    std::vector<int> gone;
    for (const int rank : epoch_.members) {
      if (call_->gone.contains(rank)) gone.push_back(rank);
    }
    const std::vector<RankInfo> culprits = infos(gone);
    const MeetingFailure failure{
        StatusCode::UNAVAILABLE,
        fmt::format("{}: {} of {} workers are left, {} are needed; gone: {}", request.call,
                    epoch_.members.size() - num_gone, epoch_.members.size(), enough(),
                    describe(culprits)),
        culprits};
    refuse_all(failure);
    return end_call(std::nullopt, failure);
  }
  if (!request.deadline.has_passed()) return;
  // Who has not come is the candidate's to say.
  if (link_.has_value() && Clock::now() < request.deadline.moment() + kCandidatesAnswer) return;
  const MeetingFailure failure = too_late();
  refuse_all(failure);
  leave_candidate();
  end_call(std::nullopt, failure);
}

/// What this process lacks to meet the others; empty: nothing. Who is in a candidate's hands, or has asked those who have come for their votes, needs nobody
/// else.
std::string MeetingPlace::State::own_want() const {
  if (link_.has_value() || (candidate_.has_value() && candidate_->has_proposed())) return {};
  if (call_->lacks_means_to_listen) return "has no place to meet: " + call_->why_not_listening;
  if (!call_->why_not_asking.empty()) return "cannot ask the others: " + call_->why_not_asking;
  if (!candidate_.has_value() || reception_.want().empty()) return {};
  return "cannot take in who comes: " + reception_.want();
}

void MeetingPlace::State::check_want() {
  if (!is_called()) return;
  const std::string lacks = own_want();
  std::optional<Want>& want = call_->want;
  const Clock::time_point now = Clock::now();
  if (lacks.empty()) {
    if (want.has_value() && now - want->last >= kWantPause) want.reset();
    return;
  }
  if (!want.has_value()) want = Want{.since = now, .last = now};
  want->last = now;
  if (now - want->since < kWantTime) return;
  const std::vector<RankInfo> self = infos({rank_});
  end_call(std::nullopt, MeetingFailure{StatusCode::RESOURCE_EXHAUSTED,
                                        fmt::format("{}: this worker, {}, {}", call_->request.call,
                                                    describe(self), lacks),
                                        self});
}

MeetingFailure MeetingPlace::State::too_late() const {
  if (link_.has_value()) {
    const std::vector<RankInfo> culprits = infos({link_->rank});
    return {StatusCode::DEADLINE_EXCEEDED,
            fmt::format("{} timed out: {} has not said who goes on", call_->request.call,
                        describe(culprits)),
            culprits};
  }
  const std::vector<RankInfo> culprits = infos(not_come());
  std::string why = call_->why_not_listening.empty() ? "" : "; here " + call_->why_not_listening;
  for (const auto& [rank, text] : call_->hearsay) {
    if (text.empty() || sessions_.contains(rank)) continue;
    why += fmt::format("; somebody is where rank {} was: {}", rank, text);
  }
  return {StatusCode::DEADLINE_EXCEEDED,
          fmt::format("{} timed out: {} of {} workers have come, {} are needed; waiting for {}{}",
                      call_->request.call, sessions_.size() + 1, epoch_.members.size(), enough(),
                      describe(culprits), why),
          culprits};
}

void MeetingPlace::State::refuse_all(const MeetingFailure& failure) {
  const std::string frame = encode_frame(
      ControlKind::REFUSED,
      Refused{.code = failure.code, .text = failure.text, .culprits = failure.culprits}.encode());
  for (const auto& [rank, session] : sessions_) session.connection->send(frame);
  dissolve();
}

}  // namespace crossdevice::detail
