// SPDX-License-Identifier: Apache-2.0
/// Runs the recipes of a plan on texts instead of numbers: do they combine what the schedule combines, in its order?
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "crossdevice/collective/reduction_plan.h"
#include "crossdevice/collective/schedule.h"

namespace crossdevice::testing {

/// A character per participant. For up to 64: none of them is a '!'.
[[nodiscard]] inline std::string text_of(std::size_t participant) {
  return std::string(1, static_cast<char>('@' + participant));
}

/// By where stretches of elements begin: every participant's text after all steps, one after the other.
[[nodiscard]] inline std::map<std::size_t, std::vector<std::string>> texts_after(
    const Schedule& schedule) {
  std::vector<std::string> inputs;
  for (std::size_t p = 0; p < schedule.num_participants; ++p) inputs.push_back(text_of(p));
  std::map<std::size_t, std::vector<std::string>> rows;
  if (schedule.num_elements > 0) rows.emplace(0, inputs);
  for (const ScheduleStep& step : schedule.steps) {
    for (const std::size_t cut : {step.range.begin, step.range.end()}) {
      if (cut < schedule.num_elements) rows.emplace(cut, inputs);
    }
  }
  for (const ScheduleStep& step : schedule.steps) {
    const auto last = rows.lower_bound(step.range.end());
    for (auto stretch = rows.find(step.range.begin); stretch != last; ++stretch) {
      std::string result;
      for (const std::size_t source : step.sources) result += stretch->second[source];
      stretch->second[step.target] = result;
    }
  }
  return rows;
}

/// What a recipe combines, in order; or, beginning with '!', what is wrong with it.
[[nodiscard]] inline std::string text_of(const ReductionRecipe& recipe, std::size_t n) {
  if (recipe.passes.empty()) return "!a recipe without passes";
  std::vector<std::string> intermediate(recipe.num_rows);
  std::string result;
  for (const ReductionPass& pass : recipe.passes) {
    result.clear();
    for (const std::uint32_t operand : pass.operands) {
      if (operand >= n + recipe.num_rows) return "!an operand that there is not";
      result += operand < n ? text_of(operand) : intermediate[operand - n];
    }
    if (pass.first_group > pass.operands.size()) return "!a group of more than all operands";
    if (&pass == &recipe.passes.back()) break;
    if (pass.row >= recipe.num_rows) return "!a row that there is not";
    intermediate[pass.row] = result;
  }
  return result;
}

/// "" if the plan's parts are all elements, one behind the other, and every part's recipe combines everybody's contribution once, in the order in which the
/// schedule's steps do it on every participant; otherwise what is wrong.
[[nodiscard]] inline std::string verify_plan(const ReductionPlan& plan, const Schedule& schedule) {
  const std::size_t n = schedule.num_participants;
  const std::map<std::size_t, std::vector<std::string>> rows = texts_after(schedule);
  std::size_t next = 0;
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    const ReductionPlan::Part& part = plan.parts[i];
    const std::string where = "part " + std::to_string(i) + ": ";
    if (part.range.begin != next || part.range.count == 0) return where + "not behind the last";
    next = part.range.end();
    if (next > schedule.num_elements) return where + "elements beyond the end";
    if (part.recipe >= plan.recipes.size()) return where + "no such recipe";
    const std::string result = text_of(plan.recipes[part.recipe], n);
    if (result.starts_with('!')) return where + result.substr(1);
    if (result.size() != n || std::set<char>(result.begin(), result.end()).size() != n) {
      return where + "not everybody's contribution once";
    }
    for (auto row = std::prev(rows.upper_bound(part.range.begin));
         row != rows.end() && row->first < next; ++row) {
      for (const std::string& text : row->second) {
        if (text != result) return where + "another order than the steps'";
      }
    }
  }
  return next == schedule.num_elements ? "" : "elements without a recipe";
}

}  // namespace crossdevice::testing
