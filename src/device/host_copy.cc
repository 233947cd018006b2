// SPDX-License-Identifier: Apache-2.0
/// Cuts large copies into chunks for the thread pool.
#include "device/detail/host_copy.h"

#include <algorithm>
#include <cstring>

#include "crossdevice/device/host_thread_pool.h"
#include "crossdevice/device/reduce_kernel.h"

namespace crossdevice::detail {
namespace {

/// Below, waking other threads costs more than they bring.
constexpr std::size_t kSmallestParallelBytes = std::size_t{1} << 20;
/// From here on the result would not be in the caches anyway by the time somebody reads it.
constexpr std::size_t kSmallestStreamingBytes = std::size_t{4} << 20;
/// Small enough that threads end together, large enough that handing them out costs nothing.
constexpr std::size_t kChunkBytes = std::size_t{512} << 10;

/// body(begin, size_bytes) for ranges that make up [0, size_bytes).
template <class Body>
void for_each_chunk(std::size_t size_bytes, Body body) {
  if (size_bytes < kSmallestParallelBytes) {
    body(std::size_t{0}, size_bytes);
    return;
  }
  const std::size_t num_chunks = (size_bytes + kChunkBytes - 1) / kChunkBytes;
  HostThreadPool::instance().run(num_chunks, [&](std::size_t chunk) {
    const std::size_t begin = chunk * kChunkBytes;
    body(begin, std::min(kChunkBytes, size_bytes - begin));
  });
}

}  // namespace

void copy_host_memory(void* destination, const void* source, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  const StoreMode stores =
      size_bytes >= kSmallestStreamingBytes ? StoreMode::STREAMING : StoreMode::CACHED;
  for_each_chunk(size_bytes, [&](std::size_t begin, std::size_t chunk_bytes) {
    copy_bytes(static_cast<std::byte*>(destination) + begin,
               static_cast<const std::byte*>(source) + begin, chunk_bytes, stores);
  });
}

void clear_host_memory(void* destination, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  for_each_chunk(size_bytes, [&](std::size_t begin, std::size_t chunk_bytes) {
    std::memset(static_cast<std::byte*>(destination) + begin, 0, chunk_bytes);
  });
}

}  // namespace crossdevice::detail
