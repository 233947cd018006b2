// SPDX-License-Identifier: Apache-2.0
/// Meeting, what connects this worker and its chief, and leaving. What is heard of the chief: membership.cc; rounds: control_rounds.cc.
///
/// Why every wait ends. join(): at its deadline, and kVerdictTime or, the chief's, kLinger. The destructor: see await_farewells().
#include "comm/detail/control_plane.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/service_thread.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/control_plane_state.h"
#include "comm/detail/host_port.h"
#include "comm/detail/operation_note.h"
#include "comm/detail/own_member.h"
#include "comm/detail/service_loop.h"

namespace crossdevice::detail {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLinger{5};          // twice where its end is not noticed
constexpr std::chrono::seconds kLongestLinger{60};  // for who takes a large round in slowly
/// How long the chief of a meeting that was cancelled stays for the others' farewells once it has told them: who is stopped says none.
constexpr std::chrono::milliseconds kFarewellTime{500};
/// How long a worker waits, at the end of its own time, to hear from the chief who has not come.
constexpr std::chrono::seconds kVerdictTime{1};
/// After how long without the others a worker looks whether they have ended. Whoever lives comes sooner.
constexpr std::chrono::milliseconds kLookTime{300};
/// For how long nobody listens where the chief did before it counts as gone.
constexpr std::chrono::seconds kRefusedTime{1};

}  // namespace

ControlPlane::State::State(const ControlPlaneOptions& options)
    : options_(options),
      membership_({.rank = options.rank,
                   .num_workers = options.num_workers,
                   .stall_warning = whole_time(options.stall_warning)},
                  membership_events()) {
  if (is_chief()) {
    chief_.emplace(io_, options_, own_member(options_),
                   [this](const Frame& frame) { membership_.hear(frame); });
  } else {
    link_.emplace(io_, options_, own_member(options_), link_events());
  }
}

ChiefLink::Events ControlPlane::State::link_events() {
  return {.on_welcome =
              [this](std::uint64_t cluster_id) {
                const std::lock_guard lock(mutex_);
                cluster_id_ = cluster_id;
                has_connection_ = true;
              },
          .on_refused = [this](const Refused& refused) { membership_.end(refused); },
          .on_frame = [this](const Frame& frame) { membership_.hear(frame); },
          .on_absence =
              [this](const std::string& why, ChiefLink::Fault fault) {
                const std::lock_guard lock(mutex_);
                has_connection_ = false;
                last_connection_error_ = why;
                lacks_means_ = fault == ChiefLink::Fault::OWN;
                if (fault != ChiefLink::Fault::REFUSED) {
                  refused_since_.reset();
                } else if (!refused_since_.has_value()) {
                  refused_since_ = Clock::now();
                }
              },
          .on_lost = [this](const std::string& why) { membership_.lose_chief(why); }};
}

Membership::Events ControlPlane::State::membership_events() {
  return {.say =
              [this](ControlKind kind, std::string payload) {
                asio::post(io_,
                           [this, kind, bytes = std::move(payload)] { to_chief(kind, bytes); });
              },
          .on_members =
              [this] {
                if (link_.has_value()) link_->keep();
              },
          // Behind what the chief does now, which may be this worker's own.
          .on_question =
              [this](std::uint64_t nonce) {
                asio::post(io_, [this, nonce] { say_operation(nonce); });
              }};
}

Refused ControlPlane::State::want_of(const std::string& what) const {
  return {StatusCode::RESOURCE_EXHAUSTED, what, {membership_.info_of(options_.rank)}};
}

// ---------------------------------------------------------------------------------------------- meeting

void ControlPlane::State::meet(const Deadline& deadline) {
  if (chief_.has_value()) {
    chief_->open();
    cluster_id_ = chief_->cluster_id();
  } else {
    asio::post(io_, [this] { link_->connect(); });
  }
  want_of_memory_ = want_of(std::bad_alloc().what());
  last_beat_ = Clock::now();
  asio::post(io_, [this] { beat(); });
  thread_ = start_service_thread("xdev-control", [this, work = asio::make_work_guard(io_)] {
    run_service(io_, "control plane", [this](const std::string& what) {
      lacks_means_ = true;
      if (chief_.has_value()) chief_->end_for_want();
      try {
        membership_.end(want_of(what));
      } catch (const std::bad_alloc&) {
        membership_.end(std::move(want_of_memory_));  // whoever waits here need not wait for memory
      }
    });
  });
  const Clock::time_point limit =
      std::min(deadline.moment(), Clock::now() + std::chrono::hours(24 * 365));
  std::vector<int> gone;
  while (gone.empty() && Clock::now() < limit) {
    const auto look = options_.find_gone ? Clock::now() + kLookTime : limit;
    if (membership_.await_meeting(std::min(limit, look)) || look >= limit) break;
    gone = options_.find_gone(limit);
    if (gone.empty() && has_chief_given_up()) gone = {0};
  }
  if (!membership_.await_meeting(Clock::now())) end_meeting(gone);
  // What has ended the job since all met is the next call's to say, as for those who have seen that a moment earlier: they may meet anew, with this one.
  if (const std::optional<Refused> reason = membership_.meeting_failure()) {
    throw_op_error(reason->code, reason->text,
                   {.operation = {}, .culprits = reason->culprits, .inputs_intact = true});
  }
}

/// Whose process lives, or find_gone would say so, and which has ended this meeting: for want of descriptors, for instance.
bool ControlPlane::State::has_chief_given_up() {
  const std::lock_guard lock(mutex_);
  return options_.is_chief_listening && refused_since_.has_value() &&
         Clock::now() - *refused_since_ >= kRefusedTime;
}

/// Who has not come is the chief's to say, unless the last one came just now. The others' deadline is about the chief's.
void ControlPlane::State::end_meeting(const std::vector<int>& gone) {
  if (is_chief()) {
    asio::post(io_, [this, gone] {
      const std::optional<Refused> refused = chief_->cancel_meeting(gone);
      if (refused.has_value()) membership_.end(*refused);
    });
  }
  const auto code = [&] {
    if (!gone.empty()) return StatusCode::UNAVAILABLE;
    return lacks_means_ ? StatusCode::RESOURCE_EXHAUSTED : StatusCode::DEADLINE_EXCEEDED;
  };
  std::unique_lock lock(mutex_);
  const bool reaches_chief = is_chief() || (has_connection_ && gone.empty());
  if (reaches_chief) {
    lock.unlock();
    membership_.await_meeting(Clock::now() + (is_chief() ? kLinger : kVerdictTime));
    return membership_.end_meeting(
        {code(), fmt::format("not all of {} workers came in time to the chief at {}",
                             options_.num_workers, options_.chief_address)});
  }
  const std::string text = fmt::format(
      "the chief (rank 0) at {} {}: {}", options_.chief_address,
      gone.empty() ? "did not answer in time" : "has ended or given up", last_connection_error_);
  lock.unlock();
  membership_.end_meeting({code(), text, {{.rank = lacks_means_ ? options_.rank : 0}}});
}

// ---------------------------------------------------------------------------------------------- being together

void ControlPlane::State::beat() {
  const auto limit = whole_time(options_.heartbeat_timeout);
  // Who was stopped itself has heard nobody, which says nothing about them.
  const bool was_asleep = Clock::now() - last_beat_ > limit / 2;
  last_beat_ = Clock::now();
  const Clock::time_point somebody_is_silent =
      chief_.has_value() ? chief_->beat(was_asleep) : link_->beat(was_asleep);
  say_operation(/*answers=*/0);
  beat_timer_.expires_at(std::min(last_beat_ + limit / 4, somebody_is_silent));
  beat_timer_.async_wait([this](std::error_code stopped) {
    if (!stopped) beat();
  });
}

std::shared_ptr<void> ControlPlane::State::add_operations(std::function<std::string()> read) {
  const std::lock_guard lock(readers_mutex_);
  const auto place = readers_.insert(readers_.end(), std::move(read));
  return {nullptr, [self = shared_from_this(), place](void*) {
            if (is_forked_child())
              return;  // the parent's control thread may hold the lock for ever
            const std::lock_guard guard(self->readers_mutex_);
            self->readers_.erase(place);
          }};
}

/// The library's own operation; or a round; or else what the program has said; or else that there is none, and which one was the last, as far as that is known.
std::string ControlPlane::State::operation() {
  std::string last;
  bool are_several = false;
  const auto is_under_way = [&](const std::string& text) {
    if (text.empty() || text == OperationNote::kNone) return false;
    if (!text.starts_with(OperationNote::kNone)) return true;
    are_several |= !last.empty() && last != text;
    if (last.empty()) last = text;
    return false;
  };
  if (std::string text = operations_.read(); is_under_way(text)) return text;
  {
    const std::lock_guard lock(readers_mutex_);
    for (const auto& read : readers_) {
      if (std::string text = read(); is_under_way(text)) return text;
    }
  }
  if (const std::string round = membership_.round_under_way(); !round.empty()) {
    // What it was in before excuses it where others still are, as has_left() says.
    if (last.empty()) return round + OperationNote::kOfCluster;
    return round + OperationNote::kOfCluster + OperationNote::kAfter +
           last.substr(last.find(OperationNote::kSince) +
                       std::string_view(OperationNote::kSince).size()) +
           (are_several ? OperationNote::kOrLater : "");
  }
  {
    const std::lock_guard lock(mutex_);
    if (!operation_.empty()) return operation_;
  }
  if (last.empty()) return OperationNote::kNone;
  return are_several ? last + OperationNote::kOrLater : last;
}

void ControlPlane::State::say_operation(std::uint64_t answers) {
  to_chief(ControlKind::HEARTBEAT, Heartbeat{operation(), answers}.encode());
}

void ControlPlane::State::to_chief(ControlKind kind, const std::string& payload) {
  if (chief_.has_value()) {
    chief_->handle_own({kind, payload});
  } else {
    link_->send(kind, payload);
  }
}

void ControlPlane::State::supersede(const std::string& text, bool is_left_out) {
  is_superseded_ = true;
  membership_.stop_all(text);  // whoever else is left out may hear it of nobody else
  if (is_left_out) return membership_.leave_out(text);
  membership_.stop_here(options_.rank, text);  // the chief may be gone
}

std::shared_ptr<void> ControlPlane::State::listen(MembershipListener listener) {
  return MembershipNews::listen({shared_from_this(), &membership_.news()}, std::move(listener));
}

// ---------------------------------------------------------------------------------------------- leaving

void ControlPlane::State::leave() {
  {
    const std::lock_guard lock(mutex_);
    if (is_leaving_) return;
    is_leaving_ = true;
  }
  if (!thread_.joinable()) return;
  leave_by_ = Clock::now() + kLinger;
  try {
    asio::post(io_, [this] { say_farewell(); });
  } catch (const std::bad_alloc&) {
    end_farewells();
  }
  std::unique_lock lock(mutex_);
  while (!has_left_ && Clock::now() < leave_by_.load() + kLinger) changed_.wait_for(lock, kLinger);
  lock.unlock();
  io_.stop();
  thread_.join();
}

/// Where there is no memory for it the others hear it from the end of their connections.
void ControlPlane::State::say_farewell() try {
  beat_timer_.cancel();
  if (chief_.has_value()) {
    chief_->say_goodbye();
  } else {
    link_->leave();
  }
  await_farewells(Clock::now());
} catch (const std::bad_alloc&) {
  end_farewells();
}

void ControlPlane::State::end_farewells() {
  const std::lock_guard lock(mutex_);
  has_left_ = true;
  changed_.notify_all();
}

/// Until what was said last has been sent. The chief stays until the others have left, so that it reaches them; unless they have another one. Of a meeting that
/// was cancelled it stays for those, too, that have lost their connection and try again, as long as these wait for a verdict; but not long for who was told and is silent.
/// kLinger is enough for that after what was said last has been sent, or where its sending stands still; a large round's goes on for longer, up to kLongestLinger.
void ControlPlane::State::await_farewells(Clock::time_point begin) try {
  const bool has_told = chief_.has_value() && chief_->has_sent_all();
  if (has_told && chief_->is_cancelled() && !told_all_.has_value()) told_all_ = Clock::now();
  const bool is_farewell_late = told_all_.has_value() && Clock::now() >= *told_all_ + kFarewellTime;
  const bool is_heard =
      chief_ && (chief_->is_alone() || is_farewell_late || (is_superseded_ && has_told));
  const bool is_in_doubt =
      chief_.has_value() && chief_->is_anybody_in_doubt() && Clock::now() < begin + kVerdictTime;
  const bool is_done = chief_.has_value() ? is_heard && !is_in_doubt : link_->has_left();
  Clock::time_point sent = begin;
  if (!is_done && !is_superseded_) sent = chief_ ? chief_->last_sent() : link_->last_sent();
  leave_by_ = std::min(std::max(begin, sent) + kLinger, begin + kLongestLinger);
  if (is_done || Clock::now() >= leave_by_.load()) return end_farewells();
  farewell_timer_.expires_after(std::chrono::milliseconds(1));
  farewell_timer_.async_wait([this, begin](std::error_code) { await_farewells(begin); });
} catch (const std::bad_alloc&) {
  end_farewells();
}

// ---------------------------------------------------------------------------------------------- ControlPlane

ControlPlane::ControlPlane(Passkey /*key*/, std::shared_ptr<State> state)
    : state_(std::make_unique<std::shared_ptr<State>>(std::move(state))) {}

std::shared_ptr<ControlPlane> ControlPlane::join(const ControlPlaneOptions& options,
                                                 const Deadline& deadline) {
  require_not_forked();
  if (options.num_workers < 1 || options.rank < 0 || options.rank >= options.num_workers) {
    throw ValueError(fmt::format("rank {} of {} workers", options.rank, options.num_workers));
  }
  if (options.num_workers > 1) (void)parse_host_port(options.chief_address);
  const auto state = std::make_shared<State>(options);
  try {
    state->meet(deadline);
    return std::make_shared<ControlPlane>(Passkey(), state);
  } catch (...) {
    state->leave();
    throw;
  }
}

ControlPlane::~ControlPlane() {
  if (is_forked_child()) {
    (void)state_.release();  // its thread, its connections and what it waits with are the parent's
    return;
  }
  (*state_)->leave();
}

const std::vector<MemberInfo>& ControlPlane::members() const {
  return (*state_)->membership().members();
}
std::uint64_t ControlPlane::cluster_id() const { return (*state_)->cluster_id(); }

std::vector<std::string> ControlPlane::exchange(const RoundId& id, const std::vector<int>& members,
                                                const std::string& kind, std::string bytes,
                                                const Deadline& deadline,
                                                const RoundListener& on_end) {
  return (*state_)->membership().exchange(id, members, kind, std::move(bytes), deadline, on_end);
}

void ControlPlane::give_up(const RoundId& id, const std::string& text) {
  (*state_)->membership().give_up(id, text);
}
void ControlPlane::post(std::uint64_t group, std::vector<int> to, std::string bytes) {
  (*state_)->membership().post(group, std::move(to), std::move(bytes));
}
void ControlPlane::stop_all(const std::string& text) { (*state_)->membership().stop_all(text); }
void ControlPlane::stop_here(int origin, const std::string& text) {
  (*state_)->membership().stop_here(origin, text);
}
void ControlPlane::supersede(const std::string& text, bool is_left_out) {
  (*state_)->supersede(text, is_left_out);
}
void ControlPlane::set_operation(std::string operation) {
  (*state_)->set_operation(std::move(operation));
}
void ControlPlane::enter_operation(std::string_view kind, std::uint64_t sequence) {
  (*state_)->enter_operation(kind, sequence);
}
void ControlPlane::leave_operation() { (*state_)->leave_operation(); }
std::shared_ptr<void> ControlPlane::add_operations(std::function<std::string()> read) {
  return (*state_)->add_operations(std::move(read));
}
std::vector<std::string> ControlPlane::ask(const std::vector<int>& ranks,
                                           const Deadline& deadline) {
  return (*state_)->membership().ask(ranks, deadline);
}
std::shared_ptr<void> ControlPlane::listen(MembershipListener listener) {
  return (*state_)->listen(std::move(listener));
}

}  // namespace crossdevice::detail
