// SPDX-License-Identifier: Apache-2.0
/// This process may open no more file descriptors, as long as the object lives.
#pragma once

#include <sys/resource.h>

#include "support/sanitizers.h"

namespace crossdevice::testing {

/// The sanitizers cannot: their check of an object's type opens a pipe.
[[nodiscard]] constexpr bool can_do_without_descriptors() { return !kIsSanitized; }

class WithoutDescriptors {
 public:
  WithoutDescriptors() {
    (void)::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = 0;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~WithoutDescriptors() { (void)::setrlimit(RLIMIT_NOFILE, &before_); }
  WithoutDescriptors(const WithoutDescriptors&) = delete;
  WithoutDescriptors& operator=(const WithoutDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace crossdevice::testing
