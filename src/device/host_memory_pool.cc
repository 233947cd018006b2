// SPDX-License-Identifier: Apache-2.0
/// Locking, statistics and errors of the host pools.
#include "device/detail/host_memory_pool.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kLargestRequest = std::numeric_limits<std::size_t>::max() / 4;

/// A reduction walks through the blocks of all devices in step. If they began at the same place of a page, their lines would
/// meet in the same sets of the caches: with 8 devices that costs a tenth of the speed in place and up to half of it out of
/// place. Twelve lines from device to device keep 16 of them apart and every block aligned to 256 bytes.
std::size_t first_offset_of(int device_index) {
  return static_cast<std::size_t>(device_index) % 16 * 768 % 4096;
}

BlockHeapOptions small_blocks(const std::string& device_name, int device_index) {
  return {.granularity_bytes = 64,
          .first_offset_bytes = first_offset_of(device_index),
          .first_segment_bytes = 4 * kMiB,
          .largest_growth_bytes = 256 * kMiB,
          .commit_in_huge_pages = false,
          .name = "crossdevice " + device_name + " small"};
}

BlockHeapOptions large_blocks(const std::string& device_name, int device_index) {
  return {.granularity_bytes = 4096,
          .first_offset_bytes = first_offset_of(device_index),
          .first_segment_bytes = 64 * kMiB,
          .largest_growth_bytes = 1024 * kMiB,
          .commit_in_huge_pages = true,
          .name = "crossdevice " + device_name};
}

}  // namespace

HostMemoryPool::HostMemoryPool(std::string device_name, int device_index)
    : device_name_(std::move(device_name)),
      small_(small_blocks(device_name_, device_index)),
      large_(large_blocks(device_name_, device_index)) {}

void* HostMemoryPool::allocate(std::size_t size_bytes) {
  require_not_forked();
  const std::lock_guard lock(mutex_);
  if (size_bytes > kLargestRequest) throw_exhausted(size_bytes);
  BlockHeap& heap = heap_of(size_bytes);
  BlockHeap::Allocation allocation = heap.allocate(size_bytes);
  if (allocation.data == nullptr) {
    small_.release_cached();
    large_.release_cached();
    allocation = heap.allocate(size_bytes);
    if (allocation.data == nullptr) throw_exhausted(size_bytes);
  }
  ++num_allocations_;
  num_cache_hits_ += allocation.was_cached ? 1U : 0U;
  bytes_in_use_ += allocation.size_bytes;
  peak_bytes_in_use_ = std::max(peak_bytes_in_use_, bytes_in_use_);
  return allocation.data;
}

void HostMemoryPool::deallocate(void* block, std::size_t size_bytes) noexcept {
  if (is_forked_child()) return;  // the block is the parent's, and so, perhaps forever, is the lock
  {
    const std::lock_guard lock(mutex_);
    const std::size_t freed_bytes = heap_of(size_bytes).deallocate(block, size_bytes);
    bytes_in_use_ -= freed_bytes;
    if (freed_bytes != 0) return;
  }
  // Outside of the lock: the program's log sink may use the pool.
  log(LogSeverity::FAILURE, "a memory pool was given back a block that it had not handed out");
}

std::optional<SegmentLocation> HostMemoryPool::locate(const void* pointer) const {
  require_not_forked();
  const std::lock_guard lock(mutex_);
  const MemorySegment* segment = find_segment(pointer);
  if (segment == nullptr) return std::nullopt;
  return SegmentLocation{.segment_fd = segment->fd(),
                         .segment_id = segment->id(),
                         .offset_bytes = static_cast<std::size_t>(
                             static_cast<const std::byte*>(pointer) - segment->begin()),
                         .segment_size_bytes = segment->size_bytes()};
}

const MemorySegment* HostMemoryPool::find_segment(const void* pointer) const {
  const MemorySegment* const segment = large_.find_segment(pointer);
  return segment != nullptr ? segment : small_.find_segment(pointer);
}

void HostMemoryPool::move_segment(const void* pointer) {
  require_not_forked();
  const std::lock_guard lock(mutex_);
  count_move();  // before it happens
  if (large_.withdraw(pointer) && small_.withdraw(pointer)) return;
  throw ResourceExhaustedError(device_name_ +
                               ": the system has no memory to move a block out of other "
                               "processes' reach");
}

MemoryPoolStatistics HostMemoryPool::statistics() const {
  require_not_forked();
  const std::lock_guard lock(mutex_);
  return {.bytes_in_use = bytes_in_use_,
          .peak_bytes_in_use = peak_bytes_in_use_,
          .bytes_reserved = small_.bytes_reserved() + large_.bytes_reserved(),
          .num_allocations = num_allocations_,
          .num_cache_hits = num_cache_hits_,
          .num_segments = small_.num_segments() + large_.num_segments()};
}

void HostMemoryPool::reset_peak() {
  require_not_forked();
  const std::lock_guard lock(mutex_);
  peak_bytes_in_use_ = bytes_in_use_;
}

void HostMemoryPool::release_cached() {
  require_not_forked();
  const std::lock_guard lock(mutex_);
  small_.release_cached();
  large_.release_cached();
}

void HostMemoryPool::throw_exhausted(std::size_t size_bytes) const {
  throw ResourceExhaustedError(fmt::format(
      "{}: the system has no memory for a block of {} bytes; {} bytes are in use, {} reserved",
      device_name_, size_bytes, bytes_in_use_, small_.bytes_reserved() + large_.bytes_reserved()));
}

}  // namespace crossdevice::detail
