// SPDX-License-Identifier: Apache-2.0
/// Which tables the library works with: CUDA's, an emulation's, or none and why.
#pragma once

#include <memory>
#include <string>

#include "crossdevice/core/export.h"
#include "crossdevice/device/cuda_api.h"
#include "crossdevice/device/kernel_api.h"

namespace crossdevice::detail {

/// Either both tables, or a reason.
struct GpuPlatform {
  std::shared_ptr<CudaApi> cuda{};
  std::shared_ptr<KernelApi> kernels{};
  std::string
      reason_against{};  ///< "built without CUDA", "no NVIDIA driver", "the driver is for CUDA 11.2, this build needs 12.0"
  [[nodiscard]] bool has_gpus() const { return cuda != nullptr; }
};

/// This process's; found out on the first call, for good.
///
/// Errors   FailedPreconditionError: in a child of fork() of a process that used the library.
/// Threads  any.
[[nodiscard]] CROSSDEVICE_EXPORT const GpuPlatform& gpu_platform();

/// For tests: what gpu_platform() is to return, from its first call on.
///
/// Errors   FailedPreconditionError: somebody has asked already.
CROSSDEVICE_EXPORT void set_gpu_platform(GpuPlatform platform);

/// Throws what a failed call means: ResourceExhaustedError (memory), UnavailableError (no device, no driver), FailedPreconditionError (a capture into a graph
/// that does not permit it; says what to do), else InternalError; the text names the call, CUDA's error and its text. Does nothing for SUCCESS.
CROSSDEVICE_EXPORT void require_cuda(const CudaApi& cuda, CudaStatus status, const char* what);

/// Makes `device` the calling thread's current CUDA device for as long as it lives, then restores what was.
///
/// Errors   as require_cuda.
class CROSSDEVICE_EXPORT CurrentCudaDevice {
 public:
  CurrentCudaDevice(CudaApi& cuda, int device);
  ~CurrentCudaDevice();
  CurrentCudaDevice(const CurrentCudaDevice&) = delete;
  CurrentCudaDevice& operator=(const CurrentCudaDevice&) = delete;

 private:
  CudaApi& cuda_;
  int previous_ = -1;  // -1: it was current already
};

/// What the calling thread does as long as this lives, on streams that nobody captures, neither spoils a capture nor is refused because of one: for what has
/// to be made in the middle of it.
///
/// Errors   as require_cuda.
class CROSSDEVICE_EXPORT BesideCaptures {
 public:
  explicit BesideCaptures(CudaApi& cuda);
  ~BesideCaptures();
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  CudaApi& cuda_;
  CudaCaptureMode previous_ = CudaCaptureMode::RELAXED;
};

}  // namespace crossdevice::detail
