// SPDX-License-Identifier: Apache-2.0
/// Why outputs may be inputs: an output that is an input has the same elements in the same place, and rows are cut by elements. What finish() writes of a row
/// fill() has read, and no later row reads it.
#include "collective/detail/replica_rows.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "crossdevice/collective/direct_reduce.h"

namespace crossdevice::detail {
namespace {

constexpr std::size_t kNumDTypes = std::size(kAllDTypes);

}  // namespace

void ReplicaRows::begin(ReduceOp op, std::span<const CollectiveValue> values) {
  clear();
  op_ = op;
  values_ = values;
  num_replicas_ = values.empty() ? 0 : values[0].inputs.size();
}

void ReplicaRows::clear() {
  values_ = {};
  pieces_.clear();
  next_dtype_ = 0;
  next_value_ = 0;
  next_element_ = 0;
  num_elements_ = 0;
}

bool ReplicaRows::next() {
  pieces_.clear();
  num_elements_ = 0;
  for (; next_dtype_ < kNumDTypes; ++next_dtype_, next_value_ = 0) {
    dtype_ = kAllDTypes[next_dtype_];
    const std::size_t most =
        std::max<std::size_t>(1, kRowBytes / (num_replicas_ * size_in_bytes(dtype_)));
    for (; next_value_ < values_.size() && num_elements_ < most; ++next_value_) {
      const CollectiveValue& value = values_[next_value_];
      if (value.inputs[0].dtype() != dtype_ || value.outputs.empty()) continue;
      take(value, most);
      if (next_element_ != 0) break;  // the row is full
    }
    if (num_elements_ != 0) break;
  }
  if (num_elements_ == 0) return false;
  part_ = (num_elements_ + num_ranks_ - 1) / num_ranks_;
  const std::size_t block_bytes = block_elements() * size_in_bytes(dtype_);
  (void)blocks_.reserve(num_ranks_ * block_bytes);
  (void)received_.reserve(num_ranks_ * block_bytes);
  (void)results_.reserve(num_ranks_ * part_ * size_in_bytes(type_of_results()));
  return true;
}

/// What the row has room for of what is left of the value.
void ReplicaRows::take(const CollectiveValue& value, std::size_t most) {
  const std::size_t all = value.inputs[0].num_elements();
  const std::size_t count = std::min(all - next_element_, most - num_elements_);
  if (count > 0) {
    pieces_.push_back({.value = &value,
                       .elements = {.begin = next_element_, .count = count},
                       .offset = num_elements_});
  }
  num_elements_ += count;
  next_element_ = next_element_ + count == all ? 0 : next_element_ + count;
}

/// Of the owner's part of the row.
std::size_t ReplicaRows::count_of(std::size_t owner) const {
  const std::size_t begin = std::min(num_elements_, owner * part_);
  return std::min(part_, num_elements_ - begin);
}

std::byte* ReplicaRows::block_at(std::size_t owner) const {
  std::byte* const base = owner == rank_ ? received_.begin() : blocks_.begin();
  return base + owner * block_elements() * size_in_bytes(dtype_);
}
const std::byte* ReplicaRows::block_for(std::size_t owner) const { return block_at(owner); }

void ReplicaRows::fill() {
  const std::size_t size = size_in_bytes(dtype_);
  for (const Piece& piece : pieces_) {
    for (std::size_t done = 0; done < piece.elements.count;) {
      const std::size_t at = piece.offset + done;
      const std::size_t owner = at / part_;
      const std::size_t in_part = at % part_;
      const std::size_t count = std::min(part_ - in_part, piece.elements.count - done);
      std::byte* to = block_at(owner) + in_part * size;
      for (const Tensor& input : piece.value->inputs) {
        const auto* const from = static_cast<const std::byte*>(input.data());
        std::memcpy(to, from + (piece.elements.begin + done) * size, count * size);
        to += part_ * size;
      }
      done += count;
    }
  }
}

void ReplicaRows::combine() {
  const std::size_t count = count_of(rank_);
  if (count == 0) return;
  const std::size_t stride = part_ * size_in_bytes(dtype_);
  operands_.clear();
  for (std::size_t i = 0; i < num_ranks_ * num_replicas_; ++i) {
    operands_.push_back(received() + i * stride);
  }
  void* const outputs[] = {results() + rank_ * part_ * size_in_bytes(type_of_results())};
  const DirectReduceTensor tensor{dtype_, count, operands_, outputs};
  (void)direct_reduce({.op = op_, .tensors = std::span<const DirectReduceTensor>(&tensor, 1)});
}

void ReplicaRows::finish() {
  const std::size_t size = size_in_bytes(type_of_results());
  for (const Piece& piece : pieces_) {
    for (const Tensor& output : piece.value->outputs) {
      std::memcpy(static_cast<std::byte*>(output.data()) + piece.elements.begin * size,
                  results() + piece.offset * size, piece.elements.count * size);
    }
  }
}

}  // namespace crossdevice::detail
