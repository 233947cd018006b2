// SPDX-License-Identifier: Apache-2.0
/// Every kind of schedule, and batches that run one, for the tests of scheduled_reduce.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/halving_doubling.h"
#include "crossdevice/collective/hierarchical_copy.h"
#include "crossdevice/collective/ring.h"
#include "crossdevice/collective/scheduled_reduce.h"
#include "crossdevice/collective/shuffle.h"
#include "crossdevice/collective/two_level.h"

#include "collective/direct_reduce_fixture.h"
#include "support/reference_schedule.h"

namespace crossdevice::testing {

using Lists = std::vector<std::vector<std::size_t>>;

inline std::vector<std::size_t> first(std::size_t count) {
  std::vector<std::size_t> result(count);
  std::iota(result.begin(), result.end(), std::size_t{0});
  return result;
}

/// Two workers, the first one with the larger half, members in turns.
inline Lists two_workers(std::size_t n) {
  Lists workers(n == 1 ? 1 : 2);
  for (std::size_t i = 0; i < n; ++i) workers[i % workers.size()].push_back(i);
  return workers;
}

struct Maker {
  const char* name;
  std::function<Schedule(std::size_t num_participants, std::size_t num_elements)> make;
};

inline const Maker kMakers[] = {
    {"Ring",
     [](std::size_t n, std::size_t count) {
       return ring_schedule(count, ring_orders(Lists{first(n)}, 1));
     }},
    {"RingsOfThree",
     [](std::size_t n, std::size_t count) {
       return ring_schedule(count, ring_orders(two_workers(n), 3));
     }},
    {"HalvingDoubling",
     [](std::size_t n, std::size_t count) { return halving_doubling_schedule(n, count, 2); }},
    {"Shuffle",
     [](std::size_t n, std::size_t count) { return shuffle_schedule(n, count, first(n)); }},
    {"ShuffleInBlocks",
     [](std::size_t n, std::size_t count) { return shuffle_schedule(n, count, first(n), 3); }},
    {"HierarchicalCopy",
     [](std::size_t n, std::size_t count) { return hierarchical_copy_schedule(n, count, 1); }},
    {"TwoLevelRing",
     [](std::size_t n, std::size_t count) {
       const Lists workers = two_workers(n);
       return two_level_schedule(
           workers, ring_schedule(count, ring_orders(Lists{first(workers.size())}, 2)));
     }},
    {"TwoLevelShuffle",
     [](std::size_t n, std::size_t count) {
       const Lists workers = two_workers(n);
       return two_level_schedule(workers, shuffle_schedule(workers.size(), count, first(1)));
     }},
};

/// A batch whose packs run schedules of one maker.
class ScheduledBatch {
 public:
  ScheduledBatch(ReduceOp op, const Maker& maker) : batch(op), op_(op), maker_(maker) {}

  void add(DType dtype, std::size_t num_elements, std::size_t n, const Outputs& outputs) {
    batch.add(dtype, num_elements, n, outputs);
  }
  /// One pack per tensor.
  void plan_each() {
    for (std::size_t t = 0; t < batch.views().size(); ++t) {
      const DirectReduceTensor& tensor = batch.views()[t];
      plan({.dtype = tensor.dtype,
            .ranges = {{.tensor = t, .begin = 0, .count = tensor.num_elements}}});
    }
  }
  /// A pack whose ranges may lie in several tensors, each of which it takes as a whole. MEAN of integers: one pass.
  void plan(const Pack& pack) {
    const std::size_t n = batch.views()[pack.ranges[0].tensor].inputs.size();
    if (op_ == ReduceOp::MEAN && (is_integer(pack.dtype))) {
      add_pack(pack, plan_direct_reduction(n, pack.num_elements()));
      return;
    }
    const Schedule schedule = maker_.make(n, pack.num_elements());
    add_pack(pack, plan_reduction(schedule, pack.dtype));
    expect_executed(pack, schedule);
  }
  [[nodiscard]] ScheduledReduceRequest request() const {
    return {.op = op_, .tensors = batch.views(), .packs = packs_};
  }

  TestBatch batch;

 private:
  void add_pack(const Pack& pack, ReductionPlan plan) {
    packs_.push_back({pack, std::make_shared<const ReductionPlan>(std::move(plan))});
  }
  /// Lays the pack's inputs side by side, runs the schedule step by step, and takes the results apart again.
  void expect_executed(const Pack& pack, const Schedule& schedule) {
    const std::size_t size = size_in_bytes(pack.dtype);
    const std::size_t n = schedule.num_participants;
    std::vector<std::vector<std::byte>> rows(n);
    std::vector<const void*> addresses;
    for (std::size_t p = 0; p < n; ++p) {
      for (const ElementRange& range : pack.ranges) {
        const auto* const input =
            static_cast<const std::byte*>(batch.views()[range.tensor].inputs[p]);
        rows[p].insert(rows[p].end(), input, input + range.count * size);
      }
      addresses.push_back(rows[p].data());
    }
    const auto results = reference_execute(schedule, op_, pack.dtype, addresses);
    for (const std::vector<std::byte>& result : results) ASSERT_EQ(result, results[0]);
    std::size_t at = 0;
    for (const ElementRange& range : pack.ranges) {
      const auto begin = results[0].begin() + static_cast<std::ptrdiff_t>(at * size);
      batch.expect(range.tensor, {begin, begin + static_cast<std::ptrdiff_t>(range.count * size)});
      at += range.count;
    }
  }

  ReduceOp op_;
  const Maker& maker_;
  std::vector<ScheduledPack> packs_;
};

}  // namespace crossdevice::testing
