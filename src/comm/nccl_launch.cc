// SPDX-License-Identifier: Apache-2.0
// Groups of NCCL calls, in one order on every GPU.
//
// Why no two cliques of one process can wait for each other: each takes all its GPUs' locks, ascending, before its group begins and until NCCL has launched it,
// so of two groups that share a GPU one is launched whole before the other, on every GPU they share. Of cliques over several workers those above see to it that
// calls of two of them come in one order on every worker (collective/detail/launch_order.h).
//
// Why a launch with a deadline does not block its thread without end: the locks are waited for until then and a little longer, and NCCL, which cannot be told how long
// it may take, comes back when the watchdog has the clique aborted. Who holds a lock has such an end itself, before those that wait for it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/error.h"

#include "comm/detail/nccl_clique_state.h"
#include "comm/detail/nccl_error.h"

namespace crossdevice::detail {
namespace {

constexpr std::chrono::milliseconds kLongestSlice{100};
/// How much longer a lock is waited for than the launch that holds it may take: it is said then which worker that one misses.
constexpr double kMarginSeconds = 1;

/// Refused before anything was launched: the fault is the call's, the communicators are as they were.
bool is_harmless(NcclStatus status) {
  return status == NcclStatus::INVALID_ARGUMENT || status == NcclStatus::INVALID_USAGE;
}

}  // namespace

NcclClique::Launch::Launch(NcclClique& clique) : state_(clique.state_) { open(); }

NcclClique::Launch::Launch(NcclClique& clique, Plan plan) : state_(clique.state_), plan_(plan) {
  if (plan_.timeout_seconds == 0.0) plan_.timeout_seconds.reset();
  if (plan_.deadline.is_never()) {
    plan_.deadline = Deadline::after_timeout_seconds(plan_.timeout_seconds);
  } else if (!plan_.timeout_seconds.has_value()) {
    plan_.timeout_seconds =
        std::chrono::duration<double>(plan_.deadline.moment() - Deadline::Clock::now()).count();
  }
  open();
}

void NcclClique::Launch::open() {
  state_->require_usable();
  lock();
  try {
    begin_watch();  // before anything of NCCL's is called
    require_nccl(*state_->nccl, nullptr, state_->nccl->group_start(), "ncclGroupStart");
  } catch (...) {
    end_watch();
    unlock();
    throw;
  }
  is_open_ = true;
}

/// Tries in slices of the system's clock, which may jump: the sanitizers know that way of waiting for a lock, not the one by the steady clock.
void NcclClique::Launch::lock(GpuDevice& gpu, const Deadline& deadline) const {
  if (gpu.launch_mutex().try_lock()) return;
  if (deadline.is_never()) return gpu.launch_mutex().lock();
  while (!deadline.has_passed()) {
    const auto slice = std::min<Deadline::Clock::duration>(
        deadline.moment() - Deadline::Clock::now(), kLongestSlice);
    const auto end = std::chrono::system_clock::now() +
                     std::chrono::duration_cast<std::chrono::system_clock::duration>(slice);
    if (gpu.launch_mutex().try_lock_until(end)) return;
  }
  throw DeadlineExceededError(
      fmt::format("{} timed out after {:.3g} s: another launch has not come to its end on CUDA "
                  "device {}",
                  to_string(plan_.operation), *plan_.timeout_seconds + kMarginSeconds,
                  gpu.ordinal()),
      {.operation = plan_.operation, .culprits = {}, .inputs_intact = true});
}

void NcclClique::Launch::lock() {
  const Deadline deadline = plan_.deadline.later(std::chrono::duration<double>(kMarginSeconds));
  const std::vector<GpuDevice*>& gpus = state_->gpus_in_order;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    try {
      lock(*gpus[i], deadline);
    } catch (...) {
      while (i > 0) gpus[--i]->launch_mutex().unlock();
      throw;
    }
  }
  bool is_whole = false;
  // Else the watch would find the launch late as soon as it has begun, and break communicators that nothing is wrong with.
  const bool is_late = plan_.deadline.has_passed();
  {
    const std::lock_guard lock(state_->mutex);
    is_whole = state_->is_whole();
    if (is_whole && !is_late) ++state_->num_launches;
  }
  if (is_whole && !is_late) return;
  for (GpuDevice* const gpu : state_->gpus_in_order) gpu->launch_mutex().unlock();
  state_->require_usable();
  throw DeadlineExceededError(
      fmt::format("{} timed out after {:.3g} s: its time was over before its launch",
                  to_string(plan_.operation), *plan_.timeout_seconds),
      {.operation = plan_.operation, .culprits = {}, .inputs_intact = true});
}

void NcclClique::Launch::unlock() {
  {
    const std::lock_guard lock(state_->mutex);
    --state_->num_launches;
  }
  state_->changed.notify_all();
  for (auto gpu = state_->gpus_in_order.rbegin(); gpu != state_->gpus_in_order.rend(); ++gpu) {
    (*gpu)->launch_mutex().unlock();
  }
}

void NcclClique::Launch::require(NcclStatus status, std::string_view what) {
  // Where an abort has begun, its reason says more than what NCCL makes of it, which has been revoked.
  if (status != NcclStatus::SUCCESS && !state_->is_whole()) state_->require_usable();
  try {
    require_nccl(*state_->nccl, nullptr, status, what);
  } catch (const OpError& error) {
    state_->await_news(status, error);
    state_->require_usable();
    throw;
  }
  has_calls_ = true;
}

void NcclClique::Launch::begin_watch() {
  if (plan_.deadline.is_never()) return;
  const std::uint64_t number = ++state_->last_launch;
  WatchedOperation launch{.record = plan_.operation,
                          .detail = "(launch)",
                          .size_bytes = plan_.size_bytes,
                          .dtype = plan_.dtype,
                          .timeout_seconds = plan_.timeout_seconds,
                          .deadline = plan_.deadline,
                          .listener = state_,
                          .devices = state_->devices,
                          .launches_over = &state_->launches_over,
                          .launch = number,
                          .inputs_intact = true};  // who launches knows what it has written
  {
    const std::lock_guard lock(state_->mutex);
    launch.witness = state_->witness;
  }
  watched_ = number;  // before: where the watchdog cannot start, the launch is over all the same
  watch(std::move(launch));
}

void NcclClique::Launch::end_watch() {
  if (watched_ != 0) state_->launches_over.store(watched_, std::memory_order_release);
}

NcclStatus NcclClique::Launch::end_group() {
  is_open_ = false;
  const NcclStatus status = state_->nccl->group_end();
  end_watch();
  return status;
}

void NcclClique::Launch::end() {
  const NcclStatus status = end_group();
  std::exception_ptr failure;
  try {
    if (status == NcclStatus::IN_PROGRESS) {
      state_->await_progress(plan_.deadline.is_never()
                                 ? Deadline::after_timeout_seconds(kMeetingSeconds)
                                 : plan_.deadline);
    }
    require_nccl(*state_->nccl, nullptr, status, "ncclGroupEnd");
  } catch (const OpError& error) {
    failure = std::current_exception();
    state_->await_news(status, error);
  } catch (...) {
    failure = std::current_exception();
  }
  unlock();
  if (failure != nullptr) {
    // Where an abort has ended the launch, its reason says more than what NCCL made of it.
    state_->break_with(failure);
    state_->require_usable();
  }
  if (!state_->is_whole()) state_->require_usable();
}

NcclClique::Launch::~Launch() {
  if (!is_open_) return;
  const NcclStatus status = end_group();
  unlock();
  if (is_harmless(status) || (status == NcclStatus::SUCCESS && !has_calls_)) return;
  state_->break_with(std::make_exception_ptr(AbortedError(
      "a launch of NCCL's was given up half way: some GPUs may wait for others in it")));
}

}  // namespace crossdevice::detail
