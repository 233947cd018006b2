// SPDX-License-Identifier: Apache-2.0
/// Blocks never overlap, come back from their bin, merge when free, and are cut where they fit best.
#include "device/detail/block_heap.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace crossdevice::detail {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMiB = std::size_t{1} << 20;

BlockHeapOptions options_with(std::size_t granularity_bytes, std::size_t first_segment_bytes) {
  return {.granularity_bytes = granularity_bytes,
          .first_offset_bytes = 0,
          .first_segment_bytes = first_segment_bytes,
          .largest_growth_bytes = 4 * first_segment_bytes,
          .commit_in_huge_pages = false,
          .name = "block_heap_test"};
}

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

TEST(BlockHeapTest, SizesAreRoundedUpToTheGranularity) {
  BlockHeap heap(options_with(64, kMiB));
  for (const std::size_t size_bytes : {0U, 1U, 63U, 64U, 65U, 127U, 128U, 1000U}) {
    const BlockHeap::Allocation block = heap.allocate(size_bytes);
    ASSERT_NE(block.data, nullptr);
    const std::size_t expected = std::max<std::size_t>(64, (size_bytes + 63) / 64 * 64);
    EXPECT_EQ(block.size_bytes, expected);
    EXPECT_EQ(address_of(block.data) % 64, 0U);
    EXPECT_EQ(heap.deallocate(block.data, size_bytes), expected);
  }
}

TEST(BlockHeapTest, ABlockComesBackForTheSameSizeOnly) {
  BlockHeap heap(options_with(kPage, kMiB));
  const BlockHeap::Allocation first = heap.allocate(3 * kPage);
  EXPECT_FALSE(first.was_cached);
  ASSERT_EQ(heap.deallocate(first.data, 3 * kPage), 3 * kPage);

  const BlockHeap::Allocation other = heap.allocate(5 * kPage);
  EXPECT_FALSE(other.was_cached);
  // The request found nothing but the bin's block in front of the fresh pages, and grew it.
  EXPECT_EQ(other.data, first.data);
  ASSERT_EQ(heap.deallocate(other.data, 5 * kPage), 5 * kPage);

  const BlockHeap::Allocation again = heap.allocate(5 * kPage - 1);
  EXPECT_TRUE(again.was_cached);
  EXPECT_EQ(again.data, other.data);
}

TEST(BlockHeapTest, TheLastBlockGivenBackIsTheFirstToGo) {
  BlockHeap heap(options_with(64, kMiB));
  void* a = heap.allocate(64).data;
  void* b = heap.allocate(64).data;
  ASSERT_NE(heap.deallocate(a, 64), 0U);
  ASSERT_NE(heap.deallocate(b, 64), 0U);
  EXPECT_EQ(heap.allocate(64).data, b);
  EXPECT_EQ(heap.allocate(64).data, a);
}

TEST(BlockHeapTest, TheSmallestFreeBlockThatSufficesIsCut) {
  BlockHeap heap(options_with(kPage, kMiB));
  std::map<std::size_t, void*> blocks;  // by pages; held blocks between them keep them apart
  for (const std::size_t pages : {9U, 20U, 6U, 33U, 7U}) {
    blocks[pages] = heap.allocate(pages * kPage).data;
    ASSERT_NE(heap.allocate(kPage).data, nullptr);
  }
  const std::size_t fresh_pages = kMiB / kPage - (9 + 20 + 6 + 33 + 7 + 5);
  for (const auto& [pages, data] : blocks)
    ASSERT_EQ(heap.deallocate(data, pages * kPage), pages * kPage);
  // A size that no bin has and that the fresh pages cannot serve either flushes the bins.
  ASSERT_NE(heap.allocate((fresh_pages + 1) * kPage).data, nullptr);
  EXPECT_EQ(heap.num_segments(), 2U);

  EXPECT_EQ(heap.allocate(8 * kPage).data, blocks[9]);
  EXPECT_EQ(heap.allocate(7 * kPage).data, blocks[7]);
  EXPECT_EQ(heap.allocate(10 * kPage).data, blocks[20]);
  EXPECT_EQ(address_of(heap.allocate(10 * kPage).data), address_of(blocks[20]) + 10 * kPage);
  EXPECT_EQ(heap.allocate(34 * kPage - kPage).data, blocks[33]);
  EXPECT_EQ(heap.allocate(kPage).data, static_cast<std::byte*>(blocks[9]) + 8 * kPage);
}

TEST(BlockHeapTest, FreshPagesAreCutLast) {
  BlockHeap heap(options_with(kPage, kMiB));
  void* block = heap.allocate(10 * kPage).data;
  ASSERT_NE(heap.allocate(kPage).data, nullptr);
  ASSERT_NE(heap.deallocate(block, 10 * kPage), 0U);
  EXPECT_EQ(heap.allocate(4 * kPage).data, block);
  EXPECT_EQ(heap.allocate(6 * kPage).data, static_cast<std::byte*>(block) + 4 * kPage);
}

TEST(BlockHeapTest, WhateverWasCutMergesIntoOneBlockOfTheWholeSegment) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    BlockHeap heap(options_with(kPage, kMiB));
    std::vector<BlockHeap::Allocation> blocks;
    std::size_t taken = 0;
    for (;;) {
      const std::size_t pages = random() % 12 + 1;
      if (taken + pages * kPage > kMiB) break;
      const BlockHeap::Allocation block = heap.allocate(pages * kPage);
      ASSERT_NE(block.data, nullptr);
      blocks.push_back(block);
      taken += block.size_bytes;
    }
    ASSERT_EQ(heap.num_segments(), 1U);
    std::ranges::shuffle(blocks, random);
    for (const auto& block : blocks) {
      ASSERT_EQ(heap.deallocate(block.data, block.size_bytes), block.size_bytes);
    }

    const BlockHeap::Allocation whole = heap.allocate(kMiB);
    ASSERT_NE(whole.data, nullptr);
    EXPECT_EQ(heap.num_segments(), 1U) << "seed " << seed;
    std::memset(whole.data, 0x5a, kMiB);
    ASSERT_NE(heap.deallocate(whole.data, kMiB), 0U);
  }
}

TEST(BlockHeapTest, AnOffsetShiftsEveryBlockAndTakesNothingFromTheSegment) {
  BlockHeapOptions options = options_with(kPage, kMiB);
  options.first_offset_bytes = 768;
  BlockHeap heap(options);
  void* whole = heap.allocate(kMiB).data;
  EXPECT_EQ(address_of(whole) % kPage, 768U);
  EXPECT_EQ(heap.bytes_reserved(), kMiB + kPage);
  std::memset(whole, 1, kMiB);
  ASSERT_NE(heap.deallocate(whole, kMiB), 0U);
  for (std::size_t i = 0; i < kMiB / kPage; ++i) {
    EXPECT_EQ(address_of(heap.allocate(kPage).data) % kPage, 768U);
  }
  EXPECT_EQ(heap.num_segments(), 1U);
  EXPECT_EQ(address_of(heap.allocate(9 * kMiB).data) % kPage, 768U);
  EXPECT_EQ(heap.num_segments(), 2U);
}

TEST(BlockHeapTest, ANewSegmentDoublesWhatThereIsUpToTheLimit) {
  BlockHeap heap(options_with(kPage, kMiB));
  std::vector<std::size_t> reserved;
  for (int i = 0; i < 24; ++i) {
    ASSERT_NE(heap.allocate(kMiB).data, nullptr);
    if (reserved.empty() || reserved.back() != heap.bytes_reserved()) {
      reserved.push_back(heap.bytes_reserved());
    }
  }
  const std::vector<std::size_t> expected{kMiB,      2 * kMiB,  4 * kMiB,  8 * kMiB,
                                          12 * kMiB, 16 * kMiB, 20 * kMiB, 24 * kMiB};
  EXPECT_EQ(reserved, expected);
  EXPECT_EQ(heap.num_segments(), expected.size());
  ASSERT_NE(heap.allocate(100 * kMiB + 1).data, nullptr);
  EXPECT_EQ(heap.bytes_reserved(), 124 * kMiB + kPage);
}

TEST(BlockHeapTest, UnknownAndRepeatedPointersAreRefusedAndChangeNothing) {
  BlockHeap heap(options_with(64, kMiB));
  int outside = 0;
  EXPECT_EQ(heap.deallocate(nullptr, 64), 0U);
  EXPECT_EQ(heap.deallocate(&outside, sizeof outside), 0U);
  void* block = heap.allocate(256).data;
  EXPECT_EQ(heap.deallocate(static_cast<std::byte*>(block) + 64, 256), 0U);
  EXPECT_EQ(heap.deallocate(block, 192), 0U);
  EXPECT_EQ(heap.deallocate(block, 257), 0U);
  EXPECT_EQ(heap.deallocate(block, 256), 256U);
  EXPECT_EQ(heap.deallocate(block, 256), 0U);
  EXPECT_EQ(heap.allocate(256).data, block);
  EXPECT_NE(heap.allocate(256).data, block);
}

TEST(BlockHeapTest, ReleaseUnmapsUnusedSegmentsAndClearsFreePages) {
  BlockHeap heap(options_with(kPage, kMiB));
  void* held = heap.allocate(4 * kPage).data;
  void* freed = heap.allocate(4 * kPage).data;
  void* large = heap.allocate(8 * kMiB).data;
  std::memset(held, 1, 4 * kPage);
  std::memset(freed, 2, 4 * kPage);
  ASSERT_EQ(heap.num_segments(), 2U);
  ASSERT_NE(heap.deallocate(freed, 4 * kPage), 0U);
  ASSERT_NE(heap.deallocate(large, 8 * kMiB), 0U);

  heap.release_cached();

  EXPECT_EQ(heap.num_segments(), 1U);
  EXPECT_EQ(heap.bytes_reserved(), kMiB);
  EXPECT_EQ(heap.find_segment(large), nullptr);
  for (std::size_t i = 0; i < 4 * kPage; ++i) {
    ASSERT_EQ(static_cast<unsigned char*>(held)[i], 1) << "at " << i;
  }
  const auto* again = static_cast<unsigned char*>(heap.allocate(4 * kPage).data);
  ASSERT_EQ(again, freed);
  for (std::size_t i = 0; i < 4 * kPage; ++i) ASSERT_EQ(again[i], 0) << "at " << i;

  ASSERT_NE(heap.deallocate(held, 4 * kPage), 0U);
  ASSERT_NE(heap.deallocate(freed, 4 * kPage), 0U);
  heap.release_cached();
  EXPECT_EQ(heap.num_segments(), 0U);
  EXPECT_EQ(heap.bytes_reserved(), 0U);
  EXPECT_NE(heap.allocate(1).data, nullptr);
}

TEST(BlockHeapTest, NoMemoryIsAnAnswerAndLeavesTheHeapUsable) {
  BlockHeap heap(options_with(kPage, kMiB));
  const std::size_t far_too_much = std::numeric_limits<std::size_t>::max() / 4;
  EXPECT_EQ(heap.allocate(far_too_much).data, nullptr);
  EXPECT_EQ(heap.num_segments(), 0U);
  void* block = heap.allocate(kPage).data;
  ASSERT_NE(block, nullptr);
  ASSERT_NE(heap.deallocate(block, kPage), 0U);
  EXPECT_EQ(heap.allocate(far_too_much).data, nullptr);
  EXPECT_EQ(heap.allocate(kMiB).data, block);
  EXPECT_EQ(heap.num_segments(), 1U);
}

/// A random sequence against the plainest model there is: a map of the blocks in use.
TEST(BlockHeapTest, BlocksInUseNeverOverlapAndKeepTheirContents) {
  for (const std::size_t granularity_bytes : {std::size_t{64}, kPage}) {
    std::mt19937_64 random(granularity_bytes);
    BlockHeapOptions options = options_with(granularity_bytes, kMiB / 4);
    options.first_offset_bytes = granularity_bytes == kPage ? 1536 : 0;
    options.commit_in_huge_pages = granularity_bytes == kPage;
    BlockHeap heap(options);
    struct Held {
      std::size_t size_bytes;
      unsigned char pattern;
    };
    std::map<std::byte*, Held> model;
    for (int step = 0; step < 20000; ++step) {
      if (model.size() < 200 && random() % 2 == 0) {
        const std::size_t size_bytes = random() % (granularity_bytes * 20);
        const BlockHeap::Allocation block = heap.allocate(size_bytes);
        auto* data = static_cast<std::byte*>(block.data);
        ASSERT_NE(data, nullptr);
        ASSERT_EQ(address_of(data) % granularity_bytes, options.first_offset_bytes);
        const auto above = model.lower_bound(data);
        if (above != model.end()) {
          ASSERT_LE(data + block.size_bytes, above->first);
        }
        if (above != model.begin()) {
          const auto& below = *std::prev(above);
          ASSERT_LE(below.first + std::max(below.second.size_bytes, std::size_t{1}), data);
        }
        const MemorySegment* segment = heap.find_segment(data);
        ASSERT_NE(segment, nullptr);
        ASSERT_LE(data + block.size_bytes, segment->begin() + segment->size_bytes());
        const auto pattern = static_cast<unsigned char>(random());
        std::memset(data, pattern, size_bytes);
        model[data] = {size_bytes, pattern};
      } else if (!model.empty()) {
        auto victim = model.begin();
        std::advance(victim, static_cast<std::ptrdiff_t>(random() % model.size()));
        for (std::size_t i = 0; i < victim->second.size_bytes; ++i) {
          ASSERT_EQ(static_cast<unsigned char>(victim->first[i]), victim->second.pattern);
        }
        ASSERT_NE(heap.deallocate(victim->first, victim->second.size_bytes), 0U);
        model.erase(victim);
      }
      if (step % 5000 == 4999) heap.release_cached();
    }
    for (const auto& [data, held] : model) ASSERT_NE(heap.deallocate(data, held.size_bytes), 0U);
    heap.release_cached();
    EXPECT_EQ(heap.num_segments(), 0U) << "something did not merge";
  }
}

/// Lowers a limit of the process for one scope.
class LoweredLimit {
 public:
  LoweredLimit(int resource, rlim_t limit) : resource_(resource) {
    getrlimit(static_cast<__rlimit_resource>(resource_), &before_);
    rlimit lowered = before_;
    lowered.rlim_cur = limit;
    setrlimit(static_cast<__rlimit_resource>(resource_), &lowered);
  }
  ~LoweredLimit() { setrlimit(static_cast<__rlimit_resource>(resource_), &before_); }
  LoweredLimit(const LoweredLimit&) = delete;
  LoweredLimit& operator=(const LoweredLimit&) = delete;

 private:
  int resource_;
  rlimit before_{};
};

void expect_anonymous_memory_that_works() {
  BlockHeap heap(options_with(kPage, kMiB));
  void* block = heap.allocate(2 * kPage).data;
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(heap.find_segment(block)->fd(), -1);
  std::memset(block, 7, 2 * kPage);
  ASSERT_NE(heap.allocate(kPage).data, nullptr);  // keeps the segment
  ASSERT_NE(heap.deallocate(block, 2 * kPage), 0U);
  heap.release_cached();
  const auto* again = static_cast<unsigned char*>(heap.allocate(2 * kPage).data);
  ASSERT_EQ(again, block);
  for (std::size_t i = 0; i < 2 * kPage; ++i) ASSERT_EQ(again[i], 0);
}

TEST(BlockHeapTest, WithoutDescriptorsTheMemoryIsAnonymous) {
  const LoweredLimit no_descriptors(RLIMIT_NOFILE, 0);
  expect_anonymous_memory_that_works();
}

TEST(BlockHeapTest, ALimitOnFileSizesRaisesNoSignalTheMemoryIsAnonymous) {
  const LoweredLimit small_files(RLIMIT_FSIZE, kMiB - 1);
  expect_anonymous_memory_that_works();
}

}  // namespace
}  // namespace crossdevice::detail
