// SPDX-License-Identifier: Apache-2.0
/// Rounds, as one member sees them.
///
/// Why every wait ends. The chief answers every round (see chief.cc) or is noticed to be gone (its connection ends, or it is silent for heartbeat_timeout); kChiefsAnswer after
/// the deadline, or kQuestionTime more after another thread has given the round up.
#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/control_message.h"
#include "comm/detail/control_plane_state.h"

namespace crossdevice::detail {
namespace {

using Clock = std::chrono::steady_clock;

/// What a call ends later than an inquest where the chief is stopped or cut off. One that lives answers at once, but on a machine that is busy.
constexpr std::chrono::milliseconds kChiefsAnswer{250};
/// So long before a round is given up, those that it misses are asked what they do: what the last heartbeat said may be seconds old.
constexpr std::chrono::milliseconds kQuestionTime{200};

/// The moment, or one that a condition variable can still count to.
Clock::time_point wake_up(const Deadline& deadline, Clock::time_point latest) {
  return std::min(deadline.moment(), latest);
}

std::exception_ptr error_of(const ExchangeFailed& failed) {
  try {
    throw_op_error(failed.code, failed.text,
                   {.operation = {}, .culprits = failed.culprits, .inputs_intact = true});
  } catch (const OpError&) {
    return std::current_exception();
  }
}

}  // namespace

void ControlPlane::State::hear_parts(Exchanged message) {
  const std::lock_guard lock(mutex_);
  const auto entry = pending_.find(message.id);
  if (entry == pending_.end()) return;  // it was given up
  entry->second->parts = std::move(message.parts);
  if (entry->second->on_end.on_completion) entry->second->on_end.on_completion();
  changed_.notify_all();
}

/// The caller is woken last, and may have gone meanwhile.
void ControlPlane::State::hear_failure(ExchangeFailed message) {
  RoundFailure tell;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = pending_.find(message.id);
    if (entry == pending_.end()) return;
    tell = entry->second->on_end.on_failure;
  }
  if (tell) tell(error_of(message));
  const std::lock_guard lock(mutex_);
  const auto entry = pending_.find(message.id);
  if (entry == pending_.end()) return;
  entry->second->failure = std::move(message);
  changed_.notify_all();
}

std::vector<std::string> ControlPlane::State::exchange(const RoundId& id,
                                                       const std::vector<int>& members,
                                                       const std::string& kind, std::string bytes,
                                                       const Deadline& deadline,
                                                       const RoundListener& on_end) {
  require_not_forked();
  if (bytes.size() > kMaxPartBytes) {
    throw ValueError(fmt::format("{}: {} bytes, more than the {} that one round may carry", kind,
                                 bytes.size(), kMaxPartBytes));
  }
  Pending pending{.kind = kind, .on_end = on_end, .parts = {}, .failure = {}, .given_up = {}};
  Waiting waiting{*this, id};
  std::unique_lock lock(mutex_);
  if (end_.has_value()) {
    const End reason = *end_;
    lock.unlock();
    throw_op_error(reason.code, kind + ": " + reason.text,
                   {.operation = {}, .culprits = reason.culprits, .inputs_intact = true});
  }
  waiting.is_listed = pending_.emplace(id, &pending).second;
  post_to_chief(ControlKind::EXCHANGE, Exchange{id, members, kind, std::move(bytes)}.encode());
  await_answer(lock, id, pending, deadline);
  if (pending.parts.has_value()) return std::move(*pending.parts);
  if (pending.failure.has_value()) {
    lock.unlock();
    std::rethrow_exception(error_of(*pending.failure));
  }
  if (end_.has_value()) {
    const End reason = *end_;
    lock.unlock();
    throw_op_error(reason.code, kind + ": " + reason.text,
                   {.operation = {}, .culprits = reason.culprits, .inputs_intact = true});
  }
  const std::string what = pending.given_up.value_or(kind + " timed out");
  lock.unlock();
  const RankInfo chief = info_of(0);
  throw DeadlineExceededError(
      fmt::format("{}: the chief, {}, does not answer", what, to_string(chief)),
      {.operation = {}, .culprits = {chief}, .inputs_intact = true});
}

/// Until the round has ended; or the chief does not answer, some time after the deadline or after another thread has given it up.
void ControlPlane::State::await_answer(std::unique_lock<std::mutex>& lock, const RoundId& id,
                                       Pending& pending, const Deadline& deadline) {
  const auto is_over = [&] { return pending.has_ended() || end_.has_value(); };
  const Clock::time_point begin = Clock::now();
  const auto stall = whole_time(options_.stall_warning);
  bool is_given_up = false;
  const auto must_look = [&] { return is_over() || pending.given_up.has_value() != is_given_up; };
  Deadline until = deadline;
  Clock::time_point warning = begin + stall;
  Clock::time_point question =
      deadline.is_never() ? Clock::time_point::max() : deadline.moment() - kQuestionTime;
  for (;;) {
    changed_.wait_until(lock, wake_up(until, std::min(warning, question)), must_look);
    if (is_over()) break;
    if (pending.given_up.has_value() && !is_given_up) {
      is_given_up = true;
      until = Deadline::earlier(until, Deadline::after(kQuestionTime));
      question = std::min(question, Clock::now());
    }
    if (until.has_passed()) {
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      const std::string why = pending.given_up.value_or(
          fmt::format("{} timed out after {:.3g} s", pending.kind, seconds));
      post_to_chief(ControlKind::GIVE_UP, GiveUp{id, why}.encode());
      changed_.wait_for(lock, kChiefsAnswer, is_over);
      break;
    }
    if (Clock::now() >= question) {
      question = Clock::time_point::max();
      post_to_chief(ControlKind::ASK, WhoIsMissing{id}.encode());
    }
    if (Clock::now() < warning) continue;
    warning = Clock::now() + stall;
    post_to_chief(ControlKind::WHO_IS_MISSING, WhoIsMissing{id}.encode());
  }
}

void ControlPlane::State::give_up(const RoundId& id, const std::string& text) {
  const std::lock_guard lock(mutex_);
  const auto entry = pending_.find(id);
  if (entry == pending_.end() || entry->second->given_up.has_value()) return;
  entry->second->given_up = text;
  changed_.notify_all();
}

void ControlPlane::State::warn_of_stall(const Missing& missing) {
  std::string kind;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = pending_.find(missing.id);
    if (entry == pending_.end() || missing.ranks.empty()) return;
    kind = entry->second->kind;
  }
  std::string ranks;
  for (const RankInfo& rank : missing.ranks) ranks += (ranks.empty() ? "" : ", ") + to_string(rank);
  log(LogSeverity::WARNING,
      fmt::format("rank {} still waits in {} for {}", options_.rank, kind, ranks));
}

}  // namespace crossdevice::detail
