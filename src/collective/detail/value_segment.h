// SPDX-License-Identifier: Apache-2.0
/// A batch as segments: elements of one dtype, side by side as if in one row, of which workers on a machine take a part each.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/collective/split.h"
#include "crossdevice/core/dtype.h"

namespace crossdevice::detail {

/// Elements [first_element, first_element + count) of a value.
struct ValuePiece {
  std::size_t value = 0;
  std::size_t first_element = 0;
  std::size_t count = 0;
  std::size_t begin = 0;  ///< in the segment's row
};

struct ValueSegment {
  DType dtype = DType::FLOAT32;
  std::size_t num_elements = 0;
  std::vector<ValuePiece> pieces;
};

/// Goes through the segments of a batch, dtype after dtype; values without outputs or elements are in none.
class SegmentCutter {
 public:
  static constexpr std::size_t kSegmentBytes = std::size_t{64} << 20;
  /// Inputs that the others are shown at once: what describes them has to fit into a slot.
  static constexpr std::size_t kMaxShown = 4096;

  explicit SegmentCutter(std::span<const CollectiveValue> values) : values_(values) {}
  /// Whether there was another one.
  bool next(ValueSegment& segment);

 private:
  std::span<const CollectiveValue> values_;
  std::size_t dtype_ = 0;  // in kAllDTypes
  std::size_t value_ = 0;
  std::size_t element_ = 0;
};

/// The elements of a row of `num_elements` that part `index` of `num_parts` takes.
[[nodiscard]] Interval part_of(std::size_t num_elements, std::size_t index, std::size_t num_parts);

/// Calls use(piece, first, count) for the elements [first, first + count) of the row that lie in `range`, piece by piece.
template <class Use>
void for_each_piece_in(const ValueSegment& segment, const Interval& range, Use use) {
  const std::size_t end = range.begin + range.count;
  for (const ValuePiece& piece : segment.pieces) {
    const std::size_t first = piece.begin < range.begin ? range.begin : piece.begin;
    const std::size_t piece_end = piece.begin + piece.count;
    const std::size_t last = piece_end < end ? piece_end : end;
    if (first < last) use(piece, first, last - first);
  }
}

}  // namespace crossdevice::detail
