// SPDX-License-Identifier: Apache-2.0
/// Memory of which every thread has a block of its own, and which outlives it: for what threads write without a lock and others read.
#pragma once

#include <atomic>

namespace crossdevice::detail {

/// The list of all blocks, for a variable that is never destroyed. Block has `std::atomic<bool> is_taken` and `Block* next`.
///
/// Why a block is one thread's at a time, and nothing that is in it is lost: take() succeeds for one thread (an exchange); who gives a block back releases it, which
/// the next taker acquires, so that it goes on where the last one stopped. Blocks stay in the list for ever, so whoever reads sees what ended threads have left.
template <class Block>
class ThreadBlocks {
 public:
  /// The others follow by `next`, which is constant once a block is in the list.
  [[nodiscard]] Block* newest() const noexcept { return newest_.load(std::memory_order_acquire); }

  /// A block that no thread has, else what `make` makes, which may be null.
  template <class Make>
  [[nodiscard]] Block* take(const Make& make) {
    for (Block* each = newest(); each != nullptr; each = each->next) {
      if (each->is_taken.load(std::memory_order_relaxed)) continue;
      if (!each->is_taken.exchange(true, std::memory_order_acquire)) return each;
    }
    Block* const made = make();
    if (made == nullptr) return nullptr;
    made->is_taken.store(true, std::memory_order_relaxed);
    made->next = newest_.load(std::memory_order_relaxed);
    while (!newest_.compare_exchange_weak(made->next, made, std::memory_order_release,
                                          std::memory_order_relaxed)) {
    }
    return made;
  }
  static void give_back(Block& block) noexcept {
    block.is_taken.store(false, std::memory_order_release);
  }

 private:
  std::atomic<Block*> newest_{nullptr};
};

/// What a thread has of it: two words, small enough for the room that a program keeps for libraries that it opens late.
template <class Block>
struct OwnBlock {
  Block* block = nullptr;
  bool has_ended = false;  // the thread ends, and takes no other
};

/// Gives the thread's block back when it ends.
template <class Block>
class BlockLease {
 public:
  explicit BlockLease(OwnBlock<Block>& own) : own_(own) {}
  ~BlockLease() {
    Block* const block = own_.block;
    own_ = {.block = nullptr, .has_ended = true};
    if (block != nullptr) ThreadBlocks<Block>::give_back(*block);
  }
  BlockLease(const BlockLease&) = delete;
  BlockLease& operator=(const BlockLease&) = delete;

 private:
  OwnBlock<Block>& own_;
};

}  // namespace crossdevice::detail
