// SPDX-License-Identifier: Apache-2.0
/// A batch of values as rows of elements, as a ScheduleExecutor takes them: large values where they lie, small ones side by side in a buffer.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/core/dtype.h"

#include "collective/detail/scratch_memory.h"

namespace crossdevice::detail {

/// One row. Before it travels: fill(); when it has the result: finish().
struct BatchRow {
  DType dtype = DType::FLOAT32;  ///< as it travels
  std::size_t num_elements = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  ///< the row; exactly the input, or no overlap with it
  bool is_staged = false;       ///< nothing of the caller's is written before finish()
  std::size_t first_member = 0;
  std::size_t num_members = 0;

  [[nodiscard]] std::size_t size_bytes() const { return num_elements * size_in_bytes(dtype); }
};

/// Kept from use to use, with its memory.
class RowBatch {
 public:
  /// Values from here on are reduced where they lie, but for the mean of integers, whose sums travel in 64 bits.
  static constexpr std::size_t kDirectBytes = std::size_t{1} << 20;
  /// A row of small values is closed when it exceeds this, and no more rows are laid out when all of them together exceed the other.
  static constexpr std::size_t kRowBytes = std::size_t{8} << 20;
  static constexpr std::size_t kStagingBytes = std::size_t{32} << 20;

  /// Takes values from the front, and says how many. Writes nothing.
  std::size_t lay_out(ReduceOp op, std::span<const CollectiveValue> values);
  [[nodiscard]] std::span<const BatchRow> rows() const { return rows_; }
  [[nodiscard]] bool has_direct_rows() const { return has_direct_rows_; }

  /// Combines this worker's inputs into the row's `input`; a sum, where the op is a mean.
  void fill(const BatchRow& row);
  /// Puts the result into the outputs. `divisor`: what integer sums are divided by.
  void finish(const BatchRow& row, std::size_t divisor);
  /// Lets go of the caller's tensors.
  void clear();

 private:
  /// A value in its row.
  struct Member {
    const CollectiveValue* value = nullptr;
    std::size_t offset = 0;  ///< in elements
  };
  [[nodiscard]] bool is_integer_mean(const CollectiveValue& value) const;
  [[nodiscard]] std::byte* place(const BatchRow& row, const Member& member) const;
  void combine(const CollectiveValue& value, std::byte* result) const;
  void add_staged_rows(std::span<const std::size_t> staged,
                       std::span<const CollectiveValue> values);

  ReduceOp op_ = ReduceOp::SUM;
  bool has_direct_rows_ = false;
  std::vector<BatchRow> rows_;
  std::vector<Member> members_;
  std::vector<std::size_t> staged_;
  ScratchMemory staging_;
};

}  // namespace crossdevice::detail
