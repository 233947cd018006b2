// SPDX-License-Identifier: Apache-2.0
/// The cudaEvents of one GPU that nobody uses at the moment.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "crossdevice/device/cuda_api.h"

namespace crossdevice::detail {

/// An event may be given back while streams still wait for it: a wait keeps the moment that was recorded when it was enqueued, whatever is recorded
/// in the event later.
///
/// Memory   holds as many events as were in use at once; none is ever destroyed, because destroying one may block.
/// Threads  any.
class GpuEventPool {
 public:
  explicit GpuEventPool(bool has_timing) : has_timing_(has_timing) {}
  /// Makes a new one where none is left; the current device is the pool's.
  [[nodiscard]] CudaEvent take(CudaApi& cuda);
  void give_back(CudaEvent event) noexcept;

 private:
  const bool has_timing_;
  std::mutex mutex_;  // guards what follows
  std::vector<CudaEvent> spare_;
  std::size_t num_made_ = 0;
};

}  // namespace crossdevice::detail
