// SPDX-License-Identifier: Apache-2.0
/// The program's own malloc: counts, then asks the C library's.
#include "support/allocation_counter.h"

#include <cerrno>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CROSSDEVICE_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CROSSDEVICE_TEST_SANITIZED 1
#endif
#endif

namespace crossdevice::testing {
namespace {
thread_local std::size_t num_allocations = 0;

[[maybe_unused]] void count_allocation() {
  if (!UncountedAllocations::is_there()) ++num_allocations;
}
}  // namespace

std::size_t num_allocations_of_this_thread() { return num_allocations; }

bool can_count_allocations() {
#ifdef CROSSDEVICE_TEST_SANITIZED
  return false;
#else
  // A malloc that the linker did not pick would make every count zero and every test of it pass.
  const std::size_t before = num_allocations;
  void* (*volatile allocate)(std::size_t) = std::malloc;  // volatile: not to be optimised away
  std::free(allocate(1));
  return num_allocations != before;
#endif
}

#ifndef CROSSDEVICE_TEST_SANITIZED
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
// NOLINTEND(bugprone-reserved-identifier)

__attribute__((visibility("default"))) void* malloc(std::size_t size) {
  count_allocation();
  return __libc_malloc(size);
}
__attribute__((visibility("default"))) void* calloc(std::size_t count, std::size_t size) {
  count_allocation();
  return __libc_calloc(count, size);
}
__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t size) {
  count_allocation();
  return __libc_realloc(memory, size);
}
__attribute__((visibility("default"))) void* memalign(std::size_t alignment, std::size_t size) {
  count_allocation();
  return __libc_memalign(alignment, size);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment,
                                                           std::size_t size) {
  count_allocation();
  return __libc_memalign(alignment, size);
}
__attribute__((visibility("default"))) int posix_memalign(void** result, std::size_t alignment,
                                                          std::size_t size) {
  count_allocation();
  *result = __libc_memalign(alignment, size);
  return *result == nullptr ? ENOMEM : 0;
}
}
#endif

}  // namespace crossdevice::testing
