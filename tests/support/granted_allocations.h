// SPDX-License-Identifier: Apache-2.0
/// A program whose own operator new refuses when it is told to; granted_allocations.cc has to be one of its sources.
#pragma once

#include <atomic>
#include <cstddef>

namespace crossdevice::testing {

/// How many allocations of this thread are still granted before one is refused; negative: all.
extern thread_local int num_granted;
/// Larger ones this thread is refused.
extern thread_local std::size_t max_bytes;
/// Larger ones every thread is refused.
extern std::atomic<std::size_t> max_bytes_anywhere;

}  // namespace crossdevice::testing
