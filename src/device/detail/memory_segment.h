// SPDX-License-Identifier: Apache-2.0
/// One mapped piece of host memory that a pool cuts into blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace crossdevice::detail {

/// A memfd, mapped shared, so that other processes can map the same pages later; private anonymous memory where the
/// system refuses a memfd. Pages are zero and cost nothing until they are touched or committed.
///
/// A child of fork() does not get the mapping: touching it there ends the child, instead of changing its parent's data.
class MemorySegment {
 public:
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

  /// `size_bytes` is a multiple of the page size; the address is one of kHugePageBytes; `name` shows in /proc/self/maps, and after it the mark
  /// (MemoryFileMark) of this process and id(). Null when the system has no memory for it, or when it is larger than the machine's memory and swap
  /// (the first touches of it would end the process).
  [[nodiscard]] static std::unique_ptr<MemorySegment> map(std::size_t size_bytes,
                                                          std::string_view name);
  ~MemorySegment();
  MemorySegment(const MemorySegment&) = delete;
  MemorySegment& operator=(const MemorySegment&) = delete;

  [[nodiscard]] std::byte* begin() const { return begin_; }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] bool contains(const void* pointer) const {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    const auto first = reinterpret_cast<std::uintptr_t>(begin_);
    return address >= first && address - first < size_bytes_;
  }
  /// -1 for memory that cannot be shared, or not any more.
  [[nodiscard]] int fd() const { return is_withdrawn_ ? -1 : fd_; }
  /// Never reused in this process.
  [[nodiscard]] std::uint64_t id() const { return id_; }

  /// Fetches [begin, begin + size_bytes) from the system in huge pages, whatever was written there stays. Both are multiples
  /// of kHugePageBytes from begin(). False, and nothing is lost, where the system has none to give: the range then comes
  /// page by page, when it is touched.
  ///
  /// Cost     a tenth of touching the same memory in small pages (0.06 against 0.6 ms/MiB on a Zen 4), and streaming over it is
  ///          some 10 % faster afterwards.
  [[nodiscard]] bool commit_huge_pages(std::byte* begin, std::size_t size_bytes) const;

  /// Takes it out of the others' reach, under a new id and without a descriptor: what other processes write to their mapping of it from now on is not
  /// seen in [begin, begin + size_bytes), nor anywhere else that this process has written to since. Threads of this process may read and write it
  /// meanwhile; see memory_segment.cc. It cannot be shared again. False where the system has no memory: then others may still write to it.
  [[nodiscard]] bool withdraw(const std::byte* begin, std::size_t size_bytes);

  /// Gives the whole pages in [begin, begin + size_bytes) back to the system; they read as zero afterwards.
  void discard(std::byte* begin, std::size_t size_bytes) const;

 private:
  MemorySegment(std::byte* begin, std::size_t size_bytes, int fd, std::uint64_t id);

  std::byte* begin_;
  std::size_t size_bytes_;
  int fd_;  // kept until the end: who has been told of it must not open another file under its number
  std::uint64_t id_;
  bool is_withdrawn_ = false;  // a private mapping of a file that others may write to
};

}  // namespace crossdevice::detail
