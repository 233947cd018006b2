// SPDX-License-Identifier: Apache-2.0
/// Two threads meet here: the one that calls, and the comparison's. The mutex orders "a call goes to the hosts" and "calls differ": either the call finds the
/// difference there and does not go, or the comparison finds the call there and ends it. So nobody stays on hosts whose difference is known.
///
/// How it is ended: every worker's comparison comes to the same difference, of the same exchange. First each keeps it, breaks its clique with it and tells its
/// listener; then they meet, and only behind that does who is on hosts abort what the job waits for. So on every worker the difference is there before
/// the abort is heard, which would else be taken for the reason: by the clique, which listens to the cluster, and by the call that is aborted. The chief hears as many
/// aborts as workers are on hosts, and passes on the first.
///
/// A call that fails on hosts by itself breaks the clique, which tells the others, as one of NCCL does: who is past it would wait in the next one.
#include "collective/detail/compared_calls.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/exception_text.h"
#include "crossdevice/device/shutdown.h"

#include "collective/detail/call_comparison.h"

namespace crossdevice::detail {
namespace {

/// For a comparison of calls that hosts have found to differ.
constexpr std::chrono::seconds kVerdictTime{5};

bool is_internal(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InternalError&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// What a call on hosts has left behind that ended with `error`.
bool leaves_inputs_intact(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const OpError& known) {
    return known.inputs_intact();
  } catch (...) {
    return false;
  }
}

std::string_view bytes_of(const GroupOperation& call) {
  return {reinterpret_cast<const char*>(&call), sizeof call};
}

/// `error`, which has ended a wait of that call's; what says by itself which calls differ, and what is no error of ours, as it is.
std::exception_ptr named_error(const GroupOperation& call, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InternalError&) {
    return error;
  } catch (const OpError& known) {
    return said_anew(known, fmt::format("{}: {}", short_name(call), known.what()), {},
                     /*inputs_intact=*/true);
  } catch (...) {
    return error;
  }
}

[[noreturn]] void throw_difference(const std::exception_ptr& difference, bool inputs_intact) {
  try {
    std::rethrow_exception(difference);
  } catch (const InternalError& error) {
    throw_anew(error, error.what(), /*operation=*/{}, inputs_intact);
  }
}

}  // namespace

struct ComparedCalls::State {
  State(std::shared_ptr<Cluster> workers, LaunchOrder* launches, NcclClique& of)
      : cluster(std::move(workers)), order(launches), clique(of) {}

  std::shared_ptr<Cluster> cluster;
  LaunchOrder* order;  // null: this worker is alone
  NcclClique& clique;
  bool is_compared_beside = false;  // the call under way

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  enum class Place : std::uint8_t { ELSEWHERE, ON_HOSTS, LEAVING_HOSTS };
  Place place = Place::ELSEWHERE;             // of the call under way
  std::shared_ptr<FailureListener> listener;  // of the last call
  std::exception_ptr difference;              // null: none has been found

  std::unique_ptr<CallComparison> comparison;  // null: this worker is alone. Ends first

  void add(const GroupOperation& call, std::shared_ptr<FailureListener> hears,
           LaunchOrder::Turn& turn);
  template <class Work>
  void prepare(const GroupOperation& call, Work work);
  template <class Wait>
  void wait_on_hosts(const GroupOperation& call, Wait wait);
  void break_with(const std::exception_ptr& error, bool is_known_everywhere);
  void find_difference(const std::exception_ptr& error);
  void hear_end(const std::exception_ptr& error, bool is_own);
  void end_waiting(const std::exception_ptr& error);
  void go_to_hosts();
  [[nodiscard]] std::exception_ptr leave_hosts(std::chrono::seconds verdict_time);
};

/// On the comparison's thread.
void ComparedCalls::State::find_difference(const std::exception_ptr& error) {
  std::shared_ptr<FailureListener> tell;
  {
    const std::lock_guard lock(mutex);
    difference = error;
    if (place == Place::ELSEWHERE) tell = listener;  // else the call itself throws it
  }
  changed.notify_all();
  break_with(error, /*is_known_everywhere=*/true);
  if (tell != nullptr) tell->operation_failed(error);
}

/// Who waits in the exchange has been told by the chief; who is missing there has not, and may wait for this worker elsewhere.
void ComparedCalls::State::hear_end(const std::exception_ptr& error, bool is_own) {
  // First: they wait for this worker, which may end when it hears of the failure.
  if (is_own) cluster->abort_collective_ops(exception_text(error));
  break_with(error, /*is_known_everywhere=*/true);
}

/// Nobody waits for calls that do not come any more.
void ComparedCalls::State::break_with(const std::exception_ptr& error, bool is_known_everywhere) {
  clique.break_with(error, is_known_everywhere);
  if (order != nullptr) order->give_up();
}

/// The same, once all have found it.
void ComparedCalls::State::end_waiting(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex);
    if (place != Place::ON_HOSTS) return;
  }
  cluster->abort_collective_ops(exception_text(error));
}

void ComparedCalls::State::go_to_hosts() {
  std::exception_ptr found;
  {
    const std::lock_guard lock(mutex);
    found = difference;
    if (found == nullptr) place = Place::ON_HOSTS;
  }
  try {
    // What else has broken it ends what hosts wait for, too.
    clique.require_usable();
    if (found != nullptr) std::rethrow_exception(found);  // which is about to break it
  } catch (...) {
    (void)leave_hosts(std::chrono::seconds(0));
    throw;
  }
}

/// Returns the difference where one was found, for which it waits a while. Who is not there yet may have been called off for it, while it copied what goes there.
std::exception_ptr ComparedCalls::State::leave_hosts(std::chrono::seconds verdict_time) {
  std::unique_lock lock(mutex);
  if (place == Place::ELSEWHERE) return difference;
  place = Place::LEAVING_HOSTS;
  (void)changed.wait_for(lock, verdict_time, [this] { return difference != nullptr; });
  place = Place::ELSEWHERE;
  return difference;
}

/// What comes before a call is launched: others count on it.
template <class Work>
void ComparedCalls::State::prepare(const GroupOperation& call, Work work) {
  try {
    work();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    break_with(named_error(call, error), /*is_known_everywhere=*/is_internal(error));
    clique.require_usable();
  }
}

/// For all workers to come to an ordered call: what ends who is on hosts ends this.
template <class Wait>
void ComparedCalls::State::wait_on_hosts(const GroupOperation& call, Wait wait) {
  is_compared_beside = false;
  go_to_hosts();
  try {
    prepare(call, wait);
  } catch (...) {
    (void)leave_hosts(std::chrono::seconds(0));
    throw;
  }
  const std::exception_ptr found = leave_hosts(std::chrono::seconds(0));
  if (found == nullptr) return;
  clique.require_usable();
  std::rethrow_exception(found);  // which is about to break it
}

/// Nobody waits.
void ComparedCalls::State::add(const GroupOperation& call, std::shared_ptr<FailureListener> hears,
                               LaunchOrder::Turn& turn) {
  is_compared_beside = true;
  {
    const std::lock_guard lock(mutex);
    listener = std::move(hears);
  }
  try {
    comparison->add(call);
  } catch (...) {
    turn.give_back();
    throw;
  }
}

OrderedClique make_ordered_clique(const std::shared_ptr<Cluster>& cluster, const Devices& local,
                                  const Deadline& deadline) {
  OrderedClique made;
  LaunchOrder::Turn turn;  // ends before what it is of
  if (cluster->num_workers() > 1) {
    made.order = std::make_unique<LaunchOrder>(cluster, local, deadline);
    made.order->begin_making(turn, deadline);
    if (turn.is_ordered()) {
      (void)made.order->enter(turn, "", deadline);
      made.order->await(turn, deadline);
    }
  }
  made.clique = NcclClique::among(cluster, local, deadline);
  return made;
}

ComparedCalls::ComparedCalls(const std::shared_ptr<Cluster>& cluster, LaunchOrder* order,
                             NcclClique& clique)
    : state_(std::make_unique<State>(cluster, order, clique)) {
  if (cluster->num_workers() == 1) return;
  state_->comparison = std::make_unique<CallComparison>(
      cluster,
      CallComparison::OnDifference{
          .is_found = [state = state_.get()](
                          const std::exception_ptr& error) { state->find_difference(error); },
          .is_known = [state = state_.get()](
                          const std::exception_ptr& error) { state->end_waiting(error); },
          .is_given_up = [state = state_.get()](const std::exception_ptr& error,
                                                bool is_own) { state->hear_end(error, is_own); }});
  clique.set_witness(state_->comparison->witness());
}

ComparedCalls::~ComparedCalls() {
  if (!is_forked_child()) state_->clique.set_witness(nullptr);
}

void ComparedCalls::compare(const GroupOperation& call, const Deadline& deadline,
                            std::shared_ptr<FailureListener> listener, LaunchOrder::Turn& turn) {
  State& state = *state_;
  if (state.comparison == nullptr) return;
  state.prepare(call, [&] { state.order->begin(turn, deadline); });
  if (!turn.is_ordered()) return state.add(call, std::move(listener), turn);
  state.wait_on_hosts(call, [&] {
    state.comparison->compare_now(call, state.order->enter(turn, bytes_of(call), deadline));
    state.order->await(turn, deadline);
  });
}

/// Beside the call it is compared when it is on hosts already: what is found by that finds it there.
void ComparedCalls::begin_on_hosts(const GroupOperation& call, const Deadline& deadline,
                                   std::shared_ptr<FailureListener> listener) {
  State& state = *state_;
  if (state.comparison == nullptr) return state.go_to_hosts();
  state.clique.require_usable();
  LaunchOrder::Turn turn;  // a short one: nothing is launched
  state.prepare(call, [&] { state.order->begin(turn, deadline); });
  if (turn.is_ordered()) {
    state.wait_on_hosts(call, [&] {
      state.comparison->compare_now(call, state.order->gather(bytes_of(call), deadline));
    });
    return state.go_to_hosts();
  }
  try {
    state.go_to_hosts();
    state.add(call, std::move(listener), turn);
  } catch (...) {
    (void)state.leave_hosts(std::chrono::seconds(0));
    turn.give_back();
    throw;
  }
}

void ComparedCalls::continue_on_hosts() { state_->go_to_hosts(); }

void ComparedCalls::end_on_hosts() {
  const std::exception_ptr difference = state_->leave_hosts(std::chrono::seconds(0));
  if (difference != nullptr) throw_difference(difference, /*inputs_intact=*/false);
}

void ComparedCalls::fail_on_hosts(const std::exception_ptr& error) {
  const std::exception_ptr difference = state_->leave_hosts(
      state_->is_compared_beside && is_internal(error) ? kVerdictTime : std::chrono::seconds(0));
  if (difference != nullptr) throw_difference(difference, leaves_inputs_intact(error));
  state_->break_with(error, /*is_known_everywhere=*/state_->comparison == nullptr);
  std::rethrow_exception(error);
}

}  // namespace crossdevice::detail
