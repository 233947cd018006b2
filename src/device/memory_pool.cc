// SPDX-License-Identifier: Apache-2.0
/// Finds the pool of a device.
#include "crossdevice/device/memory_pool.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/shutdown.h"

#include "device/detail/gpu_memory_pool.h"
#include "device/detail/host_memory_pool.h"

namespace crossdevice {
namespace {

/// Sequentially consistent, as is the system call behind it: who reads the old count has done all that it did before while the memory was shared.
std::atomic<std::uint64_t> num_moves_begun{0};

std::unique_ptr<MemoryPool> make_pool(const Device& device) {
  if (device.is_host()) {
    return std::make_unique<detail::HostMemoryPool>(device.short_name(), device.index());
  }
  return std::make_unique<detail::GpuMemoryPool>(detail::GpuDevice::of(device),
                                                 device.short_name());
}

/// Pools by device: found without a lock, added under one, never removed.
class PoolTable {
 public:
  MemoryPool& of(const Device& device) {
    Bucket& bucket =
        buckets_[std::hash<Device>{}(device) / alignof(std::max_align_t) % buckets_.size()];
    if (MemoryPool* pool = find(bucket, device)) return *pool;
    detail::require_not_forked();
    const std::lock_guard lock(mutex_);
    if (MemoryPool* pool = find(bucket, device)) return *pool;
    auto* entry = new Entry{device, make_pool(device), bucket.load(std::memory_order_relaxed)};
    bucket.store(entry, std::memory_order_release);  // pairs with the load in find()
    return *entry->pool;
  }

 private:
  struct Entry {
    Device device;
    std::unique_ptr<MemoryPool> pool;
    Entry* next;
  };
  using Bucket = std::atomic<Entry*>;

  static MemoryPool* find(const Bucket& bucket, const Device& device) {
    Entry* entry = bucket.load(std::memory_order_acquire);
    while (entry != nullptr && !(entry->device == device)) entry = entry->next;
    return entry == nullptr ? nullptr : entry->pool.get();
  }

  std::mutex mutex_;
  std::array<Bucket, 256> buckets_{};
};

}  // namespace

MemoryPool& MemoryPool::of(const Device& device) {
  device.require_present();
  // Never destroyed: tensors with static storage duration give back their memory after main.
  static PoolTable& table = *new PoolTable;
  return table.of(device);
}

std::uint64_t MemoryPool::num_moves() { return num_moves_begun.load(); }
void MemoryPool::count_move() { num_moves_begun.fetch_add(1); }

detail::GpuMemoryPool& detail::gpu_memory_pool_of(const Device& gpu) {
  return static_cast<GpuMemoryPool&>(MemoryPool::of(gpu));
}

}  // namespace crossdevice
