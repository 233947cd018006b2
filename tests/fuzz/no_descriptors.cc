// SPDX-License-Identifier: Apache-2.0
#include "fuzz/no_descriptors.h"

#include <cerrno>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace crossdevice::fuzz {

thread_local bool NoDescriptors::are_all_in_use = false;

}  // namespace crossdevice::fuzz

// In place of the C library's.

extern "C" int socket(int domain, int type, int protocol) noexcept {
  if (!crossdevice::fuzz::NoDescriptors::are_all_in_use) {
    return static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
  }
  errno = EMFILE;
  return -1;
}

extern "C" int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  if (!crossdevice::fuzz::NoDescriptors::are_all_in_use) {
    return static_cast<int>(::syscall(SYS_accept4, fd, address, size, flags));
  }
  errno = EMFILE;
  return -1;
}
