// SPDX-License-Identifier: Apache-2.0
/// One operation on GPUs while it is enqueued: its lanes, and who watches it afterwards.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "crossdevice/collective/gpu_reduce.h"
#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/gpu_span.h"
#include "crossdevice/device/tensor.h"

#include "collective/detail/gpu_lanes.h"

namespace crossdevice::detail {

/// What a run deals with, which may be one of several groups of an operation's values.
struct GpuContents {
  std::size_t size_bytes = 0;    ///< of one replica's values
  std::optional<DType> dtype{};  ///< nothing: several

  [[nodiscard]] static GpuContents of(const Tensor& tensor) {
    return {tensor.size_bytes(), tensor.dtype()};
  }
  [[nodiscard]] static GpuContents of(std::span<const GpuReduceTensor> tensors);
};

/// What a bar of that operation's, or of a part of it, says.
[[nodiscard]] TraceArguments trace_arguments(const OperationRecord& record,
                                             const GpuContents& contents,
                                             const char* algorithm = nullptr);

/// begin(), then enqueue on the lanes, then end(). Where enqueueing fails half way, the destructor restores the order of the streams, so that what
/// follows is at least not unordered.
class GpuRun {
 public:
  /// `lanes`: of every tensor that the operation touches.
  explicit GpuRun(const GpuLanes& lanes) : lanes_(lanes), is_captured_(lanes.is_captured()) {}
  ~GpuRun();
  GpuRun(const GpuRun&) = delete;
  GpuRun& operator=(const GpuRun&) = delete;

  [[nodiscard]] bool is_captured() const { return is_captured_; }
  void begin();
  /// `part`, of the timeline, begins on that stream; not in a capture.
  void begin(GpuSpan& part, GpuDevice& device, CudaStream stream) const {
    if (!is_captured_) part.begin(device, stream);
  }
  /// What writes outputs has been enqueued, or may have been.
  void set_written() { has_written_ = true; }
  /// Throws `error`, which is under way and has ended the enqueueing: says whether `operation` has left its inputs intact. The flight record gets it, unless it
  /// says of an object only that it has failed before.
  [[noreturn]] void rethrow(const OpError& error, const GpuOperation& operation,
                            const GpuContents& contents) const;
  /// `clique`: whose communicators it used; null: none's.
  void end(const GpuOperation& operation, const GpuContents& contents,
           std::shared_ptr<NcclClique> clique = nullptr);

 private:
  const GpuLanes& lanes_;
  bool is_captured_;
  bool is_open_ = false;
  bool has_written_ = false;
  GpuEvent start_;
  GpuSpan span_{GpuSpanKind::OPERATION};

  [[nodiscard]] WatchedOperation watched(const GpuOperation& operation,
                                         const GpuContents& contents) const;
};

}  // namespace crossdevice::detail
