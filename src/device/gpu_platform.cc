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

/// What to do about a code that concerns captures; null for others.
const char* advice_on_capture(CudaStatus status) {
  switch (status) {
    case CudaStatus::STREAM_CAPTURE_UNSUPPORTED:
      return "a capture forbids this call: do for the first time, before the capture, what is to "
             "be captured";
    case CudaStatus::STREAM_CAPTURE_INVALIDATED:
      return "an earlier call has spoilt this capture: end it, and begin again";
    case CudaStatus::STREAM_CAPTURE_MERGE:
      return "two captures would become one: capture all streams of an operation in one capture";
    case CudaStatus::STREAM_CAPTURE_UNMATCHED:
      return "this stream joined a capture that another began: end it on that one";
    case CudaStatus::STREAM_CAPTURE_UNJOINED:
      return "a stream joined the capture and did not come back: let the stream that began it wait "
             "for an event of each before its end";
    case CudaStatus::STREAM_CAPTURE_ISOLATION:
      return "a captured stream would wait for one that is not captured: let all streams of the "
             "operation join the capture first";
    case CudaStatus::STREAM_CAPTURE_IMPLICIT:
      return "the legacy default stream would join the capture, and cannot: give the tensors "
             "streams of their own";
    case CudaStatus::CAPTURED_EVENT:
      return "a moment of a capture was waited for outside of it: it comes only when the graph is "
             "launched";
    case CudaStatus::STREAM_CAPTURE_WRONG_THREAD:
      return "another thread began this capture: end it there, or begin it as a relaxed one";
    case CudaStatus::SUCCESS:
    case CudaStatus::INVALID_VALUE:
    case CudaStatus::OUT_OF_MEMORY:
    case CudaStatus::INSUFFICIENT_DRIVER:
    case CudaStatus::NO_DEVICE:
    case CudaStatus::INVALID_DEVICE:
    case CudaStatus::NOT_READY:
    case CudaStatus::PEER_ACCESS_ALREADY_ENABLED:
      break;
  }
  return nullptr;
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
  if (const char* const advice = advice_on_capture(status)) {
    throw FailedPreconditionError(fmt::format("{}; {}", text, advice));
  }
  switch (status) {
    case CudaStatus::OUT_OF_MEMORY:
      throw ResourceExhaustedError(text);
    case CudaStatus::INSUFFICIENT_DRIVER:
    case CudaStatus::NO_DEVICE:
    case CudaStatus::INVALID_DEVICE:
      throw UnavailableError(text);
    default:  // any other code of CUDA's
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

BesideCaptures::BesideCaptures(CudaApi& cuda) : cuda_(cuda) {
  require_cuda(cuda_, cuda_.exchange_capture_mode(&previous_),
               "cudaThreadExchangeStreamCaptureMode");
}

BesideCaptures::~BesideCaptures() { (void)cuda_.exchange_capture_mode(&previous_); }

CurrentCudaDevice::~CurrentCudaDevice() {
  // It was current a moment ago, so it can be again; if not, there is nobody to tell.
  if (previous_ >= 0) (void)cuda_.set_device(previous_);
}

}  // namespace crossdevice::detail
