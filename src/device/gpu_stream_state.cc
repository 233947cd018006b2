// SPDX-License-Identifier: Apache-2.0
// Runs tasks of the host in the order of a CUDA stream.
#include "device/detail/gpu_stream_state.h"

#include <utility>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {
namespace {

// Whose task this thread, one of CUDA's, runs; null on any other. It must not call CUDA.
thread_local const GpuStreamState* current_stream = nullptr;

}  // namespace

GpuStreamState::GpuStreamState(GpuDevice& gpu, std::string name)
    : gpu_(gpu), errors_(std::move(name)) {
  const CurrentCudaDevice current(gpu_.cuda(), gpu_.ordinal());
  require_cuda(gpu_.cuda(), gpu_.cuda().stream_create(&stream_), "cudaStreamCreateWithPriority");
}

void GpuStreamState::require_other_thread(const char* what) const {
  if (current_stream == nullptr) return;
  throw FailedPreconditionError("stream \"" + errors_.stream_name() + "\": " + what +
                                " by a task of a GPU's stream, which must not call CUDA");
}

void GpuStreamState::require_open(bool for_tasks) const {
  require_not_forked();
  if (are_gpus_closed()) {
    throw FailedPreconditionError("stream \"" + errors_.stream_name() +
                                  "\": no GPU can be used after shutdown()");
  }
  if (for_tasks && is_closed_) {
    throw FailedPreconditionError("stream \"" + errors_.stream_name() +
                                  "\": it was stopped and takes no more tasks");
  }
}

void GpuStreamState::enqueue(std::function<void()> task) {
  require_other_thread("used");
  require_not_forked();  // before the lock, which a thread that did not come along may hold
  const std::lock_guard order(launch_mutex_);
  {
    const std::lock_guard lock(mutex_);
    require_open(/*for_tasks=*/true);
    queue_.push_back(std::move(task));
    if (self_ == nullptr) self_ = shared_from_this();
  }
  const CudaStatus status = gpu_.cuda().launch_host_function(stream_, &run_front, this);
  if (status == CudaStatus::SUCCESS) return;
  {
    const std::lock_guard lock(mutex_);
    queue_.pop_back();                    // still this one: nobody else enqueues
    if (queue_.empty()) self_ = nullptr;  // never the last reference: the caller has one
  }
  require_cuda(gpu_.cuda(), status, "cudaLaunchHostFunc");
}

void GpuStreamState::run_front(void* argument) {
  auto& state = *static_cast<GpuStreamState*>(argument);
  std::function<void()> task;
  {
    const std::lock_guard lock(state.mutex_);
    task = std::move(state.queue_.front());
  }
  const GpuStreamState* const before = std::exchange(current_stream, &state);
  std::exception_ptr error;
  try {
    task();
  } catch (...) {
    error = std::current_exception();
  }
  task = nullptr;  // before it counts as finished: whoever waits may then free what it referred to
  if (error != nullptr) state.errors_.keep(std::move(error));
  current_stream = before;
  std::shared_ptr<GpuStreamState> last;  // outlives the lock, and perhaps the state
  const std::lock_guard lock(state.mutex_);
  state.queue_.pop_front();
  if (state.queue_.empty()) last = std::move(state.self_);
}

GpuEvent GpuStreamState::record() {
  require_other_thread("used");
  require_open(/*for_tasks=*/false);
  return GpuEvent::record(gpu_, stream_);
}

void GpuStreamState::wait_for(const GpuEvent& event) {
  require_other_thread("used");
  require_open(/*for_tasks=*/false);
  event.hold_back(stream_);
}

void GpuStreamState::synchronize(const Deadline& deadline) {
  require_other_thread("waited for");
  record().wait(deadline);
  errors_.rethrow();
}

void GpuStreamState::stop() {
  require_other_thread("stopped");
  require_not_forked();
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  if (are_gpus_closed()) return;
  record().wait(Deadline::after_timeout_seconds(environment().default_timeout_seconds));
}

void GpuStreamState::release() noexcept {
  if (are_gpus_closed()) return;
  // It ends when its work has; a status would have nobody to go to. CUDA forbids the call to its own host functions: then the stream is left.
  if (current_stream == nullptr) (void)gpu_.cuda().stream_destroy(stream_);
  errors_.warn_of_last();
}

bool GpuStreamState::is_current() const { return current_stream == this; }

}  // namespace crossdevice::detail
