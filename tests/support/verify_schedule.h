// SPDX-License-Identifier: Apache-2.0
/// Runs a schedule on sets of contributions instead of numbers: is it an all-reduce?
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "crossdevice/collective/schedule.h"

namespace crossdevice::testing {

/// "" if, for every element,
///   - every step names participants and elements that there are; a reduction has sources, a copy one, and not itself
///   - no contribution is combined twice: the sources of a reduction have no contributor in common
///   - a copy moves nothing but complete sums
///   - in the end everybody has everybody's contribution
/// and otherwise what is wrong, with the step. For up to 64 participants.
[[nodiscard]] inline std::string verify_all_reduce(const Schedule& schedule) {
  const std::size_t n = schedule.num_participants;
  const std::uint64_t everybody = n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
  const auto wrong = [&](std::size_t step, const std::string& what) {
    return "step " + std::to_string(step) + ": " + what;
  };

  std::set<std::size_t> cuts{0, schedule.num_elements};
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const ScheduleStep& step = schedule.steps[i];
    if (step.range.count == 0) return wrong(i, "no elements");
    if (step.range.end() > schedule.num_elements) return wrong(i, "elements beyond the end");
    if (step.target >= n) return wrong(i, "no such target");
    if (step.sources.empty()) return wrong(i, "no sources");
    for (const std::size_t source : step.sources) {
      if (source >= n) return wrong(i, "no such source");
    }
    if (step.kind == ScheduleStep::Kind::COPY &&
        (step.sources.size() != 1 || step.sources[0] == step.target)) {
      return wrong(i, "a copy has one source, which is another participant");
    }
    cuts.insert(step.range.begin);
    cuts.insert(step.range.end());
  }
  std::map<std::size_t, std::size_t> parts;  // by where they begin; the last one begins at the end
  for (const std::size_t cut : cuts) parts.emplace(cut, parts.size());
  const std::size_t num_parts = parts.size() - 1;

  // Per part and participant: whose contributions it holds.
  std::vector<std::uint64_t> held(num_parts * n);
  for (std::size_t part = 0; part < num_parts; ++part) {
    for (std::size_t p = 0; p < n; ++p) held[part * n + p] = std::uint64_t{1} << p;
  }
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const ScheduleStep& step = schedule.steps[i];
    const std::size_t last = parts.at(step.range.end());
    for (std::size_t part = parts.at(step.range.begin); part < last; ++part) {
      std::uint64_t sum = 0;
      for (const std::size_t source : step.sources) {
        const std::uint64_t contribution = held[part * n + source];
        if ((sum & contribution) != 0) return wrong(i, "a contribution is combined twice");
        sum |= contribution;
      }
      if (step.kind == ScheduleStep::Kind::COPY && sum != everybody) {
        return wrong(i, "what is copied is not complete");
      }
      held[part * n + step.target] = sum;
    }
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (held[i] != everybody) {
      return "participant " + std::to_string(i % n) + " lacks contributions in part " +
             std::to_string(i / n);
    }
  }
  return "";
}

/// Numbers of elements that are awkward for n participants, and a big one.
[[nodiscard]] inline std::vector<std::size_t> awkward_sizes(std::size_t n) {
  std::vector<std::size_t> sizes{0, 1, 2, n - 1, n, n + 1, 2 * n + 1, 97, 1'000'003};
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

}  // namespace crossdevice::testing
