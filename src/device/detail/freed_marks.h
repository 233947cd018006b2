// SPDX-License-Identifier: Apache-2.0
/// Up to where each stream has come in giving memory back.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "crossdevice/device/cuda_api.h"

namespace crossdevice::detail {

class GpuDevice;

/// cudaMemPoolTrimTo gives back no block before the host has waited for a point behind the block's cudaFreeAsync: that an event or a stream is asked
/// (cudaEventQuery) and has come is not enough (seen with driver 580.159 on an H100). So an event follows what a stream has freed last, and is waited for when the
/// pool is to be trimmed, once it has come, so that nobody waits.
///
/// Cost     of note(): a lock and a cudaEventRecord.
/// Errors   what CUDA reports.
/// Threads  any.
class FreedMarks {
 public:
  explicit FreedMarks(GpuDevice& gpu) : gpu_(gpu) {}

  /// After a cudaFreeAsync on `stream`, of the GPU that is current. Captured: nothing, since it is the graph that frees.
  void note(CudaStream stream);
  /// Before cudaMemPoolTrimTo. What a stream has not come to yet stays.
  void settle();

 private:
  struct Mark {
    CudaStream stream;
    CudaEvent event;
  };
  static constexpr std::size_t kMany = 32;
  void settle_those_that_have_come();

  GpuDevice& gpu_;
  std::mutex mutex_;  // guards marks_
  std::vector<Mark> marks_;
};

}  // namespace crossdevice::detail
