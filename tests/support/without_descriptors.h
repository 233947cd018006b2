// SPDX-License-Identifier: Apache-2.0
/// This process may open no more file descriptors, as long as the object lives.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include "device/detail/poison.h"

namespace crossdevice::testing {

/// AddressSanitizer cannot: the check of an object's type looks into memory through a pipe, and takes an object that it
/// cannot look at for none.
[[nodiscard]] constexpr bool can_do_without_descriptors() { return !detail::kHasAddressSanitizer; }

class WithoutDescriptors {
 public:
  WithoutDescriptors() {
    (void)::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::dup(STDERR_FILENO);
    (void)::close(next);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(next);  // not 0, which poll() would refuse
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~WithoutDescriptors() { (void)::setrlimit(RLIMIT_NOFILE, &before_); }
  WithoutDescriptors(const WithoutDescriptors&) = delete;
  WithoutDescriptors& operator=(const WithoutDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace crossdevice::testing
