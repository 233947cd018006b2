// SPDX-License-Identifier: Apache-2.0
/// Finds the pool of a device.
#include "crossdevice/device/memory_pool.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/counters.h"
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

  /// Calls `use(device, pool)` for every pool that there is.
  template <class Use>
  void for_each(const Use& use) const {
    for (const Bucket& bucket : buckets_) {
      for (const Entry* entry = bucket.load(std::memory_order_acquire); entry != nullptr;
           entry = entry->next) {
        use(entry->device, *entry->pool);
      }
    }
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

void add_pool_samples(std::vector<CounterSample>& samples);

PoolTable& pool_table() {
  // Never destroyed: tensors with static storage duration give back their memory after main.
  static PoolTable& table = []() -> PoolTable& {
    add_counter_source(&add_pool_samples);
    return *new PoolTable;
  }();
  return table;
}

/// What counters() says about pools.
void add_pool_samples(std::vector<CounterSample>& samples) {
  if (detail::is_forked_child()) return;  // a pool's lock may be held for ever
  pool_table().for_each([&samples](const Device& device, const MemoryPool& pool) {
    const MemoryPoolStatistics now = pool.statistics();
    const std::string labels = fmt::format("device=\"{}\"", device.short_name());
    const auto add = [&](const char* name, const char* help, CounterKind kind, auto value) {
      samples.push_back({.name = name,
                         .labels = labels,
                         .help = help,
                         .kind = kind,
                         .value = static_cast<double>(value)});
    };
    add("crossdevice_pool_bytes_in_use", "Bytes of the pool's blocks that are handed out.",
        CounterKind::GAUGE, now.bytes_in_use);
    add("crossdevice_pool_peak_bytes_in_use", "The most that were, since the last reset.",
        CounterKind::GAUGE, now.peak_bytes_in_use);
    add("crossdevice_pool_bytes_reserved", "Bytes of address space that the pool holds.",
        CounterKind::GAUGE, now.bytes_reserved);
    add("crossdevice_pool_allocations_total", "Blocks handed out.", CounterKind::COUNTER,
        now.num_allocations);
    add("crossdevice_pool_cache_hits_total", "Of these, the ones that had been given back before.",
        CounterKind::COUNTER, now.num_cache_hits);
  });
}

}  // namespace

MemoryPool& MemoryPool::of(const Device& device) {
  device.require_present();
  return pool_table().of(device);
}

std::uint64_t MemoryPool::num_moves() { return num_moves_begun.load(); }
void MemoryPool::count_move() { num_moves_begun.fetch_add(1); }

detail::GpuMemoryPool& detail::gpu_memory_pool_of(const Device& gpu) {
  return static_cast<GpuMemoryPool&>(MemoryPool::of(gpu));
}

}  // namespace crossdevice
