// SPDX-License-Identifier: Apache-2.0
// Keeps the windows that nobody uses.
#include "device/detail/pinned_windows.h"

#include <mutex>
#include <utility>
#include <vector>

#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {
namespace {

class WindowShelf {
 public:
  /// Never destroyed: the windows are never given back.
  static WindowShelf& instance() {
    static WindowShelf& shelf = *new WindowShelf;
    return shelf;
  }

  std::unique_ptr<PinnedWindow> take(GpuDevice& gpu) {
    require_not_forked();
    {
      const std::lock_guard lock(mutex_);
      // The one used last is the one that caches know best. A copy that was given up, because its deadline passed, leaves a window to a stream that may
      // stand still for long: such a window stays where it is.
      for (auto window = spare_.rbegin(); window != spare_.rend(); ++window) {
        if (!(*window)->last_use.has_completed()) continue;
        std::swap(*window, spare_.back());
        std::unique_ptr<PinnedWindow> result = std::move(spare_.back());
        spare_.pop_back();
        return result;
      }
    }
    // Without the lock, which copies that have their window need to end: pinning takes long, and may wait for GPUs.
    std::unique_ptr<PinnedWindow> made = make(gpu);
    const std::lock_guard lock(mutex_);
    ++num_made_;  // so that put_back() never allocates
    spare_.reserve(num_made_);
    lost_.reserve(num_made_);
    return made;
  }

  void put_back(std::unique_ptr<PinnedWindow> window) noexcept {
    if (is_forked_child()) return (void)window.release();
    const std::lock_guard lock(mutex_);
    (window->is_last_use_known ? spare_ : lost_).push_back(std::move(window));
  }

 private:
  static std::unique_ptr<PinnedWindow> make(GpuDevice& gpu) {
    auto window = std::make_unique<PinnedWindow>();
    void* data = nullptr;
    const CurrentCudaDevice current(gpu.cuda(), gpu.ordinal());
    require_cuda(gpu.cuda(), gpu.cuda().malloc_host(&data, PinnedWindow::kSizeBytes),
                 "cudaHostAlloc");
    window->data = static_cast<std::byte*>(data);
    return window;
  }

  std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<PinnedWindow>> spare_;
  std::vector<std::unique_ptr<PinnedWindow>> lost_;  // to copies that may still come; never taken
  std::size_t num_made_ = 0;
};

}  // namespace

PinnedWindowLease::PinnedWindowLease(GpuDevice& gpu) : window_(WindowShelf::instance().take(gpu)) {}

PinnedWindowLease::~PinnedWindowLease() { WindowShelf::instance().put_back(std::move(window_)); }

}  // namespace crossdevice::detail
