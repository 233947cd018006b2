// SPDX-License-Identifier: Apache-2.0
/// Files of other processes, opened and mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossdevice::detail {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

/// Closes it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

/// A mapping of a file. Where it is large it begins at a huge page, so that the kernel can map huge pages in it.
class Mapping {
 public:
  Mapping(int fd, std::size_t size_bytes) : size_bytes_(size_bytes) {
    const std::size_t alignment = size_bytes >= kHugePageBytes ? kHugePageBytes : 1;
    reserved_bytes_ = size_bytes + (alignment > 1 ? alignment : 0);
    void* const reserved = ::mmap(nullptr, reserved_bytes_, PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return;
    reserved_ = static_cast<std::byte*>(reserved);
    const auto address = reinterpret_cast<std::uintptr_t>(reserved_);
    begin_ = reserved_ + (alignment - address % alignment) % alignment;
    if (::mmap(begin_, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
      begin_ = nullptr;
      return;
    }
    (void)::madvise(begin_, size_bytes, MADV_DONTFORK);
  }
  ~Mapping() {
    if (reserved_ != nullptr) ::munmap(reserved_, reserved_bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  [[nodiscard]] std::byte* begin() const { return begin_; }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* reserved_ = nullptr;
  std::byte* begin_ = nullptr;
  std::size_t reserved_bytes_ = 0;
  std::size_t size_bytes_;
};

/// What a file is, wherever it is open.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size_bytes = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

/// Nothing for what is no open file.
[[nodiscard]] inline std::optional<FileIdentity> identity_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return std::nullopt;
  return FileIdentity{status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size)};
}

/// A file that process `pid` has open as `fd`; the errno where that cannot be. Either number may be another's by now, so whoever opens looks at what
/// it got, which stays the same file. Whatever that is, opening it waits for no device and takes no terminal.
[[nodiscard]] inline std::unique_ptr<Descriptor> open_foreign(std::int64_t pid, std::int32_t fd) {
  return std::make_unique<Descriptor>(::open(fmt::format("/proc/{}/fd/{}", pid, fd).c_str(),
                                             O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
}

}  // namespace crossdevice::detail
