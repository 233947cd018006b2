// SPDX-License-Identifier: Apache-2.0
/// A moment of a CUDA stream.
#pragma once

#include <memory>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/export.h"
#include "crossdevice/device/cuda_api.h"
#include "crossdevice/device/wait_limit.h"

namespace crossdevice::detail {

class GpuDevice;
struct GpuEventState;

/// A copy is the same moment; it may outlive the stream.
///
/// Memory   pooled cudaEvents without timing, given back when the last copy dies: in steady state record() allocates nothing and destroying calls
///          nothing of CUDA's.
/// Errors   what CUDA reports, also for work that failed before the moment. FailedPreconditionError: in a child of fork().
/// Threads  any. The calling thread's current device stays as it was.
class CROSSDEVICE_EXPORT GpuEvent {
 public:
  /// Never recorded: complete.
  GpuEvent() = default;
  /// The moment after everything that `stream`, of `device`, has been given so far. A null stream is the device's legacy default stream.
  [[nodiscard]] static GpuEvent record(GpuDevice& device, CudaStream stream);

  [[nodiscard]] bool has_completed() const;
  /// Blocks the host until then: looks for about 50 us, then sleeps in steps that grow with the wait.
  ///
  /// Errors   also DeadlineExceededError, which names the GPU; what the interrupter throws.
  void wait(const WaitLimit& limit) const;
  void wait(const Deadline& deadline) const { wait({.deadline = deadline}); }
  /// What `stream`, of any GPU, is given from now on runs after this moment. A null stream is the legacy default stream of the current device.
  void hold_back(CudaStream stream) const;

 private:
  std::shared_ptr<GpuEventState> state_;  // null: never recorded
};

}  // namespace crossdevice::detail
