// SPDX-License-Identifier: Apache-2.0
/// Counts what the calling thread takes from the C library's heap; list allocation_counter.cc among the test's SOURCES.
#pragma once

#include <cstddef>

namespace crossdevice::testing {

/// False under a sanitizer, which replaces the heap itself: tests of counts skip then.
[[nodiscard]] bool can_count_allocations();

/// Calls of malloc, calloc, realloc, memalign and their relatives (operator new ends there) by this thread so far.
[[nodiscard]] std::size_t num_allocations_of_this_thread();

/// What this thread allocates while one lives is not counted: an emulation's own bookkeeping. Needs no allocation_counter.cc.
class UncountedAllocations {
 public:
  UncountedAllocations() { ++depth; }
  ~UncountedAllocations() { --depth; }
  UncountedAllocations(const UncountedAllocations&) = delete;
  UncountedAllocations& operator=(const UncountedAllocations&) = delete;
  [[nodiscard]] static bool is_there() { return depth > 0; }

 private:
  inline static constinit thread_local int depth = 0;
};

}  // namespace crossdevice::testing
