// SPDX-License-Identifier: Apache-2.0
/// Tests of the benchmark on emulated GPUs: what is right, what is wrong, what it is held against. Nothing here says how fast anything is.
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "collective/gpu_contenders.h"
#include "collective/measure.h"
#include "collective/report_json.h"
#include "collective/report_table.h"
#include "support/emulated_gpus.h"
#include "support/threaded_cluster.h"

namespace crossdevice::bench {
namespace {

using testing::emulated_cuda;
using testing::emulated_nccl;
using ::testing::HasSubstr;

[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(4), true);

MeasureOptions quick(const std::string& ops, const Devices& devices) {
  return {.runner = run_with(programs::make_ops(ops, devices, {.num_packs = 2}), "nccl"),
          .timing = {.iterations = 5, .warmup = 1, .rounds = 5}};
}

Case make_case(Collective collective, const Devices& devices, DType dtype = DType::FLOAT32,
               ReduceOp op = ReduceOp::SUM) {
  Case test_case;
  test_case.collective = collective;
  test_case.dtype = dtype;
  test_case.op = op;
  test_case.devices = devices;
  test_case.root = devices.size() - 1;
  test_case.shapes = {Shape{1500}};
  if (collective == Collective::BATCH_REDUCE) {
    test_case.shapes = {Shape{10, 7}, Shape{0}, Shape{1500}};
  }
  return test_case;
}

bool nccl_alone_does(Collective collective) {
  return collective == Collective::ALL_REDUCE || collective == Collective::BATCH_REDUCE;
}

class MeasureGpuTest : public ::testing::Test {
 protected:
  std::vector<RowPair> measure(const std::vector<Case>& cases, const MeasureOptions& options) {
    OwnerThreads owners(cases[0].devices.size());
    Team team;
    return measure_cases(cases, "flat_buffer", options, owners, team);
  }
  void TearDown() override {
    EXPECT_TRUE(emulated_cuda().synchronize());
    EXPECT_THAT(emulated_cuda().violations(), ::testing::IsEmpty());
  }
};

TEST_F(MeasureGpuTest, EveryOperationOfEveryOpsIsRight) {
  for (const Devices& devices : {Devices{"GPU:0"}, Devices{"GPU:0", "GPU:1", "GPU:3"}}) {
    for (const std::string ops : {"auto", "reduction_to_one_device", "hierarchical_copy"}) {
      for (const Collective collective : kAllCollectives) {
        SCOPED_TRACE(ops + " " + std::string(to_string(collective)));
        const auto rows = measure({make_case(collective, devices)}, quick(ops, devices));
        ASSERT_EQ(rows.size(), 1U);
        const Row& out_of_place = rows[0].out_of_place;
        EXPECT_EQ(out_of_place.wrong, 0U);
        EXPECT_EQ(out_of_place.limit, "flat_device_copy");
        EXPECT_GT(out_of_place.limit_gbs, 0);
        EXPECT_EQ(out_of_place.raw_nccl_us.has_value(), nccl_alone_does(collective));
        ASSERT_EQ(rows[0].in_place.has_value(), collective != Collective::GATHER);
        EXPECT_EQ(rows[0].in_place ? rows[0].in_place->wrong : 0U, 0U);
      }
    }
  }
}

TEST_F(MeasureGpuTest, EveryTypeAndReductionIsRightAndRawNcclIsThereWhereNcclCan) {
  const Devices devices{"GPU:1", "GPU:2"};
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (!is_supported(op, dtype)) continue;
      SCOPED_TRACE(std::string(to_string(op)) + " of " + std::string(to_string(dtype)));
      const auto rows =
          measure({make_case(Collective::ALL_REDUCE, devices, dtype, op)}, quick("auto", devices));
      EXPECT_EQ(rows[0].out_of_place.wrong, 0U);
      EXPECT_EQ(rows[0].out_of_place.raw_nccl_us.has_value(),
                detail::nccl_reduction(op, dtype, emulated_nccl().version(), 90).has_value());
    }
  }
}

/// Workers as threads, which have emulated GPUs of their own: values of all of them, in many calls in a row, beside raw NCCL among them.
TEST_F(MeasureGpuTest, WorkersMeasureTogether) {
  constexpr std::size_t kWorkers = 2;
  const Devices of_worker[kWorkers] = {{"GPU:0", "GPU:2"}, {"GPU:1", "GPU:3"}};
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    const Devices& devices = of_worker[cluster->rank()];
    const auto ops =
        std::make_shared<CollectiveAllReduce>(devices, 4, CommunicationOptions(), cluster);
    Team team(cluster, ops, devices);
    team.line_up();
    MeasureOptions options{
        .runner = run_with({.ops = ops, .name = "collective_all_reduce"}, "auto"),
        .timing = {.iterations = 5, .warmup = 1, .rounds = 5},
        .raw_nccl = detail::NcclClique::among(cluster, devices)};
    OwnerThreads owners(devices.size());
    for (const Collective collective : {Collective::ALL_REDUCE, Collective::BATCH_REDUCE}) {
      Case test_case = make_case(collective, devices);
      test_case.num_workers = kWorkers;
      test_case.worker = team.rank();
      EXPECT_GT(calls_per_sample(test_case, team), 1U);
      const std::vector<RowPair> rows =
          measure_cases(std::span<const Case>(&test_case, 1), "flat_buffer", options, owners, team);
      EXPECT_EQ(rows[0].out_of_place.wrong, 0U);
      EXPECT_EQ(rows[0].in_place->wrong, 0U);
      EXPECT_EQ(rows[0].out_of_place.limit, "flat_device_copy");
      EXPECT_TRUE(rows[0].out_of_place.raw_nccl_us.has_value());
      options.runner.run = [](const Case&, const CaseBuffers&, Placement) {};  // none is reduced
      EXPECT_GT(measure_cases(std::span<const Case>(&test_case, 1), "flat_buffer", options, owners,
                              team)[0]
                    .out_of_place.wrong,
                0U);
      options.runner = run_with({.ops = ops, .name = "collective_all_reduce"}, "auto");
    }
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(kWorkers, work), testing::no_errors(kWorkers));
}

TEST_F(MeasureGpuTest, ABatchIsHeldAgainstTheFlatBuffer) {
  const Devices devices{"GPU:0", "GPU:1"};
  Case flat = make_case(Collective::ALL_REDUCE, devices);
  flat.shapes = {Shape{1570}};
  const auto rows =
      measure({flat, make_case(Collective::BATCH_REDUCE, devices)}, quick("auto", devices));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_TRUE(rows[0].out_of_place.raw_nccl_us.has_value());
  EXPECT_EQ(rows[1].out_of_place.limit, "flat_buffer");
  EXPECT_TRUE(rows[1].out_of_place.raw_nccl_us.has_value());
  EXPECT_TRUE(rows[1].in_place->raw_nccl_us.has_value());
  const std::string line = table_line(rows[0], ShowPercentiles::NO, ShowRawNccl::YES);
  const std::string head = table_head(ShowPercentiles::NO, ShowRawNccl::YES);
  EXPECT_THAT(head, HasSubstr("raw NCCL"));
  // As wide as its title, in both halves.
  EXPECT_EQ(line.size() - table_line(rows[0], ShowPercentiles::NO).size(), 18U);
  const auto last_line = [](const std::string& text) { return text.size() - text.rfind('#'); };
  EXPECT_EQ(last_line(head) - last_line(table_head(ShowPercentiles::NO)), 18U);
  const auto gathered = measure({make_case(Collective::GATHER, devices)}, quick("auto", devices));
  EXPECT_THAT(json_report(std::vector<Row>{gathered[0].out_of_place}),
              HasSubstr("\"raw_nccl_us_median\": null"));
}

TEST_F(MeasureGpuTest, RawNcclReducesAllTensorsOfACase) {
  const Devices devices{"GPU:0", "GPU:1", "GPU:3"};
  OwnerThreads owners(devices.size());
  for (const Collective collective : {Collective::ALL_REDUCE, Collective::BATCH_REDUCE}) {
    const Case test_case = make_case(collective, devices);
    CaseBuffers buffers(test_case, owners);
    for (const Placement placement : {Placement::OUT_OF_PLACE, Placement::IN_PLACE}) {
      buffers.rewrite_inputs();
      buffers.poison_outputs(placement);
      RawNccl::make(test_case).value().enqueue(buffers, placement);
      wait_for_gpus(devices);
      EXPECT_EQ(buffers.count_wrong(placement), 0U) << to_string(collective);
    }
  }
}

TEST_F(MeasureGpuTest, WrongValuesAreCounted) {
  const Devices devices{"GPU:0", "GPU:1"};
  MeasureOptions options = quick("auto", devices);
  options.runner.run = [](const Case&, const CaseBuffers&, Placement) {};  // nothing is reduced
  const auto rows = measure({make_case(Collective::ALL_REDUCE, devices)}, options);
  EXPECT_GT(*rows[0].out_of_place.wrong, 2000U);
  EXPECT_GT(*rows[0].in_place->wrong, 0U);
}

TEST_F(MeasureGpuTest, TheTimesEndWhenTheResultsAreThere) {
  const Devices devices{"GPU:0", "GPU:1"};
  const MeasureOptions options = quick("auto", devices);
  (void)measure({make_case(Collective::ALL_REDUCE, devices)}, options);
  const testing::Fault slow{.function = "nccl.all_reduce",
                            .kind = testing::FaultKind::DELAY_OPERATION,
                            .count = 1000,
                            .delay = std::chrono::milliseconds(3)};
  emulated_cuda().calls().inject(slow);
  const auto rows = measure({make_case(Collective::ALL_REDUCE, devices)}, options);
  emulated_cuda().calls().clear_faults();
  EXPECT_GE(rows[0].out_of_place.time.median_us, 3000);
  EXPECT_GE(*rows[0].out_of_place.raw_nccl_us, 3000);
}

TEST_F(MeasureGpuTest, SaysWhatIsThere) {
  EXPECT_THAT(describe_gpus({"GPU:0", "GPU:1"}), HasSubstr("2 GPUs: Emulated GPU; CUDA "));
  EXPECT_THAT(describe_gpus({"GPU:0"}), HasSubstr("; NCCL 2.28.9 at "));
}

}  // namespace
}  // namespace crossdevice::bench
