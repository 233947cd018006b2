// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/value_segment.h"

#include <algorithm>

namespace crossdevice::detail {

bool SegmentCutter::next(ValueSegment& segment) {
  segment.pieces.clear();
  segment.num_elements = 0;
  for (; dtype_ < std::size(kAllDTypes); ++dtype_, value_ = 0, element_ = 0) {
    segment.dtype = kAllDTypes[dtype_];
    const std::size_t max_elements = kSegmentBytes / size_in_bytes(segment.dtype);
    for (; value_ < values_.size(); ++value_, element_ = 0) {
      const CollectiveValue& value = values_[value_];
      const Tensor& first = value.inputs[0];
      if (first.dtype() != segment.dtype || value.outputs.empty()) continue;
      const std::size_t max_pieces = std::max<std::size_t>(1, kMaxShown / value.inputs.size());
      while (element_ < static_cast<std::size_t>(first.num_elements())) {
        const std::size_t room = max_elements - segment.num_elements;
        if (room == 0 || segment.pieces.size() == max_pieces) return true;
        const std::size_t count =
            std::min(room, static_cast<std::size_t>(first.num_elements()) - element_);
        segment.pieces.push_back({.value = value_,
                                  .first_element = element_,
                                  .count = count,
                                  .begin = segment.num_elements});
        segment.num_elements += count;
        element_ += count;
      }
    }
    if (segment.num_elements > 0) {
      ++dtype_;
      value_ = element_ = 0;
      return true;
    }
  }
  return false;
}

Interval part_of(std::size_t num_elements, std::size_t index, std::size_t num_parts) {
  const std::size_t small = num_elements / num_parts;
  const std::size_t num_larger = num_elements % num_parts;
  return {.begin = index * small + std::min(index, num_larger),
          .count = small + (index < num_larger ? 1 : 0)};
}

}  // namespace crossdevice::detail
