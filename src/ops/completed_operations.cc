// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/completed_operations.h"

#include <algorithm>

namespace crossdevice::detail {

/// With the lock. There are few: those that GPUs have not come to the end of.
CompletedOperations::Operation& CompletedOperations::operation(std::uint64_t sequence) {
  const auto found = std::ranges::find(operations_, sequence, &Operation::sequence);
  if (found != operations_.end()) return *found;
  return operations_.emplace_back(Operation{.sequence = sequence});
}

void CompletedOperations::begin_part(std::uint64_t sequence) {
  if (target_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return;
  ++operation(sequence).num_parts;
  has_parts_.store(true, std::memory_order_relaxed);  // its other reader is this thread
}

void CompletedOperations::end_part(std::uint64_t sequence) {
  if (target_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return;
  --operation(sequence).num_parts;
  report();
}

void CompletedOperations::close(std::uint64_t sequence, bool counts) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return;
  Operation& ended = operation(sequence);
  ended.is_closed = true;
  ended.counts = counts;
  report();
}

void CompletedOperations::stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  operations_.clear();
  has_parts_.store(true, std::memory_order_relaxed);  // so that end() comes by
}

/// With the lock.
void CompletedOperations::report() {
  const auto is_over = [](const Operation& each) { return each.is_closed && each.num_parts == 0; };
  const auto rest = std::ranges::find_if_not(operations_, is_over);
  for (auto each = operations_.begin(); each != rest; ++each) {
    if (each->counts) target_->store(each->sequence, std::memory_order_relaxed);
  }
  operations_.erase(operations_.begin(), rest);
  if (operations_.empty()) has_parts_.store(false, std::memory_order_release);
}

}  // namespace crossdevice::detail
