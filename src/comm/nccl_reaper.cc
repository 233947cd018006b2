// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/nccl_reaper.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/service_thread.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/flight_recorder.h"
#include "comm/detail/nccl_clique_state.h"

namespace crossdevice::detail {
namespace {

using State = NcclClique::State;
using StatePtr = std::shared_ptr<State>;

/// How many say goodbye to a job on threads of their own. Never destroyed.
struct Farewells {
  std::mutex mutex;  // guards `count`
  std::condition_variable changed;
  int count = 0;

  void add(int more) {
    {
      const std::lock_guard lock(mutex);
      count += more;
    }
    changed.notify_all();
  }
};

Farewells& farewells() {
  static Farewells& instance = *new Farewells;
  return instance;
}

std::atomic<std::chrono::nanoseconds::rep> grace_ns{
    std::chrono::nanoseconds(std::chrono::seconds(10)).count()};

/// The GPUs on which something is being aborted, or has not come back from it. Never destroyed.
struct Wards {
  struct Count {
    int under_way = 0;
    int stuck = 0;
  };
  std::mutex mutex;  // guards `gpus`
  std::condition_variable changed;
  std::map<int, Count> gpus;  // by ordinal

  void add(const State& state, int under_way, int stuck) {
    {
      const std::lock_guard lock(mutex);
      for (const GpuDevice* const gpu : state.gpus) {
        gpus[gpu->ordinal()].under_way += under_way;
        gpus[gpu->ordinal()].stuck += stuck;
      }
    }
    changed.notify_all();
  }
};

Wards& wards() {
  static Wards& instance = *new Wards;
  return instance;
}

/// Set while the process ends: from then on nobody begins to abort or to destroy communicators.
std::atomic<bool> is_process_ending{false};

Deadline part_of_grace(int divisor) { return Deadline::after(nccl_grace() / divisor); }

bool has_group_abort(const State& state) { return state.nccl->version() >= kNcclWithGroupAbort; }

/// On a thread of its own, or here where there is none to be had.
template <class Work>
void run_beside(const char* name, const Work& work) {
  try {
    start_service_thread(name, work).detach();
  } catch (const std::exception&) {  // no thread, or no memory for one
    work();
  }
}

/// Who is stuck inside NCCL in a launch comes out by the flags that this sets; before 2.28.7, by the abort itself. Each beside the others: NCCL returns from one
/// only when the communicator's streams have left its kernels, which a stream that somebody blocks never does, and the kernels of the other ranks then wait
/// for that one's until they are revoked too. Without threads the later ones wait for the earlier.
void revoke(const StatePtr& state) {
  if (state->nccl->version() < kNcclWithRevoke) return;
  std::shared_ptr<std::latch> num_left;
  try {
    num_left = std::make_shared<std::latch>(std::ssize(state->communicators));
  } catch (const std::bad_alloc&) {
    for (const NcclComm each : state->communicators) (void)state->nccl->comm_revoke(each);
    return;
  }
  for (const NcclComm each : state->communicators) {
    run_beside("xdev-nccl-revoke", [state, each, num_left] {
      (void)state->nccl->comm_revoke(each);
      num_left->count_down();
    });
  }
  num_left->wait();  // as long as NCCL takes: supervise() has the deadline
}

/// The last of the threads that abort says that it is over, also when nobody waits for that any more.
void finish_aborting(State& state) {
  bool was_late = false;
  {
    const std::lock_guard lock(state.mutex);
    if (--state.num_aborting != 0) return;
    was_late = state.state.load(std::memory_order_relaxed) == NcclCliqueState::ABORT_INCOMPLETE;
    state.state.store(NcclCliqueState::ABORTED, std::memory_order_release);
  }
  state.changed.notify_all();
  wards().add(state, -1, was_late ? -1 : 0);
  if (was_late) {
    log(LogSeverity::WARNING, fmt::format("the abort of NCCL's communicators of {} came back late",
                                          state.devices.to_string()));
  }
}

void abort_beside(const StatePtr& state, NcclComm communicator) {
  {
    const std::lock_guard lock(state->mutex);
    ++state->num_aborting;
  }
  run_beside("xdev-nccl-abort", [state, communicator] {
    (void)state->nccl->comm_abort(communicator);
    finish_aborting(*state);
  });
}

void start_aborting(const StatePtr& state) {
  state->num_aborting = 1;  // the thread below
  start_service_thread("xdev-nccl-abort", [state] {
    revoke(state);
    state->give_up_communicators(part_of_grace(4));
    if (state->is_adopted) {
      // Their owner aborts them.
    } else if (has_group_abort(*state)) {
      abort_communicators(*state->nccl, state->communicators);
    } else {
      for (const NcclComm each : state->communicators) abort_beside(state, each);
    }
    finish_aborting(*state);
  }).detach();
}

/// The process ends: the system takes all back.
void leave_to_the_system(State& state) {
  {
    const std::lock_guard lock(state.mutex);
    state.state.store(NcclCliqueState::ABORT_INCOMPLETE, std::memory_order_release);
    state.are_given_up = true;
  }
  state.changed.notify_all();
  end_reaping(state);
}

/// Until everything that is being aborted or destroyed has come back from it, but for what is stuck; or the grace is over.
void await_all_reapers() {
  Wards& all = wards();
  std::unique_lock lock(all.mutex);
  (void)all.changed.wait_until(lock, part_of_grace(1).moment(), [&all] {
    return std::all_of(all.gpus.begin(), all.gpus.end(),
                       [](const auto& each) { return each.second.under_way <= each.second.stuck; });
  });
}

/// The process ends, and CUDA with it soon: a thread of ours that is inside NCCL, or asks CUDA, then crashes. So this waits for those that are there, and keeps
/// others from going in. What threads of the program launch meanwhile is the program's. Who sees `is_process_ending` unset in reap() or end_clique() is counted among the wards before the flag is set or before this looks at them,
/// because both happen under their lock's order.
struct EndOfMain {
  ~EndOfMain() {
    if (is_forked_child()) return;
    is_process_ending.store(true);
    await_end_of_watchdog(part_of_grace(1));
    await_all_reapers();
  }
};

void give_up_abort(State& state, const std::string& why) {
  {
    const std::lock_guard lock(state.mutex);
    if (state.state.load(std::memory_order_relaxed) != NcclCliqueState::BROKEN) return;
    state.state.store(NcclCliqueState::ABORT_INCOMPLETE, std::memory_order_release);
    state.are_given_up = true;
  }
  state.changed.notify_all();
  wards().add(state, 0, 1);
  log(LogSeverity::FAILURE,
      fmt::format("the abort of NCCL's communicators of {} {}: these GPUs may be blocked, and only "
                  "the process's end is safe",
                  state.devices.to_string(), why));
}

void supervise(State& state) {
  const Deadline deadline = part_of_grace(1);
  {
    std::unique_lock lock(state.mutex);
    (void)state.changed.wait_until(lock, deadline.moment(), [&state] {
      return state.state.load(std::memory_order_relaxed) != NcclCliqueState::BROKEN;
    });
  }
  give_up_abort(state, fmt::format("has not come back within {:.3g} s",
                                   std::chrono::duration<double>(nccl_grace()).count()));
  dump_flight_record();
}

}  // namespace

std::chrono::nanoseconds nccl_grace() {
  return std::chrono::nanoseconds(grace_ns.load(std::memory_order_relaxed));
}

void set_nccl_grace(std::chrono::nanoseconds grace) {
  grace_ns.store(grace.count(), std::memory_order_relaxed);
}

void abort_communicators(NcclApi& nccl, const std::vector<NcclComm>& communicators) noexcept {
  const bool is_group = nccl.version() >= kNcclWithGroupAbort;
  if (is_group) (void)nccl.group_start();
  for (const NcclComm each : communicators) {
    if (each != nullptr) (void)nccl.comm_abort(each);
  }
  if (is_group) (void)nccl.group_end();
}

void begin_reaping(NcclClique::State& state) { wards().add(state, 1, 0); }
void end_reaping(NcclClique::State& state) { wards().add(state, -1, 0); }

void reap(const std::shared_ptr<NcclClique::State>& state) noexcept {
  if (is_process_ending.load()) {
    leave_to_the_system(*state);
    return;
  }
  try {
    start_aborting(state);
    start_service_thread("xdev-nccl-reaper", [state] { supervise(*state); }).detach();
  } catch (const std::exception& error) {
    give_up_abort(*state, fmt::format("has no thread ({})", error.what()));
  }
}

void end_clique(std::shared_ptr<NcclClique::State> state, bool waits) noexcept {
  begin_reaping(*state);
  if (is_process_ending.load()) {
    end_reaping(*state);
    return;
  }
  try {
    start_service_thread("xdev-nccl-end", [state] {
      NcclApi& nccl = *state->nccl;
      state->give_up_communicators(part_of_grace(1));
      // What is enqueued comes to its end first; then each rank's part is its own, but the process's are freed together.
      (void)nccl.group_start();
      for (const NcclComm each : state->communicators) (void)nccl.comm_finalize(each);
      if (nccl.group_end() == NcclStatus::IN_PROGRESS) {
        try {
          state->await_progress(part_of_grace(1));
        } catch (const OpError&) {
          // Destroying is what is left to do, whatever came of it.
        }
      }
      (void)nccl.group_start();
      for (const NcclComm each : state->communicators) (void)nccl.comm_destroy(each);
      (void)nccl.group_end();
      state->set_state(NcclCliqueState::ABORTED);
      wards().add(*state, -1, 0);
    }).detach();
    if (!waits) return;
    std::unique_lock lock(state->mutex);
    const bool is_over = state->changed.wait_until(lock, part_of_grace(1).moment(), [&state] {
      return state->state.load(std::memory_order_relaxed) == NcclCliqueState::ABORTED;
    });
    if (is_over) return;
    log(LogSeverity::WARNING,
        fmt::format("NCCL does not come to the end of its communicators of {}: left to a thread",
                    state->devices.to_string()));
  } catch (const std::exception& error) {
    wards().add(*state, -1, 0);
    log(LogSeverity::WARNING, fmt::format("NCCL's communicators of {} are left as they are: {}",
                                          state->devices.to_string(), error.what()));
  }
}

void leave_job_beside(std::shared_ptr<void> hold) noexcept {
  try {
    static const bool is_known = [] {
      stop_at_shutdown([] {
        Farewells& all = farewells();
        std::unique_lock lock(all.mutex);
        (void)all.changed.wait_until(lock, part_of_grace(1).moment(),
                                     [&all] { return all.count == 0; });
      });
      return true;
    }();
    (void)is_known;
    farewells().add(1);
    try {
      // Moved: nothing of it is left here when the thread has begun.
      start_service_thread("xdev-nccl-leave", [job = std::move(hold)]() mutable {
        job.reset();
        farewells().add(-1);
      }).detach();
    } catch (...) {
      farewells().add(-1);
      throw;
    }
  } catch (const std::exception& error) {
    log(LogSeverity::WARNING, fmt::format("a job is left on the watchdog's thread, which deadlines "
                                          "wait for meanwhile: {}",
                                          error.what()));
  }
}

void await_reapers_at_shutdown() {
  static const bool is_known = [] {
    stop_at_shutdown(&await_all_reapers);
    return true;
  }();
  (void)is_known;
}

void await_reapers_before_cuda_ends(bool has_made) {
  // Static objects are destroyed in the reverse order in which they were made, CUDA's and NCCL's among them: those that are loaded with them, and those
  // that their first communicators make.
  static const EndOfMain before_any_was_made;
  if (!has_made) return;
  static const EndOfMain end_of_main;
}

void await_reapers(const std::vector<GpuDevice*>& gpus, const Deadline& deadline) {
  const Deadline end = Deadline::earlier(deadline, part_of_grace(1));
  Wards& all = wards();
  std::unique_lock lock(all.mutex);
  const GpuDevice* waits_for = nullptr;
  bool is_stuck = false;
  const auto is_quiet = [&] {
    waits_for = nullptr;
    for (const GpuDevice* const gpu : gpus) {
      const auto found = all.gpus.find(gpu->ordinal());
      if (found == all.gpus.end() || found->second.under_way == 0) continue;
      waits_for = gpu;
      is_stuck = found->second.stuck > 0;
      if (is_stuck) break;
    }
    return waits_for == nullptr || is_stuck;
  };
  (void)all.changed.wait_until(lock, end.moment(), is_quiet);
  if (waits_for == nullptr) return;
  const std::string text =
      fmt::format("the end of NCCL's former communicators on CUDA device {} has not come{}",
                  waits_for->ordinal(), is_stuck ? ": only the process's end is safe" : "");
  if (is_stuck) throw FailedPreconditionError(text);
  throw DeadlineExceededError(text);
}

}  // namespace crossdevice::detail
