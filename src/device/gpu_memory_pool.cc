// SPDX-License-Identifier: Apache-2.0
/// Takes from CUDA's stream-ordered pool and keeps the books.
#include "device/detail/gpu_memory_pool.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_platform.h"

#include "device/detail/freed_marks.h"

namespace crossdevice::detail {
namespace {

/// What CUDA aligns allocations to; a size is counted rounded up to it. Nothing is one block too.
constexpr std::size_t kBlockBytes = 256;
constexpr std::size_t kLargestRequest = std::numeric_limits<std::size_t>::max() / 4;

std::size_t block_bytes_of(std::size_t size_bytes) {
  return std::max<std::size_t>(1, (size_bytes + kBlockBytes - 1) / kBlockBytes) * kBlockBytes;
}

}  // namespace

GpuMemoryPool::GpuMemoryPool(GpuDevice& gpu, std::string device_name)
    : gpu_(gpu), device_name_(std::move(device_name)) {}

void GpuMemoryPool::require_open() const {
  if (!are_gpus_closed()) return;
  throw FailedPreconditionError(fmt::format(
      "{}: its memory cannot be used after shutdown() or in a child of fork()", device_name_));
}

CudaStatus GpuMemoryPool::try_allocate(void** block, CudaStream stream, std::size_t size_bytes) {
  return gpu_.cuda().malloc_from_pool_async(block, block_bytes_of(size_bytes), gpu_.memory_pool(),
                                            stream);
}

void* GpuMemoryPool::allocate_on(CudaStream stream, std::size_t size_bytes) {
  require_open();
  if (size_bytes > kLargestRequest) throw_exhausted(size_bytes, CudaStatus::OUT_OF_MEMORY);
  const CurrentCudaDevice current(gpu_.cuda(), gpu_.ordinal());
  void* block = nullptr;
  CudaStatus status = try_allocate(&block, stream, size_bytes);
  if (status == CudaStatus::OUT_OF_MEMORY) {
    // What is cached in pieces of other sizes may do in one piece.
    gpu_.freed_marks().settle();
    (void)gpu_.cuda().trim_pool(gpu_.memory_pool());
    status = try_allocate(&block, stream, size_bytes);
  }
  if (status == CudaStatus::OUT_OF_MEMORY) throw_exhausted(size_bytes, status);
  require_cuda(gpu_.cuda(), status, "cudaMallocFromPoolAsync");
  const std::size_t added = block_bytes_of(size_bytes);
  const std::size_t in_use = bytes_in_use_.fetch_add(added, std::memory_order_relaxed) + added;
  std::size_t peak = peak_bytes_in_use_.load(std::memory_order_relaxed);
  while (peak < in_use &&
         !peak_bytes_in_use_.compare_exchange_weak(peak, in_use, std::memory_order_relaxed)) {
  }
  num_allocations_.fetch_add(1, std::memory_order_relaxed);
  return block;
}

// Without it CUDA keeps the block until the next that this stream frees: no more.
void GpuMemoryPool::note_free(CudaStream stream) noexcept {
  try {
    gpu_.freed_marks().note(stream);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the block has been given back
  }
}

void GpuMemoryPool::deallocate_on(CudaStream stream, void* block, std::size_t size_bytes) noexcept {
  if (are_gpus_closed()) return;  // the end of the process takes it back
  try {
    const CurrentCudaDevice current(gpu_.cuda(), gpu_.ordinal());
    require_cuda(gpu_.cuda(), gpu_.cuda().free_async(block, stream), "cudaFreeAsync");
    bytes_in_use_.fetch_sub(block_bytes_of(size_bytes), std::memory_order_relaxed);
    note_free(stream);
  } catch (const std::exception& error) {
    try {
      log(LogSeverity::FAILURE,
          fmt::format("{}: a block could not be given back: {}", device_name_, error.what()));
    } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for the message either
    }
  }
}

void* GpuMemoryPool::allocate(std::size_t size_bytes) {
  require_open();
  return allocate_on(gpu_.own_stream(), size_bytes);
}

void GpuMemoryPool::deallocate(void* block, std::size_t size_bytes) noexcept {
  if (are_gpus_closed()) return;
  deallocate_on(gpu_.own_stream(), block, size_bytes);  // made by allocate(), so this only finds it
}

std::optional<SegmentLocation> GpuMemoryPool::locate(const void* /*pointer*/) const {
  require_open();
  return std::nullopt;
}

void GpuMemoryPool::move_segment(const void* /*pointer*/) { require_open(); }

MemoryPoolStatistics GpuMemoryPool::statistics() const {
  require_open();
  CudaPoolUse use;
  require_cuda(gpu_.cuda(), gpu_.cuda().get_pool_use(&use, gpu_.memory_pool()),
               "cudaMemPoolGetAttribute");
  return {.bytes_in_use = bytes_in_use_.load(std::memory_order_relaxed),
          .peak_bytes_in_use = peak_bytes_in_use_.load(std::memory_order_relaxed),
          .bytes_reserved = use.reserved_bytes,
          .num_allocations = num_allocations_.load(std::memory_order_relaxed)};
}

void GpuMemoryPool::reset_peak() {
  require_open();
  peak_bytes_in_use_.store(bytes_in_use_.load(std::memory_order_relaxed),
                           std::memory_order_relaxed);
}

void GpuMemoryPool::release_cached() {
  require_open();
  gpu_.freed_marks().settle();
  require_cuda(gpu_.cuda(), gpu_.cuda().trim_pool(gpu_.memory_pool()), "cudaMemPoolTrimTo");
}

void GpuMemoryPool::throw_exhausted(std::size_t size_bytes, CudaStatus status) const {
  CudaPoolUse use;
  (void)gpu_.cuda().get_pool_use(&use,
                                 gpu_.memory_pool());  // zeros in the message where that fails
  throw ResourceExhaustedError(
      fmt::format("{}: cudaMallocFromPoolAsync: {}: no memory for a block of {} bytes; {} bytes "
                  "are in use here, {} "
                  "reserved on {} of {} bytes",
                  device_name_, gpu_.cuda().error_text(status), size_bytes,
                  bytes_in_use_.load(std::memory_order_relaxed), use.reserved_bytes,
                  gpu_.properties().name, gpu_.properties().total_memory_bytes));
}

}  // namespace crossdevice::detail
