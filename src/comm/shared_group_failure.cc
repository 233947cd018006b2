// SPDX-License-Identifier: Apache-2.0
/// How an operation of a SharedMemoryGroup fails: who is to blame, and what the others are told.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

#include "comm/detail/cluster_state.h"
#include "comm/detail/shared_futex.h"
#include "comm/detail/shared_group_state.h"
#include "comm/detail/transport_kind.h"

namespace crossdevice {
namespace {

using detail::GroupNews;
using detail::sleep_on;
using detail::wake_all;

/// How long a member waits for news that another has had from the control plane; they take some 0.1 ms.
constexpr std::chrono::seconds kNewsTime{5};
/// The same where a member has left, for which there may be a reason.
constexpr std::chrono::milliseconds kReasonTime{200};

}  // namespace

/// What the control plane says. A member that has given up because of it may be seen before the news has come here: then this waits for them, so that
/// all name the same reason. Not where a member has given up because its time was over, which is the reason then.
GroupNews::Kind SharedMemoryGroup::State::await_news(const Deadline& deadline) const {
  bool has_anybody_heard = false;
  bool is_certain = false;
  for (const Peer& each : peers) {
    if (each.place == rank || !has_given_up(each.flags())) continue;
    const std::uint32_t why = each.flags().reason.load(std::memory_order_seq_cst);
    if (GroupFlags::is_its_own(why)) return GroupNews::Kind::NONE;
    has_anybody_heard = true;
    is_certain |= why == GroupFlags::kHeard;
  }
  const Clock::time_point limit = std::min(
      deadline.moment(),
      Clock::now() + (is_certain ? Clock::duration(kNewsTime) : Clock::duration(kReasonTime)));
  while (has_anybody_heard && news.kind() == GroupNews::Kind::NONE && Clock::now() < limit) {
    sleep_on(own_flags->phase, own_flags->phase.load(std::memory_order_relaxed), kLongestSleep);
  }
  return news.kind();
}

void SharedMemoryGroup::State::fail(const Deadline& deadline, bool is_end) {
  fail_because(await_news(deadline), deadline, is_end);
}

/// The member that has left, if that is the reason: not where another had given up before it for a reason of its own.
const SharedMemoryGroup::State::Peer* SharedMemoryGroup::State::find_leaver() const {
  const Peer* leaver = nullptr;
  for (const Peer& each : peers) {
    if (each.place == rank || !has_given_up(each.flags())) continue;
    const std::uint32_t why = each.flags().reason.load(std::memory_order_seq_cst);
    if (GroupFlags::is_its_own(why)) return nullptr;
    if (why == GroupFlags::kLeft) leaver = &each;
  }
  return leaver;
}

const SharedMemoryGroup::State::Peer* SharedMemoryGroup::State::find_given_up(
    std::uint32_t reason) const {
  const auto found = std::find_if(peers.begin(), peers.end(), [&](const Peer& each) {
    return each.place != rank && has_given_up(each.flags()) &&
           each.flags().reason.load(std::memory_order_seq_cst) == reason;
  });
  return found != peers.end() ? &*found : nullptr;
}

std::string SharedMemoryGroup::State::operation_of(const Peer& member,
                                                   std::string_view answer) const {
  constexpr std::string_view kNone = detail::OperationNote::kNone;
  std::string here = member.flags().note.read();
  if (!here.empty() && !here.starts_with(kNone)) return here;
  if (answer.empty()) {
    // Between two of them, as far as is known.
    return here.empty() ? std::string(kNone) : here.insert(kNone.size(), " of this group");
  }
  const std::size_t mark = answer.rfind(" #");
  const bool is_of_an_object =
      !answer.starts_with(kNone) &&
      answer.find(detail::OperationNote::kOfCluster) == std::string_view::npos &&
      mark != std::string_view::npos &&
      answer.find_first_not_of("0123456789", mark + 2) == std::string_view::npos;
  const bool is_own = is_part && answer == name();
  return fmt::format("{}{}", answer, is_of_an_object && !is_own ? " of another object" : "");
}

std::vector<RankInfo> SharedMemoryGroup::State::seen(
    const std::vector<const Peer*>& missing) const {
  std::vector<int> asked;
  for (const Peer* const each : missing) {
    const std::string here = each->flags().note.read();
    if (here.empty() || here.starts_with(detail::OperationNote::kNone)) {
      asked.push_back(each->place);
    }
  }
  const std::vector<std::string> answers =
      detail::ClusterInside::ask(*cluster, asked, Deadline::after(kAnswerTime));
  std::vector<RankInfo> ranks;
  ranks.reserve(missing.size());
  for (const Peer* const each : missing) {
    const auto place = std::find(asked.begin(), asked.end(), each->place);
    ranks.push_back(each->info);
    ranks.back().last_operation = operation_of(
        *each, place == asked.end()
                   ? std::string_view()
                   : std::string_view(answers[static_cast<std::size_t>(place - asked.begin())]));
  }
  return ranks;
}

/// Gives up, so that the others do not wait for this worker.
void SharedMemoryGroup::State::end_waiting(bool is_end) {
  own_flags->given_up_at.store(phase, std::memory_order_seq_cst);
  wake_all(own_flags->phase);
  // Whoever has announced may be at work on this worker's memory; so may one that has not, if this one sees its announcement only now.
  may_be_written = is_end;
  for (int each = 0; each < num_workers; ++each) {
    may_be_written |= each != rank && has_come(each, std::memory_order_seq_cst);
  }
}

void SharedMemoryGroup::State::fail_because(GroupNews::Kind reason, const Deadline& deadline,
                                            bool is_end) {
  const Peer* const leaver =
      reason == GroupNews::Kind::NONE && !deadline.has_passed() ? find_leaver() : nullptr;
  own_flags->reason.store(reason != GroupNews::Kind::NONE ? GroupFlags::kHeard
                          : leaver != nullptr             ? GroupFlags::kMissesOne
                                                          : 0,
                          std::memory_order_seq_cst);
  end_waiting(is_end);
  std::vector<const Peer*> missed_ones;
  for (const Peer& each : peers) {
    if (is_missed(each.place)) missed_ones.push_back(&each);
  }
  const std::string name = this->name();
  if (reason != GroupNews::Kind::NONE) {
    const GroupNews::Item item = news.item();
    const bool is_loss = item.kind == GroupNews::Kind::LOST;
    break_with(is_loss ? StatusCode::UNAVAILABLE : StatusCode::ABORTED, name + ": " + item.text,
               {item.culprit});
  }
  if (leaver != nullptr) {
    break_with(StatusCode::UNAVAILABLE,
               fmt::format("{}: {} is gone: it has left", name, to_string(leaver->info)),
               {leaver->info});
  }
  // Whoever has failed has done so before those that have given up because of it, so all that see these see it.
  if (const Peer* const failed = find_given_up(GroupFlags::kFailed)) {
    break_with(StatusCode::ABORTED,
               fmt::format("{}: {} has failed by itself", name, to_string(failed->info)),
               {failed->info});
  }
  if (const Peer* const late = find_given_up(GroupFlags::kLate)) {
    break_with(StatusCode::DEADLINE_EXCEEDED,
               fmt::format("{}: {} has not done its part in time", name, to_string(late->info)),
               {late->info});
  }
  const bool is_time_over = deadline.has_passed();
  const std::vector<RankInfo> missing = seen(missed_ones);
  const std::string names = detail::names_of(missing);
  for (const Peer& each : peers) {
    if (each.place == rank || !has_given_up(each.flags())) continue;
    if (each.flags().reason.load(std::memory_order_seq_cst) == GroupFlags::kLeft) continue;
    if (is_time_over) break;
    break_with(StatusCode::DEADLINE_EXCEEDED,
               fmt::format("{}: {} has given up{}", name, to_string(each.info),
                           missing.empty() ? "" : " waiting for " + names),
               missing.empty() ? std::vector<RankInfo>{each.info} : missing);
  }
  if (missing.empty()) fail_as_latecomer();
  break_with(StatusCode::DEADLINE_EXCEEDED,
             fmt::format("{} timed out: waiting for {}", name, names), missing);
}

/// All have come, and this worker's time is over; it was not waiting for any of them when that happened, but somebody has given up. So it was stopped or
/// slow, before it came or since.
void SharedMemoryGroup::State::fail_as_latecomer() {
  std::string leavers;
  for (const Peer& each : peers) {
    if (each.place == rank || !has_given_up(each.flags())) continue;
    leavers += (leavers.empty() ? "" : ", ") + to_string(each.info);
  }
  const RankInfo& self = peer(rank).info;
  break_with(StatusCode::DEADLINE_EXCEEDED,
             fmt::format("{} timed out: this worker, {}, came too late or was stopped: {} had left "
                         "the call",
                         name(), to_string(self), leavers),
             {self});
}

/// Whoever has announced a segment keeps it, if it lives, until all have come to the end of the call or it has given up, at the end if not before. So
/// either it has given up, which this worker sees, as that came before the segment went; or its process has ended, and the others wait for what
/// the control plane says.
void SharedMemoryGroup::State::fail_by_absence(const Peer& owner, const std::string& what) {
  ++phase;  // the end. It is not announced: this worker is one of those that are missing there.
  note_on_error = "; " + what;
  for (const Peer& each : peers) {
    if (has_given_up(each.flags())) fail(Deadline::never(), /*is_end=*/true);
  }
  own_flags->reason.store(GroupFlags::kHeard, std::memory_order_seq_cst);
  end_waiting(/*is_end=*/true);
  break_with(StatusCode::UNAVAILABLE, fmt::format("{}: {} is gone", name(), to_string(owner.info)),
             {owner.info});
}

void SharedMemoryGroup::State::break_with(StatusCode code, const std::string& text,
                                          std::vector<RankInfo> culprits) {
  broken_text = text + note_on_error;
  broken_by = culprits;
  throw_op_error(code, broken_text,
                 {.operation = {}, .culprits = std::move(culprits), .inputs_intact = true});
}

}  // namespace crossdevice
