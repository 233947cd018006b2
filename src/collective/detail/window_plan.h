// SPDX-License-Identifier: Apache-2.0
/// A batch cut into windows that are reduced one after the other, so that what is staged of it stays in the caches, and each window into the parts
/// that the workers reduce.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/collective/collective_request.h"

namespace crossdevice::detail {

/// Elements [begin, begin + count) of all inputs and outputs of a value, which worker `owner` reduces.
struct WindowSlice {
  std::size_t value = 0;
  std::size_t begin = 0;
  std::size_t count = 0;
  std::size_t owner = 0;
};

/// Depends on the op, the number of workers and on numbers, dtypes and sizes of tensors alone, so all workers make the same windows. Kept from use to use.
class WindowPlan {
 public:
  static constexpr std::size_t kWhole = 0;
  /// Where buffers of a window begin.
  static constexpr std::size_t kAlignment = 64;
  [[nodiscard]] static constexpr std::size_t aligned(std::size_t size_bytes) {
    return (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  /// At least one window, of about `window_bytes` of one worker's inputs and outputs together; kWhole: one window of everything. Of each window every
  /// one of `num_owners` (at least one) gets about as many bytes, by rank: no slice has two owners.
  void rebuild(ReduceOp op, std::span<const CollectiveValue> values, std::size_t window_bytes,
               std::size_t num_owners);

  [[nodiscard]] std::size_t size() const { return window_ends_.size(); }
  [[nodiscard]] std::span<const WindowSlice> window(std::size_t index) const;
  /// Bytes of the largest window if each of its buffers is staged.
  [[nodiscard]] std::size_t max_staged_bytes() const { return max_staged_bytes_; }

 private:
  /// What `count` elements take in all inputs and outputs of a value here.
  [[nodiscard]] static std::size_t total_bytes(ReduceOp op, const CollectiveValue& value,
                                               std::size_t count);
  /// The same where each buffer is staged.
  [[nodiscard]] static std::size_t staged_bytes(ReduceOp op, const CollectiveValue& value,
                                                std::size_t count);
  void close_window(ReduceOp op, std::span<const CollectiveValue> values, std::size_t num_owners);

  std::vector<WindowSlice> slices_;
  std::vector<std::size_t> window_ends_;  // in slices_
  std::vector<WindowSlice> uncut_;        // of the window that is being filled
  std::size_t staged_bytes_ = 0;          // of these
  std::size_t max_staged_bytes_ = 0;
};

}  // namespace crossdevice::detail
