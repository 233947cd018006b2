// SPDX-License-Identifier: Apache-2.0
/// Follows each element through a schedule, and writes down what it is combined from.
#include "crossdevice/collective/reduction_plan.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "crossdevice/core/error.h"

#include "collective/detail/schedule_cuts.h"

namespace crossdevice {
namespace {

/// Whether a pass may take over the operands of the pass before it.
enum class Merging : std::uint8_t { NONE, WHERE_EXACT };

/// What elements have been combined to. Number p < n is participant p's input, every other one a combination of earlier numbers.
class Combinations {
 public:
  explicit Combinations(std::size_t num_inputs) : num_inputs_(num_inputs) {}

  [[nodiscard]] std::uint32_t combine(std::vector<std::uint32_t> operands) {
    operands_.push_back(std::move(operands));
    return static_cast<std::uint32_t>(num_inputs_ + operands_.size() - 1);
  }
  [[nodiscard]] bool is_input(std::uint32_t value) const { return value < num_inputs_; }
  [[nodiscard]] const std::vector<std::uint32_t>& operands(std::uint32_t value) const {
    return operands_[value - num_inputs_];
  }

  /// Whether each input is in it once. So each combination is too, and a row that holds one is free once it has been used.
  [[nodiscard]] bool has_every_input_once(std::uint32_t value) const {
    std::vector<bool> seen(num_inputs_, false);
    std::size_t num_seen = 0;
    std::vector<std::uint32_t> open{value};
    while (!open.empty()) {
      const std::uint32_t next = open.back();
      open.pop_back();
      if (!is_input(next)) {
        open.insert(open.end(), operands(next).begin(), operands(next).end());
        continue;
      }
      if (seen[next]) return false;
      seen[next] = true;
      ++num_seen;
    }
    return num_seen == num_inputs_;
  }

 private:
  std::size_t num_inputs_;
  std::vector<std::vector<std::uint32_t>> operands_;
};

/// Writes the recipe of one combination.
class RecipeWriter {
 public:
  RecipeWriter(const Combinations& combinations, std::size_t num_inputs, Merging merging)
      : combinations_(combinations), num_inputs_(num_inputs), merging_(merging) {}

  [[nodiscard]] ReductionRecipe write(std::uint32_t value) {
    if (combinations_.is_input(value)) {
      recipe_.passes.push_back({.operands = {value}, .first_group = 0, .row = 0});
    } else {
      (void)write_pass(value);
    }
    return std::move(recipe_);
  }

 private:
  /// The passes for `value`, operands first; returns the row that holds it then. The recursion is as deep as the schedule has rounds.
  std::uint32_t write_pass(std::uint32_t value) {
    ReductionPass pass;
    std::vector<std::uint32_t> values;
    gather_operands(value, values, pass.first_group);
    std::vector<std::uint32_t> rows;
    for (const std::uint32_t operand : values) {
      if (combinations_.is_input(operand)) {
        pass.operands.push_back(operand);
        continue;
      }
      rows.push_back(write_pass(operand));
      pass.operands.push_back(static_cast<std::uint32_t>(num_inputs_) + rows.back());
    }
    pass.row = rows.empty() ? take_row() : rows[0];
    for (std::size_t i = 1; i < rows.size(); ++i) free_rows_.push_back(rows[i]);
    recipe_.passes.push_back(std::move(pass));
    return recipe_.passes.back().row;
  }

  /// What one pass can combine to `value`. (a + b) + c is a + b + c in order; (a + b) + (c + d) is two groups.
  void gather_operands(std::uint32_t value, std::vector<std::uint32_t>& values,
                       std::uint32_t& first_group) const {
    const std::vector<std::uint32_t>& operands = combinations_.operands(value);
    if (merging_ == Merging::WHERE_EXACT && operands.size() == 2 &&
        !combinations_.is_input(operands[1])) {
      append_chain(operands[0], values);
      first_group = static_cast<std::uint32_t>(values.size());
      append_chain(operands[1], values);
      return;
    }
    if (merging_ == Merging::WHERE_EXACT) {
      append_chain(value, values);
    } else {
      values = operands;
    }
  }

  /// The operands that, combined in order, are `value`.
  void append_chain(std::uint32_t value, std::vector<std::uint32_t>& values) const {
    std::vector<std::uint32_t> backwards;
    while (!combinations_.is_input(value)) {
      const std::vector<std::uint32_t>& operands = combinations_.operands(value);
      backwards.insert(backwards.end(), operands.rbegin(), operands.rend() - 1);
      value = operands[0];
    }
    values.push_back(value);
    values.insert(values.end(), backwards.rbegin(), backwards.rend());
  }

  [[nodiscard]] std::uint32_t take_row() {
    if (free_rows_.empty()) return static_cast<std::uint32_t>(recipe_.num_rows++);
    const std::uint32_t row = free_rows_.back();
    free_rows_.pop_back();
    return row;
  }

  const Combinations& combinations_;
  std::size_t num_inputs_;
  Merging merging_;
  ReductionRecipe recipe_;
  std::vector<std::uint32_t> free_rows_;
};

/// Of each part and participant: what it holds after the last step.
std::vector<std::uint32_t> follow(const Schedule& schedule, const detail::ScheduleCuts& cuts,
                                  Combinations& combinations) {
  const std::size_t n = schedule.num_participants;
  std::vector<std::uint32_t> held(cuts.num_parts() * n);
  for (std::size_t i = 0; i < held.size(); ++i) held[i] = static_cast<std::uint32_t>(i % n);
  std::vector<std::uint32_t> operands;
  for (const ScheduleStep& step : schedule.steps) {
    const std::size_t last = cuts.last_part(step.range);
    for (std::size_t part = cuts.first_part(step.range); part < last; ++part) {
      std::uint32_t* const row = &held[part * n];
      operands.clear();
      for (const std::size_t source : step.sources) operands.push_back(row[source]);
      row[step.target] = operands.size() == 1 ? operands[0] : combinations.combine(operands);
    }
  }
  return held;
}

}  // namespace

bool rounds_when_stored(DType dtype) { return is_floating(dtype) && size_in_bytes(dtype) <= 2; }

ReductionPlan plan_reduction(const Schedule& schedule, DType dtype) {
  const std::size_t n = schedule.num_participants;
  const Merging merging = rounds_when_stored(dtype) ? Merging::NONE : Merging::WHERE_EXACT;
  const detail::ScheduleCuts cuts(schedule);
  Combinations combinations(n);
  const std::vector<std::uint32_t> held = follow(schedule, cuts, combinations);

  ReductionPlan plan{
      .num_participants = n, .num_elements = schedule.num_elements, .parts = {}, .recipes = {}};
  for (std::size_t part = 0; part < cuts.num_parts(); ++part) {
    const auto begin = held.begin() + static_cast<std::ptrdiff_t>(part * n);
    const std::uint32_t result = *begin;
    const auto is_result = [result](std::uint32_t value) { return value == result; };
    if (!std::all_of(begin, begin + static_cast<std::ptrdiff_t>(n), is_result) ||
        !combinations.has_every_input_once(result)) {
      throw ValueError("a schedule that is no all-reduce: of element " +
                       std::to_string(cuts.part(part).begin) +
                       " not everybody gets one and the same sum of all");
    }
    ReductionRecipe recipe = RecipeWriter(combinations, n, merging).write(result);
    const auto known = std::ranges::find(plan.recipes, recipe);
    const auto index = static_cast<std::size_t>(known - plan.recipes.begin());
    if (known == plan.recipes.end()) plan.recipes.push_back(std::move(recipe));
    if (!plan.parts.empty() && plan.parts.back().recipe == index) {
      plan.parts.back().range.count += cuts.part(part).count;
    } else {
      plan.parts.push_back({.range = cuts.part(part), .recipe = index});
    }
  }
  return plan;
}

ReductionPlan plan_direct_reduction(std::size_t num_participants, std::size_t num_elements) {
  ReductionPlan plan{.num_participants = num_participants,
                     .num_elements = num_elements,
                     .parts = {},
                     .recipes = {}};
  if (num_elements == 0) return plan;
  ReductionPass pass;
  pass.operands.resize(num_participants);
  std::iota(pass.operands.begin(), pass.operands.end(), 0U);
  plan.recipes.push_back({.passes = {std::move(pass)}, .num_rows = 0});
  plan.parts.push_back({.range = {.begin = 0, .count = num_elements}, .recipe = 0});
  return plan;
}

}  // namespace crossdevice
