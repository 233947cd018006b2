// SPDX-License-Identifier: Apache-2.0
/// Copies and clears host memory, by several threads and past the caches where that is faster.
#pragma once

#include <cstddef>

namespace crossdevice::detail {

/// The ranges do not overlap. Complete on return.
void copy_host_memory(void* destination, const void* source, std::size_t size_bytes);

/// Complete on return.
void clear_host_memory(void* destination, std::size_t size_bytes);

}  // namespace crossdevice::detail
