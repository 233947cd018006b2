// SPDX-License-Identifier: Apache-2.0
// Records events, asks for them, and keeps the spare ones.
#include "crossdevice/device/gpu_event.h"

#include <atomic>

#include <fmt/format.h>

#include "crossdevice/core/backoff.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/shutdown.h"

#include "device/detail/gpu_event_pool.h"
#include "device/detail/recycling_allocator.h"
#include "device/detail/spin_wait.h"

namespace crossdevice::detail {

struct GpuEventState {
  explicit GpuEventState(GpuDevice& of) : device(of), event(of.events().take(of.cuda())) {}
  ~GpuEventState() { device.events().give_back(event); }
  GpuEventState(const GpuEventState&) = delete;
  GpuEventState& operator=(const GpuEventState&) = delete;

  GpuDevice& device;
  CudaEvent event;
  // Once true it stays so, and CUDA need not be asked again. Guards no memory of the host's, but for what CUDA has written there: acquire and release
  // pass that on from the thread that asked CUDA.
  std::atomic<bool> has_come{false};
};

CudaEvent GpuEventPool::take(CudaApi& cuda) {
  const std::lock_guard lock(mutex_);
  if (!spare_.empty()) {
    const CudaEvent event = spare_.back();
    spare_.pop_back();
    return event;
  }
  spare_.reserve(num_made_ + 1);  // so that give_back() never allocates
  CudaEvent event = nullptr;
  require_cuda(cuda,
               has_timing_ ? cuda.event_create_with_timing(&event) : cuda.event_create(&event),
               "cudaEventCreateWithFlags");
  ++num_made_;
  return event;
}

void GpuEventPool::give_back(CudaEvent event) noexcept {
  if (is_forked_child()) return;  // a thread that did not come along may hold the lock
  const std::lock_guard lock(mutex_);
  spare_.push_back(event);
}

GpuEvent GpuEvent::record(GpuDevice& device, CudaStream stream) {
  require_not_forked();
  const CurrentCudaDevice current(device.cuda(), device.ordinal());
  GpuEvent result;
  result.state_ = std::allocate_shared<GpuEventState>(RecyclingAllocator<GpuEventState>(), device);
  require_cuda(device.cuda(), device.cuda().event_record(result.state_->event, stream),
               "cudaEventRecord");
  return result;
}

bool GpuEvent::has_completed() const {
  if (state_ == nullptr || state_->has_come.load(std::memory_order_acquire)) return true;
  require_not_forked();
  CudaApi& cuda = state_->device.cuda();
  const CudaStatus status = cuda.event_query(state_->event);
  if (status == CudaStatus::NOT_READY) return false;
  require_cuda(cuda, status, "cudaEventQuery");
  state_->has_come.store(true, std::memory_order_release);
  return true;
}

void GpuEvent::wait(const WaitLimit& limit) const {
  const Deadline& deadline = limit.deadline;
  if (has_completed()) return;
  if (!deadline.has_passed() && spin_until([this] { return has_completed(); })) return;
  Backoff backoff;
  // The deadline is looked at before the event, so that what has come by then counts.
  for (;;) {
    const bool is_late = deadline.has_passed();
    if (has_completed()) return;
    if (is_late) break;
    if (limit.interrupter != nullptr) limit.interrupter->throw_if_interrupted();
    backoff.pause(deadline);
  }
  throw DeadlineExceededError(
      fmt::format("CUDA device {} ({}): the deadline passed while the host waited for a stream",
                  state_->device.ordinal(), state_->device.properties().name));
}

void GpuEvent::hold_back(CudaStream stream) const {
  if (state_ == nullptr || state_->has_come.load(std::memory_order_acquire)) return;
  require_not_forked();
  CudaApi& cuda = state_->device.cuda();
  require_cuda(cuda, cuda.stream_wait_event(stream, state_->event), "cudaStreamWaitEvent");
}

}  // namespace crossdevice::detail
