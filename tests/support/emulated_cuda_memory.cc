// SPDX-License-Identifier: Apache-2.0
/// The memory functions of emulated CUDA.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "support/emulated_cuda.h"
#include "support/emulated_cuda_call.h"

namespace crossdevice::testing {

using detail::CudaStatus;

CudaStatus EmulatedCuda::get_pointer_attributes(detail::CudaPointerAttributes* attributes,
                                                const void* pointer) {
  Call call(*this, "cuda.get_pointer_attributes");
  if (const auto refused = call.begin_query(-1, pointer)) return *refused;
  *attributes = {};
  const auto found = memory_.find(pointer);
  if (found == nullptr) return CudaStatus::SUCCESS;
  attributes->kind = found->kind;
  attributes->device = found->device;
  return CudaStatus::SUCCESS;
}

// ---- pools

EmulatedPool* EmulatedCuda::find_pool(EmulatedMachine::Lock& lock, detail::CudaPool handle) {
  for (const auto& pool : pools_) {
    if (to_handle<detail::CudaPool>(pool.get()) == handle) return pool.get();
  }
  machine_.report(lock, "a memory pool was used that was never created");
  return nullptr;
}

CudaStatus EmulatedCuda::create_pool(detail::CudaPool* pool, int device) {
  Call call(*this, "cuda.create_pool");
  if (const auto refused = call.begin(device)) return *refused;
  if (const auto refused = refuse_while_capturing(call.lock)) return *refused;
  pools_.push_back(std::make_unique<EmulatedPool>());
  pools_.back()->device = device;
  *pool = to_handle<detail::CudaPool>(pools_.back().get());
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::set_pool_access(detail::CudaPool pool, int device) {
  Call call(*this, "cuda.set_pool_access");
  if (const auto refused = call.begin(device)) return *refused;
  EmulatedPool* const opened = find_pool(call.lock, pool);
  if (opened == nullptr) return CudaStatus::INVALID_VALUE;
  const auto owner = static_cast<std::size_t>(opened->device);
  if (device != opened->device && !peers_[static_cast<std::size_t>(device)][owner]) {
    return CudaStatus::INVALID_DEVICE;
  }
  opened->accessible_from.insert(device);
  return CudaStatus::SUCCESS;
}

void EmulatedCuda::trim(EmulatedMachine::Lock& /*lock*/, EmulatedPool& pool) {
  std::erase_if(pool.cached, [&](const EmulatedPool::Cached& cached) {
    if (!cached.is_known) return false;
    memory_.return_bytes(pool.device, cached.address, cached.capacity_bytes);
    pool.reserved_bytes -= cached.capacity_bytes;
    return true;
  });
}

CudaStatus EmulatedCuda::trim_pool(detail::CudaPool pool) {
  Call call(*this, "cuda.trim_pool");
  if (const auto refused = call.begin(current_device())) return *refused;
  EmulatedPool* const trimmed = find_pool(call.lock, pool);
  if (trimmed == nullptr) return CudaStatus::INVALID_VALUE;
  trim(call.lock, *trimmed);
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::get_pool_use(detail::CudaPoolUse* use, detail::CudaPool pool) {
  Call call(*this, "cuda.get_pool_use");
  if (const auto refused = call.begin_query(-1, pool)) return *refused;
  const EmulatedPool* const asked = find_pool(call.lock, pool);
  if (asked == nullptr) return CudaStatus::INVALID_VALUE;
  *use = {asked->reserved_bytes, asked->used_bytes};
  return CudaStatus::SUCCESS;
}

// A block that was freed is taken again where its end is certain: in the same stream's order, or when it has come.
std::shared_ptr<Allocation> EmulatedCuda::take_from_pool(EmulatedMachine::Lock& lock,
                                                         EmulatedPool& pool, std::size_t size_bytes,
                                                         const EmulatedStream& stream) {
  auto best = pool.cached.end();
  for (auto cached = pool.cached.begin(); cached != pool.cached.end(); ++cached) {
    const bool is_free = cached->stream == &stream || cached->freed->has_come;
    const bool fits = cached->capacity_bytes >= size_bytes &&
                      cached->capacity_bytes / 2 <= std::max<std::size_t>(size_bytes, 512);
    if (!is_free || !fits) continue;
    if (best == pool.cached.end() || cached->capacity_bytes < best->capacity_bytes) best = cached;
  }
  std::shared_ptr<Allocation> taken;
  if (best != pool.cached.end()) {
    taken = memory_.take_again(pool.device, best->address, size_bytes, best->capacity_bytes);
    pool.cached.erase(best);
  } else {
    taken = memory_.take(pool.device, size_bytes);
    for (const auto& other : pools_) {
      if (taken != nullptr) break;
      if (other->device != pool.device) continue;
      for (EmulatedPool::Cached& cached : other->cached) cached.is_known = cached.freed->has_come;
      trim(lock, *other);
      taken = memory_.take(pool.device, size_bytes);
    }
    if (taken == nullptr) return nullptr;
    pool.reserved_bytes += taken->capacity_bytes;
  }
  taken->pool = &pool;
  pool.used_bytes += taken->capacity_bytes;
  return taken;
}

CudaStatus EmulatedCuda::malloc_from_pool_async(void** pointer, std::size_t size_bytes,
                                                detail::CudaPool pool, detail::CudaStream stream) {
  Call call(*this, "cuda.malloc_from_pool_async");
  if (const auto refused = call.begin_on(stream, size_bytes)) return *refused;
  EmulatedPool* const source = find_pool(call.lock, pool);
  if (source == nullptr || size_bytes == 0) return CudaStatus::INVALID_VALUE;
  EmulatedCapture* const capture = call.stream->capture.get();
  if (capture != nullptr && !capture->is_valid()) return CudaStatus::STREAM_CAPTURE_INVALIDATED;

  std::shared_ptr<Allocation> taken =
      capture == nullptr ? take_from_pool(call.lock, *source, size_bytes, *call.stream)
                         : memory_.take(source->device, size_bytes);
  if (taken == nullptr) return CudaStatus::OUT_OF_MEMORY;
  taken->is_ready = false;
  if (capture != nullptr) {
    taken->pool = source;
    taken->is_of_graph = true;
    capture->allocations.push_back(taken);
  }
  *pointer = taken->address;
  return submit(
      call.lock, *call.stream, "cuda.malloc_from_pool_async", {}, false,
      [this, taken](EmulatedMachine::Lock& lock, EmulatedStream& queue) {
        note_access(lock, queue, "cuda.malloc_from_pool_async", *taken,
                    {taken->address, taken->size_bytes});
        return [this, taken](std::span<std::byte* const>) {
          std::memset(taken->view, kFreshMemoryByte, taken->size_bytes);
          const auto held = machine_.lock();
          taken->is_ready = true;
          taken->is_freed = false;
        };
      },
      call.fault);
}

CudaStatus EmulatedCuda::free_async(void* pointer, detail::CudaStream stream) {
  Call call(*this, "cuda.free_async");
  if (const auto refused = call.begin_on(stream)) return *refused;
  const std::shared_ptr<Allocation> freed = memory_.find_begin(pointer);
  if (freed == nullptr || freed->pool == nullptr) {
    machine_.report(call.lock, fmt::format("cuda.free_async: {} is no block of a pool (any more)",
                                           static_cast<const void*>(pointer)));
    return CudaStatus::INVALID_VALUE;
  }
  EmulatedCapture* const capture = call.stream->capture.get();
  if (capture != nullptr) {
    const auto& own = capture->allocations;
    if (std::find(own.begin(), own.end(), freed) == own.end()) {
      machine_.report(call.lock, "cuda.free_async: captured, for memory from outside the capture");
      return invalidate(call.lock, *capture, CudaStatus::INVALID_VALUE);
    }
  }
  const CudaStatus status = submit(
      call.lock, *call.stream, "cuda.free_async", {}, false,
      [this, freed](EmulatedMachine::Lock& lock, EmulatedStream& queue) {
        note_access(lock, queue, "cuda.free_async", *freed, {freed->address, freed->size_bytes});
        return [this, freed](std::span<std::byte* const>) {
          {
            const auto held = machine_.lock();
            freed->is_freed = true;
          }
          std::memset(freed->view, kFreedMemoryByte, freed->size_bytes);
        };
      },
      call.fault);
  if (status != CudaStatus::SUCCESS || freed->is_of_graph) return status;
  EmulatedPool& pool = *freed->pool;
  pool.used_bytes -= freed->capacity_bytes;
  memory_.forget(*freed);
  pool.cached.push_back({freed->address, freed->capacity_bytes, call.stream,
                         streams_.push_moment(call.lock, *call.stream), false});
  return CudaStatus::SUCCESS;
}

// ---- memory of the host, copies

CudaStatus EmulatedCuda::malloc_host(void** pointer, std::size_t size_bytes) {
  Call call(*this, "cuda.malloc_host");
  if (const auto refused = call.begin(current_device(), nullptr, size_bytes)) return *refused;
  if (const auto refused = refuse_while_capturing(call.lock)) return *refused;
  const std::shared_ptr<Allocation> taken = memory_.take_pinned(current_device(), size_bytes);
  if (taken == nullptr) return CudaStatus::OUT_OF_MEMORY;
  *pointer = taken->address;
  return CudaStatus::SUCCESS;
}

// As cudaFreeHost, it waits for whatever runs on any device.
CudaStatus EmulatedCuda::free_host(void* pointer) {
  Call call(*this, "cuda.free_host");
  if (const auto refused = call.begin(current_device())) return *refused;
  if (const auto refused = refuse_while_capturing(call.lock)) return *refused;
  const std::shared_ptr<Allocation> freed = memory_.find_begin(pointer);
  if (freed == nullptr || freed->kind != detail::CudaMemoryKind::HOST) {
    machine_.report(call.lock, "cuda.free_host: no pinned memory begins there (any more)");
    return CudaStatus::INVALID_VALUE;
  }
  (void)await_streams(call.lock, streams_.all_of(call.lock), std::nullopt);
  freed->is_freed = true;
  memory_.return_pinned(*freed);
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::memcpy_async(void* destination, const void* source, std::size_t size_bytes,
                                      detail::CudaStream stream) {
  Call call(*this, "cuda.memcpy_async");
  if (const auto refused = call.begin_on(stream, size_bytes)) return *refused;
  const auto is_pageable = [&](const void* pointer) {
    return size_bytes > 0 && memory_.find(pointer) == nullptr &&
           memory_.device_of_address(pointer) < 0;
  };
  const bool waits = is_pageable(destination) || is_pageable(source);
  if (waits && call.stream->capture != nullptr) {
    return invalidate(call.lock, *call.stream->capture, CudaStatus::STREAM_CAPTURE_UNSUPPORTED);
  }
  const CudaStatus status = submit(
      call.lock, *call.stream, "cuda.memcpy_async",
      {{destination, size_bytes}, {source, size_bytes, 1, false}}, false,
      [size_bytes](EmulatedMachine::Lock&, EmulatedStream&) {
        return [size_bytes](std::span<std::byte* const> views) {
          if (size_bytes > 0) std::memmove(views[0], views[1], size_bytes);
        };
      },
      call.fault);
  if (status != CudaStatus::SUCCESS || !waits) return status;
  // Of ordinary memory CUDA returns when the copy is done.
  const auto end = streams_.push_moment(call.lock, *call.stream);
  if (machine_.await(call.lock, [&] { return end->has_come; })) {
    streams_.learn(call.lock, end->clock);
  }
  return kept_[static_cast<std::size_t>(call.stream->device)];
}

CudaStatus EmulatedCuda::memset_async(void* destination, int byte, std::size_t size_bytes,
                                      detail::CudaStream stream) {
  return launch({"cuda.memset_async",
                 stream,
                 size_bytes,
                 {{destination, size_bytes}},
                 false,
                 [byte, size_bytes](std::span<std::byte* const> views) {
                   if (size_bytes > 0) std::memset(views[0], byte, size_bytes);
                 }});
}

// ---- for tests

void* EmulatedCuda::view(const void* pointer) {
  const auto lock = machine_.lock();
  return memory_.view_of(pointer);
}

void* EmulatedCuda::malloc_device(int device, std::size_t size_bytes) {
  const auto lock = machine_.lock();
  const std::shared_ptr<Allocation> taken = memory_.take(device, size_bytes);
  if (taken == nullptr) return nullptr;
  std::memset(taken->view, kFreshMemoryByte, size_bytes);
  return taken->address;
}

void EmulatedCuda::free_device(void* pointer) {
  auto lock = machine_.lock();
  const std::shared_ptr<Allocation> freed = memory_.find_begin(pointer);
  if (freed == nullptr || freed->pool != nullptr) {
    machine_.report(lock, "free_device: nothing of malloc_device() begins there (any more)");
    return;
  }
  freed->is_freed = true;
  std::memset(freed->view, kFreedMemoryByte, freed->size_bytes);
  memory_.forget(*freed);
  memory_.return_bytes(freed->device, freed->address, freed->capacity_bytes);
}

std::size_t EmulatedCuda::num_allocations() {
  const auto lock = machine_.lock();
  return memory_.num_allocations();
}

std::size_t EmulatedCuda::num_pinned() {
  const auto lock = machine_.lock();
  return memory_.num_pinned();
}

}  // namespace crossdevice::testing
