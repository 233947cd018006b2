// SPDX-License-Identifier: Apache-2.0
/// Finds out, once, which tables this process works with, and turns CUDA's codes into errors.
#include "crossdevice/device/gpu_platform.h"

#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/given_or_found.h"
#include "crossdevice/device/shutdown.h"

#include "device/detail/cuda_platform.h"

namespace crossdevice::detail {
namespace {

// Never destroyed: tensors with static storage duration give back their memory after main.
GivenOrFound<GpuPlatform>& platform() {
  static auto& instance = *new GivenOrFound<GpuPlatform>("the GPUs");
  return instance;
}

}  // namespace

const GpuPlatform& gpu_platform() {
  if (const GpuPlatform* known = platform().find()) return *known;
  require_not_forked();
  return platform().get(make_cuda_platform);
}

void set_gpu_platform(GpuPlatform given) { platform().give(std::move(given)); }

void require_cuda(const CudaApi& cuda, CudaStatus status, const char* what) {
  if (status == CudaStatus::SUCCESS) return;
  const std::string text = fmt::format("{}: {}", what, cuda.error_text(status));
  switch (status) {
    case CudaStatus::OUT_OF_MEMORY:
      throw ResourceExhaustedError(text);
    case CudaStatus::INSUFFICIENT_DRIVER:
    case CudaStatus::NO_DEVICE:
    case CudaStatus::INVALID_DEVICE:
      throw UnavailableError(text);
    case CudaStatus::STREAM_CAPTURE_UNSUPPORTED:
    case CudaStatus::STREAM_CAPTURE_INVALIDATED:
      throw FailedPreconditionError(text);
    case CudaStatus::SUCCESS:
    case CudaStatus::INVALID_VALUE:
    case CudaStatus::NOT_READY:
    case CudaStatus::PEER_ACCESS_ALREADY_ENABLED:
      break;
  }
  throw InternalError(text);
}

CurrentCudaDevice::CurrentCudaDevice(CudaApi& cuda, int device) : cuda_(cuda) {
  int current = -1;
  require_cuda(cuda_, cuda_.get_device(&current), "cudaGetDevice");
  if (current == device) return;
  require_cuda(cuda_, cuda_.set_device(device), "cudaSetDevice");
  previous_ = current;
}

CurrentCudaDevice::~CurrentCudaDevice() {
  // It was current a moment ago, so it can be again; if not, there is nobody to tell.
  if (previous_ >= 0) (void)cuda_.set_device(previous_);
}

}  // namespace crossdevice::detail
