// SPDX-License-Identifier: Apache-2.0
/// Rounds, as one member sees them.
///
/// Why every wait ends. The chief answers every round (see chief.cc) or is noticed to be gone (its connection ends, or it is silent for heartbeat_timeout);
/// Patience::chiefs_answer after the deadline, or Patience::question more after another thread has given the round up.
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
#include "comm/detail/control_plane.h"
#include "comm/detail/membership.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

/// The moment, or one that a condition variable can still count to.
Deadline::Clock::time_point wake_up(const Deadline& deadline, Deadline::Clock::time_point latest) {
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

/// The round, while it waits for its answer: the first one counts. Else null: it was given up, or has one. Call it with mutex_ held.
Membership::Pending* Membership::find_open(const RoundId& id) {
  const auto entry = pending_.find(id);
  return entry == pending_.end() || entry->second->has_ended() ? nullptr : entry->second;
}

void Membership::hear_parts(Exchanged message) {
  const std::lock_guard lock(mutex_);
  Pending* const pending = find_open(message.id);
  if (pending == nullptr) return;
  if (message.parts.size() != pending->num_parts) {
    throw WireError("a round's answer has not one part of each member");
  }
  pending->parts = std::move(message.parts);
  if (pending->on_end.on_completion) pending->on_end.on_completion();
  changed_.notify_all();
}

/// The caller is woken last, and may have gone meanwhile.
void Membership::hear_failure(ExchangeFailed message) {
  require_ranks(message.culprits);
  RoundFailure tell;
  {
    const std::lock_guard lock(mutex_);
    const Pending* const pending = find_open(message.id);
    if (pending == nullptr) return;
    tell = pending->on_end.on_failure;
  }
  if (tell) tell(error_of(message));
  const std::lock_guard lock(mutex_);
  Pending* const pending = find_open(message.id);
  if (pending == nullptr) return;
  pending->failure = std::move(message);
  changed_.notify_all();
}

std::vector<std::string> Membership::exchange(const RoundId& id, const std::vector<int>& members,
                                              const std::string& kind, std::string bytes,
                                              const Deadline& deadline,
                                              const RoundListener& on_end) {
  require_not_forked();
  if (bytes.size() > ControlPlane::kMaxPartBytes) {
    throw ValueError(fmt::format("{}: {} bytes, more than the {} that one round may carry", kind,
                                 bytes.size(), ControlPlane::kMaxPartBytes));
  }
  const auto num_workers = static_cast<std::size_t>(options_.num_workers);
  Pending pending{
      .kind = kind, .num_parts = members.empty() ? num_workers : members.size(), .on_end = on_end};
  Waiting waiting{*this, id};
  std::unique_lock lock(mutex_);
  if (end_.has_value()) {
    const End reason = *end_;
    lock.unlock();
    throw_op_error(reason.code, kind + ": " + reason.text,
                   {.operation = {}, .culprits = reason.culprits, .inputs_intact = true});
  }
  waiting.is_listed = pending_.emplace(id, &pending).second;
  lock.unlock();
  events_.say(ControlKind::EXCHANGE, Exchange{id, members, kind, std::move(bytes)}.encode());
  lock.lock();
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
void Membership::await_answer(std::unique_lock<std::mutex>& lock, const RoundId& id,
                              Pending& pending, const Deadline& deadline) {
  const auto is_over = [&] { return pending.has_ended() || end_.has_value(); };
  const auto say = [&](ControlKind kind, std::string payload) {
    lock.unlock();
    events_.say(kind, std::move(payload));
    lock.lock();
  };
  const Clock::time_point begin = Clock::now();
  bool is_given_up = false;
  const auto must_look = [&] { return is_over() || pending.given_up.has_value() != is_given_up; };
  Deadline until = deadline;
  Clock::time_point warning = begin + options_.stall_warning;
  Clock::time_point question = deadline.is_never() ? Clock::time_point::max()
                                                   : deadline.moment() - options_.patience.question;
  for (;;) {
    changed_.wait_until(lock, wake_up(until, std::min(warning, question)), must_look);
    if (is_over()) break;
    if (pending.given_up.has_value() && !is_given_up) {
      is_given_up = true;
      until = Deadline::earlier(until, Deadline::after(options_.patience.question));
      question = std::min(question, Clock::now());
    }
    if (until.has_passed()) {
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      const std::string why = pending.given_up.value_or(
          fmt::format("{} timed out after {:.3g} s", pending.kind, seconds));
      say(ControlKind::GIVE_UP, GiveUp{id, why}.encode());
      changed_.wait_for(lock, options_.patience.chiefs_answer, is_over);
      break;
    }
    if (Clock::now() >= question) {
      question = Clock::time_point::max();
      say(ControlKind::ASK, WhoIsMissing{id}.encode());
    }
    if (Clock::now() < warning) continue;
    warning = Clock::now() + options_.stall_warning;
    say(ControlKind::WHO_IS_MISSING, WhoIsMissing{id}.encode());
  }
}

void Membership::give_up(const RoundId& id, const std::string& text) {
  const std::lock_guard lock(mutex_);
  const auto entry = pending_.find(id);
  if (entry == pending_.end() || entry->second->given_up.has_value()) return;
  entry->second->given_up = text;
  changed_.notify_all();
}

void Membership::warn_of_stall(const Missing& missing) {
  require_ranks(missing.ranks);
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
