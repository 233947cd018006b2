// SPDX-License-Identifier: Apache-2.0
/// Maps, discards and unmaps the memory of pools.
#include "device/detail/memory_segment.h"

#include <atomic>
#include <limits>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

// Since Linux 6.3; absent from older C libraries.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
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

/// A memfd of that size, or -1.
int make_memfd(std::size_t size_bytes, const char* name) {
  // Growing a file beyond this limit would raise SIGXFSZ in the program.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < size_bytes) {
    return -1;
  }
  int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (fd < 0) fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);  // an older kernel
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(size_bytes)) != 0) {
    close(fd);
    return -1;
  }
  // A process that maps the segment must not be able to shrink it: our next access would raise SIGBUS.
  (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return fd;
}

std::byte* map_memory(std::size_t size_bytes, int flags, int fd) {
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

}  // namespace

std::unique_ptr<MemorySegment> MemorySegment::map(std::size_t size_bytes, std::string_view name) {
  if (size_bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max()) ||
      exceeds_machine(size_bytes)) {
    return nullptr;
  }
  int fd = make_memfd(size_bytes, std::string(name).c_str());
  std::byte* begin = nullptr;
  if (fd >= 0) {
    begin = map_memory(size_bytes, MAP_SHARED, fd);
    if (begin == nullptr) {
      close(fd);
      fd = -1;
    }
  }
  if (begin == nullptr) {
    begin = map_memory(size_bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  }
  if (begin == nullptr) return nullptr;
  (void)madvise(begin, size_bytes, MADV_DONTFORK);
  return std::unique_ptr<MemorySegment>(new MemorySegment(begin, size_bytes, fd));
}

MemorySegment::MemorySegment(std::byte* begin, std::size_t size_bytes, int fd)
    : begin_(begin), size_bytes_(size_bytes), fd_(fd) {
  static std::atomic<std::uint64_t> next_id{1};
  id_ = next_id.fetch_add(1, std::memory_order_relaxed);
}

MemorySegment::~MemorySegment() {
  munmap(begin_, size_bytes_);
  if (fd_ >= 0) close(fd_);
}

void MemorySegment::discard(std::byte* begin, std::size_t size_bytes) const {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<std::uintptr_t>(begin) + page - 1) / page * page;
  const auto last = (reinterpret_cast<std::uintptr_t>(begin) + size_bytes) / page * page;
  if (first >= last) return;
  std::byte* pages = begin_ + (first - reinterpret_cast<std::uintptr_t>(begin_));
  (void)madvise(pages, last - first, fd_ >= 0 ? MADV_REMOVE : MADV_DONTNEED);
}

}  // namespace crossdevice::detail
