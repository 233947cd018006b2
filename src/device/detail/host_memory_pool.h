// SPDX-License-Identifier: Apache-2.0
/// The pool of one logical host device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "crossdevice/device/memory_pool.h"

#include "device/detail/block_heap.h"

namespace crossdevice::detail {

/// Two heaps, so that small blocks do not cut up the large ones' pages.
class HostMemoryPool final : public MemoryPool {
 public:
  /// From this size on blocks are counted in pages.
  static constexpr std::size_t kLargeBlockBytes = std::size_t{64} << 10;

  /// `device_name` shows in error messages and in the names of the segments. `device_index` picks where blocks begin relative
  /// to a page.
  HostMemoryPool(std::string device_name, int device_index);

  [[nodiscard]] void* allocate(std::size_t size_bytes) override;
  void deallocate(void* block, std::size_t size_bytes) noexcept override;
  [[nodiscard]] std::optional<SegmentLocation> locate(const void* pointer) const override;
  void move_segment(const void* pointer) override;
  [[nodiscard]] MemoryPoolStatistics statistics() const override;
  void reset_peak() override;
  void release_cached() override;

 private:
  [[nodiscard]] BlockHeap& heap_of(std::size_t size_bytes) {
    return size_bytes < kLargeBlockBytes ? small_ : large_;
  }
  [[nodiscard]] const MemorySegment* find_segment(const void* pointer) const;
  [[noreturn]] void throw_exhausted(std::size_t size_bytes) const;

  const std::string device_name_;
  mutable std::mutex mutex_;  // guards everything below
  BlockHeap small_;
  BlockHeap large_;
  std::size_t bytes_in_use_ = 0;
  std::size_t peak_bytes_in_use_ = 0;
  std::uint64_t num_allocations_ = 0;
  std::uint64_t num_cache_hits_ = 0;
};

}  // namespace crossdevice::detail
