// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/device/memory_file.h"

#include <cerrno>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

// Since Linux 6.3; absent from older C libraries.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace crossdevice::detail {

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
  if (ftruncate(fd, static_cast<off_t>(size_bytes)) != 0) {
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
  }
  // A process that maps the file must not be able to shrink it: our next access would raise SIGBUS.
  (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return fd;
}

}  // namespace crossdevice::detail
