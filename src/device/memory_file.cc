// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/device/memory_file.h"

#include <array>
#include <cerrno>
#include <ctime>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

// Since Linux 6.3; absent from older C libraries.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace crossdevice::detail {
namespace {

/// Where the system gives no random number: no other process has this one's number at this moment.
std::uint64_t number_of_this_moment() {
  timespec now{};
  (void)clock_gettime(CLOCK_REALTIME, &now);
  const auto nanoseconds = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
                           static_cast<std::uint64_t>(now.tv_nsec);
  return nanoseconds ^ (static_cast<std::uint64_t>(getpid()) << 40U);
}

}  // namespace

int make_memory_file(std::size_t size_bytes, std::string_view name) {
  const std::string shown(name.substr(0, 249));  // the system takes no more
  // Growing a file beyond this limit would raise SIGXFSZ in the program.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < size_bytes) {
    errno = EFBIG;
    return -1;
  }
  int fd = memfd_create(shown.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (fd < 0) fd = memfd_create(shown.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);  // an older kernel
  if (fd < 0) return -1;
  // A process that maps the file must not be able to shrink it: our next access would raise SIGBUS. So no file is better than one without seals.
  if (ftruncate(fd, static_cast<off_t>(size_bytes)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
  }
  return fd;
}

std::uint64_t memory_file_process() {
  static const std::uint64_t number = [] {
    std::uint64_t drawn = 0;
    const ssize_t length = getrandom(&drawn, sizeof drawn, GRND_NONBLOCK);
    return length == ssize_t{sizeof drawn} ? drawn : number_of_this_moment();
  }();
  return number;
}

std::string marked_name(std::string_view name, const MemoryFileMark& mark) {
  return fmt::format("{} {:016x}-{}", name.substr(0, 200), mark.process, mark.file);
}

bool has_mark(int fd, const MemoryFileMark& mark) {
  std::array<char, 320> text{};
  // The thread's own: the process' is empty once its first thread has ended.
  const std::string link = fmt::format("/proc/thread-self/fd/{}", fd);
  const ssize_t length = readlink(link.c_str(), text.data(), text.size());
  if (length <= 0) return false;
  const std::string_view target(text.data(), static_cast<std::size_t>(length));
  return target.starts_with("/memfd:") && target.ends_with(marked_name("", mark) + " (deleted)");
}

}  // namespace crossdevice::detail
