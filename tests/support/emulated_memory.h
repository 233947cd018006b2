// SPDX-License-Identifier: Apache-2.0
/// The memory of emulated GPUs: who owns which address, and who may use it when.
///
/// A device's memory is one file in memory, mapped twice: where device pointers point to nobody may read or write, so that host code that takes one
/// for its own crashes there; the emulation uses the other mapping, the view.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "crossdevice/device/cuda_api.h"

#include "support/emulated_machine.h"
#include "support/emulated_order.h"

namespace crossdevice::testing {

inline constexpr int kFreshMemoryByte = 0xFF;  ///< NaN, -1
inline constexpr int kFreedMemoryByte = 0xFB;

/// What an event refers to: guarded by the machine's lock.
struct Moment {
  bool has_come = false;
  std::chrono::steady_clock::time_point came{};
  EmulatedClock clock;
};

struct EmulatedPool;

struct Allocation {
  std::byte* address = nullptr;
  std::byte* view = nullptr;
  std::size_t size_bytes = 0;
  std::size_t capacity_bytes = 0;
  int device = -1;
  detail::CudaMemoryKind kind = detail::CudaMemoryKind::DEVICE;
  EmulatedPool* pool = nullptr;  ///< null: cudaMalloc, pinned memory
  bool is_of_graph = false;
  bool is_ready = true;  ///< in stream order: it may be used
  AccessHistory history;
  bool is_freed = false;  ///< in stream order: it must not be used any more
};

struct EmulatedPool {
  struct Cached {
    std::byte* address = nullptr;
    std::size_t capacity_bytes = 0;
    const void* stream = nullptr;
    std::shared_ptr<Moment> freed;
    bool is_known = false;  ///< to the pool: the host has waited for a point behind `freed`
  };
  int device = -1;
  std::set<int> accessible_from;
  std::vector<Cached> cached;
  std::uint64_t used_bytes = 0;
  std::uint64_t reserved_bytes = 0;
};

/// Memory that an operation is going to use.
struct MemoryUse {
  const void* pointer = nullptr;
  std::size_t size_bytes = 0;
  std::size_t alignment = 1;
  bool is_written = true;
};
struct ResolvedUse {
  MemoryUse use;
  std::shared_ptr<Allocation> allocation;  ///< null: pageable host memory, or nothing to use
  std::byte* view = nullptr;
  [[nodiscard]] bool is_pageable() const { return allocation == nullptr && use.size_bytes > 0; }
};

/// Threads  the machine's lock is held by whoever calls.
class EmulatedMemory {
 public:
  EmulatedMemory(int num_devices, std::size_t bytes_per_device);
  ~EmulatedMemory();
  EmulatedMemory(const EmulatedMemory&) = delete;
  EmulatedMemory& operator=(const EmulatedMemory&) = delete;

  [[nodiscard]] std::size_t bytes_per_device() const { return bytes_per_device_; }
  /// Null: the device is full.
  std::shared_ptr<Allocation> take(int device, std::size_t size_bytes);
  /// As take(), at the start of a block of a pool that is taken again.
  std::shared_ptr<Allocation> take_again(int device, std::byte* address, std::size_t size_bytes,
                                         std::size_t capacity_bytes);
  std::shared_ptr<Allocation> take_pinned(int device, std::size_t size_bytes);
  /// Forgets whose the address is; the bytes stay taken until return_bytes().
  void forget(const Allocation& allocation);
  void return_bytes(int device, std::byte* address, std::size_t capacity_bytes);
  void return_pinned(const Allocation& allocation);

  /// The allocation with that byte; null: none.
  [[nodiscard]] std::shared_ptr<Allocation> find(const void* pointer) const;
  /// The allocation that begins there; null: none.
  [[nodiscard]] std::shared_ptr<Allocation> find_begin(const void* pointer) const;
  /// Whose memory the address would be, allocated or not; -1: none's.
  [[nodiscard]] int device_of_address(const void* pointer) const;
  /// Where the emulation finds what a device pointer names; any other pointer is itself.
  [[nodiscard]] std::byte* view_of(const void* pointer) const;

  /// "" and the resolved use, or what is wrong with it.
  [[nodiscard]] std::string resolve(const MemoryUse& use, ResolvedUse* resolved) const;
  /// In stream order, on `device`: "" or what is wrong. Copy engines reach every device's memory, kernels what was made accessible.
  [[nodiscard]] std::string check_now(const ResolvedUse& use, int device, bool by_kernel) const;

  [[nodiscard]] std::size_t num_allocations() const { return allocations_.size(); }
  [[nodiscard]] std::size_t num_pinned() const;

  /// From the first to the second.
  void allow_access(int device, int peer) { access_.emplace(device, peer); }
  [[nodiscard]] bool has_access(int device, int peer) const {
    return access_.contains({device, peer});
  }

 private:
  struct Arena {
    std::byte* address = nullptr;
    std::byte* view = nullptr;
    std::map<std::size_t, std::size_t> free;  // offset, size
  };
  const std::size_t bytes_per_device_;
  std::vector<Arena> arenas_;
  std::map<const std::byte*, std::shared_ptr<Allocation>> allocations_;
  std::set<std::pair<int, int>> access_;
};

}  // namespace crossdevice::testing
