// SPDX-License-Identifier: Apache-2.0
/// The caching memory pool of a device. On hosts its segments are memfd arenas, so that they can be shared with other
/// processes later; this floor only says where a pointer lies in them. On GPUs it is CUDA's stream-ordered allocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "crossdevice/core/export.h"
#include "crossdevice/device/device.h"

namespace crossdevice {

/// Bytes and counts since the process began; `peak_bytes_in_use` since the last reset_peak().
struct MemoryPoolStatistics {
  /// Handed out and not given back, rounded up to blocks (on GPUs: to 256 bytes).
  std::size_t bytes_in_use = 0;
  std::size_t peak_bytes_in_use = 0;
  /// Address space in segments: in use, cached, and not touched yet. On GPUs: what CUDA holds for all logical devices of the GPU.
  std::size_t bytes_reserved = 0;
  /// Calls of allocate() that succeeded.
  std::uint64_t num_allocations = 0;
  /// Of those, the ones that took a cached block of the same size; 0 on GPUs, where CUDA does not say.
  std::uint64_t num_cache_hits = 0;
  /// 0 on GPUs.
  std::size_t num_segments = 0;
};

/// Where a pointer lies: which segment, how far in.
struct SegmentLocation {
  /// The segment's memfd, owned by the pool; -1 where the system gave none.
  int segment_fd = -1;
  /// Never reused.
  std::uint64_t segment_id = 0;
  std::size_t offset_bytes = 0;
  std::size_t segment_size_bytes = 0;
};

/// Order    a host block may be reused as soon as it is given back. A GPU's allocate() and deallocate() happen in the order of the library's stream
///          there: the block may be used by what that stream is given between the two, and by what is ordered with it.
/// Memory   blocks are aligned to 64 bytes, from 64 KiB on to 256. Equal blocks of different host devices begin at different
///          places of a page, so that reducing over them does not wear out a few cache sets. Given-back blocks keep their
///          pages: in steady state allocate() touches no system memory, makes no system call and calls no malloc. A block that
///          was never handed out before may get its pages from allocate() already: in huge pages, where the system has them and
///          one memory node, that costs a tenth of touching it. Host logical devices have pools (and statistics) of their own.
///          In a child of fork() the blocks are not mapped: touching one ends the child instead of changing its parent's data.
///          GPU blocks are aligned to 256 bytes and come from one CUDA pool for each GPU, which keeps what is given back; logical
///          devices have statistics of their own. After shutdown() blocks stay where they are until the process ends.
/// Errors   ResourceExhaustedError: the system has no more memory; says how much was asked for and is in use.
///          FailedPreconditionError: in a child of fork(), and on GPUs after shutdown(); deallocate() does nothing there.
/// Threads  any.
class CROSSDEVICE_EXPORT MemoryPool {
 public:
  /// The pool of a device; made on first use, never destroyed.
  ///
  /// Errors   ValueError: the device is not present.
  ///          FailedPreconditionError: the first use, in a child of fork().
  [[nodiscard]] static MemoryPool& of(const Device& device);

  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  virtual ~MemoryPool() = default;

  /// At least `size_bytes` uninitialised bytes; a distinct block also for 0.
  [[nodiscard]] virtual void* allocate(std::size_t size_bytes) = 0;
  /// Gives back what allocate(size_bytes) returned. Anything else is left alone and logged.
  virtual void deallocate(void* block, std::size_t size_bytes) noexcept = 0;
  /// Where `pointer` lies, or nothing if it is not this pool's, and on GPUs.
  [[nodiscard]] virtual std::optional<SegmentLocation> locate(const void* pointer) const = 0;
  /// Puts the block that `pointer` lies in into memory of this process alone, at the same address: whatever other processes write to their mapping of
  /// it is not seen here any more. Threads of this process may read and write meanwhile, that block and all others. Its segment gets a new id and
  /// has no descriptor from then on, so its blocks cannot be shared again; nothing more is handed out of it. Nothing on GPUs.
  ///
  /// Errors   ResourceExhaustedError: the system has no memory for it; what the block holds is as it was, but others may still write to it.
  /// Cost     a copy of the block.
  virtual void move_segment(const void* pointer) = 0;
  /// Calls of move_segment() that have begun in this process, of all pools. While it has not changed since a block was located, what others write there
  /// is seen here, and they see what is written here.
  [[nodiscard]] static std::uint64_t num_moves();
  [[nodiscard]] virtual MemoryPoolStatistics statistics() const = 0;
  virtual void reset_peak() = 0;
  /// Returns segments without a block in use to the system, and the pages of cached blocks in the others. On GPUs: what CUDA's pool caches.
  virtual void release_cached() = 0;

 protected:
  MemoryPool() = default;
  /// For move_segment(), before it moves anything.
  static void count_move();
};

}  // namespace crossdevice
