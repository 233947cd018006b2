// SPDX-License-Identifier: Apache-2.0
/// Pools hand out distinct, aligned memory without asking the system twice,
/// count exactly, and survive threads and forks.
#include "crossdevice/device/memory_pool.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/memory_file.h"

#include "device/detail/host_memory_pool.h"
#include "device/detail/memory_segment.h"
#include "device/detail/poison.h"
#include "support/allocation_counter.h"

namespace crossdevice {
namespace {

using detail::HostMemoryPool;

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

std::size_t block_size_of(std::size_t size_bytes) {
  const std::size_t unit = size_bytes < 64 * kKiB ? 64 : 4096;
  return std::max<std::size_t>(1, (size_bytes + unit - 1) / unit) * unit;
}

TEST(MemoryPoolTest, BlocksAreAlignedToCacheLinesAndLargeOnesTo256Bytes) {
  for (int index = 0; index < 40; ++index) {
    HostMemoryPool pool("test", index);
    for (const std::size_t size_bytes : {std::size_t{1}, std::size_t{63}, std::size_t{65},
                                         64 * kKiB - 1, 64 * kKiB, 64 * kKiB + 1, kMiB + 3}) {
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(address_of(pool.allocate(size_bytes)) % (size_bytes < 64 * kKiB ? 64 : 256), 0U)
            << size_bytes;
      }
    }
  }
}

TEST(MemoryPoolTest, EqualBlocksOf16DevicesBeginAtDifferentPlacesOfAPage) {
  for (const std::size_t size_bytes : {4 * kKiB, kMiB}) {
    std::set<std::uintptr_t> places;
    for (int index = 0; index < 16; ++index) {
      HostMemoryPool pool("test", index);
      const std::uintptr_t first = address_of(pool.allocate(size_bytes)) % 4096;
      EXPECT_EQ(address_of(pool.allocate(size_bytes)) % 4096, first);
      places.insert(first);
    }
    EXPECT_EQ(places.size(), 16U);
  }
}

/// The size of the memory behind `address` that the system has put into huge pages.
std::size_t huge_page_bytes_at(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(maps, line)) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::size_t kibibytes = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      inside = address_of(address) >= begin && address_of(address) < end;
    } else if (inside && std::sscanf(line.c_str(), "ShmemPmdMapped: %zu kB", &kibibytes) == 1) {
      return kibibytes * kKiB;
    }
  }
  return 0;
}

TEST(MemoryPoolTest, LargeBlocksLieInHugePagesWhereTheSystemHasThem) {
  const auto probe = detail::MemorySegment::map(2 * kMiB, "probe");
  ASSERT_NE(probe, nullptr);
  if (!probe->commit_huge_pages(probe->begin(), 2 * kMiB)) {
    GTEST_SKIP() << "this system gives no huge pages to a memfd, or has several memory nodes";
  }
  HostMemoryPool pool("test", 3);
  // Blocks that share huge pages keep what they hold when the next one completes the page.
  constexpr std::size_t kBlockBytes = 300 * kKiB;
  std::vector<unsigned char*> blocks;
  for (std::size_t k = 0; k < 40; ++k) {
    blocks.push_back(static_cast<unsigned char*>(pool.allocate(kBlockBytes)));
    std::memset(blocks.back(), static_cast<int>(k + 1), kBlockBytes);
  }
  const std::size_t whole_pages = 40 * kBlockBytes / (2 * kMiB) * (2 * kMiB);
  EXPECT_EQ(huge_page_bytes_at(blocks[0]), whole_pages);
  for (std::size_t k = 0; k < 40; ++k) {
    for (std::size_t i = 0; i < kBlockBytes; ++i) ASSERT_EQ(blocks[k][i], k + 1) << "at " << i;
  }
  // What was given back to the system comes again in huge pages.
  for (std::size_t k = 20; k < 40; ++k) pool.deallocate(blocks[k], kBlockBytes);
  pool.release_cached();
  EXPECT_LE(huge_page_bytes_at(blocks[0]), 20 * kBlockBytes);
  (void)pool.allocate(20 * kBlockBytes);
  EXPECT_EQ(huge_page_bytes_at(blocks[0]), whole_pages);
  for (std::size_t k = 0; k < 20; ++k) {
    for (std::size_t i = 0; i < kBlockBytes; ++i) ASSERT_EQ(blocks[k][i], k + 1) << "at " << i;
  }
}

TEST(MemoryPoolTest, EveryAllocationIsDistinctAlsoOfNothing) {
  HostMemoryPool pool("test", 0);
  std::set<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.insert(pool.allocate(0));
  EXPECT_EQ(blocks.size(), 100U);
  EXPECT_EQ(blocks.count(nullptr), 0U);
}

TEST(MemoryPoolTest, StatisticsAreExact) {
  HostMemoryPool pool("test", 0);
  MemoryPoolStatistics expected = pool.statistics();
  EXPECT_EQ(expected.bytes_in_use, 0U);
  EXPECT_EQ(expected.peak_bytes_in_use, 0U);
  EXPECT_EQ(expected.bytes_reserved, 0U);
  EXPECT_EQ(expected.num_allocations, 0U);
  EXPECT_EQ(expected.num_cache_hits, 0U);
  EXPECT_EQ(expected.num_segments, 0U);

  const std::vector<std::size_t> sizes{
      0, 1, 64, 65, 1000, 64 * kKiB - 1, 64 * kKiB, 100 * kKiB + 1, 3 * kMiB};
  std::vector<void*> blocks;
  std::size_t in_use = 0;
  for (const std::size_t size_bytes : sizes) {
    blocks.push_back(pool.allocate(size_bytes));
    in_use += block_size_of(size_bytes);
    EXPECT_EQ(pool.statistics().bytes_in_use, in_use);
    EXPECT_EQ(pool.statistics().peak_bytes_in_use, in_use);
  }
  EXPECT_EQ(pool.statistics().num_allocations, sizes.size());
  EXPECT_EQ(pool.statistics().num_cache_hits, 0U);
  EXPECT_EQ(pool.statistics().num_segments, 2U);
  EXPECT_EQ(pool.statistics().bytes_reserved, 68 * kMiB);
  const std::size_t peak = in_use;

  for (std::size_t i = 0; i < sizes.size(); ++i) {
    pool.deallocate(blocks[i], sizes[i]);
    in_use -= block_size_of(sizes[i]);
    EXPECT_EQ(pool.statistics().bytes_in_use, in_use);
  }
  EXPECT_EQ(in_use, 0U);
  EXPECT_EQ(pool.statistics().peak_bytes_in_use, peak);
  EXPECT_EQ(pool.statistics().bytes_reserved, 68 * kMiB);

  void* again = pool.allocate(3 * kMiB);
  EXPECT_EQ(again, blocks.back());
  EXPECT_EQ(pool.statistics().num_cache_hits, 1U);
  EXPECT_EQ(pool.statistics().num_allocations, sizes.size() + 1);
  EXPECT_EQ(pool.statistics().peak_bytes_in_use, peak);
  pool.reset_peak();
  EXPECT_EQ(pool.statistics().peak_bytes_in_use, 3 * kMiB);
  pool.deallocate(again, 3 * kMiB);
  EXPECT_EQ(pool.statistics().peak_bytes_in_use, 3 * kMiB);
  pool.reset_peak();
  EXPECT_EQ(pool.statistics().peak_bytes_in_use, 0U);
  pool.release_cached();
  EXPECT_EQ(pool.statistics().bytes_reserved, 0U);
  EXPECT_EQ(pool.statistics().num_segments, 0U);
}

TEST(MemoryPoolTest, EveryDeviceHasItsOwnPool) {
  MemoryPool& pool = MemoryPool::of("CPU:0");
  EXPECT_EQ(&pool, &MemoryPool::of("/device:CPU:0"));
  std::set<MemoryPool*> pools;
  for (int i = 0; i < 8; ++i) pools.insert(&MemoryPool::of("CPU:" + std::to_string(i)));
  pools.insert(&MemoryPool::of("/job:worker/task:1/CPU:0"));
  EXPECT_EQ(pools.size(), 9U);

  const MemoryPoolStatistics before = MemoryPool::of("CPU:1").statistics();
  void* block = pool.allocate(kMiB);
  EXPECT_TRUE(pool.locate(block).has_value());
  EXPECT_FALSE(MemoryPool::of("CPU:1").locate(block).has_value());
  EXPECT_EQ(MemoryPool::of("CPU:1").statistics().bytes_in_use, before.bytes_in_use);
  pool.deallocate(block, kMiB);
}

TEST(MemoryPoolTest, ThreadsThatMeetANewDeviceGetTheSamePool) {
  const std::string name = "/job:worker/task:77/CPU:0";
  std::vector<MemoryPool*> seen(8);
  std::vector<std::thread> threads;
  for (MemoryPool*& pool : seen) threads.emplace_back([&] { pool = &MemoryPool::of(name); });
  for (std::thread& thread : threads) thread.join();
  for (MemoryPool* pool : seen) EXPECT_EQ(pool, seen[0]);
}

TEST(MemoryPoolTest, AbsentDevicesAreRefusedByName) {
  try {
    (void)MemoryPool::of("GPU:9");
    FAIL() << "expected ValueError";
  } catch (const ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("GPU:9"), std::string::npos) << error.what();
  }
  EXPECT_THROW((void)MemoryPool::of("CPU:4095"), ValueError);
}

TEST(MemoryPoolTest, LocateFindsEveryByteThroughTheDescriptor) {
  HostMemoryPool pool("test", 0);
  for (const std::size_t size_bytes : {std::size_t{100}, 2 * kMiB}) {
    auto* block = static_cast<unsigned char*>(pool.allocate(size_bytes));
    for (std::size_t i = 0; i < size_bytes; ++i) block[i] = static_cast<unsigned char>(i * 7 + 1);
    const auto first = pool.locate(block);
    const auto last = pool.locate(block + size_bytes - 1);
    ASSERT_TRUE(first.has_value());
    ASSERT_TRUE(last.has_value());
    EXPECT_EQ(last->segment_id, first->segment_id);
    EXPECT_EQ(last->offset_bytes, first->offset_bytes + size_bytes - 1);
    EXPECT_LT(last->offset_bytes, first->segment_size_bytes);
    if (first->segment_fd < 0) GTEST_SKIP() << "this system gives no memfd";

    struct stat status {};
    ASSERT_EQ(fstat(first->segment_fd, &status), 0);
    EXPECT_EQ(static_cast<std::size_t>(status.st_size), first->segment_size_bytes);
    EXPECT_EQ(fcntl(first->segment_fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    EXPECT_NE(ftruncate(first->segment_fd, 0), 0) << "a peer could pull the pages from under us";
    std::vector<unsigned char> through_the_descriptor(size_bytes);
    ASSERT_EQ(pread(first->segment_fd, through_the_descriptor.data(), size_bytes,
                    static_cast<off_t>(first->offset_bytes)),
              static_cast<ssize_t>(size_bytes));
    for (std::size_t i = 0; i < size_bytes; ++i) {
      ASSERT_EQ(through_the_descriptor[i], static_cast<unsigned char>(i * 7 + 1)) << "at " << i;
    }
  }
}

TEST(MemoryPoolTest, LocateKnowsNothingOfForeignMemory) {
  HostMemoryPool pool("test", 0);
  int outside = 0;
  EXPECT_FALSE(pool.locate(&outside).has_value());
  EXPECT_FALSE(pool.locate(nullptr).has_value());
  auto* block = static_cast<std::byte*>(pool.allocate(kMiB));
  const auto location = pool.locate(block);
  ASSERT_TRUE(location.has_value());
  const std::byte* begin = block - location->offset_bytes;
  EXPECT_FALSE(pool.locate(begin - 1).has_value());
  EXPECT_FALSE(pool.locate(begin + location->segment_size_bytes).has_value());
  EXPECT_FALSE(pool.locate(&outside).has_value());
}

TEST(MemoryPoolTest, AMovedBlockKeepsItsBytesAndNobodyElseCanWriteThem) {
  HostMemoryPool pool("test", 0);
  constexpr std::size_t kBytes = 3 * kMiB + 17;
  auto* const block = static_cast<std::byte*>(pool.allocate(kBytes));
  auto* const other = static_cast<std::byte*>(pool.allocate(kBytes));
  for (std::size_t i = 0; i < kBytes; i += 4093) block[i] = static_cast<std::byte>(i % 251);
  const SegmentLocation before = pool.locate(block).value();
  // As another process would map it.
  void* const foreign = mmap(nullptr, before.segment_size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                             before.segment_fd, 0);
  ASSERT_NE(foreign, MAP_FAILED);

  pool.move_segment(block + 1);

  const SegmentLocation after = pool.locate(block).value();
  EXPECT_NE(after.segment_id, before.segment_id);
  EXPECT_EQ(after.segment_fd, -1);  // shared with nobody any more
  EXPECT_EQ(after.offset_bytes, before.offset_bytes);
  EXPECT_EQ(after.segment_size_bytes, before.segment_size_bytes);
  other[17] = std::byte{3};
  std::memset(static_cast<std::byte*>(foreign) + before.offset_bytes, 0x5A,
              kBytes);  // a late writer
  for (std::size_t i = 0; i < kBytes; i += 4093) {
    ASSERT_EQ(block[i], static_cast<std::byte>(i % 251)) << i;
  }
  EXPECT_EQ(block[1], std::byte{0});  // what was never written still reads as zero
  EXPECT_EQ(other[17], std::byte{3});
  EXPECT_EQ(other[kBytes / 2], std::byte{0});
  munmap(foreign, before.segment_size_bytes);

  int on_stack = 0;
  pool.move_segment(&on_stack);  // not the pool's: nothing happens
  EXPECT_EQ(pool.locate(block)->segment_id, after.segment_id);
  pool.deallocate(block, kBytes);
  pool.deallocate(other, kBytes);
}

TEST(MemoryPoolTest, NothingIsHandedOutOfASegmentAfterABlockOfItWasMoved) {
  HostMemoryPool pool("test", 0);
  for (const std::size_t size_bytes : {std::size_t{192}, kMiB}) {
    std::vector<void*> blocks;
    blocks.reserve(5);
    for (int i = 0; i < 5; ++i) blocks.push_back(pool.allocate(size_bytes));
    pool.deallocate(blocks[1], size_bytes);  // cached
    pool.deallocate(blocks[3], size_bytes);
    pool.move_segment(blocks[2]);
    const std::uint64_t moved = pool.locate(blocks[2])->segment_id;
    const std::size_t num_segments = pool.statistics().num_segments;
    pool.deallocate(blocks[0], size_bytes);
    for (int i = 0; i < 3; ++i) {
      void* const block = pool.allocate(size_bytes);
      EXPECT_GE(pool.locate(block)->segment_fd, 0);
      EXPECT_NE(pool.locate(block)->segment_id, moved);
      pool.deallocate(block, size_bytes);
    }
    pool.release_cached();
    pool.move_segment(blocks[4]);  // of the same segment
    EXPECT_EQ(pool.locate(blocks[4])->segment_id, moved);
    pool.deallocate(blocks[2], size_bytes);
    EXPECT_EQ(pool.statistics().num_segments, num_segments);
    pool.deallocate(blocks[4], size_bytes);  // the last one in use
    EXPECT_EQ(pool.statistics().num_segments, num_segments - 1);
    EXPECT_FALSE(pool.locate(blocks[4]).has_value());
  }
  EXPECT_EQ(pool.statistics().bytes_in_use, 0U);
  pool.release_cached();
  EXPECT_EQ(pool.statistics().bytes_reserved, 0U);
}

// Threads count in blocks of their own, beside the one that moves: not one count may be lost, whichever page it shares with whom.
TEST(MemoryPoolTest, WhatOtherThreadsWriteWhileABlockIsMovedIsNotLost) {
  for (const std::size_t size_bytes : {std::size_t{64}, std::size_t{192}, 65 * kMiB / 64}) {
    HostMemoryPool pool("test", 3);  // blocks begin in the middle of a page
    for (int round = 0; round < 20; ++round) {
      std::vector<std::uint64_t*> blocks;
      blocks.reserve(3);
      for (int i = 0; i < 3; ++i) {
        blocks.push_back(static_cast<std::uint64_t*>(pool.allocate(size_bytes)));
      }
      const std::size_t last = size_bytes / sizeof(std::uint64_t) - 1;
      blocks[0][last] = 0;
      blocks[2][0] = 0;
      blocks[1][0] = 77;
      std::atomic<int> num_counting{0};
      std::atomic<bool> is_over{false};
      const auto count = [&](std::uint64_t& counter) {
        std::uint64_t expected = 0;
        volatile std::uint64_t& place = counter;
        do {
          const std::uint64_t seen = place;
          if (seen != expected) break;  // so it stays for the comparison
          place = ++expected;
          if (expected == 1000) ++num_counting;
        } while (!is_over.load(std::memory_order_relaxed));
        return expected;
      };
      std::uint64_t before = 0;
      std::uint64_t after = 0;
      std::thread first([&] { before = count(blocks[0][last]); });
      std::thread second([&] { after = count(blocks[2][0]); });
      while (num_counting.load() < 2) std::this_thread::yield();
      pool.move_segment(blocks[1]);
      is_over = true;
      first.join();
      second.join();
      EXPECT_EQ(blocks[0][last], before);
      EXPECT_EQ(blocks[2][0], after);
      EXPECT_EQ(blocks[1][0], 77U);
      for (std::uint64_t* const block : blocks) pool.deallocate(block, size_bytes);
    }
  }
}

TEST(MemoryPoolTest, SegmentIdsAreNeverReused) {
  HostMemoryPool pool("test", 0);
  std::set<std::uint64_t> ids;
  for (int i = 0; i < 20; ++i) {
    void* block = pool.allocate(kMiB);
    ids.insert(pool.locate(block)->segment_id);
    pool.deallocate(block, kMiB);
    pool.release_cached();
  }
  EXPECT_EQ(ids.size(), 20U);
}

TEST(MemoryPoolTest, TooMuchIsAnErrorThatNamesTheNumbersAndChangesNothing) {
  HostMemoryPool pool("CPU:5", 0);
  void* block = pool.allocate(kMiB);
  for (const std::size_t size_bytes :
       {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max() / 2,
        std::size_t{1} << 60, std::size_t{1} << 47}) {
    try {
      (void)pool.allocate(size_bytes);
      FAIL() << "expected ResourceExhaustedError for " << size_bytes;
    } catch (const ResourceExhaustedError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("CPU:5"), std::string::npos) << text;
      EXPECT_NE(text.find(std::to_string(size_bytes)), std::string::npos) << text;
      EXPECT_NE(text.find(std::to_string(kMiB) + " bytes are in use"), std::string::npos) << text;
    }
  }
  EXPECT_EQ(pool.statistics().bytes_in_use, kMiB);
  EXPECT_EQ(pool.statistics().num_allocations, 1U);
  pool.deallocate(block, kMiB);
  EXPECT_EQ(pool.allocate(kMiB), block);
}

TEST(MemoryPoolTest, ABlockThatIsNotOursIsLeftAlone) {
  HostMemoryPool pool("test", 0);
  void* block = pool.allocate(100);
  int outside = 0;
  pool.deallocate(&outside, sizeof outside);
  pool.deallocate(nullptr, 64);
  pool.deallocate(block, 100);
  pool.deallocate(block, 100);
  EXPECT_EQ(pool.statistics().bytes_in_use, 0U);
  EXPECT_EQ(pool.allocate(100), block);
  EXPECT_NE(pool.allocate(100), block);
}

TEST(MemoryPoolTest, ABlockGivenBackWithAnotherSizeIsLeftAlone) {
  HostMemoryPool pool("test", 0);
  void* block = pool.allocate(1000);
  void* large = pool.allocate(kMiB);
  pool.deallocate(block, 2000);
  pool.deallocate(block, kMiB);
  pool.deallocate(large, 2 * kMiB);
  EXPECT_EQ(pool.statistics().bytes_in_use, 1024 + kMiB);
  pool.deallocate(block, 1000);
  pool.deallocate(large, kMiB);
  EXPECT_EQ(pool.statistics().bytes_in_use, 0U);
}

/// The sink has a lock of its own, and what it calls takes the pool's.
TEST(MemoryPoolTest, TheLogSinkMayUseThePool) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process that may hang
  EXPECT_EXIT(
      {
        alarm(20);
        HostMemoryPool pool("test", 0);
        std::size_t bytes_seen = 0;
        set_log_sink([&](LogSeverity, std::string_view) {
          pool.deallocate(pool.allocate(64), 64);
          bytes_seen = pool.statistics().bytes_reserved;
        });
        pool.deallocate(&pool, 64);
        _exit(bytes_seen > 0 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(MemorySegmentTest, ALongNameIsCutButForTheMark) {
  const auto segment = detail::MemorySegment::map(4096, std::string(1000, 'n'));
  ASSERT_NE(segment, nullptr);
  ASSERT_GE(segment->fd(), 0);
  EXPECT_TRUE(detail::has_mark(segment->fd(),
                               {.process = detail::memory_file_process(), .file = segment->id()}));
}

/// One step of a training loop, as the pool sees it: every size at once, then
/// all of them back.
void churn(MemoryPool& pool, std::vector<void*>& blocks, const std::vector<std::size_t>& sizes) {
  for (std::size_t i = 0; i < sizes.size(); ++i) blocks[i] = pool.allocate(sizes[i]);
  for (std::size_t i = 0; i < sizes.size(); ++i) pool.deallocate(blocks[i], sizes[i]);
}

const std::vector<std::size_t>& gradient_sizes() {
  static const std::vector<std::size_t> sizes{8,          256,      256,      4 * kKiB, 64 * kKiB,
                                              256 * kKiB, 2 * kMiB, 9 * kMiB, 9 * kMiB, 33};
  return sizes;
}

TEST(MemoryPoolTest, InSteadyStateNothingComesFromTheHeap) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer owns the heap";
  HostMemoryPool pool("test", 0);
  std::vector<void*> blocks(gradient_sizes().size());
  churn(pool, blocks, gradient_sizes());
  churn(pool, blocks, gradient_sizes());
  const MemoryPoolStatistics before = pool.statistics();
  const std::size_t allocations_before = testing::num_allocations_of_this_thread();
  for (int step = 0; step < 100; ++step) churn(pool, blocks, gradient_sizes());
  EXPECT_EQ(testing::num_allocations_of_this_thread(), allocations_before);
  const MemoryPoolStatistics after = pool.statistics();
  EXPECT_EQ(after.num_cache_hits - before.num_cache_hits, 100 * gradient_sizes().size());
  EXPECT_EQ(after.num_allocations - before.num_allocations, 100 * gradient_sizes().size());
  EXPECT_EQ(after.bytes_reserved, before.bytes_reserved);
}

[[noreturn]] void churn_where_system_calls_kill() {
  HostMemoryPool pool("test", 0);
  std::vector<void*> blocks(gradient_sizes().size());
  churn(pool, blocks, gradient_sizes());
  churn(pool, blocks, gradient_sizes());
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(0);
  for (int step = 0; step < 100; ++step) churn(pool, blocks, gradient_sizes());
  syscall(SYS_exit, 0);  // the one way out that strict mode leaves
  for (;;) {
  }
}

TEST(MemoryPoolDeathTest, InSteadyStateTheSystemIsNotCalled) {
  if (!testing::can_count_allocations())
    GTEST_SKIP() << "a sanitizer makes system calls of its own";
  GTEST_FLAG_SET(death_test_style,
                 "threadsafe");  // a child that starts afresh, not one of fork()
  EXPECT_EXIT(churn_where_system_calls_kill(), ::testing::ExitedWithCode(0), "");
}

/// Several threads take, fill, check and give back, each others' blocks too.
TEST(MemoryPoolTest, ThreadsNeverShareABlock) {
  constexpr int kNumThreads = 4;
  constexpr int kSteps = 4000;
  struct Slot {
    std::atomic<void*> block{nullptr};
  };
  // In front of the elements: how many there are. Each element holds a pattern
  // that names its block's taker.
  HostMemoryPool pool("test", 0);
  std::vector<Slot> shared(64);
  std::atomic<int> num_wrong{0};
  const auto give_back = [&](void* block) {
    const auto* words = static_cast<const std::uint64_t*>(block);
    const std::uint64_t count = words[0];
    for (std::uint64_t i = 1; i < count; ++i) {
      if (words[i] != words[1] + i - 1) ++num_wrong;
    }
    pool.deallocate(block, count * sizeof(std::uint64_t));
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kNumThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(static_cast<std::uint64_t>(thread));
      for (int step = 0; step < kSteps; ++step) {
        // A few sizes that recur, as in training, and some that do not.
        const std::uint64_t count =
            random() % 8 == 0 ? random() % 20000 + 2 : (random() % 4 + 1) * 500;
        auto* words = static_cast<std::uint64_t*>(pool.allocate(count * sizeof(std::uint64_t)));
        words[0] = count;
        const std::uint64_t pattern = random();
        for (std::uint64_t i = 1; i < count; ++i) words[i] = pattern + i - 1;
        void* other =
            shared[random() % shared.size()].block.exchange(words, std::memory_order_acq_rel);
        if (other != nullptr) give_back(other);
        if (step % 1000 == 999) pool.release_cached();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Slot& slot : shared) {
    if (void* block = slot.block.load()) give_back(block);
  }
  EXPECT_EQ(num_wrong.load(), 0);
  const MemoryPoolStatistics statistics = pool.statistics();
  EXPECT_EQ(statistics.num_allocations, std::uint64_t{kNumThreads} * kSteps);
  EXPECT_EQ(statistics.bytes_in_use, 0U);
  pool.release_cached();
  EXPECT_EQ(pool.statistics().bytes_reserved, 0U);
}

/// Runs `body` in a child and returns its wait status; the child exits with
/// what `body` returns.
template <class Body>
int status_of_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(MemoryPoolTest, AChildOfForkGetsAnErrorAndCannotHarmItsParent) {
  HostMemoryPool pool("test", 0);
  auto* block = static_cast<unsigned char*>(pool.allocate(kMiB));
  std::memset(block, 42, kMiB);
  const MemoryPoolStatistics before = pool.statistics();

  const int status = status_of_child([&] {
    try {
      (void)pool.allocate(64);
      return 1;
    } catch (const FailedPreconditionError&) {
    }
    try {
      (void)pool.statistics();
      return 2;
    } catch (const FailedPreconditionError&) {
    }
    pool.deallocate(block, kMiB);
    return 0;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);

  (void)status_of_child([&] {
    close(STDERR_FILENO);          // a sanitizer would report at length
    std::memset(block, 13, kMiB);  // ends the child: the block is not there
    return 0;
  });
  for (std::size_t i = 0; i < kMiB; ++i) ASSERT_EQ(block[i], 42) << "at " << i;
  EXPECT_EQ(pool.statistics().bytes_in_use, before.bytes_in_use);
  pool.deallocate(block, kMiB);
  EXPECT_EQ(pool.allocate(kMiB), block);
}

TEST(MemoryPoolTest, AChildOfForkNeverWaitsForALockThatItsParentHeld) {
  HostMemoryPool pool("test", 0);
  void* block = pool.allocate(kMiB);
  std::atomic<bool> is_over{false};
  std::thread other([&] {  // holds the lock about half of the time
    while (!is_over.load()) pool.deallocate(pool.allocate(64), 64);
  });
  int num_hanging = 0;
  for (int i = 0; i < 50; ++i) {
    const int status = status_of_child([&] {
      alarm(20);  // a child that hangs is ended by a signal
      pool.deallocate(block, kMiB);
      return 0;
    });
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      ++num_hanging;
      break;
    }
  }
  is_over.store(true);
  other.join();
  EXPECT_EQ(num_hanging, 0);
}

TEST(MemoryPoolTest, AddressSanitizerKnowsWhichBytesAreHandedOut) {
  if (!detail::kHasAddressSanitizer) GTEST_SKIP() << "built without AddressSanitizer";
  HostMemoryPool pool("test", 0);
  auto* block = static_cast<std::byte*>(pool.allocate(100));
  for (std::size_t i = 0; i < 100; ++i) EXPECT_FALSE(detail::is_poisoned(block + i)) << i;
  pool.deallocate(block, 100);
  for (std::size_t i = 0; i < 128; ++i) EXPECT_TRUE(detail::is_poisoned(block + i)) << i;
  ASSERT_EQ(pool.allocate(65), block);
  for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(detail::is_poisoned(block + i), i >= 65) << i;
}

}  // namespace
}  // namespace crossdevice
