// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/row_batch.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/core/inline_vector.h"

#include "collective/detail/integer_mean.h"

namespace crossdevice::detail {
namespace {

constexpr std::size_t kAlignment = 256;
/// Up to here a copy takes less time than to find a kernel for it.
constexpr std::size_t kPlainCopyBytes = std::size_t{32} << 10;

constexpr std::size_t aligned(std::size_t size_bytes) {
  return (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

bool RowBatch::is_integer_mean(const CollectiveValue& value) const {
  return op_ == ReduceOp::MEAN && is_integer(value.inputs[0].dtype());
}

std::size_t RowBatch::lay_out(ReduceOp op, std::span<const CollectiveValue> values) {
  clear();
  op_ = op;
  std::size_t taken = 0;
  std::size_t staged_bytes = 0;
  for (; taken < values.size() && staged_bytes <= kStagingBytes; ++taken) {
    const CollectiveValue& value = values[taken];
    const Tensor& first = value.inputs[0];
    if (value.outputs.empty()) continue;
    if (is_integer_mean(value)) {
      staged_.push_back(taken);
      staged_bytes += first.num_elements() * size_in_bytes(kIntegerSumDType);
    } else if (first.size_bytes() < kDirectBytes) {
      staged_.push_back(taken);
      staged_bytes += first.size_bytes();
    } else {
      auto* const output = static_cast<std::byte*>(value.outputs[0].data());
      const bool is_alone = value.inputs.size() == 1;
      rows_.push_back({.dtype = first.dtype(),
                       .num_elements = first.num_elements(),
                       .input = is_alone ? static_cast<const std::byte*>(first.data()) : output,
                       .output = output,
                       .is_staged = false,
                       .first_member = members_.size(),
                       .num_members = 1});
      members_.push_back({.value = &value, .offset = 0});
      has_direct_rows_ = true;
    }
  }
  add_staged_rows(staged_, values);
  return taken;
}

/// Rows of values that travel alike, in the order of their dtypes, which is everybody's.
void RowBatch::add_staged_rows(std::span<const std::size_t> staged,
                               std::span<const CollectiveValue> values) {
  const std::size_t first_row = rows_.size();
  // Twice the dtype, plus 1 where a mean is made of it: integer sums and unsigned integers of 64 bits travel alike, but not in one row, as only the former are
  // divided.
  const auto kind_of = [&](std::size_t index) {
    const bool is_mean = is_integer_mean(values[index]);
    const DType dtype = is_mean ? kIntegerSumDType : values[index].inputs[0].dtype();
    return 2 * static_cast<unsigned>(dtype) + (is_mean ? 1 : 0);
  };
  static_assert(2 * kNumDTypes <= 64);
  std::uint64_t kinds = 0;  // those that there are: mostly one
  for (const std::size_t index : staged) kinds |= std::uint64_t{1} << kind_of(index);
  for (; kinds != 0; kinds &= kinds - 1) {
    const auto kind = static_cast<unsigned>(std::countr_zero(kinds));
    bool is_open = false;
    for (const std::size_t index : staged) {
      if (kind_of(index) != kind) continue;
      if (!is_open) {
        rows_.push_back({.dtype = static_cast<DType>(kind / 2),
                         .is_staged = true,
                         .first_member = members_.size()});
      }
      BatchRow& row = rows_.back();
      members_.push_back({.value = &values[index], .offset = row.num_elements});
      ++row.num_members;
      row.num_elements += values[index].inputs[0].num_elements();
      is_open = row.size_bytes() <= kRowBytes;
    }
  }
  std::size_t total = 0;
  for (std::size_t r = first_row; r < rows_.size(); ++r) {
    total += aligned(rows_[r].size_bytes());
  }
  std::byte* at = total == 0 ? nullptr : staging_.reserve(total);
  for (std::size_t r = first_row; r < rows_.size(); ++r) {
    rows_[r].input = at;
    rows_[r].output = at;
    at += aligned(rows_[r].size_bytes());
  }
}

std::byte* RowBatch::place(const BatchRow& row, const Member& member) const {
  return row.output + member.offset * size_in_bytes(row.dtype);
}

void RowBatch::combine(const CollectiveValue& value, std::byte* result) const {
  const Tensor& first = value.inputs[0];
  if (value.inputs.size() == 1 && first.size_bytes() <= kPlainCopyBytes &&
      !is_integer_mean(value)) {
    if (first.size_bytes() != 0) std::memcpy(result, first.data(), first.size_bytes());
    return;
  }
  InlineVector<const void*, 8> inputs;
  for (const Tensor& input : value.inputs) inputs.push_back(input.data());
  const std::span<const void* const> all(inputs.data(), inputs.size());
  if (is_integer_mean(value)) {
    add_integers(first.dtype(), all, first.num_elements(),
                 reinterpret_cast<std::uint64_t*>(result));
    return;
  }
  void* const outputs[] = {result};
  const DirectReduceTensor tensor{first.dtype(), first.num_elements(), all, outputs};
  (void)direct_reduce({.op = op_ == ReduceOp::MEAN ? ReduceOp::SUM : op_,
                       .tensors = std::span<const DirectReduceTensor>(&tensor, 1)});
}

void RowBatch::fill(const BatchRow& row) {
  for (std::size_t m = 0; m < row.num_members; ++m) {
    const Member& member = members_[row.first_member + m];
    const CollectiveValue& value = *member.value;
    if (row.is_staged || value.inputs.size() > 1) combine(value, place(row, member));
  }
}

void RowBatch::finish(const BatchRow& row, std::size_t divisor) {
  for (std::size_t m = 0; m < row.num_members; ++m) {
    const Member& member = members_[row.first_member + m];
    const Tensor& first = member.value->inputs[0];
    const std::byte* const result = place(row, member);
    for (const Tensor& output : member.value->outputs) {
      if (output.data() == result || output.size_bytes() == 0) continue;
      if (is_integer_mean(*member.value)) {
        divide_integer_sums(first.dtype(), reinterpret_cast<const std::uint64_t*>(result),
                            first.num_elements(), divisor, output.data());
      } else {
        std::memcpy(output.data(), result, output.size_bytes());
      }
    }
  }
}

void RowBatch::clear() {
  has_direct_rows_ = false;
  rows_.clear();
  members_.clear();
  staged_.clear();
}

}  // namespace crossdevice::detail
