// SPDX-License-Identifier: Apache-2.0
/// What several replicas of each worker have, laid out so that every worker gets everybody's elements of a part of its own: where no worker may combine its
/// own replicas before.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/collective/reduction_plan.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"

#include "collective/detail/scratch_memory.h"

namespace crossdevice::detail {

/// Goes through a batch in rows of one dtype each. Of a row each rank owns as many elements, part_elements(), but for the last ones, that have fewer:
///
///   fill()     this worker's inputs, as a block for each owner: [replica][element of the part]; its own lies in received() at once
///   ...        every owner gets its blocks: received() holds [rank][replica][element]
///   combine()  the owner's part of the results, by rank and then in the replicas' order
///   ...        all owners' parts are gathered in results()
///   finish()   into the outputs
///
/// Memory   kept from use to use: twice what a worker's replicas have of a row, and one row of results.
/// Threads  one at a time.
class ReplicaRows {
 public:
  /// What a worker's replicas have of a row, together.
  static constexpr std::size_t kRowBytes = std::size_t{32} << 20;

  ReplicaRows(std::size_t num_ranks, std::size_t rank) : num_ranks_(num_ranks), rank_(rank) {}

  /// `values`: checked, and there until the last row is finished.
  void begin(ReduceOp op, std::span<const CollectiveValue> values);
  /// Lays out the next row; false: none is left.
  [[nodiscard]] bool next();

  // Of the row.
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] DType type_of_results() const { return result_dtype(op_, dtype_); }
  [[nodiscard]] std::size_t num_elements() const { return num_elements_; }
  [[nodiscard]] std::size_t part_elements() const { return part_; }
  [[nodiscard]] std::size_t block_elements() const { return part_ * num_replicas_; }
  [[nodiscard]] const std::byte* block_for(std::size_t owner) const;
  [[nodiscard]] std::byte* received() const { return received_.begin(); }
  [[nodiscard]] std::byte* results() const { return results_.begin(); }

  void fill();
  void combine();
  void finish();
  /// Lets go of the caller's tensors.
  void clear();

 private:
  /// Elements of a value that follow each other in the row.
  struct Piece {
    const CollectiveValue* value = nullptr;
    Interval elements;       // of the value
    std::size_t offset = 0;  // in the row
  };
  [[nodiscard]] std::byte* block_at(std::size_t owner) const;
  [[nodiscard]] std::size_t count_of(std::size_t owner) const;
  void take(const CollectiveValue& value, std::size_t most);

  std::size_t num_ranks_;
  std::size_t rank_;
  ReduceOp op_ = ReduceOp::SUM;
  std::span<const CollectiveValue> values_{};
  std::size_t num_replicas_ = 0;
  // Where the next row begins: of the values of one dtype after those of another.
  std::size_t next_dtype_ = 0;
  std::size_t next_value_ = 0;
  std::size_t next_element_ = 0;
  DType dtype_ = DType::FLOAT32;
  std::size_t num_elements_ = 0;
  std::size_t part_ = 0;
  std::vector<Piece> pieces_;
  std::vector<const void*> operands_;
  ScratchMemory blocks_;
  ScratchMemory received_;
  ScratchMemory results_;
};

}  // namespace crossdevice::detail
