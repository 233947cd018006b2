// SPDX-License-Identifier: Apache-2.0
// Arrival, the round, and the four ways in which a wait ends.
#include "strategy/detail/replica_rendezvous.h"

#include <algorithm>
#include <new>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/exception_text.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/host_thread_pool.h"
#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {

namespace {

// About 30 us of watching before the first yield, where every replica can have a core; on fewer cores the time is better given to
// the replica that is waited for.
constexpr std::size_t kSpins = 500;
constexpr std::size_t kYields = 50;

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

std::string join(const std::vector<RankInfo>& replicas) {
  std::string text;
  for (const RankInfo& replica : replicas) {
    if (!text.empty()) text += "; ";
    text += crossdevice::to_string(replica);
  }
  return text;
}

std::string seconds(std::chrono::nanoseconds time) {
  std::ostringstream text;
  text << std::chrono::duration<double>(time).count() << " s";
  return text.str();
}

}  // namespace

ReplicaRendezvous::ReplicaRendezvous(const RendezvousSettings& settings)
    : settings_(settings),
      num_spins_(HostThreadPool::instance().num_threads() >= settings.num_replicas ? kSpins : 0),
      changed_(std::make_unique<std::condition_variable>()),
      slots_(settings.num_replicas),
      round_(settings.num_replicas) {}

ReplicaRendezvous::~ReplicaRendezvous() {
  // Destroying a condition variable waits until its sleepers have left. In a child of fork() they never do.
  if (is_forked_child()) (void)changed_.release();
}

void ReplicaRendezvous::begin() {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    slot.outcome.store(Outcome::DONE, std::memory_order_relaxed);
    slot.presence = Presence::RUNNING;
    slot.call = nullptr;
    slot.num_calls = 0;
  }
  num_waiting_ = 0;
  num_left_ = 0;
  round_error_ = nullptr;
  first_error_ = nullptr;
  broken_ = Broken();
}

void ReplicaRendezvous::call(std::size_t replica, ReplicaCall& call) {
  Slot& slot = slots_[replica];
  bool is_last = false;
  {
    const std::lock_guard lock(mutex_);
    call.set_sequence(++slot.num_calls);
    slot.last_kind = call.description().kind;
    if (num_left_ > 0 || broken_.reason != Broken::Reason::NOTHING) {
      throw_abandoned(replica, call, /*was_waiting=*/false);
    }
    slot.call = &call;
    slot.outcome.store(Outcome::WAITING, std::memory_order_relaxed);
    if (num_waiting_ == 0) first_arrived_ = replica;
    ++num_waiting_;
    is_last = num_waiting_ == slots_.size();
    if (is_last) {
      is_executing_ = true;
      for (std::size_t r = 0; r < slots_.size(); ++r) round_[r] = slots_[r].call;
    }
  }
  if (is_last) {
    execute_round();
  } else {
    wait(replica, call);
  }
}

void ReplicaRendezvous::execute_round() {
  std::exception_ptr error;
  try {
    require_same_calls(round_, settings_.first_replica_id);
    round_[0]->execute(round_);
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    round_error_ = error;
    is_executing_ = false;
    release_all(error != nullptr ? Outcome::FAILED : Outcome::DONE);
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void ReplicaRendezvous::release_all(Outcome outcome) {
  for (Slot& slot : slots_) {
    if (slot.call == nullptr) continue;
    slot.call = nullptr;
    slot.outcome.store(outcome, std::memory_order_release);
  }
  num_waiting_ = 0;
  if (num_sleeping_ > 0) changed_->notify_all();
}

void ReplicaRendezvous::wait(std::size_t replica, const ReplicaCall& call) {
  const Slot& slot = slots_[replica];
  if (wait_awake(slot, call.deadline()) &&
      slot.outcome.load(std::memory_order_acquire) == Outcome::DONE)
    return;
  std::unique_lock lock(mutex_);
  wait_asleep(lock, replica, call);
  switch (slot.outcome.load(std::memory_order_relaxed)) {
    case Outcome::FAILED: {
      const std::exception_ptr error = round_error_;
      lock.unlock();
      std::rethrow_exception(error);
    }
    case Outcome::ABANDONED:
      throw_abandoned(replica, call, /*was_waiting=*/true);
    case Outcome::WAITING:  // wait_asleep does not return then
    case Outcome::DONE:
      return;
  }
}

/// Carries out others' work while it watches for the end of the round; false when it is time to sleep.
bool ReplicaRendezvous::wait_awake(const Slot& slot, const Deadline& deadline) const {
  HostThreadPool& pool = HostThreadPool::instance();
  for (std::size_t i = 0; i < num_spins_ + kYields; ++i) {
    if (slot.outcome.load(std::memory_order_acquire) != Outcome::WAITING) return true;
    if (pool.help()) {
      if (deadline.has_passed()) return false;
      i = 0;
    } else if (i < num_spins_) {
      pause_briefly();
    } else {
      std::this_thread::yield();
    }
  }
  return false;
}

void ReplicaRendezvous::wait_asleep(std::unique_lock<std::mutex>& lock, std::size_t replica,
                                    const ReplicaCall& call) {
  using Clock = Deadline::Clock;
  const Slot& slot = slots_[replica];
  std::chrono::nanoseconds warn_after = settings_.stall_warning;
  const Clock::time_point start = Clock::now();
  ++num_sleeping_;
  while (slot.outcome.load(std::memory_order_relaxed) == Outcome::WAITING) {
    if (!is_executing_ && call.deadline().has_passed()) {
      give_up(call);
      break;
    }
    const Clock::time_point warn_at = start + warn_after;
    if (Clock::now() >= warn_at) {
      if (!is_executing_ && first_arrived_ == replica)
        warn_of_stall(lock, replica, call, warn_after);
      warn_after *= 2;
      continue;
    }
    const bool has_deadline = !is_executing_ && !call.deadline().is_never();
    changed_->wait_until(lock,
                         has_deadline ? std::min(call.deadline().moment(), warn_at) : warn_at);
  }
  --num_sleeping_;
}

void ReplicaRendezvous::give_up(const ReplicaCall& call) {
  broken_.reason = Broken::Reason::DEADLINE;
  try {
    describe_timeout(call);
  } catch (const std::bad_alloc&) {
    broken_.text.clear();  // the others learn that, if not who is missing
  }
  release_all(Outcome::ABANDONED);
}

void ReplicaRendezvous::describe_timeout(const ReplicaCall& call) {
  broken_.details.culprits = missing_replicas();
  broken_.details.operation.kind = to_string(call.description().kind);
  broken_.details.operation.sequence = call.sequence();
  broken_.details.operation.num_values = call.description().leaves.size();
  std::optional<double> timeout = environment().default_timeout_seconds;
  if (call.description().options != nullptr && call.description().options->timeout_seconds) {
    timeout = call.description().options->timeout_seconds;
  }
  std::ostringstream text;
  text << call.to_string() << " timed out";
  if (timeout) text << " after " << *timeout << " s";
  text << ": waiting for " << join(broken_.details.culprits);
  broken_.text = text.str();
}

void ReplicaRendezvous::leave(std::size_t replica) noexcept {
  const std::lock_guard lock(mutex_);
  slots_[replica].presence = Presence::RETURNED;
  ++num_left_;
  release_all(Outcome::ABANDONED);
}

void ReplicaRendezvous::leave(std::size_t replica, const std::exception_ptr& error) noexcept {
  const std::lock_guard lock(mutex_);
  slots_[replica].presence = Presence::THREW;
  ++num_left_;
  if (first_error_ == nullptr) {
    first_error_ = error;
    record_failure(replica, error);
  }
  release_all(Outcome::ABANDONED);
}

void ReplicaRendezvous::record_failure(std::size_t replica, const std::exception_ptr& error) {
  if (broken_.reason != Broken::Reason::NOTHING) return;
  broken_.reason = Broken::Reason::FAILURE;
  try {
    broken_.text = "replica " + std::to_string(id(replica)) + " failed: " + exception_text(error);
    broken_.details.culprits = {info(replica)};
  } catch (const std::bad_alloc&) {
    broken_.text.clear();  // the others learn that, if not why
  }
}

std::exception_ptr ReplicaRendezvous::take_first_error() {
  const std::lock_guard lock(mutex_);
  round_error_ = nullptr;
  return std::exchange(first_error_, nullptr);
}

void ReplicaRendezvous::warn_of_stall(std::unique_lock<std::mutex>& lock, std::size_t replica,
                                      const ReplicaCall& call, std::chrono::nanoseconds waited) {
  std::string text;
  try {
    text = "replica " + std::to_string(id(replica)) + " has waited " + seconds(waited) + " in " +
           call.to_string() + " for " + join(missing_replicas());
  } catch (const std::bad_alloc&) {
    return;  // a warning is not worth the round: the call must stay until its outcome is set
  }
  lock.unlock();  // the sink is the program's
  log(LogSeverity::WARNING, text);
  lock.lock();
}

void ReplicaRendezvous::throw_abandoned(std::size_t replica, const ReplicaCall& call,
                                        bool was_waiting) {
  const std::string who = call.to_string() + " of replica " + std::to_string(id(replica));
  switch (broken_.reason) {
    case Broken::Reason::DEADLINE:
      if (was_waiting) throw DeadlineExceededError(broken_.text, broken_.details);
      throw AbortedError(who + " comes too late: " + broken_.text, broken_.details);
    case Broken::Reason::FAILURE:
      throw AbortedError(who + " was aborted: " + broken_.text, broken_.details);
    case Broken::Reason::NOTHING:
      break;
  }
  const Slot* returned = nullptr;  // the one that left first is where they parted
  for (const Slot& slot : slots_) {
    if (slot.presence != Presence::RETURNED) continue;
    if (returned == nullptr || slot.num_calls < returned->num_calls) returned = &slot;
  }
  const auto other = static_cast<std::size_t>(returned - slots_.data());
  throw ValueError("the replicas made different calls: replica " + std::to_string(id(replica)) +
                   " called " + call.to_string() + ", replica " + std::to_string(id(other)) +
                   " has returned after " + std::to_string(returned->num_calls) +
                   (returned->num_calls == 1 ? " call" : " calls"));
}

std::vector<RankInfo> ReplicaRendezvous::missing_replicas() const {
  std::vector<RankInfo> missing;
  for (std::size_t r = 0; r < slots_.size(); ++r) {
    if (slots_[r].call == nullptr) missing.push_back(info(r));
  }
  return missing;
}

RankInfo ReplicaRendezvous::info(std::size_t replica) const {
  RankInfo info;
  info.replica = static_cast<int>(id(replica));
  const Slot& slot = slots_[replica];
  if (slot.num_calls > 0) {
    info.last_operation =
        std::string(to_string(slot.last_kind)) + " #" + std::to_string(slot.num_calls);
  }
  return info;
}

}  // namespace crossdevice::detail
