// SPDX-License-Identifier: Apache-2.0
/// What the workers of one machine meet in.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "doctor/probes.h"
#include "doctor/system.h"
#include "support/byte_size.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace crossdevice::doctor {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kProbedBytes = 4 * kHugePageBytes;

std::string last_error() { return std::generic_category().message(errno); }

/// Shared memory without a name, as the pool's.
class Segment {
 public:
  explicit Segment(const System& system)
      : fd_(system.calls.make_memory_file("crossdevice-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    if (fd_ < 0) {
      error_ = "memfd_create: " + last_error();
    } else if (::ftruncate(fd_, kProbedBytes) != 0) {
      error_ = "ftruncate: " + last_error();
    } else {
      memory_ = ::mmap(nullptr, kProbedBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
      if (memory_ == MAP_FAILED) error_ = "mmap: " + last_error();
    }
  }
  ~Segment() {
    if (memory_ != MAP_FAILED) ::munmap(memory_, kProbedBytes);
    if (fd_ >= 0) ::close(fd_);
  }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] std::byte* memory() const { return static_cast<std::byte*>(memory_); }

 private:
  int fd_ = -1;
  void* memory_ = MAP_FAILED;
  std::string error_;
};

Finding find_segments(const Segment& segment) {
  Finding finding{.name = "shared memory"};
  if (!segment.error().empty()) {
    finding.status = Status::FAILURE;
    finding.text = segment.error();
    finding.advice =
        "the kernel, or the container's seccomp profile, refuses memory files: docker run "
        "--security-opt seccomp=unconfined shows "
        "whether it is the profile";
    return finding;
  }
  finding.text = "memory files (memfd) can be made and mapped";
  return finding;
}

/// Whether the kernel makes one huge page of shared memory that is there, as the pool asks it to: 0, or why not.
int collapse(const System& system, const Segment& segment) {
  const auto begin = reinterpret_cast<std::uintptr_t>(segment.memory());
  const std::uintptr_t first = (begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  void* const page = segment.memory() + (first - begin);
  std::memset(page, 1, kHugePageBytes);
  return system.calls.advise(page, kHugePageBytes, MADV_COLLAPSE) == 0 ? 0 : errno;
}

Finding find_huge_pages(const System& system, const Segment& segment) {
  const std::string folder = "/sys/kernel/mm/transparent_hugepage/";
  const std::string ordinary = system.choice_of(folder + "enabled").value_or("unknown");
  const std::string shared = system.choice_of(folder + "shmem_enabled").value_or("unknown");
  const bool is_there = segment.error().empty();
  const int why = is_there ? collapse(system, segment) : 0;
  const bool works = is_there && why == 0;
  const std::string why_not = is_there ? std::generic_category().message(why) : segment.error();
  Finding finding{.name = "huge pages"};
  finding.facts = {{"enabled", ordinary}, {"shmem_enabled", shared}, {"shared_memory", works}};
  finding.text =
      fmt::format("shared memory {} have them{} (enabled: {}, shmem_enabled: {})",
                  works ? "can" : "cannot", works ? "" : ": " + why_not, ordinary, shared);
  if (!works) {
    finding.status = Status::SHORTFALL;
    finding.advice = "large tensors cost more address look-ups; ";
    if (!is_there) {
      finding.advice += "see shared memory";
    } else if (shared == "deny") {
      finding.advice += fmt::format("as root: echo never > {}shmem_enabled", folder);
    } else if (why == EINVAL) {
      finding.advice += "a kernel with transparent huge pages, of Linux 6.1 or newer, has them";
    } else {
      finding.advice +=
          "the pool asks for them with MADV_COLLAPSE, and needs free memory in pieces of 2 MiB";
    }
  }
  return finding;
}

/// The library's own shared memory has no name and does not lie there; NCCL's does.
Finding find_dev_shm(const System& system) {
  Finding finding{.name = "/dev/shm"};
  struct statvfs status {};
  constexpr std::size_t kEnoughBytes = std::size_t{512} << 20;
  if (system.calls.space_of("/dev/shm", &status) != 0) {
    finding.status = Status::SHORTFALL;
    finding.text = "is not there: " + last_error();
    finding.advice = "NCCL needs it between processes: mount -t tmpfs -o size=1g tmpfs /dev/shm";
    return finding;
  }
  const std::size_t total = std::size_t{status.f_frsize} * status.f_blocks;
  const std::size_t free = std::size_t{status.f_frsize} * status.f_bavail;
  finding.facts = {{"total_bytes", total}, {"free_bytes", free}};
  finding.text = fmt::format("{}, {} free; NCCL and MPI use it, this library does not",
                             programs::format_byte_size(total), programs::format_byte_size(free));
  if (free < kEnoughBytes) {
    finding.status = Status::SHORTFALL;
    finding.advice =
        "little for NCCL among several processes: docker run --shm-size=1g, or --ipc=host";
  }
  return finding;
}

}  // namespace

Findings probe_shared_memory(const System& system) {
  const Segment segment(system);
  return {find_segments(segment), find_huge_pages(system, segment), find_dev_shm(system)};
}

}  // namespace crossdevice::doctor
