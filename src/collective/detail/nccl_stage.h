// SPDX-License-Identifier: Apache-2.0
/// What a pipeline through NCCL needs on each GPU besides the tensors: a stream for NCCL, and two buffers.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/device/cuda_api.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/tensor.h"

#include "collective/detail/gpu_lanes.h"

namespace crossdevice::detail {

/// Who uses a buffer when: whatever operation fills it does so behind everything on the stage's stream, and at its end the stage's stream waits for the
/// operation's. So operations on any streams follow each other in it.
///
/// Memory   buffers grow to what is asked for and stay; freed in the order of the stage's stream.
/// Threads  one at a time.
class NcclStage {
 public:
  explicit NcclStage(const Devices& devices);
  ~NcclStage();
  NcclStage(const NcclStage&) = delete;
  NcclStage& operator=(const NcclStage&) = delete;

  /// Two buffers of so many bytes on each device.
  ///
  /// Errors   ResourceExhaustedError: what a growing stage had is given back before it asks for more, so it has nothing then, and the next call begins anew,
  ///          with as much as that one needs.
  void require_bytes(std::size_t size_bytes);
  /// Blocks until the buffers exist (they come to be in stream order): for those who cannot wait in their streams, because these are captured.
  void wait_for_memory(const Deadline& deadline) const;

  [[nodiscard]] CudaStream stream(std::size_t device) const { return sides_[device].stream; }
  [[nodiscard]] char* buffer(std::size_t device, std::size_t which) const {
    return static_cast<char*>(sides_[device].buffers[which].data());
  }

 private:
  struct Side {
    Device name;
    GpuDevice* device;
    CudaStream stream = nullptr;
    std::array<Tensor, 2> buffers;
  };
  void release() noexcept;
  void end_streams() noexcept;
  static void fill(Side& side, std::size_t size_bytes);

  std::vector<Side> sides_;
  std::size_t size_bytes_ = 0;  // of each buffer; 0: there are none
};

}  // namespace crossdevice::detail
