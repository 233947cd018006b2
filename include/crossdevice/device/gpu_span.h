// SPDX-License-Identifier: Apache-2.0
/// Bars of a timeline by the clocks of GPUs: when something ran there, where TraceSpan says when it was enqueued.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "crossdevice/core/export.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/cuda_api.h"

namespace crossdevice::detail {

class GpuDevice;

/// What a bar is to others of its stream.
enum class GpuSpanKind : std::uint8_t { OPERATION, PART };

/// A bar on each of some streams: from the moment when all that stands before begin() there has been done, until what stands before end() has. Each stream has a track
/// of its own, "CUDA device 0, stream 1"; streams are numbered as they come.
///
/// Memory   while a timeline is written: two cudaEvents with timing for each bar, pooled; at most 16384 bars that have not ended, what is more is left out.
/// Order    not inside a capture. Operations of a stream follow each other, and parts lie in the one that ends next: where threads enqueue operations on one stream
///          at a time, the later one's bar begins where the former's ends.
/// Time     a bar is written when its end has come, at most 20 ms later, or when whoever looks at it flushes. Clocks are compared four times a second: bars of one GPU
///          are right to some microseconds, among each other and beside those of hosts.
/// Errors   none: what CUDA refuses is left out.
/// Threads  one.
/// Cost     while no timeline is written one relaxed load for each begin(). Else two records of events for each bar, and for each stream with unfinished bars a
///          question every 20 ms.
class CROSSDEVICE_EXPORT GpuSpan {
 public:
  explicit GpuSpan(GpuSpanKind kind) : kind_(kind) {}
  ~GpuSpan();
  GpuSpan(const GpuSpan&) = delete;
  GpuSpan& operator=(const GpuSpan&) = delete;

  /// On a stream on which it has begun: nothing.
  void begin(GpuDevice& device, CudaStream stream) noexcept {
    if ((trace_state.load(std::memory_order_relaxed) & kTraceToFile) != 0) [[unlikely]]
      add(device, stream);
  }
  /// On all of them. `name`: a string literal; `make()` gives the TraceArguments, whose tracks are not looked at, and is called only if there are bars. Without it
  /// there are none.
  template <class Make>
  void end(const char* name, const Make& make) noexcept {
    if (!marks_.empty()) [[unlikely]]
      end_all(name, make());
  }

  struct Mark {
    GpuDevice* device = nullptr;
    CudaStream stream = nullptr;
    CudaEvent begin = nullptr;
    CudaEvent end = nullptr;
  };

 private:
  void add(GpuDevice& device, CudaStream stream) noexcept;
  void end_all(const char* name, const TraceArguments& arguments) noexcept;

  GpuSpanKind kind_;
  std::vector<Mark> marks_;
};

/// Returns when nobody asks CUDA for bars any more, or a second later. For whoever has closed the GPUs (are_gpus_closed()).
void await_end_of_gpu_bars() noexcept;

}  // namespace crossdevice::detail
