// SPDX-License-Identifier: Apache-2.0
/// Counts what the calling thread takes from the C library's heap; list allocation_counter.cc among the test's SOURCES.
#pragma once

#include <cstddef>

namespace crossdevice::testing {

/// False under a sanitizer, which replaces the heap itself: tests of counts skip then.
[[nodiscard]] bool can_count_allocations();

/// Calls of malloc, calloc, realloc, memalign and their relatives (operator new ends there) by this thread so far.
[[nodiscard]] std::size_t num_allocations_of_this_thread();

}  // namespace crossdevice::testing
