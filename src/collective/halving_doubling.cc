// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/halving_doubling.h"

#include <bit>
#include <utility>
#include <vector>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using Kind = ScheduleStep::Kind;

/// The exchange among the participants [0, core) of one shard's elements.
class Exchange {
 public:
  Exchange(std::size_t core, const Interval& shard) : core_(core), held_(1) {
    held_[0].assign(core, shard);
  }

  /// Halving and doubling together.
  [[nodiscard]] static std::size_t num_rounds(std::size_t core) {
    return 2 * static_cast<std::size_t>(std::bit_width(core) - 1);
  }
  /// One round after the other.
  void add_round(Schedule& schedule, std::size_t round) {
    const std::size_t num_halvings = num_rounds(core_) / 2;
    if (round < num_halvings) {
      halve(schedule, std::size_t{1} << round);
    } else {
      double_back(schedule, num_rounds(core_) - round - 1);
    }
  }

 private:
  /// Calls f(left, right) for every pair at this distance.
  template <class F>
  void for_each_pair(std::size_t distance, F&& f) const {
    for (std::size_t block = 0; block < core_; block += 2 * distance) {
      for (std::size_t left = block; left < block + distance; ++left) f(left, left + distance);
    }
  }

  void halve(Schedule& schedule, std::size_t distance) {
    const std::vector<Interval>& before = held_.back();
    std::vector<Interval> after(before.size());
    for_each_pair(distance, [&](std::size_t left, std::size_t right) {
      const std::vector<Interval> halves = padded_split(before[left], 2);
      after[left] = halves[0];
      after[right] = halves[1];
      schedule.add(Kind::REDUCE, halves[0], left, {left, right});
      schedule.add(Kind::REDUCE, halves[1], right, {left, right});
    });
    held_.push_back(std::move(after));
  }

  /// What the halving with that number took apart.
  void double_back(Schedule& schedule, std::size_t halving) const {
    const std::vector<Interval>& parts = held_[halving + 1];
    for_each_pair(std::size_t{1} << halving, [&](std::size_t left, std::size_t right) {
      schedule.add(Kind::COPY, parts[right], left, {right});
      schedule.add(Kind::COPY, parts[left], right, {left});
    });
  }

  std::size_t core_;
  std::vector<std::vector<Interval>>
      held_;  // by each participant, before each halving, and after the last
};

/// Round r of each shard behind round r + 1 of the one before: who waits for one has another to send, and buffers are for few rounds at a time.
void add_exchange(Schedule& schedule, std::size_t core, const std::vector<Interval>& shards) {
  std::vector<Exchange> exchanges;
  exchanges.reserve(shards.size());
  for (const Interval& shard : shards) exchanges.emplace_back(core, shard);
  const std::size_t num_rounds = Exchange::num_rounds(core);
  for (std::size_t wave = 0; wave + 1 < num_rounds + shards.size(); ++wave) {
    for (std::size_t s = 0; s < shards.size(); ++s) {
      if (s <= wave && wave - s < num_rounds) exchanges[s].add_round(schedule, wave - s);
    }
  }
}

}  // namespace

Schedule halving_doubling_schedule(std::size_t num_participants, std::size_t num_elements,
                                   std::size_t num_shards) {
  const std::size_t n = num_participants;
  if (n == 0) throw ValueError("halving and doubling needs at least 1 participant, got 0");
  Schedule schedule{.num_participants = n, .num_elements = num_elements, .steps = {}};
  const Interval whole{.begin = 0, .count = num_elements};
  const std::vector<Interval> shards = padded_split(whole, num_shards);
  const std::size_t core = halving_doubling_core(n);

  for (std::size_t extra = core; extra < n; ++extra) {
    schedule.add(Kind::REDUCE, whole, extra - core, {extra - core, extra});
  }
  add_exchange(schedule, core, shards);
  for (std::size_t extra = core; extra < n; ++extra) {
    schedule.add(Kind::COPY, whole, extra, {extra - core});
  }
  return schedule;
}

}  // namespace crossdevice
