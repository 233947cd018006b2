// SPDX-License-Identifier: Apache-2.0
// Groups of NCCL calls, in one order on every GPU.
//
// Why no two cliques can wait for each other: each takes all its GPUs' locks, ascending, before its group begins and until NCCL has launched it, so of
// two groups that share a GPU one is launched whole before the other, on every GPU they share.
#include <atomic>
#include <exception>
#include <memory>

#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/error.h"

#include "comm/detail/nccl_clique_state.h"
#include "comm/detail/nccl_error.h"

namespace crossdevice::detail {
namespace {

/// Refused before anything was launched: the fault is the call's, the communicators are as they were.
bool is_harmless(NcclStatus status) {
  return status == NcclStatus::INVALID_ARGUMENT || status == NcclStatus::INVALID_USAGE;
}

}  // namespace

NcclClique::Launch::Launch(NcclClique& clique) : state_(clique.state_) {
  state_->require_usable();
  lock();
  try {
    require_nccl(*state_->nccl, nullptr, state_->nccl->group_start(), "ncclGroupStart");
  } catch (...) {
    unlock();
    throw;
  }
  is_open_ = true;
}

NcclClique::Launch::Launch(NcclClique& clique, const OperationRecord& operation,
                           std::optional<double> timeout_seconds)
    : Launch(clique) {
  operation_ = operation;
  if (timeout_seconds.has_value() && *timeout_seconds > 0) timeout_seconds_ = timeout_seconds;
}

void NcclClique::Launch::lock() {
  for (GpuDevice* const gpu : state_->gpus_in_order) gpu->launch_mutex().lock();
  bool is_whole = false;
  {
    const std::lock_guard lock(state_->mutex);
    is_whole = state_->is_whole();
    if (is_whole) ++state_->num_launches;
  }
  if (is_whole) return;
  for (GpuDevice* const gpu : state_->gpus_in_order) gpu->launch_mutex().unlock();
  state_->require_usable();
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
  require_nccl(*state_->nccl, nullptr, status, what);
  has_calls_ = true;
}

NcclStatus NcclClique::Launch::end_group() {
  is_open_ = false;
  return state_->nccl->group_end();
}

NcclStatus NcclClique::Launch::end_watched_group() {
  if (!timeout_seconds_.has_value()) return end_group();
  const auto is_over = std::make_shared<std::atomic<bool>>(false);
  watch({.record = operation_,
         .detail = "(launch)",
         .size_bytes = operation_.size_bytes,
         .timeout_seconds = timeout_seconds_,
         .failed = [state = state_](const std::exception_ptr& why) { state->break_with(why); },
         .devices = state_->devices,
         .is_over = is_over});
  const NcclStatus status = end_group();
  is_over->store(true, std::memory_order_release);
  return status;
}

void NcclClique::Launch::end() {
  const NcclStatus status = end_watched_group();
  std::exception_ptr failure;
  try {
    if (status == NcclStatus::IN_PROGRESS) {
      state_->await_progress(
          Deadline::after_timeout_seconds(timeout_seconds_.value_or(kMeetingSeconds)));
    }
    require_nccl(*state_->nccl, nullptr, status, "ncclGroupEnd");
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
