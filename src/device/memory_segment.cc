// SPDX-License-Identifier: Apache-2.0
/// Maps, discards and unmaps the memory of pools.
#include "device/detail/memory_segment.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "crossdevice/device/memory_file.h"

// Since Linux 6.1; absent from older C libraries, as is the next one.
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
// Since Linux 5.14.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace crossdevice::detail {
namespace {

bool exceeds_machine(std::size_t size_bytes) {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return false;
  const std::uint64_t total =
      (std::uint64_t{info.totalram} + std::uint64_t{info.totalswap}) * info.mem_unit;
  return size_bytes > total;
}

/// Maps at a multiple of the huge page: cuts it out of a larger reservation. Null when the system refuses.
std::byte* map_aligned(std::size_t size_bytes, int flags, int fd) {
  constexpr std::size_t kAlignment = MemorySegment::kHugePageBytes;
  const std::size_t reserved_bytes = size_bytes + kAlignment;
  void* reserved =
      mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(reserved);
  const std::size_t skipped =
      (kAlignment - reinterpret_cast<std::uintptr_t>(first) % kAlignment) % kAlignment;
  std::byte* const begin = first + skipped;
  if (mmap(begin, size_bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
    munmap(first, reserved_bytes);
    return nullptr;
  }
  if (skipped > 0) munmap(first, skipped);
  if (skipped < kAlignment) munmap(begin + size_bytes, kAlignment - skipped);
  return begin;
}

std::uint64_t make_id() {
  static std::atomic<std::uint64_t> next_id{1};
  return next_id.fetch_add(1, std::memory_order_relaxed);
}

/// Makes the pages that hold [begin, begin + size_bytes), which are mapped privately, this process's own. Their bytes stay as they are.
#if defined(__clang__) || defined(__GNUC__)
__attribute__((no_sanitize("address", "thread")))  // most of a pool is out of bounds, and any thread may write to it
#endif
bool own_pages(const std::byte* begin, std::size_t size_bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(begin) % page;
  auto* const first = const_cast<std::byte*>(begin) - before;
  const std::size_t length = (before + size_bytes + page - 1) / page * page;
  if (madvise(first, length, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  // An older kernel. An atomic addition of nothing is a write that loses nobody else's; volatile, so that it is made.
  for (std::size_t done = 0; done < length; done += page) {
    (void)__atomic_fetch_or(reinterpret_cast<volatile unsigned char*>(first + done), 0,
                            __ATOMIC_RELAXED);
  }
  return true;
}

/// On a machine with several memory nodes a page belongs near the thread that touches it first, so nobody else should fetch it.
bool has_one_memory_node() {
  const int fd = open("/sys/devices/system/node/online", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return true;
  std::array<char, 8> text{};
  const ssize_t length = read(fd, text.data(), text.size());
  close(fd);
  return length <= 0 || std::string_view(text.data(), static_cast<std::size_t>(length)) == "0\n";
}

}  // namespace

std::unique_ptr<MemorySegment> MemorySegment::map(std::size_t size_bytes, std::string_view name) {
  if (exceeds_machine(size_bytes)) return nullptr;
  const std::uint64_t id = make_id();
  int fd = make_memory_file(size_bytes,
                            marked_name(name, {.process = memory_file_process(), .file = id}));
  std::byte* begin = nullptr;
  if (fd >= 0) {
    begin = map_aligned(size_bytes, MAP_SHARED, fd);
    if (begin == nullptr) {
      close(fd);
      fd = -1;
    }
  }
  if (begin == nullptr) {
    begin = map_aligned(size_bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  }
  if (begin == nullptr) return nullptr;
  (void)madvise(begin, size_bytes, MADV_DONTFORK);
  return std::unique_ptr<MemorySegment>(new MemorySegment(begin, size_bytes, fd, id));
}

MemorySegment::MemorySegment(std::byte* begin, std::size_t size_bytes, int fd, std::uint64_t id)
    : begin_(begin), size_bytes_(size_bytes), fd_(fd), id_(id) {}

MemorySegment::~MemorySegment() {
  munmap(begin_, size_bytes_);
  if (fd_ >= 0) close(fd_);
}

bool MemorySegment::commit_huge_pages(std::byte* begin, std::size_t size_bytes) const {
  static const bool is_wanted = has_one_memory_node();
  if (!is_wanted || fd_ < 0) return false;
  // The system collapses what is there already, so each huge page gets one small page, which keeps what it holds.
  for (std::size_t done = 0; done < size_bytes; done += kHugePageBytes) {
    if (fallocate(fd_, 0, begin + done - begin_, 1) != 0) return false;
  }
  return madvise(begin, size_bytes, MADV_COLLAPSE) == 0;
}

/// Why no thread of this process loses a write. The shared mapping gives way to a private one of the same file at the same address in one step of the
/// kernel: what is written before goes to the file, and what is written afterwards to a copy that the kernel makes of the page then, with all
/// that the file holds. So no byte is ever copied while somebody could write to the original, and it does not matter who writes what to which block.
/// A page that has its copy follows the file no more; own_pages() makes the copies of the pages that others may write to.
bool MemorySegment::withdraw(const std::byte* begin, std::size_t size_bytes) {
  if (!is_withdrawn_) {
    if (fd_ < 0) return true;  // nobody else can have mapped it
    if (mmap(begin_, size_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
             fd_, 0) == MAP_FAILED) {
      return false;
    }
    (void)madvise(begin_, size_bytes_, MADV_DONTFORK);
    id_ = make_id();
    is_withdrawn_ = true;
  }
  return own_pages(begin, size_bytes);
}

void MemorySegment::discard(std::byte* begin, std::size_t size_bytes) const {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<std::uintptr_t>(begin) + page - 1) / page * page;
  const auto last = (reinterpret_cast<std::uintptr_t>(begin) + size_bytes) / page * page;
  if (first >= last) return;
  std::byte* pages = begin_ + (first - reinterpret_cast<std::uintptr_t>(begin_));
  (void)madvise(pages, last - first, fd() >= 0 ? MADV_REMOVE : MADV_DONTNEED);
}

}  // namespace crossdevice::detail
