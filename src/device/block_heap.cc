// SPDX-License-Identifier: Apache-2.0
/// Cuts, bins, merges and finds blocks.
#include "device/detail/block_heap.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <utility>

#include "device/detail/poison.h"

namespace crossdevice::detail {
namespace {

constexpr std::size_t kSegmentGranularity = 4096;

std::size_t round_up(std::size_t size_bytes, std::size_t granularity) {
  return (size_bytes + granularity - 1) / granularity * granularity;
}

}  // namespace

BlockHeap::BlockHeap(BlockHeapOptions options) : options_(std::move(options)) {}

BlockHeap::~BlockHeap() {
  for (const auto& segment : segments_) {
    unpoison(segment->memory->begin(), segment->memory->size_bytes());
  }
}

std::size_t BlockHeap::block_bytes_for(std::size_t size_bytes) const {
  return round_up(std::max<std::size_t>(size_bytes, 1), options_.granularity_bytes);
}

BlockHeap::Allocation BlockHeap::allocate(std::size_t size_bytes) {
  const std::size_t rounded = block_bytes_for(size_bytes);
  Bin& bin = bins_[rounded];
  Block* block = bin.first;
  const bool was_cached = block != nullptr;
  ++bin.num_in_use;  // before anything else: a bin that is in use survives a flush
  if (was_cached) {
    bin.first = block->next_in_list;
    bytes_binned_ -= rounded;
  } else {
    block = take_uncached(rounded);
    if (block == nullptr) {
      --bin.num_in_use;
      return {};
    }
    block->bin = &bin;
  }
  block->state = BlockState::IN_USE;
  unpoison(block->begin, size_bytes);
  return {block->begin, rounded, was_cached};
}

BlockHeap::Block* BlockHeap::take_uncached(std::size_t size_bytes) {
  Block* block = take_free(size_bytes);
  if (block == nullptr && bytes_binned_ > 0) {
    flush_bins();
    block = take_free(size_bytes);
  }
  if (block == nullptr) block = take_fresh(size_bytes);
  if (block == nullptr && grow(size_bytes)) block = take_fresh(size_bytes);
  return block;
}

std::size_t BlockHeap::deallocate(void* data, std::size_t size_bytes) noexcept {
  const auto found = blocks_.find(data);
  if (found == blocks_.end() || found->second.state != BlockState::IN_USE) return 0;
  Block& block = found->second;
  if (block.size_bytes != block_bytes_for(size_bytes)) return 0;
  Bin& bin = *block.bin;
  poison(block.begin, block.size_bytes);
  if (Segment& segment = *block.segment; segment.is_retired) {
    const std::size_t freed_bytes = block.size_bytes;
    --bin.num_in_use;
    block.state = BlockState::RETIRED;
    if (--segment.num_in_use == 0) drop_retired(segment);
    return freed_bytes;
  }
  block.state = BlockState::BINNED;
  block.next_in_list = std::exchange(bin.first, &block);
  --bin.num_in_use;
  bytes_binned_ += block.size_bytes;
  return block.size_bytes;
}

void BlockHeap::flush_bins() {
  for (auto bin = bins_.begin(); bin != bins_.end();) {
    while (Block* block = bin->second.first) {
      bin->second.first = block->next_in_list;
      make_free(block);
    }
    bin = bin->second.num_in_use == 0 ? bins_.erase(bin) : std::next(bin);
  }
  bytes_binned_ = 0;
}

/// The smallest free block that suffices, cut to size.
BlockHeap::Block* BlockHeap::take_free(std::size_t size_bytes) {
  Block* best = nullptr;
  for (std::size_t i = free_list_of(size_bytes); i < free_lists_.size() && best == nullptr; ++i) {
    for (Block* block = free_lists_[i]; block != nullptr; block = block->next_in_list) {
      if (block->size_bytes < size_bytes) continue;
      if (best == nullptr || block->size_bytes < best->size_bytes) best = block;
    }
  }
  if (best == nullptr) return nullptr;
  if (best->size_bytes > size_bytes) {
    Block& rest = blocks_[best->begin + size_bytes];
    unlink_free(best);
    rest.begin = best->begin + size_bytes;
    rest.size_bytes = best->size_bytes - size_bytes;
    rest.segment = best->segment;
    rest.previous = best;
    rest.next = std::exchange(best->next, &rest);
    (rest.next != nullptr ? rest.next->previous : rest.segment->last) = &rest;
    best->size_bytes = size_bytes;
    link_free(&rest);
  } else {
    unlink_free(best);
  }
  return best;
}

/// A block that ends in memory never handed out before; a free block in front of that memory becomes part of it.
BlockHeap::Block* BlockHeap::take_fresh(std::size_t size_bytes) {
  for (const auto& owned : segments_) {
    Segment& segment = *owned;
    if (segment.is_retired) continue;
    Block* last = segment.last;
    const bool extend = last != nullptr && last->state == BlockState::FREE;
    std::byte* begin = extend ? last->begin : segment.fresh;
    if (static_cast<std::size_t>(segment.end() - begin) < size_bytes) continue;
    if (extend) {
      unlink_free(last);
      last->size_bytes = size_bytes;
    } else {
      Block& block = blocks_[begin];
      block.begin = begin;
      block.size_bytes = size_bytes;
      block.segment = &segment;
      block.previous = last;
      if (last != nullptr) last->next = &block;
      segment.last = &block;
    }
    segment.fresh = begin + size_bytes;
    commit(segment);
    return segment.last;
  }
  return nullptr;
}

/// Fetches the huge pages that are handed out as a whole by now.
void BlockHeap::commit(Segment& segment) const {
  constexpr std::size_t kHugePage = MemorySegment::kHugePageBytes;
  if (!options_.commit_in_huge_pages) return;
  const auto handed_out = static_cast<std::size_t>(segment.fresh - segment.memory->begin());
  std::byte* const end = segment.memory->begin() + handed_out / kHugePage * kHugePage;
  if (end <= segment.committed) return;
  // Where it fails the pages come when they are touched, and the next ones get their chance when they are cut.
  (void)segment.memory->commit_huge_pages(segment.committed,
                                          static_cast<std::size_t>(end - segment.committed));
  segment.committed = end;
}

/// Adds a segment with room for `size_bytes`; false when the system refuses.
bool BlockHeap::grow(std::size_t size_bytes) {
  const auto segment_bytes_for = [this](std::size_t block_bytes) {
    return round_up(options_.first_offset_bytes + block_bytes, kSegmentGranularity);
  };
  const std::size_t needed = segment_bytes_for(size_bytes);
  const std::size_t doubling = std::min(bytes_reserved_, options_.largest_growth_bytes);
  const std::size_t wished =
      segment_bytes_for(std::max({size_bytes, options_.first_segment_bytes, doubling}));
  auto segment = std::make_unique<Segment>();
  segments_.reserve(segments_.size() + 1);
  segment->memory = MemorySegment::map(wished, options_.name);
  if (segment->memory == nullptr && wished > needed) {
    segment->memory = MemorySegment::map(needed, options_.name);
  }
  if (segment->memory == nullptr) return false;
  segment->fresh = segment->memory->begin() + options_.first_offset_bytes;
  segment->committed = segment->memory->begin();
  bytes_reserved_ += segment->memory->size_bytes();
  segments_.push_back(std::move(segment));
  return true;
}

void BlockHeap::make_free(Block* block) {
  block->bin = nullptr;
  if (block->next != nullptr && block->next->state == BlockState::FREE) {
    unlink_free(block->next);
    absorb_next(block);
  }
  if (Block* previous = block->previous;
      previous != nullptr && previous->state == BlockState::FREE) {
    unlink_free(previous);
    absorb_next(previous);
    block = previous;
  }
  link_free(block);
}

void BlockHeap::absorb_next(Block* block) {
  Block* absorbed = block->next;
  block->size_bytes += absorbed->size_bytes;
  block->next = absorbed->next;
  (block->next != nullptr ? block->next->previous : block->segment->last) = block;
  blocks_.erase(absorbed->begin);
}

void BlockHeap::release_cached() {
  flush_bins();
  for (const auto& segment : segments_) retract(*segment);
  std::erase_if(segments_, [this](const std::unique_ptr<Segment>& segment) {
    if (segment->last != nullptr) return false;
    const MemorySegment& memory = *segment->memory;
    bytes_reserved_ -= memory.size_bytes();
    unpoison(memory.begin(), memory.size_bytes());
    return true;
  });
  for (Block* block : free_lists_) {
    for (; block != nullptr; block = block->next_in_list) {
      block->segment->memory->discard(block->begin, block->size_bytes);
    }
  }
}

/// Makes the free block at the end, if there is one, part of the fresh memory again.
void BlockHeap::retract(Segment& segment) {
  constexpr std::size_t kHugePage = MemorySegment::kHugePageBytes;
  Block* last = segment.last;
  if (last == nullptr || last->state != BlockState::FREE) return;
  unlink_free(last);
  segment.memory->discard(last->begin, last->size_bytes);
  segment.fresh = last->begin;
  segment.last = last->previous;
  if (segment.last != nullptr) segment.last->next = nullptr;
  blocks_.erase(last->begin);
  const auto kept = static_cast<std::size_t>(segment.fresh - segment.memory->begin());
  segment.committed =
      std::min(segment.committed, segment.memory->begin() + kept / kHugePage * kHugePage);
}

bool BlockHeap::withdraw(const void* pointer) {
  const auto found = std::find_if(segments_.begin(), segments_.end(), [&](const auto& segment) {
    return segment->memory->contains(pointer);
  });
  if (found == segments_.end()) return true;
  Segment& segment = **found;
  const Block* block = segment.last;
  while (block != nullptr && std::less<const void*>()(pointer, block->begin))
    block = block->previous;
  if (block == nullptr || block->state != BlockState::IN_USE) return true;
  const bool is_withdrawn = segment.memory->withdraw(block->begin, block->size_bytes);
  if (!segment.is_retired && segment.memory->fd() < 0) retire(segment);
  return is_withdrawn;
}

/// Takes everything that is not in use out of the lists.
void BlockHeap::retire(Segment& segment) {
  flush_bins();
  segment.is_retired = true;
  for (Block* block = segment.last; block != nullptr; block = block->previous) {
    if (block->state == BlockState::IN_USE) {
      ++segment.num_in_use;
    } else {
      unlink_free(block);
      block->state = BlockState::RETIRED;
    }
  }
}

void BlockHeap::drop_retired(const Segment& segment) {
  for (const Block* block = segment.last; block != nullptr;) {
    const Block* const previous = block->previous;
    blocks_.erase(block->begin);
    block = previous;
  }
  bytes_reserved_ -= segment.memory->size_bytes();
  unpoison(segment.memory->begin(), segment.memory->size_bytes());
  std::erase_if(segments_, [&](const auto& each) { return each.get() == &segment; });
}

MemorySegment* BlockHeap::find_segment(const void* pointer) const {
  for (const auto& segment : segments_) {
    if (segment->memory->contains(pointer)) return segment->memory.get();
  }
  return nullptr;
}

std::size_t BlockHeap::free_list_of(std::size_t size_bytes) {
  // The exponent and the three bits behind the leading one; sizes below 8 do not occur.
  const auto exponent = static_cast<std::size_t>(std::bit_width(size_bytes)) - 1;
  // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): so the shift is not negative
  return exponent * 8 + ((size_bytes >> (exponent - 3)) & 7U);
}

void BlockHeap::link_free(Block* block) {
  Block*& head = free_lists_[free_list_of(block->size_bytes)];
  block->state = BlockState::FREE;
  block->previous_in_list = nullptr;
  block->next_in_list = head;
  if (head != nullptr) head->previous_in_list = block;
  head = block;
}

void BlockHeap::unlink_free(Block* block) {
  if (block->previous_in_list != nullptr) {
    block->previous_in_list->next_in_list = block->next_in_list;
  } else {
    free_lists_[free_list_of(block->size_bytes)] = block->next_in_list;
  }
  if (block->next_in_list != nullptr)
    block->next_in_list->previous_in_list = block->previous_in_list;
  block->previous_in_list = nullptr;
  block->next_in_list = nullptr;
}

}  // namespace crossdevice::detail
