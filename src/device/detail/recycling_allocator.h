// SPDX-License-Identifier: Apache-2.0
/// An allocator for small objects that come and go by the million: given-back memory is kept for the next of its size.
#pragma once

#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

#include "crossdevice/device/shutdown.h"

#include "device/detail/poison.h"

namespace crossdevice::detail {

/// The spare pieces of one size. Never shrinks: it holds as many as were in use at once.
///
/// Errors   take(): FailedPreconditionError in a child of fork(), where the lock may be held for ever.
/// Threads  any.
template <std::size_t Size, std::size_t Alignment>
class RecyclingStore {
 public:
  /// Never destroyed: objects with static storage duration give back after main.
  [[nodiscard]] static RecyclingStore& instance() {
    static RecyclingStore& store = *new RecyclingStore;
    return store;
  }

  [[nodiscard]] void* take() {
    require_not_forked();
    {
      const std::lock_guard lock(mutex_);
      if (Spare* spare = first_) {
        first_ = spare->next;
        unpoison(spare, Size);
        return spare;
      }
    }
    return ::operator new (Size, std::align_val_t{Alignment});
  }

  void give_back(void* piece) noexcept {
    if (is_forked_child()) return;  // a thread that did not come along may hold the lock
    const std::lock_guard lock(mutex_);
    first_ = new (piece) Spare{first_};
    poison(static_cast<std::byte*>(piece) + sizeof(Spare), Size - sizeof(Spare));
  }

 private:
  struct Spare {
    Spare* next;
  };
  static_assert(Size >= sizeof(Spare) && Alignment >= alignof(Spare));

  RecyclingStore() = default;
  std::mutex mutex_;
  Spare* first_ = nullptr;  // guarded by mutex_
};

/// For std::allocate_shared, which allocates one object at a time.
template <class T>
class RecyclingAllocator {
 public:
  using value_type = T;
  RecyclingAllocator() = default;
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>&) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count != 1) throw std::bad_alloc();
    return static_cast<T*>(Store::instance().take());
  }
  void deallocate(T* object, std::size_t) noexcept { Store::instance().give_back(object); }

  template <class U>
  friend bool operator==(const RecyclingAllocator&, const RecyclingAllocator<U>&) {
    return true;
  }

 private:
  using Store = RecyclingStore<sizeof(T), alignof(T)>;
};

}  // namespace crossdevice::detail
