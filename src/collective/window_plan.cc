// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/window_plan.h"

#include <algorithm>
#include <limits>

namespace crossdevice::detail {
namespace {

/// Values are cut at multiples of so many elements: no two windows write to one cache line.
constexpr std::size_t kCutElements = 1024;

}  // namespace

void WindowPlan::rebuild(ReduceOp op, std::span<const CollectiveValue> values,
                         std::size_t window_bytes) {
  slices_.clear();
  window_ends_.clear();
  staged_bytes_ = 0;
  max_staged_bytes_ = 0;
  const std::size_t limit =
      window_bytes == kWhole ? std::numeric_limits<std::size_t>::max() : window_bytes;
  for (std::size_t v = 0; v < values.size(); ++v) {
    const CollectiveValue& value = values[v];
    const Tensor& first = value.inputs[0];
    const std::size_t input_bytes = size_in_bytes(first.dtype());
    const std::size_t output_bytes = size_in_bytes(result_dtype(op, first.dtype()));
    const std::size_t element_bytes =
        value.inputs.size() * input_bytes + value.outputs.size() * output_bytes;
    const std::size_t num_elements = first.num_elements();
    for (std::size_t begin = 0; begin < num_elements;) {
      const std::size_t room = (limit - std::min(limit, staged_bytes_)) / element_bytes;
      std::size_t count = num_elements - begin;
      if (count > room) {
        count = room / kCutElements * kCutElements;
        if (count == 0 && staged_bytes_ > 0) {
          close_window();
          continue;
        }
        count = std::min(std::max(count, kCutElements), num_elements - begin);
      }
      slices_.push_back({.value = v, .begin = begin, .count = count});
      staged_bytes_ += value.inputs.size() * aligned(count * input_bytes) +
                       value.outputs.size() * aligned(count * output_bytes);
      begin += count;
    }
  }
  close_window();
}

void WindowPlan::close_window() {
  window_ends_.push_back(slices_.size());
  max_staged_bytes_ = std::max(max_staged_bytes_, staged_bytes_);
  staged_bytes_ = 0;
}

std::span<const WindowSlice> WindowPlan::window(std::size_t index) const {
  const std::size_t begin = index == 0 ? 0 : window_ends_[index - 1];
  return std::span(slices_).subspan(begin, window_ends_[index] - begin);
}

}  // namespace crossdevice::detail
