// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/nccl_clique_making.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
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
#include "crossdevice/device/tensor.h"

#include "comm/detail/nccl_error.h"
#include "comm/detail/nccl_loader.h"
#include "comm/detail/nccl_reaper.h"

namespace crossdevice::detail {
namespace {

using State = NcclClique::State;
using StatePtr = std::shared_ptr<State>;

/// One try to have something from NCCL, shared by the thread that is inside NCCL and the one that waits.
struct Attempt {
  std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  bool is_over = false;
  bool is_abandoned = false;  // nobody waits any more
  std::exception_ptr error;
};

/// Of an open group in which not all ranks have come: a call that NCCL refuses makes it give the group up at its end, where it would else wait for the others.
void spoil_group(const State& state, const NcclUniqueId& id) {
  NcclComm none = nullptr;
  (void)state.nccl->comm_init_rank(&none, state.num_ranks, id, /*rank=*/-1, state.name.c_str());
}

/// All ranks of this process in one group. CUDA's current device says whose each is.
void init_ranks(State& state, const NcclUniqueId& id, const Deadline& deadline) {
  NcclApi& nccl = *state.nccl;
  // A device that cannot be made current is better found before the group.
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
      spoil_group(state, id);
    }
  }
  const NcclStatus status = nccl.group_end();  // also after an error: a thread's group must end
  if (error != nullptr) std::rethrow_exception(error);
  require_nccl(nccl, nullptr, status, "ncclGroupEnd");
  if (status == NcclStatus::IN_PROGRESS) state.await_progress(deadline);
}

/// `work`, which enters NCCL, on a thread of its own, until the deadline; throws what it throws, or DeadlineExceededError with that text. After a failure, and where
/// nobody waits any more, `undo` follows there, and until then the GPUs count as those of communicators that end.
void run_in_time(const StatePtr& state, const Deadline& deadline, const std::string& late,
                 std::function<void()> work, std::function<void()> undo) {
  const auto shared = std::make_shared<Attempt>();
  start_service_thread("xdev-nccl-init", [state, shared, work = std::move(work),
                                          undo = std::move(undo)] {
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    bool is_abandoned = false;
    {
      const std::lock_guard lock(shared->mutex);
      shared->is_over = true;
      shared->error = error;
      is_abandoned = shared->is_abandoned;
      if (error != nullptr && !is_abandoned) begin_reaping(*state);
    }
    shared->changed.notify_all();
    if (error == nullptr && !is_abandoned) return;
    undo();
    end_reaping(*state);
  }).detach();
  std::unique_lock lock(shared->mutex);
  if (!shared->changed.wait_until(lock, deadline.moment(), [&shared] { return shared->is_over; })) {
    shared->is_abandoned = true;
    begin_reaping(*state);  // ends on the thread
    throw DeadlineExceededError(late);
  }
  if (shared->error != nullptr) std::rethrow_exception(shared->error);
}

/// On each GPU of a clique, in the order of its own stream.
std::vector<Tensor> make_warm_up_buffers(const NcclClique& clique) {
  std::vector<Tensor> buffers;
  buffers.reserve(clique.devices().size());
  for (const Device& device : clique.devices()) {
    buffers.push_back(Tensor::zeros(DType::FLOAT32, {1}, device));
  }
  return buffers;
}

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
  const NcclLibrary library = nccl_library();
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

NcclUniqueId make_unique_id(const std::shared_ptr<NcclClique::State>& state,
                            const Deadline& deadline) {
  const auto id = std::make_shared<NcclUniqueId>();
  run_in_time(
      state, deadline,
      fmt::format("NCCL did not come to the end of making an id for communicators of {}",
                  state->devices.to_string()),
      [state, id] {
        require_nccl(*state->nccl, nullptr, state->nccl->get_unique_id(id.get()),
                     "ncclGetUniqueId");
      },
      [] {});
  return *id;
}

void make_communicators(const std::shared_ptr<NcclClique::State>& state, const NcclUniqueId& id,
                        const Deadline& deadline) {
  state->communicators.assign(state->gpus.size(), nullptr);
  try {
    run_in_time(
        state, deadline,
        fmt::format("NCCL did not come to the end of making communicators of {} ({} ranks)",
                    state->devices.to_string(), state->num_ranks),
        [state, id, deadline] { init_ranks(*state, id, deadline); },
        // Those that were made nobody else has seen.
        [state] { abort_communicators(*state->nccl, state->communicators); });
  } catch (const DeadlineExceededError&) {
    throw;
  } catch (const OpError& error) {
    throw UnavailableError(fmt::format("NCCL {} cannot make communicators of {}: {}",
                                       nccl_version_text(state->nccl->version()),
                                       state->devices.to_string(), error.what()));
  }
}

void warm_up(NcclClique& clique, const Deadline& deadline) {
  if (clique.num_ranks() == 1) return;  // nothing to connect
  try {
    const std::vector<Tensor> buffers = make_warm_up_buffers(clique);
    const OperationRecord first{
        .kind = "warm-up", .num_values = 1, .size_bytes = buffers[0].size_bytes()};
    NcclClique::Launch launch(clique, {.operation = first,
                                       .size_bytes = first.size_bytes,
                                       .dtype = buffers[0].dtype(),
                                       .deadline = deadline});
    for (int i = 0; i < clique.size(); ++i) {
      void* const buffer = buffers[static_cast<std::size_t>(i)].data();
      launch.require(
          clique.api().all_reduce(buffer, buffer, 1, NcclDataType::FLOAT32, NcclRedOp::SUM,
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
