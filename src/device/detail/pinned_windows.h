// SPDX-License-Identifier: Apache-2.0
/// Pinned host memory through which pageable memory gets to GPUs and back.
#pragma once

#include <cstddef>
#include <memory>

#include "crossdevice/device/cuda_api.h"
#include "crossdevice/device/gpu_event.h"

namespace crossdevice::detail {

class GpuDevice;

/// A window for one user at a time. `last_use` is the GPU's last copy from or to it: it may be written, or lent to the next, when that has come. Where a copy has
/// been enqueued and no event follows it, because CUDA refused to record one, nobody knows when that is, so the window is nobody's any more.
struct PinnedWindow {
  static constexpr std::size_t kSizeBytes = std::size_t{4} << 20;
  std::byte* data = nullptr;
  GpuEvent last_use{};
  bool is_last_use_known = true;
};

/// A window until the lease ends. Every GPU reaches it.
///
/// Memory   as many windows as were ever in use at once, never given back: freeing pinned memory waits for all GPUs.
/// Errors   ResourceExhaustedError: the system pins no more memory. FailedPreconditionError: in a child of fork().
/// Threads  any; a lease belongs to one.
class PinnedWindowLease {
 public:
  explicit PinnedWindowLease(GpuDevice& gpu);
  ~PinnedWindowLease();
  PinnedWindowLease(const PinnedWindowLease&) = delete;
  PinnedWindowLease& operator=(const PinnedWindowLease&) = delete;
  [[nodiscard]] PinnedWindow& operator*() const { return *window_; }
  [[nodiscard]] PinnedWindow* operator->() const { return window_.get(); }

 private:
  std::unique_ptr<PinnedWindow> window_;
};

}  // namespace crossdevice::detail
