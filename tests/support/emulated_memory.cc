// SPDX-License-Identifier: Apache-2.0
#include "support/emulated_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace crossdevice::testing {
namespace {

constexpr std::size_t kBlockBytes = 512;

std::size_t round_up(std::size_t size_bytes) {
  return (size_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

std::byte* map(std::size_t size_bytes, int protection, int file) {
  void* const address =
      ::mmap(nullptr, size_bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(address);
}

}  // namespace

EmulatedMemory::EmulatedMemory(int num_devices, std::size_t bytes_per_device)
    : bytes_per_device_(round_up(bytes_per_device)) {
  arenas_.reserve(static_cast<std::size_t>(num_devices));
  for (int device = 0; device < num_devices; ++device) {
    const int file = ::memfd_create("emulated GPU", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes_per_device_)) != 0) {
      throw std::bad_alloc();
    }
    Arena arena;
    arena.address = map(bytes_per_device_, PROT_NONE, file);
    arena.view = map(bytes_per_device_, PROT_READ | PROT_WRITE, file);
    arena.free.emplace(0, bytes_per_device_);
    (void)::close(file);
    arenas_.push_back(std::move(arena));
  }
}

EmulatedMemory::~EmulatedMemory() {
  for (const Arena& arena : arenas_) {
    (void)::munmap(arena.address, bytes_per_device_);
    (void)::munmap(arena.view, bytes_per_device_);
  }
  for (const auto& [address, allocation] : allocations_) {
    if (allocation->kind == detail::CudaMemoryKind::HOST) std::free(allocation->view);
  }
}

std::shared_ptr<Allocation> EmulatedMemory::take(int device, std::size_t size_bytes) {
  Arena& arena = arenas_[static_cast<std::size_t>(device)];
  const std::size_t capacity = round_up(size_bytes == 0 ? 1 : size_bytes);
  for (auto [offset, size] : arena.free) {
    if (size < capacity) continue;
    arena.free.erase(offset);
    if (size > capacity) arena.free.emplace(offset + capacity, size - capacity);
    return take_again(device, arena.address + offset, size_bytes, capacity);
  }
  return nullptr;
}

std::shared_ptr<Allocation> EmulatedMemory::take_again(int device, std::byte* address,
                                                       std::size_t size_bytes,
                                                       std::size_t capacity_bytes) {
  auto allocation = std::make_shared<Allocation>();
  allocation->address = address;
  allocation->view = view_of(address);
  allocation->size_bytes = size_bytes;
  allocation->capacity_bytes = capacity_bytes;
  allocation->device = device;
  allocations_[address] = allocation;
  return allocation;
}

std::shared_ptr<Allocation> EmulatedMemory::take_pinned(int device, std::size_t size_bytes) {
  const std::size_t capacity = round_up(size_bytes == 0 ? 1 : size_bytes);
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, capacity));
  if (memory == nullptr) return nullptr;
  std::memset(memory, kFreshMemoryByte, capacity);
  auto allocation = std::make_shared<Allocation>();
  allocation->address = memory;
  allocation->view = memory;
  allocation->size_bytes = size_bytes;
  allocation->capacity_bytes = capacity;
  allocation->device = device;
  allocation->kind = detail::CudaMemoryKind::HOST;
  allocations_[memory] = allocation;
  return allocation;
}

void EmulatedMemory::forget(const Allocation& allocation) {
  allocations_.erase(allocation.address);
}

void EmulatedMemory::return_bytes(int device, std::byte* address, std::size_t capacity_bytes) {
  Arena& arena = arenas_[static_cast<std::size_t>(device)];
  const auto offset = static_cast<std::size_t>(address - arena.address);
  auto place = arena.free.emplace(offset, capacity_bytes).first;
  const auto next = std::next(place);
  if (next != arena.free.end() && place->first + place->second == next->first) {
    place->second += next->second;
    arena.free.erase(next);
  }
  if (place != arena.free.begin()) {
    const auto previous = std::prev(place);
    if (previous->first + previous->second == place->first) {
      previous->second += place->second;
      arena.free.erase(place);
    }
  }
}

void EmulatedMemory::return_pinned(const Allocation& allocation) {
  std::byte* const memory = allocation.view;
  std::memset(memory, kFreedMemoryByte, allocation.capacity_bytes);
  forget(allocation);
  std::free(memory);
}

std::shared_ptr<Allocation> EmulatedMemory::find(const void* pointer) const {
  const auto* const byte = static_cast<const std::byte*>(pointer);
  auto found = allocations_.upper_bound(byte);
  if (found == allocations_.begin()) return nullptr;
  --found;
  const Allocation& allocation = *found->second;
  const bool is_inside =
      byte < allocation.address + allocation.size_bytes || byte == allocation.address;
  return is_inside ? found->second : nullptr;
}

std::shared_ptr<Allocation> EmulatedMemory::find_begin(const void* pointer) const {
  const auto found = allocations_.find(static_cast<const std::byte*>(pointer));
  return found == allocations_.end() ? nullptr : found->second;
}

int EmulatedMemory::device_of_address(const void* pointer) const {
  const auto* const byte = static_cast<const std::byte*>(pointer);
  for (std::size_t device = 0; device < arenas_.size(); ++device) {
    const std::byte* const begin = arenas_[device].address;
    if (byte >= begin && byte < begin + bytes_per_device_) return static_cast<int>(device);
  }
  return -1;
}

std::byte* EmulatedMemory::view_of(const void* pointer) const {
  auto* const byte = static_cast<std::byte*>(const_cast<void*>(pointer));
  const int device = device_of_address(pointer);
  if (device < 0) return byte;
  const Arena& arena = arenas_[static_cast<std::size_t>(device)];
  return arena.view + (byte - arena.address);
}

std::string EmulatedMemory::resolve(const MemoryUse& use, ResolvedUse* resolved) const {
  *resolved = {use, nullptr, nullptr};
  if (use.size_bytes == 0) return "";
  const auto address = reinterpret_cast<std::uintptr_t>(use.pointer);
  if (use.pointer == nullptr) return fmt::format("a null pointer to {} bytes", use.size_bytes);
  if (address % use.alignment != 0) {
    return fmt::format("{} is not aligned to {} bytes", use.pointer, use.alignment);
  }
  resolved->view = view_of(use.pointer);
  resolved->allocation = find(use.pointer);
  if (resolved->allocation == nullptr) {
    const int device = device_of_address(use.pointer);
    if (device < 0) return "";
    return fmt::format("{} of device {} is not allocated (never, or not any more)", use.pointer,
                       device);
  }
  const Allocation& allocation = *resolved->allocation;
  const auto offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(use.pointer) - allocation.address);
  if (use.size_bytes > allocation.size_bytes - offset) {
    return fmt::format("{} bytes at {} reach beyond the end of an allocation of {} bytes at {}",
                       use.size_bytes, use.pointer, allocation.size_bytes,
                       static_cast<const void*>(allocation.address));
  }
  return "";
}

std::string EmulatedMemory::check_now(const ResolvedUse& use, int device, bool by_kernel) const {
  if (use.use.size_bytes == 0) return "";
  if (use.is_pageable()) {
    if (!by_kernel) return "";
    return fmt::format("{} is ordinary host memory, which a kernel does not reach",
                       use.use.pointer);
  }
  const Allocation& allocation = *use.allocation;
  if (!allocation.is_ready) {
    return fmt::format("{} was used before its allocation was due in its stream", use.use.pointer);
  }
  if (allocation.is_freed) {
    return fmt::format("{} was used after it was freed in its stream", use.use.pointer);
  }
  const bool is_local =
      allocation.kind == detail::CudaMemoryKind::HOST || allocation.device == device;
  if (is_local || !by_kernel) return "";
  const bool is_open = allocation.pool == nullptr
                           ? has_access(device, allocation.device)
                           : allocation.pool->accessible_from.contains(device);
  if (is_open) return "";
  return fmt::format("a kernel of device {} used memory of device {} without access", device,
                     allocation.device);
}

std::size_t EmulatedMemory::num_pinned() const {
  return static_cast<std::size_t>(std::count_if(
      allocations_.begin(), allocations_.end(),
      [](const auto& each) { return each.second->kind == detail::CudaMemoryKind::HOST; }));
}

}  // namespace crossdevice::testing
