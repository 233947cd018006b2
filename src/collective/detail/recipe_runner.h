// SPDX-License-Identifier: Apache-2.0
/// Runs a recipe's passes over a range of elements, on the calling thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/collective/reduction_plan.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/reduce_kernel.h"

namespace crossdevice::detail {

/// The working memory of one thread: intermediate rows, and the addresses of a pass. Kept from use to use.
class RecipeRunner {
 public:
  /// How much of it recipes take.
  class Needs {
   public:
    void include(const DirectReduceTensor& tensor, const ReductionRecipe& recipe);

   private:
    friend class RecipeRunner;
    std::size_t num_rows_ = 0;
    std::size_t num_operands_ = 0;
    std::size_t num_outputs_ = 0;
  };
  /// Afterwards run() allocates nothing for what was included.
  void reserve(const Needs& needs);

  /// All of `tensor`'s elements in [begin, begin + count). With STREAMING, outputs that are no inputs are written past the caches.
  void run(ReduceOp op, const DirectReduceTensor& tensor, const ReductionRecipe& recipe,
           const Interval& range, StoreMode stores);

 private:
  void run_block(ReduceOp op, const DirectReduceTensor& tensor, const ReductionRecipe& recipe,
                 const Interval& block, StoreMode stores);
  /// `outputs` are where the block's first element goes.
  void run_pass(ReduceOp op, const DirectReduceTensor& tensor, const ReductionPass& pass,
                const Interval& block, std::span<void* const> outputs, StoreMode stores);
  /// Where the block's first element goes in each output of the tensor.
  [[nodiscard]] std::span<void* const> outputs_at(ReduceOp op, const DirectReduceTensor& tensor,
                                                  std::size_t begin);
  void reserve_rows(std::size_t num_rows);
  [[nodiscard]] std::byte* row(std::size_t row) const;

  struct AlignedDelete {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte[], AlignedDelete> rows_;
  std::size_t num_rows_ = 0;
  std::vector<const void*> operands_;
  std::vector<void*> outputs_;
};

}  // namespace crossdevice::detail
