// SPDX-License-Identifier: Apache-2.0
/// Cuts segments into blocks and keeps those that come back: the bookkeeping of a host pool, without locks.
///
/// A block is in one of four states:
///   IN_USE   handed out
///   BINNED   given back and kept as it is, in the bin of its exact size: the fast path, a list operation
///   FREE     given back and merged with free neighbours; best fit, split to size
///   RETIRED  given back, in a segment that was withdrawn; never handed out again
/// The end of each segment, [fresh, end), belongs to no block: its pages are not there yet, so it is cut last. Bookkeeping lies outside of the blocks, which other processes may write to.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/detail/memory_segment.h"

namespace crossdevice::detail {

struct BlockHeapOptions {
  /// Sizes and distances of blocks are multiples of it; a power of two.
  std::size_t granularity_bytes = 64;
  /// Where the first block of a segment begins; less than a page.
  std::size_t first_offset_bytes = 0;
  /// Room for blocks in the first segment, a multiple of the page size. Each new segment doubles what there is ...
  std::size_t first_segment_bytes = 0;
  /// ... up to this much at once; larger blocks still get a segment of their size.
  std::size_t largest_growth_bytes = 0;
  /// Fetch pages when a block is cut, not when it is touched.
  bool commit_in_huge_pages = false;
  /// Of the segments.
  std::string name = "crossdevice";
};

/// Threads  one at a time.
class BlockHeap {
 public:
  explicit BlockHeap(BlockHeapOptions options);
  ~BlockHeap();
  BlockHeap(const BlockHeap&) = delete;
  BlockHeap& operator=(const BlockHeap&) = delete;

  struct Allocation {
    void* data = nullptr;        ///< null: the system has no more memory
    std::size_t size_bytes = 0;  ///< of the block: the request, rounded up
    bool was_cached = false;     ///< came from the bin of its size
  };
  /// 0 bytes get a block too. `size_bytes` is at most half the address space.
  [[nodiscard]] Allocation allocate(std::size_t size_bytes);
  /// Takes back what allocate(size_bytes) returned: the size of that block. 0 if no block in use begins at `data`, or one of
  /// another size does, and nothing happened.
  [[nodiscard]] std::size_t deallocate(void* data, std::size_t size_bytes) noexcept;

  /// Takes the block that `pointer` lies in out of other processes' reach, whatever threads of this one write meanwhile; nothing if it lies in none. The
  /// rest of its segment cannot be shared any more, so nothing more is handed out of it, and it is unmapped with its last block in use. False:
  /// see MemorySegment::withdraw.
  [[nodiscard]] bool withdraw(const void* pointer);

  /// Unmaps segments without a block in use, and discards the pages of free blocks in the others.
  void release_cached();

  [[nodiscard]] MemorySegment* find_segment(const void* pointer) const;
  [[nodiscard]] std::size_t bytes_reserved() const { return bytes_reserved_; }
  [[nodiscard]] std::size_t num_segments() const { return segments_.size(); }

 private:
  enum class BlockState : unsigned char { IN_USE, BINNED, FREE, RETIRED };
  struct Block;

  struct Bin {
    // Through Block::next_in_list, last in first out: the likeliest to be in a cache.
    Block* first = nullptr;
    std::size_t num_in_use = 0;  // blocks handed out that will come back to this bin
  };
  struct Segment {
    std::unique_ptr<MemorySegment> memory;
    std::byte* fresh = nullptr;      // nothing from here on is handed out
    std::byte* committed = nullptr;  // up to here pages were fetched; a multiple of the huge page
    Block* last = nullptr;           // the block that ends at `fresh`
    bool is_retired = false;
    std::size_t num_in_use = 0;  // blocks, once it is retired
    [[nodiscard]] std::byte* end() const { return memory->begin() + memory->size_bytes(); }
  };
  struct Block {
    std::byte* begin = nullptr;
    std::size_t size_bytes = 0;
    Segment* segment = nullptr;
    Block* previous = nullptr;  // neighbours in the segment
    Block* next = nullptr;
    Block* previous_in_list = nullptr;  // of the free list
    Block* next_in_list = nullptr;      // of the bin or the free list
    Bin* bin = nullptr;                 // while IN_USE or BINNED
    BlockState state = BlockState::IN_USE;
  };

  [[nodiscard]] std::size_t block_bytes_for(std::size_t size_bytes) const;
  [[nodiscard]] Block* take_uncached(std::size_t size_bytes);
  [[nodiscard]] Block* take_free(std::size_t size_bytes);
  [[nodiscard]] Block* take_fresh(std::size_t size_bytes);
  [[nodiscard]] bool grow(std::size_t size_bytes);
  void commit(Segment& segment) const;
  void retract(Segment& segment);
  void retire(Segment& segment);
  void drop_retired(const Segment& segment);
  void flush_bins();
  void make_free(Block* block);
  void absorb_next(Block* block);
  void link_free(Block* block);
  void unlink_free(Block* block);
  [[nodiscard]] static std::size_t free_list_of(std::size_t size_bytes);

  BlockHeapOptions options_;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::unordered_map<const void*, Block> blocks_;         // all of them, by their begin
  std::unordered_map<std::size_t, Bin> bins_;             // by size
  std::array<Block*, std::size_t{8} * 64> free_lists_{};  // eight per power of two
  std::size_t bytes_reserved_ = 0;
  std::size_t bytes_binned_ = 0;
};

}  // namespace crossdevice::detail
