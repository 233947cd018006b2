// SPDX-License-Identifier: Apache-2.0
// Groups of NCCL calls, in one order on every GPU.
//
// Why no two cliques can wait for each other: each takes all its GPUs' locks, ascending, before its group begins and until NCCL has launched it, so of
// two groups that share a GPU one is launched whole before the other, on every GPU they share.
#include <exception>
#include <string>
#include <utility>

#include <fmt/format.h>

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
  require_nccl(*state_->nccl, nullptr, status, what);
  has_calls_ = true;
}

NcclStatus NcclClique::Launch::end_group() {
  is_open_ = false;
  return state_->nccl->group_end();
}

void NcclClique::Launch::end() {
  const NcclStatus status = end_group();
  std::exception_ptr failure;
  try {
    if (status == NcclStatus::IN_PROGRESS) {
      state_->await_progress(Deadline::after(std::chrono::duration<double>(kMeetingSeconds)));
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
