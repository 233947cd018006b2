// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/shuffle.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/core/error.h"

namespace crossdevice {

using Kind = ScheduleStep::Kind;

namespace {

/// 1. of one block.
void add_reductions(Schedule& schedule, const std::vector<Interval>& shards,
                    std::span<const std::size_t> owners,
                    const std::vector<std::size_t>& everybody) {
  if (everybody.size() < 2) return;
  for (std::size_t g = 0; g < owners.size(); ++g) {
    schedule.add(Kind::REDUCE, shards[g], owners[g], everybody);
  }
}

/// 2. of one block.
void add_copies(Schedule& schedule, const std::vector<Interval>& shards,
                std::span<const std::size_t> owners) {
  for (std::size_t g = 0; g < owners.size(); ++g) {
    for (std::size_t target = 0; target < schedule.num_participants; ++target) {
      if (target != owners[g]) schedule.add(Kind::COPY, shards[g], target, {owners[g]});
    }
  }
}

}  // namespace

Schedule shuffle_schedule(std::size_t num_participants, std::size_t num_elements,
                          std::span<const std::size_t> owners, std::size_t num_blocks) {
  const std::size_t n = num_participants;
  if (n == 0) throw ValueError("a shuffle needs at least 1 participant, got 0");
  if (owners.empty()) throw ValueError("a shuffle needs at least 1 owner, got 0");
  if (num_blocks == 0) throw ValueError("a shuffle needs at least 1 block, got 0");
  for (const std::size_t owner : owners) {
    if (owner >= n) {
      throw ValueError("the owners of a shuffle over " + std::to_string(n) +
                       " participants are among them, not " + std::to_string(owner));
    }
  }
  Schedule schedule{.num_participants = n, .num_elements = num_elements, .steps = {}};
  std::vector<std::size_t> everybody(n);
  std::iota(everybody.begin(), everybody.end(), std::size_t{0});
  schedule.steps.reserve(n * owners.size() * num_blocks);
  std::vector<Interval> before;  // the shards of the block before
  for (const Interval& block : ragged_split({.begin = 0, .count = num_elements}, num_blocks)) {
    std::vector<Interval> shards = ragged_split(block, owners.size());
    add_reductions(schedule, shards, owners, everybody);
    if (!before.empty()) add_copies(schedule, before, owners);
    before = std::move(shards);
  }
  add_copies(schedule, before, owners);
  return schedule;
}

}  // namespace crossdevice
