// SPDX-License-Identifier: Apache-2.0
/// Working memory for the length of one call, kept for the next: what a call needs besides its arguments is allocated once.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {

/// A Scratch of one's own until the lease ends. There are as many as leases ever lived at once, so a call inside a call has its own too.
///
/// Scratch  default constructible. Its clear(), if it has one, is called when the lease ends: it lets go of what belongs to others (handles,
///          pointers) and keeps its memory.
/// Errors   FailedPreconditionError: in a child of fork(), where the lock may be held for ever.
/// Threads  any; a lease belongs to one.
/// Cost     two uncontended locks; allocates when more leases live at once than ever before.
template <class Scratch>
class ScratchLease {
 public:
  ScratchLease() : scratch_(Shelf::instance().take()) {}
  ~ScratchLease() {
    if constexpr (requires(Scratch & scratch) { scratch.clear(); }) scratch_->clear();
    Shelf::instance().put_back(std::move(scratch_));
  }
  ScratchLease(const ScratchLease&) = delete;
  ScratchLease& operator=(const ScratchLease&) = delete;
  [[nodiscard]] Scratch& operator*() const { return *scratch_; }
  [[nodiscard]] Scratch* operator->() const { return scratch_.get(); }

 private:
  class Shelf {
   public:
    /// Never destroyed: calls may come while the process exits.
    static Shelf& instance() {
      static Shelf& shelf = *new Shelf;
      return shelf;
    }
    std::unique_ptr<Scratch> take() {
      require_not_forked();
      const std::lock_guard lock(mutex_);
      if (spare_.empty()) {
        spare_.reserve(num_made_ + 1);  // so that put_back() never allocates
        std::unique_ptr<Scratch> made = std::make_unique<Scratch>();
        ++num_made_;
        return made;
      }
      std::unique_ptr<Scratch> scratch = std::move(spare_.back());
      spare_.pop_back();
      return scratch;
    }
    void put_back(std::unique_ptr<Scratch> scratch) noexcept {
      if (is_forked_child()) return;  // fork() was called while the lease lived
      const std::lock_guard lock(mutex_);
      spare_.push_back(std::move(scratch));
    }

   private:
    std::mutex mutex_;  // guards the members below
    std::vector<std::unique_ptr<Scratch>> spare_;
    std::size_t num_made_ = 0;
  };

  std::unique_ptr<Scratch> scratch_;
};

}  // namespace crossdevice::detail
