// SPDX-License-Identifier: Apache-2.0
/// Block by block, so that what one pass writes the next one finds in the first-level cache.
///
/// Why inputs may be outputs: only the last pass of a block writes outputs, and for element i of a tensor that is address i of each.
/// All passes before it have read what they need of the block by then, and no other block needs these addresses. The last pass itself
/// may read what it writes: reduce_kernel.h allows outputs that are exactly an input, and intermediate rows overlap no output.
#include "collective/detail/recipe_runner.h"

#include <algorithm>
#include <new>

namespace crossdevice::detail {
namespace {

// Two rows fit into a first-level cache, and a pass over one takes long enough to hide what it costs to start.
constexpr std::size_t kRowBytes = std::size_t{16} << 10;
constexpr std::align_val_t kRowAlignment{64};

const std::byte* advance(const void* base, std::size_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}
std::byte* advance(void* base, std::size_t bytes) { return static_cast<std::byte*>(base) + bytes; }

bool is_in_place(const DirectReduceTensor& tensor) {
  return std::ranges::any_of(tensor.outputs, [&tensor](const void* output) {
    return std::ranges::find(tensor.inputs, output) != tensor.inputs.end();
  });
}

}  // namespace

void RecipeRunner::AlignedDelete::operator()(std::byte* memory) const {
  ::operator delete[](memory, kRowAlignment);
}

void RecipeRunner::Needs::include(const DirectReduceTensor& tensor, const ReductionRecipe& recipe) {
  // What has one pass goes to the outputs at once.
  if (recipe.passes.size() > 1) num_rows_ = std::max(num_rows_, recipe.num_rows);
  for (const ReductionPass& pass : recipe.passes) {
    num_operands_ = std::max(num_operands_, pass.operands.size());
  }
  num_outputs_ = std::max(num_outputs_, tensor.outputs.size());
}

void RecipeRunner::reserve(const Needs& needs) {
  operands_.reserve(needs.num_operands_);
  outputs_.reserve(needs.num_outputs_);
  reserve_rows(needs.num_rows_);
}

void RecipeRunner::reserve_rows(std::size_t num_rows) {
  if (num_rows <= num_rows_) return;
  rows_.reset(static_cast<std::byte*>(::operator new[](num_rows* kRowBytes, kRowAlignment)));
  num_rows_ = num_rows;
}

std::byte* RecipeRunner::row(std::size_t row) const { return rows_.get() + row * kRowBytes; }

std::span<void* const> RecipeRunner::outputs_at(ReduceOp op, const DirectReduceTensor& tensor,
                                                std::size_t begin) {
  const std::size_t offset = begin * size_in_bytes(result_dtype(op, tensor.dtype));
  outputs_.clear();
  for (void* const output : tensor.outputs) outputs_.push_back(advance(output, offset));
  return outputs_;
}

void RecipeRunner::run(ReduceOp op, const DirectReduceTensor& tensor, const ReductionRecipe& recipe,
                       const Interval& range, StoreMode stores) {
  if (range.count == 0 || tensor.outputs.empty()) return;
  if (recipe.passes.size() == 1) {
    run_pass(op, tensor, recipe.passes[0], range, outputs_at(op, tensor, range.begin), stores);
    return;
  }
  reserve_rows(recipe.num_rows);
  // Outputs that the passes before the last one have read lie in the caches already.
  if (is_in_place(tensor)) stores = StoreMode::CACHED;
  const std::size_t block = kRowBytes / size_in_bytes(tensor.dtype);
  for (std::size_t begin = range.begin; begin < range.end(); begin += block) {
    run_block(op, tensor, recipe, {.begin = begin, .count = std::min(block, range.end() - begin)},
              stores);
  }
}

void RecipeRunner::run_block(ReduceOp op, const DirectReduceTensor& tensor,
                             const ReductionRecipe& recipe, const Interval& block,
                             StoreMode stores) {
  const bool divides = op == ReduceOp::MEAN;
  const ReduceOp step_op = divides ? ReduceOp::SUM : op;
  for (const ReductionPass& pass : recipe.passes) {
    const bool is_last = &pass == &recipe.passes.back();
    if (is_last && !divides) {
      run_pass(step_op, tensor, pass, block, outputs_at(op, tensor, block.begin), stores);
      return;
    }
    void* const into[] = {row(pass.row)};
    run_pass(step_op, tensor, pass, block, into, StoreMode::CACHED);
  }
  std::byte* const sum = row(recipe.passes.back().row);
  divide_elements(tensor.dtype, sum, block.count, static_cast<double>(tensor.inputs.size()));
  const void* const quotient[] = {sum};
  const ReducePass copy{.op = step_op,
                        .dtype = tensor.dtype,
                        .inputs = quotient,
                        .outputs = outputs_at(op, tensor, block.begin),
                        .first_group = 0,
                        .stores = stores};
  find_reduce_kernel(step_op, tensor.dtype)(copy, 0, block.count);
}

void RecipeRunner::run_pass(ReduceOp op, const DirectReduceTensor& tensor,
                            const ReductionPass& pass, const Interval& block,
                            std::span<void* const> outputs, StoreMode stores) {
  const std::size_t num_inputs = tensor.inputs.size();
  const std::size_t offset = block.begin * size_in_bytes(tensor.dtype);
  operands_.clear();
  for (const std::uint32_t operand : pass.operands) {
    operands_.push_back(operand < num_inputs ? advance(tensor.inputs[operand], offset)
                                             : row(operand - num_inputs));
  }
  const ReducePass kernel_pass{.op = op,
                               .dtype = tensor.dtype,
                               .inputs = operands_,
                               .outputs = outputs,
                               .first_group = pass.first_group,
                               .stores = stores};
  find_reduce_kernel(op, tensor.dtype)(kernel_pass, 0, block.count);
}

}  // namespace crossdevice::detail
