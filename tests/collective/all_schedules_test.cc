// SPDX-License-Identifier: Apache-2.0
// Every maker of schedules, for 1 to 64 participants and sizes that nobody chose: everybody gets what it should, with every contribution once; the plans
// combine in the schedule's order; and the programs end in any order without two that touch one element at a time. The first sizes are seeded by the number of
// participants; the last one is another in every run, and a failure names the seed, with which CROSSDEVICE_FIRST_SEED repeats it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <span>
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

#include "ops/detail/worker_layout.h"
#include "support/verify_plan.h"
#include "support/verify_programs.h"
#include "support/verify_schedule.h"

// How many sizes of each maker and number of participants; the long run takes more.
#ifndef CROSSDEVICE_NUM_RANDOM_SIZES
#define CROSSDEVICE_NUM_RANDOM_SIZES 3
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

/// The same with gaps that are nobody's, and in any order.
std::vector<Interval> any_disjoint_parts(std::size_t n, Random& random) {
  const std::vector<Interval> places = any_parts(n, random);
  std::vector<Interval> parts(n);
  std::size_t gaps = 0;
  const std::vector<std::size_t> order = shuffled(n, random);
  for (std::size_t i = 0; i < n; ++i) {
    gaps += below(random, 3);
    parts[order[i]] = {.begin = places[i].begin + gaps, .count = places[i].count};
  }
  return parts;
}

/// The components of a value on workers that nobody chose, numbered as the op does it.
detail::WorkerLayout any_layout(std::size_t n, Random& random) {
  Lists workers = any_groups(n, random);
  for (std::vector<std::size_t>& members : workers) std::ranges::sort(members);
  std::ranges::sort(workers);
  const std::size_t num_workers = workers.size();
  return {
      .num_components = n, .workers = std::move(workers), .listed = shuffled(num_workers, random)};
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
      return shuffle_schedule(n, size, any_owners(n, random), 1 + below(random, 3));
  }
}

/// One of the op's algorithms, with shards, turns and layouts by chance.
std::function<Schedule(std::size_t, std::size_t, Random&)> of_workers(const char* algorithm) {
  return [algorithm](std::size_t n, std::size_t size, Random& random) {
    const AllReduceSpecTuple tuple{algorithm, 1 + static_cast<int>(below(random, 5)), -1};
    const detail::WorkerLayout layout = any_layout(n, random);
    return detail::make_worker_schedule(layout,
                                        {.algorithm = tuple,
                                         .num_gpus_per_worker = static_cast<int>(below(random, 9)),
                                         .num_elements = size,
                                         .turn = below(random, 100)});
  };
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
    {"Shuffle",
     [](std::size_t n, std::size_t size, Random& random) {
       return shuffle_schedule(n, size, any_owners(n, random), 1 + below(random, 3));
     }},
    {"HierarchicalCopy",
     [](std::size_t n, std::size_t size, Random& random) {
       return hierarchical_copy_schedule(n, size, below(random, 2 * n));
     }},
    {"TwoLevel",
     [](std::size_t n, std::size_t size, Random& random) {
       const Lists groups = any_groups(n, random);
       return two_level_schedule(groups, upper_schedule(groups.size(), size, random));
     }},
    {"WorkersNccl", of_workers("nccl")},
    {"WorkersXring", of_workers("xring")},
    {"WorkersRechd", of_workers("rechd")},
    {"WorkersPscpu", of_workers("pscpu")},
    {"WorkersPsgpu", of_workers("psgpu")},
    {"WorkersNcclXring", of_workers("nccl/xring")},
    {"WorkersNcclRechd", of_workers("nccl/rechd")},
    {"WorkersNcclPscpu", of_workers("nccl/pscpu")},
    {"WorkersPscpuPscpu", of_workers("pscpu/pscpu")},
};

/// A schedule that is no all-reduce, and what it fails to do.
struct Outcome {
  Schedule schedule;
  std::string wrong;
};

struct OtherMaker {
  const char* name;
  std::function<Outcome(std::size_t n, std::size_t size, Random& random)> make;
};

using Rooted = Schedule (*)(std::size_t, std::size_t, std::size_t);
using Scattered = Schedule (*)(std::span<const Interval>);
using Parts = std::vector<Interval> (*)(std::size_t, Random&);

template <class Verify>
std::function<Outcome(std::size_t, std::size_t, Random&)> rooted(Rooted make, Verify verify) {
  return [make, verify](std::size_t n, std::size_t size, Random& random) {
    const std::size_t root = below(random, n);
    Schedule schedule = make(n, size, root);
    std::string wrong = verify(schedule, root);
    return Outcome{std::move(schedule), std::move(wrong)};
  };
}

template <class Verify>
std::function<Outcome(std::size_t, std::size_t, Random&)> scattered(Scattered make, Parts any,
                                                                    Verify verify) {
  return [make, any, verify](std::size_t n, std::size_t, Random& random) {
    const std::vector<Interval> parts = any(n, random);
    Schedule schedule = make(parts);
    std::string wrong = verify(schedule, parts);
    return Outcome{std::move(schedule), std::move(wrong)};
  };
}

Outcome direct_gather(std::size_t n, std::size_t /*size*/, Random& random) {
  const std::vector<Interval> parts = any_disjoint_parts(n, random);
  const std::size_t root = below(random, n);
  Schedule schedule = direct_gather_schedule(parts, root);
  std::string wrong = testing::verify_gather(schedule, parts, root);
  return {std::move(schedule), std::move(wrong)};
}

const OtherMaker kOthers[] = {
    {"ChainBroadcast", rooted(chain_broadcast_schedule, testing::verify_broadcast)},
    {"ChainReduce", rooted(chain_reduce_schedule, testing::verify_reduce)},
    {"TreeBroadcast", rooted(tree_broadcast_schedule, testing::verify_broadcast)},
    {"TreeReduce", rooted(tree_reduce_schedule, testing::verify_reduce)},
    {"DirectReduce", rooted(direct_reduce_schedule, testing::verify_reduce)},
    {"DirectGather", direct_gather},
    {"DirectReduceScatter",
     scattered(direct_reduce_scatter_schedule, any_disjoint_parts, testing::verify_reduce_scatter)},
    {"DirectAllGather",
     scattered(direct_all_gather_schedule, any_disjoint_parts, testing::verify_all_gather)},
    {"RingReduceScatter",
     scattered(ring_reduce_scatter_schedule, any_parts, testing::verify_reduce_scatter)},
    {"RingAllGather", scattered(ring_all_gather_schedule, any_parts, testing::verify_all_gather)},
};

/// The seed of this run's own size.
std::uint64_t drawn_seed() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets any
  if (const char* const text = std::getenv("CROSSDEVICE_FIRST_SEED")) {
    return std::strtoull(text, nullptr, 10);
  }
  return std::random_device{}();
}

/// Calls `check` for every number of participants, with sizes by chance.
void for_all(const std::function<void(std::size_t n, std::size_t size, Random&)>& check) {
  const std::uint64_t drawn = drawn_seed();
  for (std::size_t n = 1; n <= kMaxParticipants; ++n) {
    for (std::uint64_t i = 0; i < CROSSDEVICE_NUM_RANDOM_SIZES; ++i) {
      const std::uint64_t seed = i + 1 < CROSSDEVICE_NUM_RANDOM_SIZES ? i : drawn;
      Random random(n + kMaxParticipants * seed);
      const std::size_t size = any_size(random);
      SCOPED_TRACE(std::to_string(n) + " participants, " + std::to_string(size) +
                   " elements, seed " + std::to_string(seed));
      check(n, size, random);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

void expect_programs_end(const Schedule& schedule, Random& random) {
  const std::size_t piece = 1 + below(random, schedule.num_elements + 1) / (1 + below(random, 4));
  // So many pieces that they are more than one of each step, but not a million.
  const std::size_t least = schedule.num_elements / 256 + 1;
  ASSERT_EQ(testing::verify_programs(schedule, std::max(piece, least)), "");
}

class AllReduceSchedulesTest : public ::testing::TestWithParam<Maker> {};
INSTANTIATE_TEST_SUITE_P(Makers, AllReduceSchedulesTest, ::testing::ValuesIn(kAllReduces),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(AllReduceSchedulesTest, ReducesEverythingOnceAndEnds) {
  for_all([](std::size_t n, std::size_t size, Random& random) {
    const Schedule schedule = GetParam().make(n, size, random);
    ASSERT_EQ(testing::verify_all_reduce(schedule), "");
    for (const DType dtype : {DType::FLOAT32, DType::BFLOAT16}) {
      ASSERT_EQ(testing::verify_plan(plan_reduction(schedule, dtype), schedule), "");
    }
    expect_programs_end(schedule, random);
  });
}

class OtherSchedulesTest : public ::testing::TestWithParam<OtherMaker> {};
INSTANTIATE_TEST_SUITE_P(Makers, OtherSchedulesTest, ::testing::ValuesIn(kOthers),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(OtherSchedulesTest, GivesEverybodyItsResultAndEnds) {
  for_all([](std::size_t n, std::size_t size, Random& random) {
    const Outcome outcome = GetParam().make(n, size, random);
    ASSERT_EQ(outcome.wrong, "");
    expect_programs_end(outcome.schedule, random);
  });
}

}  // namespace
}  // namespace crossdevice
