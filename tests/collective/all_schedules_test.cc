// SPDX-License-Identifier: Apache-2.0
// Every maker of schedules, for 1 to 64 participants and sizes that nobody chose: each output is the full reduction with every contribution once, and the
// programs end in any order without two that touch one element at a time. Seeded by the number of participants, so a failure can be repeated.
#include <cstddef>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/halving_doubling.h"
#include "crossdevice/collective/hierarchical_copy.h"
#include "crossdevice/collective/reduction_plan.h"
#include "crossdevice/collective/ring.h"
#include "crossdevice/collective/rooted.h"
#include "crossdevice/collective/shuffle.h"
#include "crossdevice/collective/two_level.h"

#include "support/verify_programs.h"
#include "support/verify_schedule.h"

// How many sizes of each maker and number of participants; the long run takes more.
#ifndef CROSSDEVICE_NUM_RANDOM_SIZES
#define CROSSDEVICE_NUM_RANDOM_SIZES 1
#endif

namespace crossdevice {
namespace {

using Lists = std::vector<std::vector<std::size_t>>;
using Random = std::mt19937_64;

constexpr std::size_t kMaxParticipants = 64;

std::size_t below(Random& random, std::size_t limit) { return random() % limit; }

/// From none to some thousand, small ones as often as large ones.
std::size_t any_size(Random& random) {
  const std::size_t bits = below(random, 14);
  return below(random, (std::size_t{1} << bits) + 1);
}

std::vector<std::size_t> shuffled(std::size_t n, Random& random) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[below(random, i)]);
  return order;
}

/// All participants, dealt out to groups of any sizes.
Lists any_groups(std::size_t n, Random& random) {
  Lists groups(1 + below(random, n));
  const std::vector<std::size_t> order = shuffled(n, random);
  for (std::size_t i = 0; i < n; ++i) {
    groups[i < groups.size() ? i : below(random, groups.size())].push_back(order[i]);
  }
  return groups;
}

std::vector<std::size_t> any_owners(std::size_t n, Random& random) {
  std::vector<std::size_t> owners(1 + below(random, n + 2));
  for (std::size_t& each : owners) each = below(random, n);
  return owners;
}

/// One behind the other, some of them empty.
std::vector<Interval> any_parts(std::size_t n, Random& random) {
  std::vector<Interval> parts(n);
  std::size_t begin = 0;
  for (Interval& part : parts) {
    part = {.begin = begin, .count = below(random, 3) == 0 ? 0 : below(random, 40)};
    begin = part.end();
  }
  return parts;
}

struct Maker {
  const char* name;
  std::function<Schedule(std::size_t n, std::size_t size, Random& random)> make;
};

Schedule upper_schedule(std::size_t n, std::size_t size, Random& random) {
  switch (below(random, 4)) {
    case 0:
      return ring_schedule(size, ring_orders(Lists{shuffled(n, random)}, 1 + below(random, 3)));
    case 1:
      return halving_doubling_schedule(n, size, 1 + below(random, 3));
    case 2:
      return hierarchical_copy_schedule(n, size, below(random, n));
    default:
      return shuffle_schedule(n, size, any_owners(n, random));
  }
}

const Maker kAllReduces[] = {
    {"Ring",
     [](std::size_t n, std::size_t size, Random& random) {
       return ring_schedule(size, ring_orders(Lists{shuffled(n, random)}, 1 + below(random, 4)));
     }},
    {"RingThroughWorkers",
     [](std::size_t n, std::size_t size, Random& random) {
       return ring_schedule(size, ring_orders(any_groups(n, random), 1 + below(random, 4)));
     }},
    {"HalvingDoubling",
     [](std::size_t n, std::size_t size, Random& random) {
       return halving_doubling_schedule(n, size, 1 + below(random, 4));
     }},
    {"Shuffle", [](std::size_t n, std::size_t size,
                   Random& random) { return shuffle_schedule(n, size, any_owners(n, random)); }},
    {"HierarchicalCopy",
     [](std::size_t n, std::size_t size, Random& random) {
       return hierarchical_copy_schedule(n, size, below(random, 2 * n));
     }},
    {"TwoLevel",
     [](std::size_t n, std::size_t size, Random& random) {
       const Lists groups = any_groups(n, random);
       return two_level_schedule(groups, upper_schedule(groups.size(), size, random));
     }},
};

const Maker kOthers[] = {
    {"ChainBroadcast",
     [](std::size_t n, std::size_t size, Random& random) {
       return chain_broadcast_schedule(n, size, below(random, n));
     }},
    {"ChainReduce",
     [](std::size_t n, std::size_t size, Random& random) {
       return chain_reduce_schedule(n, size, below(random, n));
     }},
    {"TreeBroadcast",
     [](std::size_t n, std::size_t size, Random& random) {
       return tree_broadcast_schedule(n, size, below(random, n));
     }},
    {"TreeReduce", [](std::size_t n, std::size_t size,
                      Random& random) { return tree_reduce_schedule(n, size, below(random, n)); }},
    {"DirectReduce",
     [](std::size_t n, std::size_t size, Random& random) {
       return direct_reduce_schedule(n, size, below(random, n));
     }},
    {"DirectGather",
     [](std::size_t n, std::size_t, Random& random) {
       return direct_gather_schedule(any_parts(n, random), below(random, n));
     }},
    {"DirectReduceScatter",
     [](std::size_t n, std::size_t, Random& random) {
       return direct_reduce_scatter_schedule(any_parts(n, random));
     }},
    {"DirectAllGather",
     [](std::size_t n, std::size_t, Random& random) {
       return direct_all_gather_schedule(any_parts(n, random));
     }},
    {"RingReduceScatter",
     [](std::size_t n, std::size_t, Random& random) {
       return ring_reduce_scatter_schedule(any_parts(n, random));
     }},
    {"RingAllGather",
     [](std::size_t n, std::size_t, Random& random) {
       return ring_all_gather_schedule(any_parts(n, random));
     }},
};

class AllSchedulesTest : public ::testing::TestWithParam<Maker> {
 protected:
  /// For every number of participants, with sizes by chance.
  static void for_all(const std::function<void(const Schedule&, Random&)>& check) {
    for (std::size_t n = 1; n <= kMaxParticipants; ++n) {
      Random random(n);
      for (int i = 0; i < CROSSDEVICE_NUM_RANDOM_SIZES; ++i) {
        const std::size_t size = any_size(random);
        const Schedule schedule = GetParam().make(n, size, random);
        SCOPED_TRACE(std::to_string(n) + " participants, " + std::to_string(size) +
                     " elements, repetition " + std::to_string(i));
        check(schedule, random);
        if (HasFatalFailure()) return;
      }
    }
  }
  static void expect_programs_end(const Schedule& schedule, Random& random) {
    const std::size_t piece = 1 + below(random, schedule.num_elements + 1) / (1 + below(random, 4));
    // So many pieces that they are more than one of each step, but not a million.
    const std::size_t least = schedule.num_elements / 256 + 1;
    ASSERT_EQ(testing::verify_programs(schedule, std::max(piece, least)), "");
  }
};

class AllReduceSchedulesTest : public AllSchedulesTest {};
INSTANTIATE_TEST_SUITE_P(Makers, AllReduceSchedulesTest, ::testing::ValuesIn(kAllReduces),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(AllReduceSchedulesTest, ReducesEverythingOnceAndEnds) {
  for_all([](const Schedule& schedule, Random& random) {
    ASSERT_EQ(testing::verify_all_reduce(schedule), "");
    for (const DType dtype : {DType::FLOAT32, DType::BFLOAT16}) {
      ASSERT_NO_THROW((void)plan_reduction(schedule, dtype));
    }
    expect_programs_end(schedule, random);
  });
}

class OtherSchedulesTest : public AllSchedulesTest {};
INSTANTIATE_TEST_SUITE_P(Makers, OtherSchedulesTest, ::testing::ValuesIn(kOthers),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(OtherSchedulesTest, Ends) {
  for_all([](const Schedule& schedule, Random& random) { expect_programs_end(schedule, random); });
}

}  // namespace
}  // namespace crossdevice
