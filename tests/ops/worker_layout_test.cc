// SPDX-License-Identifier: Apache-2.0
/// Components by worker, and the schedule of every algorithm over every layout.
#include "ops/detail/worker_layout.h"

#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/schedule_traffic.h"
#include "crossdevice/core/error.h"

#include "support/verify_schedule.h"
#include "support/workers.h"

namespace crossdevice::detail {
namespace {

using crossdevice::testing::awkward_sizes;
using crossdevice::testing::verify_all_reduce;
using crossdevice::testing::worker_device;
using crossdevice::testing::workers;
using Groups = std::vector<std::vector<std::size_t>>;
using Members = std::vector<std::size_t>;

/// Components on these devices: {worker, index}.
Devices components(const std::vector<std::pair<std::size_t, std::size_t>>& places) {
  std::vector<Device> devices;
  for (const auto& [worker, index] : places) devices.push_back(worker_device(worker, index));
  return Devices(std::span<const Device>(devices));
}

TEST(WorkerLayoutTest, ComponentsBelongToTheWorkerOfTheirLabels) {
  const WorkerLayout layout =
      make_worker_layout(workers(3), components({{2, 0}, {0, 1}, {2, 5}, {0, 0}, {1, 0}}));
  EXPECT_EQ(layout.num_components, 5u);
  EXPECT_EQ(layout.workers, (Groups{{0, 2}, {1, 3}, {4}})) << "in the order of the value";
  EXPECT_EQ(layout.listed, (Members{1, 2, 0})) << "worker 0, worker 1, then worker 2";
}

TEST(WorkerLayoutTest, AWorkerWithoutAComponentIsAValueErrorThatNamesIt) {
  EXPECT_THAT(
      [] {
        (void)make_worker_layout(workers(3), components({{2, 0}, {0, 1}, {2, 5}}));
      },
      ::testing::ThrowsMessage<ValueError>(::testing::HasSubstr(
          "worker /job:worker/replica:0/task:1/device:CPU:0 has no component")));
}

TEST(WorkerLayoutTest, ADeviceOfNoWorkerIsAValueErrorThatNamesIt) {
  EXPECT_THAT(
      [] {
        (void)make_worker_layout(workers(2), {worker_device(0, 0), worker_device(2, 0)});
      },
      ::testing::ThrowsMessage<ValueError>(
          "MultiWorkerAllReduce: component 1 is on /job:worker/replica:0/task:2/device:CPU:0, "
          "expected a device of one of the workers [/job:worker/replica:0/task:0/device:CPU:0, "
          "/job:worker/replica:0/task:1/device:CPU:0]"));
  EXPECT_THROW((void)make_worker_layout(workers(1), Device("/job:chief/task:0/CPU:0")), ValueError);
  EXPECT_THROW((void)make_worker_layout(workers(1), Device("/job:worker/replica:1/task:0/CPU:0")),
               ValueError);
}

/// One device on each of `count` workers.
WorkerLayout one_each(std::size_t count) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::size_t w = 0; w < count; ++w) places.emplace_back(w, 0);
  return make_worker_layout(workers(count), components(places));
}

/// Who reduces the parts of a tensor, in the order of the parts.
Members owners(const WorkerLayout& layout, const AllReduceSpecTuple& algorithm, std::size_t turn,
               int num_gpus_per_worker = 2) {
  const Schedule schedule =
      make_worker_schedule(layout, {.algorithm = algorithm,
                                    .num_gpus_per_worker = num_gpus_per_worker,
                                    .num_elements = 1000,
                                    .turn = turn});
  Members result;
  for (const ScheduleStep& step : schedule.steps) {
    const bool whole = step.range.count == schedule.num_elements && algorithm.shards > 1;
    if (step.kind == ScheduleStep::Kind::REDUCE && !whole) result.push_back(step.target);
  }
  return result;
}

// TF's group_device_names over the workers' CPUs, one group per tensor.
TEST(WorkerLayoutTest, PscpuTakesTheWorkersInTurns) {
  const AllReduceSpecTuple pscpu{"pscpu", 2, -1};
  const Members expected[] = {{0, 3}, {1, 4}, {2, 0}, {0, 3}};
  for (std::size_t turn = 0; turn < 4; ++turn) {
    EXPECT_EQ(owners(one_each(5), pscpu, turn), expected[turn]) << turn;
  }
  EXPECT_EQ(owners(one_each(2), {"pscpu", 5, -1}, 1), (Members{0, 1, 0, 1, 0}))
      << "more shards than workers";
  // The owners' order is the list's, not the value's.
  const WorkerLayout swapped = make_worker_layout(workers(2), components({{1, 0}, {0, 0}, {0, 1}}));
  EXPECT_EQ(owners(swapped, pscpu, 0), (Members{1, 0}));
}

// TF's order: GPU 0 of every worker, then GPU 1 of every worker.
TEST(WorkerLayoutTest, PsgpuTakesTheWorkersDevicesInTurns) {
  const WorkerLayout layout =
      make_worker_layout(workers(2), components({{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}}));
  EXPECT_EQ(owners(layout, {"psgpu", 3, -1}, 0), (Members{0, 1, 0}));
  EXPECT_EQ(owners(layout, {"psgpu", 3, -1}, 1), (Members{3, 4, 3}));
  EXPECT_EQ(owners(layout, {"psgpu", 5, -1}, 0, /*num_gpus_per_worker=*/3),
            (Members{0, 3, 1, 4, 2}));
  EXPECT_EQ(owners(layout, {"psgpu", 2, -1}, 0, /*num_gpus_per_worker=*/0), (Members{0, 3}));
}

TEST(WorkerLayoutTest, TheSecondLevelOfPscpuPscpuIsAmongTheFirstWorkers) {
  const WorkerLayout layout =
      make_worker_layout(workers(3), components({{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}}));
  EXPECT_EQ(owners(layout, {"pscpu/pscpu", 2, -1}, 7), (Members{0, 2}));
  EXPECT_EQ(owners(layout, {"pscpu/pscpu", 4, -1}, 7), (Members{0, 2, 4, 0}));
  EXPECT_EQ(owners(layout, {"nccl/pscpu", 2, -1}, 7), (Members{0, 2, 4, 0, 2, 4}));
}

const char* const kAlgorithms[] = {"nccl",       "xring",      "rechd",      "pscpu",      "psgpu",
                                   "nccl/xring", "nccl/rechd", "nccl/pscpu", "pscpu/pscpu"};

TEST(WorkerLayoutTest, EveryAlgorithmIsAnAllReduceOnEveryLayout) {
  std::vector<std::pair<std::size_t, Devices>> layouts;  // with the number of workers
  for (std::size_t num_workers = 1; num_workers <= 8; ++num_workers) {
    for (const std::size_t per_worker : {1u, 2u, 3u, 8u}) {
      std::vector<std::pair<std::size_t, std::size_t>> blocks;
      std::vector<std::pair<std::size_t, std::size_t>> interleaved;
      for (std::size_t i = 0; i < num_workers * per_worker; ++i) {
        blocks.emplace_back(i / per_worker, i % per_worker);
        interleaved.emplace_back(i % num_workers, i / num_workers);
      }
      layouts.emplace_back(num_workers, components(blocks));
      layouts.emplace_back(num_workers, components(interleaved));
    }
  }
  layouts.emplace_back(4, components({{3, 0}, {1, 2}, {3, 1}, {3, 7}, {0, 0}, {2, 1}}));
  for (const auto& [num_workers, devices] : layouts) {
    const WorkerLayout layout = make_worker_layout(workers(num_workers), devices);
    for (const char* const name : kAlgorithms) {
      for (const int shards : {1, 2, 5}) {
        for (const std::size_t size : awkward_sizes(devices.size())) {
          const AllReduceSpecTuple algorithm{name, shards, -1};
          ASSERT_EQ(verify_all_reduce(make_worker_schedule(layout, {.algorithm = algorithm,
                                                                    .num_gpus_per_worker = 2,
                                                                    .num_elements = size,
                                                                    .turn = size})),
                    "")
              << name << "#" << shards << " over " << devices.to_string() << ", " << size;
        }
      }
    }
  }
}

TEST(WorkerLayoutTest, WhatLeavesAWorkerIsWhatTheUpperLevelSends) {
  const std::size_t num_workers = 4;
  const std::size_t per_worker = 3;
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::size_t i = 0; i < num_workers * per_worker; ++i) {
    places.emplace_back(i / per_worker, i % per_worker);
  }
  const WorkerLayout layout = make_worker_layout(workers(num_workers), components(places));
  const std::size_t size = 4 * 3 * 100;
  for (const char* const name : {"nccl/xring", "nccl/rechd", "nccl/pscpu"}) {
    const AllReduceSpecTuple algorithm{name, 1, -1};
    const Schedule schedule = make_worker_schedule(
        layout, {.algorithm = algorithm, .num_gpus_per_worker = 3, .num_elements = size});
    std::vector<std::size_t> left(num_workers, 0);
    for (const ScheduleStep& step : schedule.steps) {
      for (const std::size_t source : step.sources) {
        const std::size_t from = source / per_worker;
        if (from != step.target / per_worker) left[from] += step.range.count;
      }
    }
    EXPECT_EQ(left, std::vector<std::size_t>(num_workers, 2 * (num_workers - 1) * size / 4))
        << name;
  }
}

}  // namespace
}  // namespace crossdevice::detail
