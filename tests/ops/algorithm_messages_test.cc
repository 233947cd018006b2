// SPDX-License-Identifier: Apache-2.0
// With CROSSDEVICE_LOG=info each op says which algorithm it takes and why, once in the process: neither another call nor another object says it again, whatever the
// size; another choice is another line. What programs print is in observed_job_test. Each case needs a process of its own, as ctest gives it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/collective/transport_collectives.h"
#include "crossdevice/comm/in_process_transport.h"
#include "crossdevice/core/counters.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/gpu_values.h"
#include "support/log_keeper.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using testing::cpus;
using testing::emulated_cuda;
using testing::gpus;
using ::testing::HasSubstr;
using testing::LogKeeper;
using testing::no_errors;
using testing::run_clusters;
using testing::vector_of;
using ClusterPtr = std::shared_ptr<Cluster>;

/// Which choices the environment makes, before anybody reads it.
bool set_environment() {
  unsetenv("CROSSDEVICE_LOG_LEVEL");
  setenv("CROSSDEVICE_LOG", "info", 1);
  const std::string path =
      ::testing::TempDir() + "algorithm_messages_" + std::to_string(::getpid()) + ".json";
  std::ofstream(path)
      << R"({"all_reduce": [{"up_to_bytes": 1000, "algorithm": "ring"}, {"algorithm": "rechd"}]})";
  setenv("CROSSDEVICE_TUNING_FILE", path.c_str(), 1);
  (void)std::atexit([] { (void)::unlink(std::getenv("CROSSDEVICE_TUNING_FILE")); });
  return true;
}
[[maybe_unused]] const bool kSet = set_environment();
[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

PerReplica value_on(const Devices& devices, std::size_t count) {
  std::vector<Tensor> components;
  for (const Device& device : devices) {
    components.push_back(vector_of(std::vector<float>(count, 1.0F), device));
  }
  return PerReplica(components);
}

constexpr std::size_t kSmall = 10;
constexpr std::size_t kLarge = 100'000;

/// Two calls of each size.
void reduce_often(CrossDeviceOps& ops, const Devices& devices) {
  for (const std::size_t count : {kSmall, kSmall, kLarge, kLarge}) {
    const PerReplica value = value_on(devices, count);
    ops.reduce_into(ReduceOp::SUM, value, value);
  }
}

std::size_t count(const LogKeeper& log, const std::string& what) {
  const std::string text = log.texts();
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++found;
  }
  return found;
}

class AlgorithmMessagesTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(emulated_cuda().synchronize());
    EXPECT_EQ(emulated_cuda().violations(), std::vector<std::string>());
  }
  LogKeeper log_;
};

TEST_F(AlgorithmMessagesTest, ReductionToOneDevice) {
  for (int i = 0; i < 2; ++i) {
    ReductionToOneDevice ops;
    reduce_often(ops, cpus(2));
  }
  EXPECT_EQ(log_.texts(),
            "ReductionToOneDevice: direct, all components in one pass, since one device reduces; "
            "gpu_kernels where values lie on GPUs\n");
  for (int i = 0; i < 2; ++i) {
    ReductionToOneDevice ops({.accumulation_fn = [](std::span<const Tensor> all) {
      return all[0];  // nobody looks at the sum
    }});
    const PerReplica value = value_on(cpus(2), kSmall);
    (void)ops.reduce(ReduceOp::SUM, value, "CPU:3");
  }
  EXPECT_EQ(count(log_, "ReductionToOneDevice: by accumulation_fn, since the program gave one"),
            1U);
  EXPECT_EQ(count(log_, "\n"), 2U);
}

TEST_F(AlgorithmMessagesTest, HierarchicalCopyAllReduce) {
  for (const int num_packs : {1, 3}) {
    HierarchicalCopyAllReduce ops(num_packs);
    reduce_often(ops, cpus(4));
  }
  EXPECT_EQ(log_.texts(),
            "HierarchicalCopyAllReduce: hierarchical_copy, as the program asks by its name; direct "
            "where destinations are other devices or deterministic is set\n");
}

TEST_F(AlgorithmMessagesTest, MultiWorkerAllReduceSaysEachSpec) {
  const auto reduce_with = [](const AllReduceSpec& spec) {
    MultiWorkerAllReduce ops({"/job:worker/task:0"}, 0, {.all_reduce_spec = spec});
    reduce_often(ops, {"/job:worker/task:0/CPU:0", "/job:worker/task:0/CPU:1"});
  };
  const std::string said = "MultiWorkerAllReduce: scheduled, by all_reduce_spec ";
  for (int i = 0; i < 2; ++i) reduce_with({"pscpu", 1, -1});
  EXPECT_EQ(count(log_, said), 1U) << log_.texts();
  for (int i = 0; i < 2; ++i) reduce_with({"xring", 1, -1});
  EXPECT_EQ(count(log_, said), 2U) << log_.texts();
  EXPECT_EQ(count(log_, said + "pscpu"), 1U) << log_.texts();
  EXPECT_EQ(count(log_, said + "xring"), 1U) << log_.texts();
}

TEST_F(AlgorithmMessagesTest, NcclAllReduceSaysEachListOfDevices) {
  const std::string said = ": nccl, which serves all of them\n";
  for (int i = 0; i < 2; ++i) {
    NcclAllReduce ops(1);
    reduce_often(ops, gpus(2));
  }
  EXPECT_EQ(log_.texts(), "NcclAllReduce over " + gpus(2).to_string() + said);
  NcclAllReduce ops(1);
  reduce_often(ops, gpus(3));
  reduce_often(ops, gpus(2));
  EXPECT_EQ(count(log_, "NcclAllReduce over "), 2U) << log_.texts();
  EXPECT_EQ(count(log_, "NcclAllReduce over " + gpus(3).to_string() + said), 1U) << log_.texts();
}

TEST_F(AlgorithmMessagesTest, NcclAllReduceSaysEachReasonThatItGoesWithoutNccl) {
  for (int i = 0; i < 2; ++i) {
    NcclAllReduce ops(1);
    reduce_often(ops, cpus(2));
    reduce_often(ops, cpus(3));  // for the same reason
  }
  EXPECT_EQ(log_.texts(), "NcclAllReduce over " + cpus(2).to_string() +
                              ": NCCL reduces on GPUs, these are host devices; the host reduces "
                              "instead\n");
  NcclAllReduce ops(1);
  reduce_often(ops, {"GPU:0", "CPU:0"});
  EXPECT_THAT(log_.texts(), HasSubstr(": NCCL reduces on GPUs, some of these are host devices; "
                                      "the library's own kernels reduce instead\n"));
  EXPECT_EQ(count(log_, "\n"), 2U) << log_.texts();
}

// ---------------------------------------------------------------------------------------------- among workers

/// Each with two objects, one after the other, and a device of its own.
void reduce_among(std::size_t num_workers, const Devices& devices) {
  const auto work = [&](const ClusterPtr& cluster) {
    const Devices own{devices[static_cast<std::size_t>(cluster->rank())]};
    for (int i = 0; i < 2; ++i) {
      CollectiveAllReduce ops(own, static_cast<int>(num_workers), {.timeout_seconds = 60}, cluster);
      reduce_often(ops, own);
      ops.check();
      cluster->barrier(60);
    }
  };
  EXPECT_EQ(run_clusters(num_workers, work), no_errors(num_workers));
}

TEST_F(AlgorithmMessagesTest, CollectiveAllReduceAlone) {
  for (int i = 0; i < 2; ++i) {
    CollectiveAllReduce ops(cpus(2), 2);
    reduce_often(ops, cpus(2));
  }
  EXPECT_EQ(log_.texts(), "CollectiveAllReduce: direct, since this worker is alone\n");
}

TEST_F(AlgorithmMessagesTest, CollectiveAllReduceSaysEachNumberOfWorkersOnAMachine) {
  const auto said = [](int workers) {
    return "all-reduce by shared_memory, in one pass: all " + std::to_string(workers) +
           " workers are on one machine\n";
  };
  reduce_among(2, cpus(2));
  EXPECT_EQ(count(log_, "all-reduce "), 1U) << log_.texts();
  EXPECT_EQ(count(log_, said(2)), 1U) << log_.texts();
  reduce_among(2, cpus(2));
  EXPECT_EQ(count(log_, "all-reduce "), 1U) << log_.texts();
  reduce_among(3, cpus(3));
  EXPECT_EQ(count(log_, "all-reduce "), 2U) << log_.texts();
  EXPECT_EQ(count(log_, said(3)), 1U) << log_.texts();
  EXPECT_EQ(count(log_, "CollectiveAllReduce: nccl"), 0U) << log_.texts();
}

TEST_F(AlgorithmMessagesTest, CollectiveAllReduceOnGpus) {
  reduce_among(2, gpus(2));
  reduce_among(3, gpus(3));
  EXPECT_EQ(count(log_,
                  "CollectiveAllReduce: nccl where values lie on GPUs, since it serves all "
                  "workers'\n"),
            1U)
      << log_.texts();
}

/// Among workers that exchange messages the choice depends on the size: one line has all choices, and calls take them without a word.
TEST_F(AlgorithmMessagesTest, WhoExchangesMessagesSaysWhichAlgorithmFromWhichSize) {
  constexpr std::size_t kWorkers = 4;
  std::vector<std::unique_ptr<Transport>> transports = make_in_process_transports(kWorkers);
  const auto work = [&](const ClusterPtr& cluster) {
    TransportCollectives collectives(
        cluster, std::move(transports[static_cast<std::size_t>(cluster->rank())]));
    std::uint64_t sequence = 0;
    for (const std::size_t size : {kSmall, kSmall, kLarge, kLarge}) {
      const std::vector<Tensor> tensor{vector_of(std::vector<float>(size, 1.0F), "CPU:0")};
      collectives.all_reduce({.kind = "test",
                              .sequence = ++sequence,
                              .op = ReduceOp::SUM,
                              .deadline = Deadline::after_timeout_seconds(60)},
                             std::vector<CollectiveValue>{{tensor, tensor}});
    }
  };
  const auto reductions = [](const std::string& algorithm) {
    return counter_value("crossdevice_reductions_total", "algorithm=\"" + algorithm + "\"");
  };
  const double rings = reductions("ring");
  const double rechds = reductions("rechd");
  EXPECT_EQ(run_clusters(kWorkers, work), no_errors(kWorkers));
  EXPECT_EQ(reductions("ring") - rings, 2 * kWorkers);
  EXPECT_EQ(reductions("rechd") - rechds, 2 * kWorkers);
  EXPECT_EQ(count(log_, "all-reduce "), 1U) << log_.texts();
  EXPECT_EQ(count(log_, "all-reduce among 4 workers that exchange messages: "), 1U);
  EXPECT_THAT(
      log_.texts(),
      HasSubstr("links not measured, all choices pinned; ring from 8 bytes rechd from 1 KiB\n"));
}

}  // namespace
}  // namespace crossdevice
