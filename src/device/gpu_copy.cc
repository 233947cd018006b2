// SPDX-License-Identifier: Apache-2.0
// Orders copies between streams and moves host memory through pinned windows.
#include "device/detail/gpu_copy.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/gpu_span.h"

#include "device/detail/host_copy.h"
#include "device/detail/pinned_windows.h"

namespace crossdevice::detail {
namespace {

/// A tensor's GPU and stream, with that GPU as the current device.
class GpuSide {
 public:
  explicit GpuSide(const Tensor& tensor)
      : gpu_(GpuDevice::of(tensor.device())),
        stream_(gpu_stream_of(tensor)),
        current_(gpu_.cuda(), gpu_.ordinal()) {}

  [[nodiscard]] GpuDevice& gpu() const { return gpu_; }
  [[nodiscard]] CudaStream stream() const { return stream_; }
  void copy(void* destination, const void* source, std::size_t size_bytes) const {
    require_cuda(gpu_.cuda(), gpu_.cuda().memcpy_async(destination, source, size_bytes, stream_),
                 "cudaMemcpyAsync");
  }
  [[nodiscard]] GpuEvent record() const { return GpuEvent::record(gpu_, stream_); }
  /// The same between the GPU and `window`, which is one of the two.
  void copy_by(PinnedWindow& window, void* destination, const void* source,
               std::size_t size_bytes) const {
    copy(destination, source, size_bytes);
    window.is_last_use_known = false;
    window.last_use = record();
    window.is_last_use_known = true;
  }

 private:
  GpuDevice& gpu_;
  CudaStream stream_;
  CurrentCudaDevice current_;
};

/// A copy between a host and a GPU, by the host's clock, which waits for it, and by the GPU's.
class CopyBars {
 public:
  /// `name`: a string literal.
  CopyBars(const char* name, const GpuSide& side, const Tensor& tensor)
      : name_(name), tensor_(tensor), host_(name, "copy", [this] { return arguments(); }) {
    gpu_.begin(side.gpu(), side.stream());
  }
  ~CopyBars() {
    gpu_.end(name_, [this] { return arguments(); });
  }
  CopyBars(const CopyBars&) = delete;
  CopyBars& operator=(const CopyBars&) = delete;

 private:
  [[nodiscard]] TraceArguments arguments() const {
    return {.num_bytes = tensor_.size_bytes(), .dtype = to_string(tensor_.dtype())};
  }

  const char* name_;
  const Tensor& tensor_;
  TraceSpan host_;
  GpuSpan gpu_{GpuSpanKind::OPERATION};
};

/// The host's waits in one copy.
class CopyWait {
 public:
  /// `limit` null: the environment's. `direction`: of the copy, in messages, before `tensor`.
  CopyWait(const WaitLimit* limit, const char* direction, const Tensor& tensor)
      : is_default_(limit == nullptr), direction_(direction), tensor_(tensor) {
    limit_ = is_default_ ? WaitLimit{.deadline = Deadline::after_timeout_seconds(
                                         environment().default_timeout_seconds)}
                         : *limit;
  }
  /// For what the tensor's stream was given; the error says what for.
  void operator()(const GpuEvent& event) const {
    try {
      event.wait(limit_);
    } catch (const DeadlineExceededError& error) {
      std::string text =
          fmt::format("copy {} {}: {}", direction_, tensor_.to_string(), error.what());
      if (is_default_) {
        text += fmt::format("; CROSSDEVICE_DEFAULT_TIMEOUT is {} s",
                            environment().default_timeout_seconds.value_or(0));
      }
      throw DeadlineExceededError(text);
    }
  }

 private:
  bool is_default_;
  const char* direction_;
  const Tensor& tensor_;
  WaitLimit limit_;
};

/// The host cannot wait for what is only captured.
void require_no_capture(const GpuSide& side, const Tensor& tensor) {
  CudaApi& cuda = side.gpu().cuda();
  CudaCaptureStatus capture = CudaCaptureStatus::NONE;
  require_cuda(cuda, cuda.stream_get_capture(side.stream(), &capture), "cudaStreamIsCapturing");
  if (capture == CudaCaptureStatus::NONE) return;
  throw FailedPreconditionError(
      fmt::format("copy between host memory and {}: its stream is being captured, and the host "
                  "would wait for it",
                  tensor.to_string()));
}

/// Whether CUDA moves it without a copy of its own.
bool is_pinned(GpuDevice& gpu, const void* host_memory) {
  CudaPointerAttributes attributes;
  return gpu.cuda().get_pointer_attributes(&attributes, host_memory) == CudaStatus::SUCCESS &&
         attributes.kind != CudaMemoryKind::UNREGISTERED;
}

}  // namespace

void copy_between_gpus(const Tensor& destination, const Tensor& source) {
  if (source.size_bytes() == 0) return;
  GpuDevice& source_gpu = GpuDevice::of(source.device());
  const CudaStream source_stream = gpu_stream_of(source);
  const GpuSide side(destination);
  // A null stream is another one on each GPU.
  const bool share_a_stream = &side.gpu() == &source_gpu && side.stream() == source_stream;
  (void)side.gpu().reaches(source_gpu);  // enables the direct way where there is one
  if (!share_a_stream) GpuEvent::record(source_gpu, source_stream).hold_back(side.stream());
  side.copy(destination.data(), source.data(), source.size_bytes());
  if (share_a_stream) return;
  const GpuEvent copied = side.record();
  const CurrentCudaDevice current(source_gpu.cuda(), source_gpu.ordinal());
  copied.hold_back(source_stream);
}

// In both directions windows take turns: while the GPU moves one, the host copies the other. A window is written again when its last use has come;
// that is the deadline's wait, and the only one, so at most two windows of work are ever enqueued.

void copy_to_gpu(const Tensor& destination, const void* source, const WaitLimit* limit) {
  const std::size_t size_bytes = destination.size_bytes();
  if (size_bytes == 0) return;
  const GpuSide side(destination);
  require_no_capture(side, destination);
  const CopyBars bars("copy to a GPU", side, destination);
  const CopyWait wait_for(limit, "from the host to", destination);
  auto* const to = static_cast<std::byte*>(destination.data());
  const auto* const from = static_cast<const std::byte*>(source);
  if (is_pinned(side.gpu(), source)) {
    side.copy(to, from, size_bytes);
    return wait_for(side.record());
  }
  const PinnedWindowLease first(side.gpu());
  std::optional<PinnedWindowLease> second;
  if (size_bytes > PinnedWindow::kSizeBytes) second.emplace(side.gpu());
  PinnedWindow* now = &*first;
  PinnedWindow* next = second.has_value() ? &**second : now;
  for (std::size_t begin = 0; begin < size_bytes; begin += PinnedWindow::kSizeBytes) {
    const std::size_t part = std::min(PinnedWindow::kSizeBytes, size_bytes - begin);
    wait_for(now->last_use);
    copy_host_memory(now->data, from + begin, part);
    side.copy_by(*now, to + begin, now->data, part);
    std::swap(now, next);
  }
  wait_for(next->last_use);
}

void copy_from_gpu(void* destination, const Tensor& source, const WaitLimit* limit) {
  const std::size_t size_bytes = source.size_bytes();
  if (size_bytes == 0) return;
  const GpuSide side(source);
  require_no_capture(side, source);
  const CopyBars bars("copy to the host", side, source);
  const CopyWait wait_for(limit, "to the host from", source);
  auto* const to = static_cast<std::byte*>(destination);
  const auto* const from = static_cast<const std::byte*>(source.data());
  if (is_pinned(side.gpu(), destination)) {
    side.copy(to, from, size_bytes);
    return wait_for(side.record());
  }
  const PinnedWindowLease first(side.gpu());
  std::optional<PinnedWindowLease> second;
  if (size_bytes > PinnedWindow::kSizeBytes) second.emplace(side.gpu());
  PinnedWindow* now = &*first;
  PinnedWindow* next = second.has_value() ? &**second : now;
  const auto part_at = [&](std::size_t begin) {
    return std::min(PinnedWindow::kSizeBytes, size_bytes - begin);
  };
  const auto fetch = [&](PinnedWindow& window, std::size_t begin) {
    side.copy_by(window, window.data, from + begin, part_at(begin));
  };
  fetch(*now, 0);
  for (std::size_t begin = 0; begin < size_bytes; begin += PinnedWindow::kSizeBytes) {
    const std::size_t following = begin + part_at(begin);
    if (following < size_bytes) fetch(*next, following);
    wait_for(now->last_use);
    copy_host_memory(to + begin, now->data, part_at(begin));
    std::swap(now, next);
  }
}

void clear_gpu_memory(const Tensor& tensor) {
  if (tensor.size_bytes() == 0) return;
  const GpuSide side(tensor);
  CudaApi& cuda = side.gpu().cuda();
  require_cuda(cuda, cuda.memset_async(tensor.data(), 0, tensor.size_bytes(), side.stream()),
               "cudaMemsetAsync");
}

}  // namespace crossdevice::detail
