// SPDX-License-Identifier: Apache-2.0
/// What the library asks of CUDA's run time, as a table: the real one calls it, tests put an emulation in its place.
///
/// One function for one function of cudaXxx, with its meaning, so that whoever knows CUDA knows this. Policy (pools, guards, deadlines, messages) is
/// above. No vendor header: the same code is compiled, and tested, where there is no CUDA.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "crossdevice/core/export.h"

struct CUstream_st;
struct CUevent_st;
struct CUmemPoolHandle_st;

namespace crossdevice::detail {

using CudaStream =
    CUstream_st*;  // cudaStream_t; null is the legacy default stream, which is only ever the caller's
using CudaEvent = CUevent_st*;         // cudaEvent_t
using CudaPool = CUmemPoolHandle_st*;  // cudaMemPool_t

/// cudaError_t: the codes that the library tells apart; any other is carried as it came.
enum class CudaStatus : int {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  INSUFFICIENT_DRIVER = 35,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  NOT_READY = 600,
  PEER_ACCESS_ALREADY_ENABLED = 704,
  STREAM_CAPTURE_UNSUPPORTED = 900,
  STREAM_CAPTURE_INVALIDATED = 901,
  STREAM_CAPTURE_MERGE = 902,
  STREAM_CAPTURE_UNMATCHED = 903,
  STREAM_CAPTURE_UNJOINED = 904,
  STREAM_CAPTURE_ISOLATION = 905,
  STREAM_CAPTURE_IMPLICIT = 906,
  CAPTURED_EVENT = 907,
  STREAM_CAPTURE_WRONG_THREAD = 908,
};

struct CudaDeviceProperties {
  std::string name;
  std::array<unsigned char, 16> uuid{};
  std::string pci_bus_id;      ///< "0000:19:00.0"
  int compute_capability = 0;  ///< 90 is 9.0
  int num_multiprocessors = 0;
  std::size_t total_memory_bytes = 0;
  bool has_memory_pools = false;  ///< cudaMallocAsync works
  /// Whether it reaches ordinary host memory, managed or not (HMM, ATS): nothing relies on it, reports show it.
  bool reaches_pageable_memory = false;
};

/// cudaMemoryType, of cudaPointerGetAttributes.
enum class CudaMemoryKind : int { UNREGISTERED = 0, HOST = 1, DEVICE = 2, MANAGED = 3 };

struct CudaPointerAttributes {
  CudaMemoryKind kind = CudaMemoryKind::UNREGISTERED;
  int device = -1;
};

/// cudaStreamCaptureStatus.
enum class CudaCaptureStatus : int { NONE = 0, ACTIVE = 1, INVALIDATED = 2 };

/// cudaStreamCaptureMode.
enum class CudaCaptureMode : int { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };

struct CudaPoolUse {
  std::uint64_t reserved_bytes = 0;
  std::uint64_t used_bytes = 0;
};

/// Order    as CUDA's: a stream runs in order; an event is a moment of a stream. Device ordinals are CUDA's. Functions that CUDA ties to the
///          current device (stream, event, pool and peer functions) use the calling thread's.
/// Errors   as status codes, nothing throws. An asynchronous error may be returned by any later call, as CUDA does.
/// Threads  any. None of them blocks but synchronize functions, free_host, memcpy_async with pageable host memory (CUDA stages it, and comes back when
///          the bytes have been taken or have arrived), and, where CUDA says so, event_destroy.
class CROSSDEVICE_EXPORT CudaApi {
 public:
  CudaApi() = default;
  CudaApi(const CudaApi&) = delete;
  CudaApi& operator=(const CudaApi&) = delete;
  virtual ~CudaApi() = default;

  // ---- what there is
  virtual CudaStatus driver_version(int* version) = 0;  ///< 13000 is 13.0; 0: no driver
  virtual CudaStatus runtime_version(int* version) = 0;
  virtual CudaStatus get_device_count(int* count) = 0;
  virtual CudaStatus get_device_properties(CudaDeviceProperties* properties, int device) = 0;
  virtual CudaStatus get_device(int* device) = 0;
  virtual CudaStatus set_device(int device) = 0;
  virtual CudaStatus can_access_peer(bool* can, int device, int peer) = 0;
  /// From the current device to `peer`.
  virtual CudaStatus enable_peer_access(int peer) = 0;
  virtual CudaStatus get_pointer_attributes(CudaPointerAttributes* attributes,
                                            const void* pointer) = 0;
  [[nodiscard]] virtual std::string error_text(
      CudaStatus status) const = 0;  ///< "cudaErrorX: text"

  // ---- memory
  /// A pool on `device` that keeps what is freed until trim_pool().
  virtual CudaStatus create_pool(CudaPool* pool, int device) = 0;
  /// Lets `device` read and write the pool's memory, what is taken from it later too. Peer access (enable_peer_access) does not cover pools, nor does this
  /// cover other memory; a pool is always open to its own device.
  virtual CudaStatus set_pool_access(CudaPool pool, int device) = 0;
  virtual CudaStatus trim_pool(CudaPool pool) = 0;
  virtual CudaStatus get_pool_use(CudaPoolUse* use, CudaPool pool) = 0;
  virtual CudaStatus malloc_from_pool_async(void** pointer, std::size_t size_bytes, CudaPool pool,
                                            CudaStream stream) = 0;
  virtual CudaStatus free_async(void* pointer, CudaStream stream) = 0;
  virtual CudaStatus malloc_host(void** pointer, std::size_t size_bytes) = 0;  ///< pinned, portable
  virtual CudaStatus free_host(void* pointer) = 0;
  /// cudaMemcpyDefault: between any two of host, pinned and device memory of any device. Blocks where the host's memory is pageable.
  virtual CudaStatus memcpy_async(void* destination, const void* source, std::size_t size_bytes,
                                  CudaStream stream) = 0;
  virtual CudaStatus memset_async(void* destination, int byte, std::size_t size_bytes,
                                  CudaStream stream) = 0;

  // ---- streams
  /// Non-blocking, of the highest priority.
  virtual CudaStatus stream_create(CudaStream* stream) = 0;
  virtual CudaStatus stream_destroy(CudaStream stream) = 0;
  virtual CudaStatus stream_query(CudaStream stream) = 0;
  virtual CudaStatus stream_wait_event(CudaStream stream, CudaEvent event) = 0;
  virtual CudaStatus stream_get_capture(CudaStream stream, CudaCaptureStatus* status) = 0;
  /// Runs `function(argument)` on a thread of CUDA's, in stream order; it must not call CUDA.
  virtual CudaStatus launch_host_function(CudaStream stream, void (*function)(void*),
                                          void* argument) = 0;
  /// cudaThreadExchangeStreamCaptureMode: how what this thread does and captures disturb each other, from now on; gives what was before.
  virtual CudaStatus exchange_capture_mode(CudaCaptureMode* mode) = 0;

  // ---- events, without timing but where it is said
  virtual CudaStatus event_create(CudaEvent* event) = 0;
  virtual CudaStatus event_create_with_timing(CudaEvent* event) = 0;
  /// From the one to the other, of one device, made with timing, that have come; negative where `end` came first.
  virtual CudaStatus event_elapsed(float* milliseconds, CudaEvent begin, CudaEvent end) = 0;
  virtual CudaStatus event_destroy(CudaEvent event) = 0;
  virtual CudaStatus event_record(CudaEvent event, CudaStream stream) = 0;
  virtual CudaStatus event_query(CudaEvent event) = 0;
  /// Blocks until it has come: for events that have, of which CUDA's pool is to learn.
  virtual CudaStatus event_synchronize(CudaEvent event) = 0;
};

}  // namespace crossdevice::detail
