// SPDX-License-Identifier: Apache-2.0
/// What a clique's launches, its reaper and whoever hears of failures share. It lives as long as one of them does.
///
/// The communicators' life: made before anybody else sees the state; used inside launches, which are counted, and by find_async_error(), under
/// `mutex`; given up, under `mutex` too, before a thread of its own destroys or aborts them. That thread waits for launches to end, but not for ever:
/// one that is stuck inside NCCL ends by the abort alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/device/gpu_device.h"

namespace crossdevice::detail {

struct NcclClique::State : FailureListener, std::enable_shared_from_this<NcclClique::State> {
  // Set before it is shared.
  std::shared_ptr<NcclApi> nccl;
  Devices devices;
  std::vector<GpuDevice*> gpus;
  std::vector<GpuDevice*> gpus_in_order;  // ascending ordinal
  std::vector<NcclComm> communicators;
  int num_ranks = 0;
  int first_rank = 0;
  std::vector<int> adopted_ranks;  // of the devices; empty: first_rank and on
  int compute_capability = std::numeric_limits<int>::max();  // the least of all ranks'
  bool is_adopted = false;
  std::string name;                // NCCL may keep the pointer
  std::weak_ptr<Cluster> cluster;  // the clique's; empty: of this process alone

  std::atomic<NcclCliqueState> state{NcclCliqueState::WHOLE};  // changes under mutex
  mutable std::mutex mutex;                                    // guards the rest; held for moments
  mutable std::condition_variable changed;
  std::exception_ptr first_error;
  std::string broken_text;
  bool is_told = false;  // somebody has been thrown first_error
  std::shared_ptr<StallWitness> witness;
  int num_launches = 0;
  bool are_given_up = false;  // the communicators may be gone at any time
  // What NCCL said first of something that is wrong with other workers, and until when the job's news may say more.
  std::string nccl_text;
  Deadline news_deadline = Deadline::never();
  int num_aborting = 0;  // threads

  std::uint64_t last_launch = 0;  // of those that are watched; under the GPUs' launch locks
  std::atomic<std::uint64_t> launches_over{0};  // the last of them that NCCL has come back from

  [[nodiscard]] bool is_whole() const {
    return state.load(std::memory_order_acquire) == NcclCliqueState::WHOLE;
  }
  void require_usable();
  /// `is_known_everywhere`: the cluster's members need not be told.
  void break_with(std::exception_ptr why, bool is_known_everywhere = false) noexcept;
  /// A launch, or who else it listens to.
  void operation_failed(std::exception_ptr error) override { break_with(std::move(error)); }
  /// The other workers, where there are some: through the control plane, which waits for nothing.
  void tell_peers() noexcept;
  /// Of adopted ones.
  void take_back();
  void set_state(NcclCliqueState next);
  /// No launch is under way, or the deadline has passed; then nobody else asks the communicators for anything.
  void give_up_communicators(const Deadline& deadline);
  [[nodiscard]] std::exception_ptr find_async_error(NcclNews news);
  /// Of a launch that NCCL has ended with `status` and `error`: until the job's news has broken the clique with a better reason, as find_async_error() waits for it.
  void await_news(NcclStatus status, const std::exception& error);
  /// NCCL names no rank where another worker has ended, but the job's news does, which may come a little later. Under `mutex`.
  [[nodiscard]] bool awaits_news(NcclStatus status, const std::exception& error);
  /// A user's NCCL_COMM_BLOCKING=0 makes calls return before they are done: until all are, or the clique breaks.
  ///
  /// Errors   DeadlineExceededError, and what NCCL reports.
  void await_progress(const Deadline& deadline) const;
};

}  // namespace crossdevice::detail
