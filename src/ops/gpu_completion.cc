// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/gpu_completion.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/gpu_device.h"

namespace crossdevice::detail {
namespace {

/// For the watchdog to say what became of an operation whose GPUs have come to its end, or whose communicators are broken: it looks every 0.1 s at the latest.
constexpr double kVerdictSeconds = 5;

}  // namespace

void GpuCompletion::add_end(const Tensor& tensor) {
  if (tensor.device().is_host() || is_captured(tensor)) return;
  GpuDevice& device = GpuDevice::of(tensor.device());
  const CudaStream stream = gpu_stream_of(tensor);
  const bool is_known = std::any_of(ends_.begin(), ends_.end(), [&](const End& end) {
    return end.device == &device && end.stream == stream;
  });
  if (!is_known) ends_.push_back({&device, stream, GpuEvent::record(device, stream)});
}

void GpuCompletion::wait(const Deadline& deadline) const {
  throw_if_interrupted();
  try {
    wait_for_ends(deadline);
  } catch (const DeadlineExceededError&) {
    throw;
  } catch (const OpError&) {
    // CUDA's, of which the watchdog makes the operation's.
    require_verdict(deadline);
    throw;
  }
  // After the ends: kernels that an abort ended look as if they had done their work.
  if (const std::exception_ptr broken = what_broke_a_clique()) {
    require_verdict(deadline);
    const std::lock_guard lock(mutex_);
    if (num_over_ < num_watched_) std::rethrow_exception(broken);
  }
}

void GpuCompletion::wait_for_ends(const Deadline& deadline) const {
  const auto has_come = [](const End& end) { return end.event.has_completed(); };
  if (std::all_of(ends_.begin(), ends_.end(), has_come)) return;
  const TraceSpan span("wait", "wait");
  for (const End& end : ends_) {
    try {
      end.event.wait({.deadline = deadline, .interrupter = this});
    } catch (const DeadlineExceededError& error) {
      throw_if_interrupted();  // the operation's own is the one to know
      throw DeadlineExceededError(fmt::format("{}; the operation goes on", error.what()));
    }
  }
}

/// Returns when the watchdog has seen all parts come to their end well, or has nothing to say.
void GpuCompletion::require_verdict(const Deadline& deadline) const {
  look_at_watched();
  const Deadline limit =
      Deadline::earlier(deadline, Deadline::after(std::chrono::duration<double>(kVerdictSeconds)));
  std::unique_lock lock(mutex_);
  (void)changed_.wait_until(lock, limit.moment(),
                            [this] { return error_ != nullptr || num_over_ >= num_watched_; });
  if (error_ != nullptr) std::rethrow_exception(error_);
}

std::exception_ptr GpuCompletion::what_broke_a_clique() const {
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<NcclClique>& each : cliques_) {
    const std::shared_ptr<NcclClique> clique = each.lock();  // gone: the watchdog has let go of it
    if (clique == nullptr) continue;
    if (std::exception_ptr error = clique->first_error()) return error;
  }
  return nullptr;
}

std::exception_ptr GpuCompletion::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void GpuCompletion::throw_if_interrupted() const {
  if (const std::exception_ptr found = error()) std::rethrow_exception(found);
}

void GpuCompletion::operation_enqueued(std::uint64_t sequence,
                                       const std::shared_ptr<NcclClique>& clique) {
  queue_->operation_enqueued(sequence, clique);
  const std::lock_guard lock(mutex_);
  ++num_watched_;
  if (clique != nullptr) cliques_.push_back(clique);
}

void GpuCompletion::operation_completed(std::uint64_t sequence) {
  queue_->operation_completed(sequence);
  const std::lock_guard lock(mutex_);
  ++num_over_;
  changed_.notify_all();
}

void GpuCompletion::operation_failed(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  ++num_over_;
  if (error_ == nullptr) {
    error_ = error;
    // With the lock, that is before anybody has seen the error here: whoever throws it takes it back from there.
    queue_->operation_failed(std::move(error));
  }
  changed_.notify_all();
}

}  // namespace crossdevice::detail
