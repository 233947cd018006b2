// SPDX-License-Identifier: Apache-2.0
/// A system that has no more threads.
#pragma once

#include <cstddef>

#include <pthread.h>

#include "fuzz/fuzz_target.h"

namespace crossdevice::fuzz {

/// While it lives, no thread of this process can make another one: it would get a stack larger than the address space. A limit would not do: root has none.
class NoThreads {
 public:
  NoThreads() {
    FUZZ_EXPECT(::pthread_getattr_default_np(&before_) == 0);
    pthread_attr_t none{};
    FUZZ_EXPECT(::pthread_getattr_default_np(&none) == 0);
    FUZZ_EXPECT(::pthread_attr_setstacksize(&none, std::size_t{1} << 60) == 0);
    FUZZ_EXPECT(::pthread_setattr_default_np(&none) == 0);
    (void)::pthread_attr_destroy(&none);
  }
  ~NoThreads() {
    (void)::pthread_setattr_default_np(&before_);
    (void)::pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace crossdevice::fuzz
