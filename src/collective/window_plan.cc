// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/window_plan.h"

#include <algorithm>
#include <limits>

namespace crossdevice::detail {
namespace {

/// Values are cut at multiples of so many elements: no two windows write to one cache line.
constexpr std::size_t kCutElements = 1024;
/// The same where one owner's part ends: a cache line of the smallest elements. What is staged of a slice begins at a line of its own.
constexpr std::size_t kOwnerCutElements = 64;

}  // namespace

std::size_t WindowPlan::total_bytes(ReduceOp op, const CollectiveValue& value, std::size_t count) {
  const DType dtype = value.inputs[0].dtype();
  return count * (value.inputs.size() * size_in_bytes(dtype) +
                  value.outputs.size() * size_in_bytes(result_dtype(op, dtype)));
}

std::size_t WindowPlan::staged_bytes(ReduceOp op, const CollectiveValue& value, std::size_t count) {
  const DType dtype = value.inputs[0].dtype();
  return value.inputs.size() * aligned(count * size_in_bytes(dtype)) +
         value.outputs.size() * aligned(count * size_in_bytes(result_dtype(op, dtype)));
}

void WindowPlan::rebuild(ReduceOp op, std::span<const CollectiveValue> values,
                         std::size_t window_bytes, std::size_t num_owners) {
  slices_.clear();
  window_ends_.clear();
  uncut_.clear();
  staged_bytes_ = 0;
  max_staged_bytes_ = 0;
  const std::size_t limit =
      window_bytes == kWhole ? std::numeric_limits<std::size_t>::max() : window_bytes;
  for (std::size_t v = 0; v < values.size(); ++v) {
    const CollectiveValue& value = values[v];
    const std::size_t element_bytes = total_bytes(op, value, 1);
    const std::size_t num_elements = value.inputs[0].num_elements();
    for (std::size_t begin = 0; begin < num_elements;) {
      const std::size_t room = (limit - std::min(limit, staged_bytes_)) / element_bytes;
      std::size_t count = num_elements - begin;
      if (count > room) {
        count = room / kCutElements * kCutElements;
        if (count == 0 && staged_bytes_ > 0) {
          close_window(op, values, num_owners);
          continue;
        }
        count = std::min(std::max(count, kCutElements), num_elements - begin);
      }
      uncut_.push_back({.value = v, .begin = begin, .count = count});
      staged_bytes_ += staged_bytes(op, value, count);
      begin += count;
    }
  }
  close_window(op, values, num_owners);
}

/// Shares the window out: an owner's part ends where its share of the bytes is full, in the middle of a slice if need be.
void WindowPlan::close_window(ReduceOp op, std::span<const CollectiveValue> values,
                              std::size_t num_owners) {
  std::size_t window_bytes = 0;
  for (const WindowSlice& slice : uncut_) {
    window_bytes += total_bytes(op, values[slice.value], slice.count);
  }
  std::size_t owner = 0;
  std::size_t given_bytes = 0;
  std::size_t window_staged_bytes = 0;
  for (WindowSlice rest : uncut_) {
    const CollectiveValue& value = values[rest.value];
    const std::size_t element_bytes = total_bytes(op, value, 1);
    while (rest.count > 0) {
      std::size_t count = rest.count;
      if (owner + 1 < num_owners) {
        const std::size_t share_end = window_bytes / num_owners * (owner + 1);
        const std::size_t room = (share_end - std::min(share_end, given_bytes)) / element_bytes;
        if (count > room) count = room / kOwnerCutElements * kOwnerCutElements;
        if (count == 0) {
          ++owner;
          continue;
        }
      }
      slices_.push_back({rest.value, rest.begin, count, owner});
      window_staged_bytes += staged_bytes(op, value, count);
      given_bytes += count * element_bytes;
      rest.begin += count;
      rest.count -= count;
    }
  }
  window_ends_.push_back(slices_.size());
  max_staged_bytes_ = std::max(max_staged_bytes_, window_staged_bytes);
  uncut_.clear();
  staged_bytes_ = 0;
}

std::span<const WindowSlice> WindowPlan::window(std::size_t index) const {
  const std::size_t begin = index == 0 ? 0 : window_ends_[index - 1];
  return std::span(slices_).subspan(begin, window_ends_[index] - begin);
}

}  // namespace crossdevice::detail
