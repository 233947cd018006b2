// SPDX-License-Identifier: Apache-2.0
/// A set that only grows and is read without locks: what interned names are kept in.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

namespace crossdevice::detail {

/// Open addressing over pointers to entries that live for ever. Made for a registry that is never
/// destroyed: neither entries nor outgrown slot arrays are given back (together the arrays hold
/// less than twice the slots of the last one).
///
/// Ordering: an entry is published by a release store into its slot and an array by a release store
/// into slots_; find() acquires
///           both, so a found entry is complete. A reader of an outgrown array may miss a new
///           entry: intern() then finds it under the lock.
/// Threads   any. find() takes no lock; only the first intern() of an entry does.
template <class Entry>
class InternTable {
 public:
  InternTable() = default;
  InternTable(const InternTable&) = delete;
  InternTable& operator=(const InternTable&) = delete;

  /// The entry with this hash for which `equals` holds, or null.
  template <class Equals>
  [[nodiscard]] const Entry* find(std::size_t hash, const Equals& equals) const {
    const Slots* slots = slots_.load(std::memory_order_acquire);
    return slots == nullptr ? nullptr : find_in(*slots, hash, equals);
  }

  /// The entry for which `equals` holds; `make()`, a unique_ptr to it, if there is none yet. `make`
  /// must not use this table.
  template <class Equals, class Make>
  [[nodiscard]] const Entry* intern(std::size_t hash, const Equals& equals, const Make& make) {
    if (const Entry* found = find(hash, equals)) return found;
    const std::scoped_lock lock(mutex_);
    if (const Entry* found = find(hash, equals)) return found;
    std::unique_ptr<const Entry> entry = make();
    Slots& slots = with_room_for_one_more();
    insert(slots, hash, entry.get());
    ++size_;
    return entry.release();
  }

 private:
  struct Slot {
    std::atomic<const Entry*> entry{nullptr};
    std::size_t hash = 0;  // written before the entry is published
  };
  struct Slots {
    explicit Slots(std::size_t capacity) : mask(capacity - 1), slot(new Slot[capacity]) {}
    std::size_t mask;
    std::unique_ptr<Slot[]> slot;
    std::unique_ptr<const Slots> outgrown;  // kept for readers that still look at it
  };

  // Ends because at least half of the slots are free.
  template <class Equals>
  static const Entry* find_in(const Slots& slots, std::size_t hash, const Equals& equals) {
    for (std::size_t i = hash & slots.mask;; i = (i + 1) & slots.mask) {
      const Entry* entry = slots.slot[i].entry.load(std::memory_order_acquire);
      if (entry == nullptr) return nullptr;
      if (slots.slot[i].hash == hash && equals(*entry)) return entry;
    }
  }

  static void insert(Slots& slots, std::size_t hash, const Entry* entry) {
    std::size_t i = hash & slots.mask;
    while (slots.slot[i].entry.load(std::memory_order_relaxed) != nullptr) i = (i + 1) & slots.mask;
    slots.slot[i].hash = hash;
    slots.slot[i].entry.store(entry, std::memory_order_release);
  }

  Slots& with_room_for_one_more() {
    if (owner_ != nullptr && 2 * (size_ + 1) <= owner_->mask + 1) return *owner_;
    auto larger =
        std::make_unique<Slots>(owner_ == nullptr ? kFirstCapacity : 2 * (owner_->mask + 1));
    if (owner_ != nullptr) {
      for (std::size_t i = 0; i <= owner_->mask; ++i) {
        const Entry* entry = owner_->slot[i].entry.load(std::memory_order_relaxed);
        if (entry != nullptr) insert(*larger, owner_->slot[i].hash, entry);
      }
    }
    larger->outgrown = std::move(owner_);
    owner_ = std::move(larger);
    slots_.store(owner_.get(), std::memory_order_release);
    return *owner_;
  }

  static constexpr std::size_t kFirstCapacity = 256;

  std::atomic<const Slots*> slots_{nullptr};
  std::mutex mutex_;              // guards owner_ and size_
  std::unique_ptr<Slots> owner_;  // the current array, through it the outgrown ones
  std::size_t size_ = 0;
};

}  // namespace crossdevice::detail
