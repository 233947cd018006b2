// SPDX-License-Identifier: Apache-2.0
/// One physical GPU of this process: its stream, its memory pool, its lock, and which other GPUs it reaches.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "crossdevice/core/export.h"
#include "crossdevice/device/cuda_api.h"
#include "crossdevice/device/device.h"

namespace crossdevice {
class Tensor;
}

namespace crossdevice::detail {

class FreedMarks;
class GpuEventPool;

/// Logical GPUs (set_logical_gpu_devices) of one GPU share its GpuDevice, and with it the stream.
///
/// Memory   made on the first use of any GPU, never destroyed: the process's end takes the streams and the memory back.
/// Threads  any.
class CROSSDEVICE_EXPORT GpuDevice {
 public:
  /// The GPU that a device of this process lies on.
  ///
  /// Errors   ValueError: a host device, or not present. FailedPreconditionError: after shutdown() or in a child of fork(). What CUDA reports.
  /// Cost     a few loads.
  [[nodiscard]] static GpuDevice& of(const Device& device);

  /// `num_gpus`: how many there are.
  GpuDevice(CudaApi& cuda, int ordinal, int num_gpus);
  ~GpuDevice();
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  [[nodiscard]] CudaApi& cuda() const { return cuda_; }
  /// CUDA's number.
  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] const CudaDeviceProperties& properties() const { return properties_; }
  /// The library's stream there: non-blocking, of the highest priority; made on first use.
  ///
  /// Errors   what CUDA reports; the next call tries again.
  [[nodiscard]] CudaStream own_stream();
  /// Where tensors of this GPU lie. Made on first use.
  ///
  /// Errors   UnavailableError: the GPU has no stream-ordered pools. What CUDA reports; the next call tries again.
  [[nodiscard]] CudaPool memory_pool();
  /// Held around every sequence of launches that another thread must not cut into; locks of several GPUs are taken in ascending ordinal.
  [[nodiscard]] std::timed_mutex& launch_mutex() { return launch_mutex_; }
  /// Whether kernels here may read and write memory there, that of its memory_pool() and any other: enabled on the first question. Itself: true.
  ///
  /// Errors   what CUDA reports. Where CUDA says that it can be, but does not do it (a GPU has room for so many peers): false, one warning.
  [[nodiscard]] bool reaches(GpuDevice& peer);
  [[nodiscard]] GpuEventPool& events() { return *events_; }
  /// Those with timing: for CudaApi::event_elapsed().
  [[nodiscard]] GpuEventPool& timed_events() { return *timed_events_; }
  [[nodiscard]] FreedMarks& freed_marks() { return *freed_marks_; }

 private:
  enum class Reach : std::uint8_t { UNKNOWN, YES, NO };
  [[nodiscard]] bool enable_peer(GpuDevice& peer);

  CudaApi& cuda_;
  const int ordinal_;
  CudaDeviceProperties properties_;
  std::timed_mutex launch_mutex_;
  std::unique_ptr<GpuEventPool> events_;
  std::unique_ptr<GpuEventPool> timed_events_;
  std::unique_ptr<FreedMarks> freed_marks_;
  // Each is made under make_mutex_ and published by a release store; a reader that sees it sees it whole.
  std::mutex make_mutex_;
  std::atomic<CudaStream> own_stream_{nullptr};
  std::atomic<CudaPool> memory_pool_{nullptr};
  std::unique_ptr<std::atomic<Reach>[]> reaches_;  // by the peer's ordinal
};

/// The stream whose order a tensor's memory follows: tensor.stream() where it has one, else its GPU's own_stream(). A null one (the caller's legacy
/// default stream) means that of the current device: set it before using it.
///
/// Errors   ValueError: the tensor lies on a host device. Else as GpuDevice::of.
[[nodiscard]] CROSSDEVICE_EXPORT CudaStream gpu_stream_of(const Tensor& tensor);

/// Whether what is enqueued on a stream of that GPU is captured into a graph.
///
/// Errors   FailedPreconditionError: the capture is spoilt. What CUDA reports.
[[nodiscard]] CROSSDEVICE_EXPORT bool is_captured(GpuDevice& device, CudaStream stream);
/// That of the tensor; false on host devices.
[[nodiscard]] CROSSDEVICE_EXPORT bool is_captured(const Tensor& tensor);

/// Whether GPUs must no longer be used: after shutdown(), while the process ends, and in a child of fork(). What destructors ask before they call CUDA.
[[nodiscard]] CROSSDEVICE_EXPORT bool are_gpus_closed() noexcept;

}  // namespace crossdevice::detail
