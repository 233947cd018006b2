// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/shuffle.h"

#include <numeric>
#include <string>
#include <vector>

#include "crossdevice/core/error.h"

namespace crossdevice {

using Kind = ScheduleStep::Kind;

Schedule shuffle_schedule(std::size_t num_participants, std::size_t num_elements,
                          std::span<const std::size_t> owners) {
  const std::size_t n = num_participants;
  if (n == 0) throw ValueError("a shuffle needs at least 1 participant, got 0");
  if (owners.empty()) throw ValueError("a shuffle needs at least 1 owner, got 0");
  for (const std::size_t owner : owners) {
    if (owner >= n) {
      throw ValueError("the owners of a shuffle over " + std::to_string(n) +
                       " participants are among them, not " + std::to_string(owner));
    }
  }
  Schedule schedule{.num_participants = n, .num_elements = num_elements, .steps = {}};
  const std::vector<Interval> shards =
      ragged_split({.begin = 0, .count = num_elements}, owners.size());
  std::vector<std::size_t> everybody(n);
  std::iota(everybody.begin(), everybody.end(), std::size_t{0});
  schedule.steps.reserve(n * owners.size());
  if (n > 1) {
    for (std::size_t g = 0; g < owners.size(); ++g) {
      schedule.add(Kind::REDUCE, shards[g], owners[g], everybody);
    }
  }
  for (std::size_t g = 0; g < owners.size(); ++g) {
    for (std::size_t target = 0; target < n; ++target) {
      if (target != owners[g]) schedule.add(Kind::COPY, shards[g], target, {owners[g]});
    }
  }
  return schedule;
}

}  // namespace crossdevice
