// SPDX-License-Identifier: Apache-2.0
// Workers that measure together, as real processes: what one of them finds counts for all.
#include "collective/team.h"

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/ops/collective_all_reduce.h"

#include "collective/measure.h"
#include "collective/sample.h"
#include "support/worker_processes.h"

namespace crossdevice::bench {
namespace {

using crossdevice::testing::all_well;
using crossdevice::testing::run_workers;

const Devices& two_devices() {
  static const Devices kDevices{"CPU:0", "CPU:1"};
  return kDevices;
}

/// Adds one to an element of what this worker gets.
class ForgetfulOps : public CollectiveAllReduce {
 public:
  using CollectiveAllReduce::CollectiveAllReduce;
  bool is_wrong = false;

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    Mirrored result = CollectiveAllReduce::reduce_implementation(op, value, destinations, options);
    if (is_wrong) result.values()[1].span<float>()[11] += 1;
    return result;
  }
};

/// A worker's ops and team; the cluster stays the test's.
struct Worker {
  std::shared_ptr<ForgetfulOps> ops;
  Team team;
};

Worker make_worker(Cluster& cluster) {
  const std::shared_ptr<Cluster> shared(&cluster, [](Cluster*) {});
  auto ops = std::make_shared<ForgetfulOps>(two_devices(), 2 * cluster.num_workers(),
                                            CommunicationOptions{.timeout_seconds = 60}, shared);
  Team team(shared, ops, two_devices());
  return {std::move(ops), std::move(team)};
}

Case make_case(const Team& team, std::vector<Shape> shapes) {
  Case test_case;
  test_case.collective = shapes.size() == 1 ? Collective::ALL_REDUCE : Collective::BATCH_REDUCE;
  test_case.devices = two_devices();
  test_case.shapes = std::move(shapes);
  test_case.num_workers = team.num_workers();
  test_case.worker = team.rank();
  return test_case;
}

MeasureOptions quick(std::shared_ptr<CrossDeviceOps> ops) {
  return {.runner = run_with({.ops = std::move(ops), .name = "collective_all_reduce"}, "direct"),
          .timing = {.iterations = 5, .warmup = 1, .rounds = 5}};
}

void speak(Cluster& cluster) {
  Team team = make_worker(cluster).team;
  const auto rank = static_cast<std::size_t>(cluster.rank());
  const auto workers = static_cast<std::size_t>(cluster.num_workers());
  EXPECT_EQ(team.rank(), rank);
  EXPECT_EQ(team.num_workers(), workers);
  EXPECT_EQ(team.num_hosts(), 1U);
  EXPECT_EQ(team.num_local_workers(), workers);
  EXPECT_EQ(team.is_first(), rank == 0);
  EXPECT_EQ(team.total(10 + rank), 10 * workers + workers * (workers - 1) / 2);
  EXPECT_TRUE(team.slowest({}).empty());
  for (const std::size_t count : {1U, 8191U, 8192U, 8193U, 20000U}) {
    std::vector<double> samples(count, 1.0);
    samples[(rank * 7) % count] += static_cast<double>(rank);
    std::vector<double> expected(count, 1.0);
    for (std::size_t r = 0; r < workers; ++r) {
      double& place = expected[(r * 7) % count];
      place = std::max(place, 1.0 + static_cast<double>(r));
    }
    EXPECT_EQ(team.slowest(samples), expected);
  }
  for (int i = 0; i < 100; ++i) team.line_up();
}

void measure(Cluster& cluster) {
  Worker worker = make_worker(cluster);
  OwnerThreads owners(2);
  for (const MemoryKind memory : {MemoryKind::POOL, MemoryKind::FOREIGN}) {
    for (const std::size_t count : {0U, 1U, 2U, 1500U, 100003U}) {
      Case test_case = make_case(worker.team, {Shape{count}});
      test_case.memory = memory;
      const auto rows =
          measure_cases(std::vector<Case>{test_case}, "", quick(worker.ops), owners, worker.team);
      ASSERT_EQ(rows.size(), 1U);
      EXPECT_EQ(rows[0].out_of_place.wrong, 0U);
      EXPECT_EQ(rows[0].in_place.value().wrong, 0U);
      EXPECT_EQ(rows[0].out_of_place.limit, "non_temporal_copy");
      EXPECT_EQ(rows[0].in_place->limit, "in_place_scale");
      EXPECT_EQ(rows[0].in_place->limit_gbs > 0, count > 0);
      // Everybody has the slowest worker's times.
      const std::string mine = std::to_string(rows[0].in_place->time.median_us);
      for (const std::string& theirs : cluster.all_gather_bytes(mine)) EXPECT_EQ(theirs, mine);
    }
  }
  const Case batch = make_case(worker.team, {Shape{10, 7}, Shape{0}, Shape{1500}});
  Case flat = make_case(worker.team, {Shape{batch.num_input_elements()}});
  const auto rows = measure_cases(std::vector<Case>{flat, batch}, "flat_buffer", quick(worker.ops),
                                  owners, worker.team);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].in_place.value().wrong, 0U);
  EXPECT_EQ(rows[1].in_place->limit, "flat_buffer");
}

void miscalculate(Cluster& cluster) {
  Worker worker = make_worker(cluster);
  worker.ops->is_wrong = cluster.rank() == 1;
  OwnerThreads owners(2);
  const auto rows = measure_cases(std::vector<Case>{make_case(worker.team, {Shape{1500}})}, "",
                                  quick(worker.ops), owners, worker.team);
  EXPECT_EQ(rows[0].out_of_place.wrong, 1U);
  EXPECT_EQ(rows[0].in_place.value().wrong, 1U);
}

testing::Works works() {
  return {{"speak", speak}, {"measure", measure}, {"miscalculate", miscalculate}};
}

TEST(TeamTest, WorkersTellEachOther) {
  for (const int workers : {1, 2, 3, 5})
    EXPECT_EQ(run_workers("speak", workers), all_well(workers));
}

TEST(TeamTest, WorkersMeasureTogether) {
  for (const int workers : {2, 3}) EXPECT_EQ(run_workers("measure", workers), all_well(workers));
}

TEST(TeamTest, WhatIsWrongOnOneWorkerIsWrongOnAll) {
  EXPECT_EQ(run_workers("miscalculate", 3), all_well(3));
}

TEST(TeamTest, AloneThereIsNobodyToWaitFor) {
  Team team;
  EXPECT_EQ(team.num_workers(), 1U);
  EXPECT_EQ(team.num_hosts(), 1U);
  EXPECT_TRUE(team.is_first());
  team.line_up();
  EXPECT_EQ(team.total(3), 3U);
  EXPECT_EQ(team.slowest({1, 2}), (std::vector<double>{1, 2}));
  EXPECT_EQ(calls_per_sample(make_case(team, {Shape{2}}), team), 1U);
}

/// What bench/peers/link_speed.cc bounds below 4 KiB is timed in as many calls as it makes.
TEST(TeamTest, SmallCallsAcrossHostsAreAsManyAsThoseOfPlainSockets) {
  const Team team(nullptr, {.num_workers = 4, .num_hosts = 4});
  for (const std::size_t num_bytes : {8U, 4U << 10U}) {
    EXPECT_EQ(calls_per_sample(make_case(team, {Shape{num_bytes / sizeof(float)}}), team),
              kMaxCallsPerSample);
  }
}

}  // namespace
}  // namespace crossdevice::bench

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::bench::works());
}
