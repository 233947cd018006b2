// SPDX-License-Identifier: Apache-2.0
/// The workers exchange what each has called since the last exchange. An exchange is collective, so when a worker enters one must be such that it ends:
/// - a worker that has calls to tell of enters;
/// - after an exchange all know of how many calls each has told, the same of all. One that is ahead of another enters again, and waits there for that other one's next
///   call; the hindmost enter when they have one.
/// So every exchange ends as soon as each of the hindmost has made another call, the smallest count grows by it, and nobody turns in circles. Where all
/// are level nobody is in an exchange.
#include "collective/detail/call_comparison.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/comm/call_difference.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/outliers.h"
#include "crossdevice/core/service_thread.h"
#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {
namespace {

/// As many calls travel in one exchange, which is good for 1 MiB.
constexpr std::size_t kMaxCallsAtOnce = 4096;
/// At the most so often: what comes meanwhile travels together.
constexpr std::chrono::milliseconds kPause{10};
/// How long the destructor waits for the others.
constexpr std::chrono::seconds kGrace{2};
/// How long all wait for each other once calls differ, each on a thread of its own; long, as a machine may be busy.
constexpr std::chrono::seconds kMeeting{10};

std::string_view bytes_of(const std::vector<GroupOperation>& calls) {
  return {reinterpret_cast<const char*>(calls.data()), calls.size() * sizeof(GroupOperation)};
}

/// One call of every worker, by rank; null where they are equal.
std::exception_ptr difference(const std::vector<GroupOperation>& calls, const Cluster& cluster,
                              bool inputs_intact) {
  const bool are_equal =
      std::ranges::all_of(calls, [&](const GroupOperation& each) { return each == calls.front(); });
  if (are_equal) return nullptr;
  std::vector<ToldCall> told;
  told.reserve(calls.size());
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    told.push_back({.rank = static_cast<int>(rank), .operation = calls[rank]});
  }
  std::vector<RankInfo> culprits;
  const auto differ = [&](std::size_t i, std::size_t j) { return !(calls[i] == calls[j]); };
  for (const std::size_t rank : outliers(calls.size(), differ)) {
    culprits.push_back(cluster.worker(static_cast<int>(rank)));
  }
  return std::make_exception_ptr(InternalError(
      describe_difference(told),
      {.operation = {}, .culprits = std::move(culprits), .inputs_intact = inputs_intact}));
}

}  // namespace

struct CallComparison::State : StallWitness, std::enable_shared_from_this<State> {
  std::shared_ptr<Cluster> meeting;  // a subgroup of its own: nobody else's exchanges come between

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  OnDifference on_difference;
  std::vector<GroupOperation> fresh;  // calls that the others have not been told of
  bool is_ending = false;
  bool is_over = false;  // the thread has ended, or there is none
  bool has_thread = false;
  std::uint64_t last_compared = 0;  // of this worker's numbers: equal on all
  struct Late {
    OperationRecord operation;
    bool inputs_intact;
  };
  std::optional<Late> late;    // that for which this worker gives the exchange up
  bool has_been_told = false;  // that it was given up, by whomever

  // The thread's own.
  std::vector<GroupOperation> telling;
  std::vector<std::deque<GroupOperation>> untold;  // by rank: not compared yet

  [[nodiscard]] bool is_ahead() const;
  [[nodiscard]] bool await_calls();
  [[nodiscard]] std::exception_ptr exchange();
  [[nodiscard]] std::exception_ptr compare();
  void hear_failure(const std::exception_ptr& failure);
  void await_all();
  void run_exchanges();

  bool ask_who_is_missing(const OperationRecord& operation, bool inputs_intact,
                          const std::string& text) override;
};

/// Of somebody, by as much as all know.
bool CallComparison::State::is_ahead() const {
  const std::size_t mine = untold[static_cast<std::size_t>(meeting->rank())].size();
  return std::any_of(untold.begin(), untold.end(),
                     [mine](const std::deque<GroupOperation>& each) { return each.size() < mine; });
}

/// False: it ends.
bool CallComparison::State::await_calls() {
  std::unique_lock lock(mutex);
  (void)changed.wait_for(lock, kPause, [this] { return is_ending; });
  if (!is_ahead()) changed.wait(lock, [this] { return is_ending || !fresh.empty(); });
  // At the end too: what was called before is told, and whoever is behind finds the others in the exchange that it enters with its next call.
  if (is_ending && fresh.empty() && !is_ahead()) return false;
  const auto count =
      static_cast<std::ptrdiff_t>(std::min<std::size_t>(fresh.size(), kMaxCallsAtOnce));
  telling.assign(fresh.begin(), fresh.begin() + count);
  fresh.erase(fresh.begin(), fresh.begin() + count);
  return true;
}

/// Null: as far as can be compared, all are equal.
std::exception_ptr CallComparison::State::exchange() {
  const std::vector<std::string> told = meeting->all_gather_bytes(
      bytes_of(telling), Deadline::never(),
      {.on_failure = [self = shared_from_this()](const std::exception_ptr& why) {
        self->hear_failure(why);
      }});
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    for (std::size_t at = 0; at + sizeof(GroupOperation) <= told[rank].size();
         at += sizeof(GroupOperation)) {
      GroupOperation call;
      std::memcpy(&call, told[rank].data() + at, sizeof call);
      untold[rank].push_back(call);
    }
  }
  return compare();
}

std::exception_ptr CallComparison::State::compare() {
  std::size_t common = untold[0].size();
  for (const auto& each : untold) common = std::min(common, each.size());
  std::vector<GroupOperation> calls(untold.size());
  for (std::size_t i = 0; i < common; ++i) {
    for (std::size_t rank = 0; rank < untold.size(); ++rank) {
      calls[rank] = untold[rank].front();
      untold[rank].pop_front();
    }
    if (std::exception_ptr error = difference(calls, *meeting, /*inputs_intact=*/false)) {
      return error;
    }
    const std::lock_guard lock(mutex);
    last_compared =
        std::max(last_compared, calls[static_cast<std::size_t>(meeting->rank())].sequence);
    if (late.has_value() && late->operation.sequence <= last_compared) late.reset();
  }
  return nullptr;
}

/// Where all have made a call it stands still for another reason than that somebody is missing. Else this worker waits in an exchange, or is about to: so it is asked
/// until it is there.
bool CallComparison::State::ask_who_is_missing(const OperationRecord& operation, bool inputs_intact,
                                               const std::string& text) {
  {
    const std::lock_guard lock(mutex);
    if (is_over || !has_thread || operation.sequence <= last_compared) return false;
    if (!late.has_value()) late = {operation, inputs_intact};
  }
  meeting->give_up_round(text);
  return true;
}

/// On the control plane's thread, before it hears of any abort; or on the comparison's, where the chief does not answer.
void CallComparison::State::hear_failure(const std::exception_ptr& failure) {
  const std::lock_guard lock(mutex);  // so that the destructor cannot pass
  if (std::exchange(has_been_told, true) || !on_difference.is_given_up) return;
  try {
    std::rethrow_exception(failure);
  } catch (const DeadlineExceededError& known) {
    const bool is_own = late.has_value();
    on_difference.is_given_up(
        said_anew(known, known.what(), is_own ? late->operation : OperationRecord{},
                  is_own && late->inputs_intact),
        is_own);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
    // Whoever listens to the cluster hears of aborts, and of a member's end.
  }
}

/// Until each has said that calls differ: all have found it, in the exchange that has ended. Who dies, or is stopped, is not waited for.
void CallComparison::State::await_all() {
  try {
    meeting->barrier(Deadline::after(kMeeting));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  }
}

CallComparison::CallComparison(const std::shared_ptr<Cluster>& cluster, OnDifference on_difference)
    : state_(std::make_shared<State>()) {
  state_->meeting = cluster->duplicate();
  state_->on_difference = std::move(on_difference);
  state_->untold.resize(static_cast<std::size_t>(cluster->num_workers()));
}

CallComparison::~CallComparison() {
  if (is_forked_child()) return;
  std::unique_lock lock(state_->mutex);
  state_->is_ending = true;
  state_->changed.notify_all();
  if (!state_->has_thread) return;
  (void)state_->changed.wait_for(lock, kGrace, [this] { return state_->is_over; });
  // What it refers to may go with the caller.
  state_->on_difference = {};
}

void CallComparison::State::run_exchanges() {
  while (await_calls()) {
    std::exception_ptr error;
    try {
      error = exchange();
    } catch (const OpError&) {
      // The control plane says so to whoever waits; there is nothing left to compare over.
      return hear_failure(std::current_exception());
    }
    if (error == nullptr) continue;
    {
      const std::lock_guard lock(mutex);  // so that the destructor cannot pass
      if (on_difference.is_found) on_difference.is_found(error);
    }
    await_all();
    const std::lock_guard lock(mutex);
    if (on_difference.is_known) on_difference.is_known(error);
    return;
  }
}

void CallComparison::run(const std::shared_ptr<State>& state) {
  try {
    state->run_exchanges();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
    // No memory: what follows is not compared.
  }
  const std::lock_guard lock(state->mutex);
  state->is_over = true;
  state->changed.notify_all();
}

void CallComparison::add(const GroupOperation& call) {
  const std::lock_guard lock(state_->mutex);
  if (state_->is_over) return;
  state_->fresh.push_back(call);
  if (state_->has_thread) {
    state_->changed.notify_all();
    return;
  }
  // Detached: it holds what it needs, and ends with the exchanges. The destructor waits for it as long as that makes sense.
  try {
    start_service_thread("xdev-calls", [state = state_] { run(state); }).detach();
  } catch (...) {
    state_->fresh.pop_back();  // the call is not made
    throw;
  }
  state_->has_thread = true;
}

std::shared_ptr<StallWitness> CallComparison::witness() const { return state_; }

void CallComparison::compare_now(const GroupOperation& call, std::span<const std::string> told) {
  std::vector<GroupOperation> calls(told.size());
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    if (told[rank].size() != sizeof call) {
      throw InternalError(fmt::format("rank {} tells of its call in another way", rank));
    }
    std::memcpy(&calls[rank], told[rank].data(), sizeof call);
  }
  if (const std::exception_ptr error = difference(calls, *state_->meeting, true)) {
    std::rethrow_exception(error);
  }
  const std::lock_guard lock(state_->mutex);
  state_->last_compared = std::max(state_->last_compared, call.sequence);
}

}  // namespace crossdevice::detail
