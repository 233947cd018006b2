// SPDX-License-Identifier: Apache-2.0
/// Tests of collective/measure.h: every operation, placement and dtype runs, and wrong results are counted.
#include "collective/measure.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/ops/reduction_to_one_device.h"

namespace crossdevice::bench {
namespace {

MeasureOptions quick(const std::string& ops, const Devices& devices) {
  return {.runner = run_with(programs::make_ops(ops, devices, {.num_packs = 2}), "direct"),
          .timing = {.iterations = 5, .warmup = 1, .rounds = 5}};
}

Team& alone() {
  static Team team;
  return team;
}

Case make_case(Collective collective, DType dtype, ReduceOp op) {
  Case test_case;
  test_case.collective = collective;
  test_case.dtype = dtype;
  test_case.op = op;
  test_case.devices = Devices{"CPU:0", "CPU:1", "CPU:2"};
  test_case.root = 2;
  test_case.shapes = {Shape{1500}};
  if (collective == Collective::BATCH_REDUCE)
    test_case.shapes = {Shape{10, 7}, Shape{0}, Shape{1500}};
  return test_case;
}

TEST(MeasureTest, EveryOperationOfEveryOpsIsRight) {
  OwnerThreads owners(3);
  for (const std::string ops :
       {"auto", "reduction_to_one_device", "hierarchical_copy", "multi_worker"}) {
    for (const Collective collective : kAllCollectives) {
      const std::vector<Case> cases = {make_case(collective, DType::FLOAT32, ReduceOp::SUM)};
      const auto rows = measure_cases(cases, "", quick(ops, cases[0].devices), owners, alone());
      ASSERT_EQ(rows.size(), 1U);
      EXPECT_EQ(rows[0].out_of_place.wrong, 0U) << ops << " " << to_string(collective);
      EXPECT_EQ(rows[0].out_of_place.limit, "non_temporal_copy");
      EXPECT_GT(rows[0].out_of_place.limit_gbs, 0);
      ASSERT_EQ(rows[0].in_place.has_value(), collective != Collective::GATHER);
      if (rows[0].in_place) {
        EXPECT_EQ(rows[0].in_place->wrong, 0U) << ops << " " << to_string(collective);
        EXPECT_EQ(rows[0].in_place->limit, "in_place_scale");
      }
    }
  }
}

TEST(MeasureTest, EveryTypeAndReductionIsRight) {
  OwnerThreads owners(3);
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (!is_supported(op, dtype)) continue;
      const std::vector<Case> cases = {make_case(Collective::ALL_REDUCE, dtype, op)};
      const auto rows = measure_cases(cases, "", quick("auto", cases[0].devices), owners, alone());
      EXPECT_EQ(rows[0].out_of_place.wrong, 0U) << to_string(dtype) << " " << to_string(op);
      if (rows[0].in_place) {
        EXPECT_EQ(rows[0].in_place->wrong, 0U) << to_string(dtype) << " " << to_string(op);
      }
    }
  }
}

/// Loses one element of every result.
class ForgetfulOps : public ReductionToOneDevice {
 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    Mirrored result = ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
    result.values()[0].span<float>()[11] += 1;
    return result;
  }
};

TEST(MeasureTest, WrongResultsAreCounted) {
  OwnerThreads owners(3);
  const std::vector<Case> cases = {
      make_case(Collective::ALL_REDUCE, DType::FLOAT32, ReduceOp::SUM)};
  MeasureOptions options = quick("auto", cases[0].devices);
  options.runner =
      run_with({.ops = std::make_shared<ForgetfulOps>(), .name = "forgetful"}, "direct");
  auto rows = measure_cases(cases, "", options, owners, alone());
  EXPECT_EQ(rows[0].out_of_place.wrong, 1U);
  EXPECT_EQ(rows[0].in_place.value().wrong, 1U);
  options.check = CheckValues::NO;
  rows = measure_cases(cases, "", options, owners, alone());
  EXPECT_FALSE(rows[0].out_of_place.wrong.has_value());
}

TEST(MeasureTest, ABatchIsHeldAgainstTheFlatBuffer) {
  OwnerThreads owners(3);
  const Case batch = make_case(Collective::BATCH_REDUCE, DType::FLOAT32, ReduceOp::SUM);
  Case flat = make_case(Collective::ALL_REDUCE, DType::FLOAT32, ReduceOp::SUM);
  flat.shapes = {Shape{batch.num_input_elements()}};
  const std::vector<Case> cases = {flat, batch};
  const auto rows =
      measure_cases(cases, "flat_buffer", quick("auto", batch.devices), owners, alone());
  ASSERT_EQ(rows.size(), 2U);
  const Row& relative = rows[1].out_of_place;
  EXPECT_EQ(relative.limit, "flat_buffer");
  EXPECT_NEAR(relative.percent_of_limit(),
              100 * rows[0].out_of_place.time.median_us / relative.time.median_us, 1e-6);
}

TEST(NamedOpsTest, AlgorithmsAreNamedByWhatRuns) {
  const Devices host{"CPU:0", "CPU:1"};
  const AllReduceSpec spec("xring#2:1024:rechd");
  const auto algorithm = [&](std::string_view name, const CommunicationOptions& options) {
    return programs::algorithm_name(name, host, options, spec);
  };
  EXPECT_EQ(algorithm("reduction_to_one_device", {}), "direct");
  EXPECT_EQ(algorithm("hierarchical_copy", {}), "direct_halves");
  EXPECT_EQ(algorithm("hierarchical_copy", {.deterministic = true}), "direct");
  EXPECT_EQ(algorithm("nccl", {}), "direct");
  EXPECT_EQ(algorithm("multi_worker", {}), "xring#2:1024:rechd");
  EXPECT_EQ(algorithm("multi_worker", {.deterministic = true}), "direct");
  EXPECT_EQ(programs::make_ops("auto", host, {}).name, "reduction_to_one_device");
  EXPECT_EQ(programs::make_ops("multi_worker", host, {}).name, "multi_worker");
}

TEST(NamedOpsTest, WorkersAreThoseOfTheDevices) {
  const Devices devices{"/job:worker/task:1/CPU:2", "/job:worker/task:0/CPU:0",
                        "/job:worker/task:1/CPU:0", "CPU:3"};
  EXPECT_EQ(programs::workers_of(devices),
            Devices({"/job:worker/task:1", "/job:worker/task:0", "CPU:0"}));
}

}  // namespace
}  // namespace crossdevice::bench
