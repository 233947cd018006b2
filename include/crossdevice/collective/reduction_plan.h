// SPDX-License-Identifier: Apache-2.0
/// What a schedule does to an element, for an executor that reaches every participant's memory: which inputs are combined in which order.
///
/// Between participants of one process nothing needs to be sent. What is left of an all-reduce is the order of its additions, which
/// decides the bits of the result: a few kernel passes per range of elements, the last of which writes all outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "crossdevice/collective/schedule.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// One kernel pass. An operand below the number of participants n is that participant's input, n + s is intermediate row s.
struct ReductionPass {
  std::vector<std::uint32_t> operands;  ///< combined in order
  std::uint32_t first_group = 0;        ///< as in reduce_kernel.h
  /// The intermediate row s that it writes, which may be one of the operands. The last pass of a recipe writes the outputs instead.
  std::uint32_t row = 0;
  friend bool operator==(const ReductionPass&, const ReductionPass&) = default;
};

/// The passes that make an element's result, in order.
struct ReductionRecipe {
  std::vector<ReductionPass> passes;  ///< at least one
  std::size_t num_rows = 0;           ///< intermediate ones
  friend bool operator==(const ReductionRecipe&, const ReductionRecipe&) = default;
};

/// Which recipe each element has.
struct ReductionPlan {
  struct Part {
    Interval range;
    std::size_t recipe = 0;  ///< index in `recipes`
    friend bool operator==(const Part&, const Part&) = default;
  };
  std::size_t num_participants = 0;
  std::size_t num_elements = 0;
  std::vector<Part> parts;  ///< one behind the other, covering all elements
  std::vector<ReductionRecipe> recipes;
  friend bool operator==(const ReductionPlan&, const ReductionPlan&) = default;
};

/// Whether an intermediate result that is stored in its own dtype is rounded: float16, bfloat16, float8.
[[nodiscard]] CROSSDEVICE_EXPORT bool rounds_when_stored(DType dtype);

/// The plan of an all-reduce for elements of `dtype`. Where storing rounds, each reducing step is a pass of its own, so that results have
/// the bits that participants get who send intermediate results to each other. Elsewhere steps whose results are combined next are one
/// pass, which makes no difference to the bits.
///
/// Errors   ValueError: the schedule is no all-reduce: in the end some participant lacks a contribution, has one twice, or has combined
///          them in another order than the others. Also a step that names participants or elements that there are not, or a source twice.
/// Cost     steps times the parts that the ranges cut the elements into: plans are meant to be kept.
[[nodiscard]] CROSSDEVICE_EXPORT ReductionPlan plan_reduction(const Schedule& schedule,
                                                              DType dtype);

/// All inputs in order, in one pass: the plan with the bits of direct_reduce.
[[nodiscard]] CROSSDEVICE_EXPORT ReductionPlan plan_direct_reduction(std::size_t num_participants,
                                                                     std::size_t num_elements);

}  // namespace crossdevice
