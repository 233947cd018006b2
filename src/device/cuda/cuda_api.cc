// SPDX-License-Identifier: Apache-2.0
// CUDA's run time behind the table, one call for one call, and the reasons why there may be none.
#if defined(CROSSDEVICE_WITH_CUDA)

#include "crossdevice/device/cuda_api.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <string>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "device/cuda/cuda_kernels.h"
#include "device/cuda/cuda_status.h"
#include "device/detail/cuda_platform.h"

namespace crossdevice::cuda {
namespace {

using detail::CudaStatus;

static_assert(static_cast<int>(CudaStatus::OUT_OF_MEMORY) == cudaErrorMemoryAllocation);
static_assert(static_cast<int>(CudaStatus::INVALID_VALUE) == cudaErrorInvalidValue);
static_assert(static_cast<int>(CudaStatus::INSUFFICIENT_DRIVER) == cudaErrorInsufficientDriver);
static_assert(static_cast<int>(CudaStatus::NO_DEVICE) == cudaErrorNoDevice);
static_assert(static_cast<int>(CudaStatus::INVALID_DEVICE) == cudaErrorInvalidDevice);
static_assert(static_cast<int>(CudaStatus::NOT_READY) == cudaErrorNotReady);
static_assert(static_cast<int>(CudaStatus::PEER_ACCESS_ALREADY_ENABLED) ==
              cudaErrorPeerAccessAlreadyEnabled);
static_assert(static_cast<int>(CudaStatus::STREAM_CAPTURE_UNSUPPORTED) ==
              cudaErrorStreamCaptureUnsupported);
static_assert(static_cast<int>(CudaStatus::STREAM_CAPTURE_INVALIDATED) ==
              cudaErrorStreamCaptureInvalidated);
static_assert(static_cast<int>(CudaStatus::STREAM_CAPTURE_MERGE) == cudaErrorStreamCaptureMerge);
static_assert(static_cast<int>(CudaStatus::STREAM_CAPTURE_UNMATCHED) ==
              cudaErrorStreamCaptureUnmatched);
static_assert(static_cast<int>(CudaStatus::STREAM_CAPTURE_UNJOINED) ==
              cudaErrorStreamCaptureUnjoined);
static_assert(static_cast<int>(CudaStatus::STREAM_CAPTURE_ISOLATION) ==
              cudaErrorStreamCaptureIsolation);
static_assert(static_cast<int>(CudaStatus::STREAM_CAPTURE_IMPLICIT) ==
              cudaErrorStreamCaptureImplicit);
static_assert(static_cast<int>(CudaStatus::CAPTURED_EVENT) == cudaErrorCapturedEvent);
static_assert(static_cast<int>(CudaStatus::STREAM_CAPTURE_WRONG_THREAD) ==
              cudaErrorStreamCaptureWrongThread);
static_assert(static_cast<int>(detail::CudaMemoryKind::HOST) == cudaMemoryTypeHost);
static_assert(static_cast<int>(detail::CudaMemoryKind::DEVICE) == cudaMemoryTypeDevice);
static_assert(static_cast<int>(detail::CudaMemoryKind::MANAGED) == cudaMemoryTypeManaged);
static_assert(static_cast<int>(detail::CudaCaptureStatus::ACTIVE) == cudaStreamCaptureStatusActive);
static_assert(static_cast<int>(detail::CudaCaptureStatus::INVALIDATED) ==
              cudaStreamCaptureStatusInvalidated);
static_assert(static_cast<int>(detail::CudaCaptureMode::GLOBAL) == cudaStreamCaptureModeGlobal);
static_assert(static_cast<int>(detail::CudaCaptureMode::THREAD_LOCAL) ==
              cudaStreamCaptureModeThreadLocal);
static_assert(static_cast<int>(detail::CudaCaptureMode::RELAXED) == cudaStreamCaptureModeRelaxed);

cudaMemLocation on_device(int device) {
  cudaMemLocation location{};
  location.type = cudaMemLocationTypeDevice;
  location.id = device;
  return location;
}

class CudaRunTime : public detail::CudaApi {
 public:
  CudaStatus driver_version(int* version) override {
    return status_of(cudaDriverGetVersion(version));
  }
  CudaStatus runtime_version(int* version) override {
    return status_of(cudaRuntimeGetVersion(version));
  }
  CudaStatus get_device_count(int* count) override { return status_of(cudaGetDeviceCount(count)); }
  CudaStatus get_device_properties(detail::CudaDeviceProperties* properties, int device) override;
  CudaStatus get_device(int* device) override { return status_of(cudaGetDevice(device)); }
  CudaStatus set_device(int device) override { return status_of(cudaSetDevice(device)); }
  CudaStatus can_access_peer(bool* can, int device, int peer) override {
    int answer = 0;
    const CudaStatus status = status_of(cudaDeviceCanAccessPeer(&answer, device, peer));
    *can = answer != 0;
    return status;
  }
  CudaStatus enable_peer_access(int peer) override {
    return status_of(cudaDeviceEnablePeerAccess(peer, 0));
  }
  CudaStatus get_pointer_attributes(detail::CudaPointerAttributes* attributes,
                                    const void* pointer) override {
    cudaPointerAttributes given{};
    const CudaStatus status = status_of(cudaPointerGetAttributes(&given, pointer));
    if (status == CudaStatus::SUCCESS) {
      attributes->kind = static_cast<detail::CudaMemoryKind>(given.type);
      attributes->device = given.device;
    }
    return status;
  }
  [[nodiscard]] std::string error_text(CudaStatus status) const override {
    const auto error = static_cast<cudaError_t>(status);
    return fmt::format("{}: {}", cudaGetErrorName(error), cudaGetErrorString(error));
  }

  CudaStatus create_pool(detail::CudaPool* pool, int device) override;
  CudaStatus set_pool_access(detail::CudaPool pool, int device) override {
    cudaMemAccessDesc access{};
    access.location = on_device(device);
    access.flags = cudaMemAccessFlagsProtReadWrite;
    return status_of(cudaMemPoolSetAccess(pool, &access, 1));
  }
  CudaStatus trim_pool(detail::CudaPool pool) override {
    return status_of(cudaMemPoolTrimTo(pool, 0));
  }
  CudaStatus get_pool_use(detail::CudaPoolUse* use, detail::CudaPool pool) override {
    const CudaStatus status = status_of(
        cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &use->reserved_bytes));
    if (status != CudaStatus::SUCCESS) return status;
    return status_of(
        cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &use->used_bytes));
  }
  CudaStatus malloc_from_pool_async(void** pointer, std::size_t size_bytes, detail::CudaPool pool,
                                    detail::CudaStream stream) override {
    return status_of(cudaMallocFromPoolAsync(pointer, size_bytes, pool, stream));
  }
  CudaStatus free_async(void* pointer, detail::CudaStream stream) override {
    return status_of(cudaFreeAsync(pointer, stream));
  }
  CudaStatus malloc_host(void** pointer, std::size_t size_bytes) override {
    return status_of(cudaHostAlloc(pointer, size_bytes, cudaHostAllocPortable));
  }
  CudaStatus free_host(void* pointer) override { return status_of(cudaFreeHost(pointer)); }
  CudaStatus memcpy_async(void* destination, const void* source, std::size_t size_bytes,
                          detail::CudaStream stream) override {
    return status_of(cudaMemcpyAsync(destination, source, size_bytes, cudaMemcpyDefault, stream));
  }
  CudaStatus memset_async(void* destination, int byte, std::size_t size_bytes,
                          detail::CudaStream stream) override {
    return status_of(cudaMemsetAsync(destination, byte, size_bytes, stream));
  }

  CudaStatus stream_create(detail::CudaStream* stream) override {
    int lowest = 0;
    int highest = 0;
    const CudaStatus status = status_of(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    if (status != CudaStatus::SUCCESS) return status;
    return status_of(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, highest));
  }
  CudaStatus stream_destroy(detail::CudaStream stream) override {
    return status_of(cudaStreamDestroy(stream));
  }
  CudaStatus stream_query(detail::CudaStream stream) override {
    return status_of(cudaStreamQuery(stream));
  }
  CudaStatus stream_wait_event(detail::CudaStream stream, detail::CudaEvent event) override {
    return status_of(cudaStreamWaitEvent(stream, event, 0));
  }
  CudaStatus stream_get_capture(detail::CudaStream stream,
                                detail::CudaCaptureStatus* capture) override {
    cudaStreamCaptureStatus given = cudaStreamCaptureStatusNone;
    const CudaStatus status = status_of(cudaStreamIsCapturing(stream, &given));
    *capture = static_cast<detail::CudaCaptureStatus>(given);
    return status;
  }
  CudaStatus launch_host_function(detail::CudaStream stream, void (*function)(void*),
                                  void* argument) override {
    return status_of(cudaLaunchHostFunc(stream, function, argument));
  }
  CudaStatus exchange_capture_mode(detail::CudaCaptureMode* mode) override {
    auto exchanged = static_cast<cudaStreamCaptureMode>(*mode);
    const CudaStatus status = status_of(cudaThreadExchangeStreamCaptureMode(&exchanged));
    *mode = static_cast<detail::CudaCaptureMode>(exchanged);
    return status;
  }

  CudaStatus event_create(detail::CudaEvent* event) override {
    return status_of(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  CudaStatus event_create_with_timing(detail::CudaEvent* event) override {
    return status_of(cudaEventCreateWithFlags(event, cudaEventDefault));
  }
  CudaStatus event_elapsed(float* milliseconds, detail::CudaEvent begin,
                           detail::CudaEvent end) override {
    return status_of(cudaEventElapsedTime(milliseconds, begin, end));
  }
  CudaStatus event_destroy(detail::CudaEvent event) override {
    return status_of(cudaEventDestroy(event));
  }
  CudaStatus event_record(detail::CudaEvent event, detail::CudaStream stream) override {
    return status_of(cudaEventRecord(event, stream));
  }
  CudaStatus event_query(detail::CudaEvent event) override {
    return status_of(cudaEventQuery(event));
  }
  CudaStatus event_synchronize(detail::CudaEvent event) override {
    return status_of(cudaEventSynchronize(event));
  }
};

CudaStatus CudaRunTime::get_device_properties(detail::CudaDeviceProperties* properties,
                                              int device) {
  cudaDeviceProp given{};
  const CudaStatus status = status_of(cudaGetDeviceProperties(&given, device));
  if (status != CudaStatus::SUCCESS) return status;
  try {
    properties->name = given.name;
    properties->pci_bus_id =
        fmt::format("{:04x}:{:02x}:{:02x}.0", given.pciDomainID, given.pciBusID, given.pciDeviceID);
  } catch (const std::bad_alloc&) {
    return CudaStatus::OUT_OF_MEMORY;
  }
  std::copy_n(reinterpret_cast<const unsigned char*>(given.uuid.bytes), properties->uuid.size(),
              properties->uuid.begin());
  properties->compute_capability = 10 * given.major + given.minor;
  properties->num_multiprocessors = given.multiProcessorCount;
  properties->total_memory_bytes = given.totalGlobalMem;
  properties->has_memory_pools = given.memoryPoolsSupported != 0;
  properties->reaches_pageable_memory = given.pageableMemoryAccess != 0;
  return status;
}

CudaStatus CudaRunTime::create_pool(detail::CudaPool* pool, int device) {
  cudaMemPoolProps wanted{};
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.handleTypes = cudaMemHandleTypeNone;
  wanted.location = on_device(device);
  cudaMemPool_t created = nullptr;
  CudaStatus status = status_of(cudaMemPoolCreate(&created, &wanted));
  if (status != CudaStatus::SUCCESS) return status;
  std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
  status = status_of(cudaMemPoolSetAttribute(created, cudaMemPoolAttrReleaseThreshold, &keep));
  if (status != CudaStatus::SUCCESS) {
    (void)cudaMemPoolDestroy(created);
    return status;
  }
  *pool = created;
  return status;
}

/// 13000 as "13.0".
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// Why CUDA finds no device here; empty where it does. Makes no context on any device.
std::string reason_against(detail::CudaApi& cuda) {
  int driver = 0;
  const CudaStatus driver_status = cuda.driver_version(&driver);
  if (driver_status == CudaStatus::SUCCESS && driver == 0) return "no NVIDIA driver";
  int count = 0;
  const CudaStatus status = cuda.get_device_count(&count);
  if (status == CudaStatus::SUCCESS && count > 0) return "";
  if (status == CudaStatus::SUCCESS || status == CudaStatus::NO_DEVICE)
    return fmt::format("no NVIDIA GPU (the driver is for CUDA {})", version_text(driver));
  if (status == CudaStatus::INSUFFICIENT_DRIVER) {
    return fmt::format("the NVIDIA driver is for CUDA {}, this build needs {}",
                       version_text(driver), version_text(CUDART_VERSION));
  }
  return "CUDA does not start: " + cuda.error_text(status);
}

}  // namespace
}  // namespace crossdevice::cuda

namespace crossdevice::detail {

GpuPlatform make_cuda_platform() {
  auto api = std::make_shared<cuda::CudaRunTime>();
  std::string reason = cuda::reason_against(*api);
  if (!reason.empty()) {
    return {.cuda = nullptr, .kernels = nullptr, .reason_against = std::move(reason)};
  }
  return {.cuda = std::move(api), .kernels = cuda::make_cuda_kernels(), .reason_against = {}};
}

}  // namespace crossdevice::detail

#endif
