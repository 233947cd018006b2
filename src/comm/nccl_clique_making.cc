// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/nccl_clique_making.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/core/backoff.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/service_thread.h"
#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/gpu_platform.h"

#include "comm/detail/nccl_error.h"
#include "comm/detail/nccl_loader.h"
#include "comm/detail/nccl_reaper.h"

namespace crossdevice::detail {
namespace {

using State = NcclClique::State;
using StatePtr = std::shared_ptr<State>;

/// One try to make communicators, shared by the thread that is inside NCCL and the one that waits.
struct Attempt {
  std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  bool is_over = false;
  bool is_abandoned = false;  // nobody waits any more
  std::exception_ptr error;
};

/// All ranks of this process in one group. CUDA's current device says whose each is.
void init_ranks(State& state, const NcclUniqueId& id, const Deadline& deadline) {
  NcclApi& nccl = *state.nccl;
  // A device that cannot be made current must be found before the group: NCCL would wait for its rank.
  for (GpuDevice* const gpu : state.gpus)
    const CurrentCudaDevice current(gpu->cuda(), gpu->ordinal());
  require_nccl(nccl, nullptr, nccl.group_start(), "ncclGroupStart");
  std::exception_ptr error;
  for (std::size_t i = 0; i < state.gpus.size() && error == nullptr; ++i) {
    try {
      const CurrentCudaDevice current(state.gpus[i]->cuda(), state.gpus[i]->ordinal());
      require_nccl(nccl, nullptr,
                   nccl.comm_init_rank(&state.communicators[i], state.num_ranks, id,
                                       state.first_rank + static_cast<int>(i), state.name.c_str()),
                   "ncclCommInitRankConfig");
    } catch (...) {
      error = std::current_exception();
    }
  }
  const NcclStatus status = nccl.group_end();  // also after an error: a thread's group must end
  if (error != nullptr) std::rethrow_exception(error);
  require_nccl(nccl, nullptr, status, "ncclGroupEnd");
  if (status == NcclStatus::IN_PROGRESS) state.await_progress(deadline);
}

void attempt(const StatePtr& state, const NcclUniqueId& id, const Deadline& deadline,
             Attempt& shared) {
  std::exception_ptr error;
  try {
    init_ranks(*state, id, deadline);
  } catch (...) {
    error = std::current_exception();
  }
  bool is_abandoned = false;
  {
    const std::lock_guard lock(shared.mutex);
    shared.is_over = true;
    shared.error = error;
    is_abandoned = shared.is_abandoned;
    if (error != nullptr && !is_abandoned) begin_reaping(*state);
  }
  shared.changed.notify_all();
  if (error == nullptr && !is_abandoned) return;
  // Those that were made nobody else has seen.
  abort_communicators(*state->nccl, state->communicators);
  end_reaping(*state);
}

/// Its memory on each GPU of a clique, for as long as it lives.
class WarmUpBuffers {
 public:
  static constexpr std::size_t kBytes = 256;

  explicit WarmUpBuffers(NcclClique& clique) : clique_(clique) {
    pointers_.reserve(static_cast<std::size_t>(clique.size()));
    try {
      for (int i = 0; i < clique.size(); ++i) add(clique.device(i));
    } catch (...) {
      free();
      throw;
    }
  }
  ~WarmUpBuffers() { free(); }
  WarmUpBuffers(const WarmUpBuffers&) = delete;
  WarmUpBuffers& operator=(const WarmUpBuffers&) = delete;

  [[nodiscard]] void* operator[](int i) const { return pointers_[static_cast<std::size_t>(i)]; }

 private:
  void add(GpuDevice& gpu) {
    const CurrentCudaDevice current(gpu.cuda(), gpu.ordinal());
    void* pointer = nullptr;
    require_cuda(
        gpu.cuda(),
        gpu.cuda().malloc_from_pool_async(&pointer, kBytes, gpu.memory_pool(), gpu.own_stream()),
        "cudaMallocFromPoolAsync");
    pointers_.push_back(pointer);
    require_cuda(gpu.cuda(), gpu.cuda().memset_async(pointer, 0, kBytes, gpu.own_stream()),
                 "cudaMemsetAsync");
  }
  void free() noexcept {
    for (std::size_t i = 0; i < pointers_.size(); ++i) {
      GpuDevice& gpu = clique_.device(static_cast<int>(i));
      try {
        const CurrentCudaDevice current(gpu.cuda(), gpu.ordinal());
        (void)gpu.cuda().free_async(pointers_[i], gpu.own_stream());
      } catch (const OpError&) {
        // A GPU that cannot be made current takes nothing back either.
      }
    }
    pointers_.clear();
  }

  NcclClique& clique_;
  std::vector<void*> pointers_;
};

void await_warm_up(NcclClique& clique, const std::vector<GpuEvent>& ends,
                   const Deadline& deadline) {
  Backoff backoff;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    while (!ends[i].has_completed()) {
      if (const std::exception_ptr error = clique.find_async_error()) std::rethrow_exception(error);
      if (const std::exception_ptr error = clique.first_error()) std::rethrow_exception(error);
      if (deadline.has_passed()) {
        throw DeadlineExceededError(
            fmt::format("NCCL's first all-reduce on {} did not come to its end: waiting for {}",
                        clique.devices().to_string(), clique.devices()[i].short_name()));
      }
      backoff.pause(deadline);
    }
  }
}

}  // namespace

Deadline nccl_making_deadline(std::optional<double> timeout_seconds) {
  for (const std::optional<double>& each :
       {timeout_seconds, environment().default_timeout_seconds}) {
    if (each.has_value() && *each != 0) return Deadline::after_timeout_seconds(*each);
  }
  return Deadline::after_timeout_seconds(kMeetingSeconds);
}

std::shared_ptr<NcclClique::State> prepare_clique(const Devices& devices) {
  if (devices.empty()) throw ValueError("NCCL needs a device");
  auto state = std::make_shared<State>();
  state->devices = devices;
  state->gpus.reserve(devices.size());
  for (const Device& device : devices) {
    GpuDevice& gpu = GpuDevice::of(device);
    const auto twin = std::find(state->gpus.begin(), state->gpus.end(), &gpu);
    if (twin != state->gpus.end()) {
      const auto at = static_cast<std::size_t>(twin - state->gpus.begin());
      throw UnavailableError(fmt::format("NCCL cannot: {} and {} are the same GPU",
                                         devices[at].short_name(), device.short_name()));
    }
    state->compute_capability =
        std::min(state->compute_capability, gpu.properties().compute_capability);
    state->gpus.push_back(&gpu);
  }
  const NcclLibrary& library = nccl_library();
  if (library.api == nullptr) throw UnavailableError("NCCL cannot: " + library.reason_against);
  await_reapers_at_shutdown();
  await_reapers_before_cuda_ends(/*has_made=*/false);
  state->nccl = library.api;
  state->gpus_in_order = state->gpus;
  std::sort(state->gpus_in_order.begin(), state->gpus_in_order.end(),
            [](const GpuDevice* a, const GpuDevice* b) { return a->ordinal() < b->ordinal(); });
  state->num_ranks = static_cast<int>(devices.size());
  state->name = "crossdevice " + devices.to_string();
  return state;
}

void make_communicators(const std::shared_ptr<NcclClique::State>& state, const NcclUniqueId& id,
                        const Deadline& deadline) {
  state->communicators.assign(state->gpus.size(), nullptr);
  const auto shared = std::make_shared<Attempt>();
  start_service_thread("xdev-nccl-init", [state, id, deadline, shared] {
    attempt(state, id, deadline, *shared);
  }).detach();
  std::unique_lock lock(shared->mutex);
  if (!shared->changed.wait_until(lock, deadline.moment(), [&shared] { return shared->is_over; })) {
    shared->is_abandoned = true;
    begin_reaping(*state);  // ends in attempt()
    throw DeadlineExceededError(
        fmt::format("NCCL did not come to the end of making communicators of {} ({} ranks)",
                    state->devices.to_string(), state->num_ranks));
  }
  if (shared->error == nullptr) return;
  try {
    std::rethrow_exception(shared->error);
  } catch (const DeadlineExceededError&) {
    throw;
  } catch (const OpError& error) {
    throw UnavailableError(fmt::format("NCCL {} cannot make communicators of {}: {}",
                                       nccl_version_text(state->nccl->version()),
                                       state->devices.to_string(), error.what()));
  }
}

namespace {

/// At least a moment: 0 would be no deadline.
std::optional<double> seconds_until(const Deadline& deadline) {
  if (deadline.is_never()) return std::nullopt;
  const std::chrono::duration<double> left = deadline.moment() - Deadline::Clock::now();
  return std::max(left.count(), 0.001);
}

}  // namespace

void warm_up(NcclClique& clique, const Deadline& deadline) {
  if (clique.num_ranks() == 1) return;  // nothing to connect
  try {
    const WarmUpBuffers buffers(clique);
    NcclClique::Launch launch(clique, {.kind = "warm-up", .num_values = 1, .size_bytes = 4},
                              seconds_until(deadline));
    for (int i = 0; i < clique.size(); ++i) {
      launch.require(
          clique.api().all_reduce(buffers[i], buffers[i], 1, NcclDataType::FLOAT32, NcclRedOp::SUM,
                                  clique.communicator(i), clique.device(i).own_stream()),
          "ncclAllReduce");
    }
    launch.end();
    std::vector<GpuEvent> ends;
    ends.reserve(static_cast<std::size_t>(clique.size()));
    for (int i = 0; i < clique.size(); ++i) {
      ends.push_back(GpuEvent::record(clique.device(i), clique.device(i).own_stream()));
    }
    await_warm_up(clique, ends, deadline);
  } catch (...) {
    clique.break_with(std::current_exception());
    throw;
  }
}

}  // namespace crossdevice::detail
