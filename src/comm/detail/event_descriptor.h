// SPDX-License-Identifier: Apache-2.0
/// A descriptor that becomes readable when somebody says so, until it is emptied: it ends a poll(2).
#pragma once

#include <cerrno>
#include <system_error>

#include <sys/eventfd.h>
#include <unistd.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

/// Threads  any.
class EventDescriptor {
 public:
  EventDescriptor() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) {
      throw ResourceExhaustedError("no descriptor for a transport: " +
                                   std::generic_category().message(errno));
    }
  }
  ~EventDescriptor() { ::close(fd_); }
  EventDescriptor(const EventDescriptor&) = delete;
  EventDescriptor& operator=(const EventDescriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  void set() const noexcept { (void)::eventfd_write(fd_, 1); }
  void empty() const noexcept {
    eventfd_t ignored = 0;
    (void)::eventfd_read(fd_, &ignored);
  }

 private:
  int fd_;
};

}  // namespace crossdevice::detail
