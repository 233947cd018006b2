// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/halving_doubling.h"

#include <vector>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using Kind = ScheduleStep::Kind;

/// The exchange among the participants [0, core), round by round, each round over all shards.
class Exchange {
 public:
  Exchange(Schedule& schedule, std::size_t core, const std::vector<Interval>& shards)
      : schedule_(schedule), core_(core), shards_(shards) {}

  void add_steps() {
    // held[h] is what each participant works on before round h, shard by shard.
    std::vector<std::vector<Interval>> held(1);
    for (std::size_t d = 0; d < core_; ++d) {
      held[0].insert(held[0].end(), shards_.begin(), shards_.end());
    }
    for (std::size_t distance = 1; distance < core_; distance *= 2) {
      held.push_back(halve(held.back(), distance));
    }
    std::size_t distance = core_ / 2;
    for (std::size_t round = held.size() - 1; round > 0; --round, distance /= 2) {
      double_back(held[round], distance);
    }
  }

 private:
  /// Calls f(left, right, shard) for every pair at this distance.
  template <class F>
  void for_each_pair(std::size_t distance, F&& f) const {
    for (std::size_t block = 0; block < core_; block += 2 * distance) {
      for (std::size_t left = block; left < block + distance; ++left) {
        for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
          f(left, left + distance, shard);
        }
      }
    }
  }
  [[nodiscard]] std::size_t at(std::size_t participant, std::size_t shard) const {
    return participant * shards_.size() + shard;
  }

  [[nodiscard]] std::vector<Interval> halve(const std::vector<Interval>& before,
                                            std::size_t distance) {
    std::vector<Interval> after(before.size());
    for_each_pair(distance, [&](std::size_t left, std::size_t right, std::size_t shard) {
      const std::vector<Interval> halves = padded_split(before[at(left, shard)], 2);
      after[at(left, shard)] = halves[0];
      after[at(right, shard)] = halves[1];
      schedule_.add(Kind::REDUCE, halves[0], left, {left, right});
      schedule_.add(Kind::REDUCE, halves[1], right, {left, right});
    });
    return after;
  }

  void double_back(const std::vector<Interval>& parts, std::size_t distance) {
    for_each_pair(distance, [&](std::size_t left, std::size_t right, std::size_t shard) {
      schedule_.add(Kind::COPY, parts[at(right, shard)], left, {right});
      schedule_.add(Kind::COPY, parts[at(left, shard)], right, {left});
    });
  }

  Schedule& schedule_;
  std::size_t core_;
  const std::vector<Interval>& shards_;
};

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
  Exchange(schedule, core, shards).add_steps();
  for (std::size_t extra = core; extra < n; ++extra) {
    schedule.add(Kind::COPY, whole, extra, {extra - core});
  }
  return schedule;
}

}  // namespace crossdevice
