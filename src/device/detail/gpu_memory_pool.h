// SPDX-License-Identifier: Apache-2.0
/// The pool of one logical GPU: its share of the stream-ordered pool of the GPU that it lies on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "crossdevice/device/cuda_api.h"
#include "crossdevice/device/memory_pool.h"

namespace crossdevice::detail {

class GpuDevice;

/// Counts here, memory in GpuDevice::memory_pool(): logical devices of one GPU take from, and give back to, the same place.
class GpuMemoryPool final : public MemoryPool {
 public:
  GpuMemoryPool(GpuDevice& gpu, std::string device_name);

  /// For use in the order of `stream`, which is of this GPU.
  [[nodiscard]] void* allocate_on(CudaStream stream, std::size_t size_bytes);
  /// Given back when `stream` has come to this point: the one that it was allocated on, or one that waits for all that use the block.
  void deallocate_on(CudaStream stream, void* block, std::size_t size_bytes) noexcept;

  [[nodiscard]] void* allocate(std::size_t size_bytes) override;
  void deallocate(void* block, std::size_t size_bytes) noexcept override;
  [[nodiscard]] std::optional<SegmentLocation> locate(const void* pointer) const override;
  void move_segment(const void* pointer) override;
  [[nodiscard]] MemoryPoolStatistics statistics() const override;
  void reset_peak() override;
  void release_cached() override;

 private:
  void require_open() const;
  [[nodiscard]] CudaStatus try_allocate(void** block, CudaStream stream, std::size_t size_bytes);
  void note_free(CudaStream stream) noexcept;
  [[noreturn]] void throw_exhausted(std::size_t size_bytes, CudaStatus status) const;

  GpuDevice& gpu_;
  const std::string device_name_;
  // Counters that guard nothing: relaxed.
  std::atomic<std::size_t> bytes_in_use_{0};
  std::atomic<std::size_t> peak_bytes_in_use_{0};
  std::atomic<std::uint64_t> num_allocations_{0};
};

/// MemoryPool::of, for a GPU.
[[nodiscard]] GpuMemoryPool& gpu_memory_pool_of(const Device& gpu);

}  // namespace crossdevice::detail
