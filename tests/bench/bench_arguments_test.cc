// SPDX-License-Identifier: Apache-2.0
/// Tests of collective/arguments.h and collective/plan.h.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "collective/arguments.h"
#include "collective/plan.h"
#include "support/program.h"

namespace crossdevice::bench {
namespace {

Arguments parse(std::vector<const char*> words) {
  words.insert(words.begin(), "crossdevice-bench");
  const auto arguments = parse_arguments(static_cast<int>(words.size()), words.data());
  EXPECT_TRUE(arguments.has_value());
  return arguments.value();
}

std::string refusal(const std::vector<const char*>& words) {
  try {
    (void)parse(words);
  } catch (const programs::ArgumentError& error) {
    return error.what();
  } catch (const ValueError& error) {
    return error.what();
  }
  return "";
}

TEST(BenchArgumentsTest, TakesTheFlagsOfNcclTests) {
  const Arguments a = parse({"-b", "1K", "-e", "4M", "-f", "4", "-n", "7", "-w", "3", "-c", "0",
                             "-d", "half", "-o", "avg", "-g", "2"});
  EXPECT_EQ(a.sizes.min_bytes, 1024U);
  EXPECT_EQ(a.sizes.max_bytes, std::size_t{4} << 20U);
  EXPECT_EQ(a.sizes.step_factor, 4);
  EXPECT_EQ(a.timing.iterations, 7U);
  EXPECT_EQ(a.timing.warmup, 3U);
  EXPECT_FALSE(a.check);
  EXPECT_EQ(a.dtypes, (std::vector<DType>{DType::FLOAT16}));
  EXPECT_EQ(a.redops, (std::vector<ReduceOp>{ReduceOp::MEAN}));
  EXPECT_EQ(a.devices.size(), 2U);
}

TEST(BenchArgumentsTest, Workers) {
  const Arguments alone = parse({"-b", "8"});
  EXPECT_EQ(alone.workers.num_workers, 0);
  EXPECT_FALSE(alone.workers.are_running);
  EXPECT_EQ(alone.memory, MemoryKind::POOL);
  const Arguments a = parse({"--workers", "4", "--netns", "2", "--rate", "200mbit", "--foreign"});
  EXPECT_EQ(a.workers.num_workers, 4);
  EXPECT_FALSE(a.workers.are_running);
  EXPECT_EQ(a.workers.num_namespaces, 2);
  EXPECT_EQ(a.workers.rate, "200mbit");
  EXPECT_EQ(a.memory, MemoryKind::FOREIGN);
  EXPECT_EQ(a.devices, Devices{"CPU:0"});
  EXPECT_EQ(parse({"--workers", "2", "-g", "3"}).devices.size(), 3U);
  const auto groups = plan_cases(parse({"--workers", "4", "-b", "8", "-e", "8", "--foreign"}));
  EXPECT_EQ(groups.at(0).at(0).num_replicas(), 4U);
  EXPECT_EQ(groups.at(0).at(0).memory, MemoryKind::FOREIGN);
}

TEST(BenchArgumentsTest, WorkersThatALauncherHasStarted) {
  const auto launched = [](std::vector<const char*> words) {
    words.insert(words.begin(), "crossdevice-bench");
    return parse_arguments(static_cast<int>(words.size()), words.data(), [] { return 4; }).value();
  };
  EXPECT_EQ(launched({}).workers.num_workers, 4);
  EXPECT_TRUE(launched({}).workers.are_running);
  EXPECT_EQ(launched({}).devices.size(), 1U);
  EXPECT_TRUE(launched({"--workers", "4"}).workers.are_running);
  EXPECT_THROW((void)launched({"--workers", "3"}), programs::ArgumentError);
}

TEST(BenchArgumentsTest, WhatWorkersCannotDoIsRefused) {
  EXPECT_NE(refusal({"--workers", "0"}).find("--workers"), std::string::npos);
  EXPECT_NE(refusal({"--workers", "1025"}).find("--workers"), std::string::npos);
  EXPECT_EQ(refusal({"--netns", "2"}), "--netns needs --workers 2 or more");
  EXPECT_EQ(refusal({"--workers", "1", "--netns", "1"}), "--netns needs --workers 2 or more");
  EXPECT_EQ(refusal({"--workers", "2", "--netns", "3"}),
            "--netns 3: there are only 2 workers for them");
  EXPECT_EQ(refusal({"--workers", "2", "--rate", "1gbit"}), "--rate needs --netns");
  EXPECT_NE(refusal({"--workers", "2", "--netns", "2", "--rate", "fast"}).find("--rate: expected"),
            std::string::npos);
  EXPECT_EQ(refusal({"--workers", "2", "--op", "gather"}),
            "--op gather: workers measure all_reduce and batch_reduce");
  EXPECT_NE(refusal({"--workers", "2", "--ops", "nccl"}).find("CollectiveAllReduce"),
            std::string::npos);
}

TEST(BenchArgumentsTest, TakesTheirLongNames) {
  const Arguments a =
      parse({"--minbytes",     "8", "--maxbytes", "64", "--stepbytes", "8",     "--iters", "1",
             "--warmup_iters", "0", "--check",    "1",  "--datatype",  "int8",  "--redop", "max",
             "--ngpus",        "3", "--root",     "2",  "--op",        "reduce"});
  EXPECT_EQ(a.sizes.step_bytes, 8U);
  EXPECT_EQ(a.timing.warmup, 0U);
  EXPECT_EQ(a.dtypes, (std::vector<DType>{DType::INT8}));
  EXPECT_EQ(a.redops, (std::vector<ReduceOp>{ReduceOp::MAX}));
  EXPECT_EQ(a.root, 2U);
  EXPECT_EQ(a.collective, Collective::REDUCE);
}

TEST(BenchArgumentsTest, WorkersShareOutTheMachinesGpus) {
  const Arguments a = parse({"--workers", "2", "--devices", "GPU"});
  EXPECT_TRUE(a.takes_own_gpus);
  EXPECT_FALSE(parse({"--workers", "2"}).takes_own_gpus);
  EXPECT_NE(refusal({"--devices", "GPU"}).find("GPU"), std::string::npos);
  EXPECT_EQ(refusal({"--workers", "2", "--devices", "GPU", "--foreign"}),
            "--foreign: on GPUs the memory is always the library's");
}

TEST(BenchArgumentsTest, TakesItsOwnFlags) {
  const Arguments a =
      parse({"--op", "batch_reduce", "--ops", "hierarchical_copy", "--devices", "CPU:2,CPU:0",
             "--num-packs", "3", "--bytes-per-pack", "1M", "--deterministic",
             "--grouping-independent", "--json", "x.json", "--all-reduce-spec", "xring#2:1k:nccl"});
  EXPECT_EQ(a.collective, Collective::BATCH_REDUCE);
  EXPECT_EQ(a.ops, "hierarchical_copy");
  EXPECT_EQ(a.devices, (Devices{"CPU:2", "CPU:0"}));
  EXPECT_EQ(a.num_packs, 3);
  EXPECT_EQ(a.all_reduce_spec.to_string(), "xring#2:1024:nccl");
  EXPECT_EQ(a.communication.bytes_per_pack.value(), 1 << 20);
  EXPECT_TRUE(a.communication.deterministic);
  EXPECT_TRUE(a.communication.grouping_independent);
  EXPECT_EQ(a.json, "x.json");
}

TEST(BenchArgumentsTest, HelpIsNotAnError) {
  const char* const words[] = {"crossdevice-bench", "--help"};
  testing::internal::CaptureStdout();
  EXPECT_FALSE(parse_arguments(2, words).has_value());
  const std::string help = testing::internal::GetCapturedStdout();
  for (const char* const word : {"--minbytes", "busbw", "%lim", "in_place_scale", "Exit codes"}) {
    EXPECT_NE(help.find(word), std::string::npos) << word;
  }
}

TEST(BenchArgumentsTest, RefusalsSayWhatIsWrong) {
  EXPECT_NE(refusal({"--op", "scatter"}).find("--op 'scatter': expected one of all_reduce"),
            std::string::npos);
  EXPECT_NE(refusal({"--ops", "magic"}).find("unknown cross-device ops 'magic'"),
            std::string::npos);
  EXPECT_NE(refusal({"-d", "int7"}).find("--datatype 'int7'"), std::string::npos);
  EXPECT_NE(refusal({"-o", "xor"}).find("--redop 'xor'"), std::string::npos);
  EXPECT_NE(refusal({"-b", "1M", "-e", "1K"}).find("above --maxbytes"), std::string::npos);
  EXPECT_NE(refusal({"-f", "1"}).find("must be above 1"), std::string::npos);
  EXPECT_NE(refusal({"--devices", "CPU:0,GPU:99"}).find("GPU:99"), std::string::npos);
  EXPECT_NE(refusal({"--devices", "CPU:0", "-r", "1"}).find("--root 1"), std::string::npos);
  EXPECT_NE(refusal({"--gradients", "x.csv", "--op", "reduce"}).find("--op reduce"),
            std::string::npos);
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{{"--no-such-flag"},
                                             {"-n", "0"},
                                             {"-g", "0"},
                                             {"-g", "2", "--devices", "CPU:0"},
                                             {"--gradients", "x.csv", "-b", "8"},
                                             {"-i", "8", "-f", "2"},
                                             {"-i", "0"},
                                             {"--devices", ""},
                                             {"-c", "-1"},
                                             {"--num-packs", "-1"},
                                             {"--rounds", "4"},
                                             {"-T", "-1"},
                                             {"stray"}}) {
    EXPECT_NE(refusal(words), "") << words[0];
  }
}

TEST(BenchPlanTest, SizesAreRoundedDownToWholeElements) {
  const auto groups =
      plan_cases(parse({"-b", "10", "-e", "50", "-i", "10", "-d", "double", "-g", "2"}));
  std::vector<std::size_t> sizes;
  sizes.reserve(groups.size());
  for (const CaseGroup& group : groups) sizes.push_back(group.at(0).size_bytes());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{8, 16, 24, 40, 48}));
}

TEST(BenchPlanTest, SizesBelowAnElementAreOneRow) {
  const auto groups = plan_cases(parse({"-b", "1", "-e", "4", "-d", "double", "-g", "2"}));
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0][0].size_bytes(), 0U);
}

TEST(BenchPlanTest, AGatherDividesTheSizeAmongTheDevices) {
  const auto groups = plan_cases(parse({"--op", "gather", "-b", "100", "-e", "100", "-g", "3"}));
  EXPECT_EQ(groups.at(0).at(0).shapes, (std::vector<Shape>{Shape{8}}));
  EXPECT_EQ(groups[0][0].size_bytes(), 96U);
}

TEST(BenchPlanTest, ABatchIsCutIntoTensorsWithoutLosingAnElement) {
  const auto groups = plan_cases(
      parse({"--op", "batch_reduce", "--tensors", "3", "-b", "40", "-e", "40", "-g", "2"}));
  EXPECT_EQ(groups.at(0).at(0).shapes, (std::vector<Shape>{Shape{3}, Shape{3}, Shape{4}}));
}

TEST(BenchPlanTest, AllSkipsWhatIsNotDefined) {
  const auto groups =
      plan_cases(parse({"-d", "all", "-o", "all", "-b", "64", "-e", "64", "-g", "2"}));
  std::size_t supported = 0;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) supported += is_supported(op, dtype) ? 1U : 0U;
  }
  EXPECT_EQ(groups.size(), supported);
}

TEST(BenchPlanTest, RefusesWhatIsNotDefinedWhenAskedForItAlone) {
  EXPECT_THROW((void)plan_cases(parse({"-d", "bool", "-o", "sum"})), programs::ArgumentError);
  EXPECT_THROW((void)plan_cases(parse({"-d", "complex64", "-o", "max"})), programs::ArgumentError);
}

TEST(BenchPlanTest, RefusesMoreMemoryThanThereIs) {
  EXPECT_THROW((void)plan_cases(parse({"-b", "900T", "-e", "900T", "-g", "2"})),
               programs::ArgumentError);
}

TEST(BenchPlanTest, AGradientListIsHeldAgainstAFlatBuffer) {
  const auto groups =
      plan_cases(parse({"--gradients", CROSSDEVICE_WORKLOADS_DIR "/resnet50.csv", "-g", "2"}));
  ASSERT_EQ(groups.size(), 1U);
  ASSERT_EQ(groups[0].size(), 2U);
  EXPECT_EQ(groups[0][0].collective, Collective::ALL_REDUCE);
  EXPECT_EQ(groups[0][1].collective, Collective::BATCH_REDUCE);
  EXPECT_EQ(groups[0][1].shapes.size(), 161U);
  EXPECT_EQ(groups[0][0].size_bytes(), groups[0][1].size_bytes());
}

}  // namespace
}  // namespace crossdevice::bench
