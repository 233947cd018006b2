// SPDX-License-Identifier: Apache-2.0
// What crossdevice-doctor says of GPUs, here emulated ones: the probes that look at them, in this process.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/device/device.h"

#include "doctor/probes.h"
#include "doctor/worker.h"
#include "support/gpu_fixture.h"
#include "support/threaded_cluster.h"

namespace crossdevice::doctor {
namespace {

using ::testing::HasSubstr;

constexpr int kGpus = 4;

const bool kInstalled = [] {
  testing::install_emulated_gpus(kGpus);
  testing::emulated_cuda().set_peers(0, 3, false);
  return true;
}();

class DoctorGpusTest : public testing::GpuTest {};

std::string name_of(int gpu) { return "GPU:" + std::to_string(gpu); }

TEST_F(DoctorGpusTest, EveryGpuHasALineAndPairsThatDoNotReachEachOtherAreNamed) {
  ASSERT_TRUE(kInstalled);
  const Findings findings = probe_devices(System());
  const std::vector<std::string> names = {"host devices", "CUDA",  "GPUs",  "GPU:0",
                                          "GPU:1",        "GPU:2", "GPU:3", "GPUs' reach"};
  ASSERT_EQ(findings.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(findings[i].name, names[i]);
  EXPECT_THAT(findings[1].text, HasSubstr("run time"));
  EXPECT_EQ(findings[2].status, Status::OK);
  EXPECT_EQ(findings[2].facts.at("count"), kGpus);
  for (int i = 0; i < kGpus; ++i) {
    const auto found = std::find_if(findings.begin(), findings.end(),
                                    [&](const Finding& each) { return each.name == name_of(i); });
    ASSERT_NE(found, findings.end());
    EXPECT_EQ(found->status, Status::OK);
    EXPECT_THAT(found->text, HasSubstr("compute capability"));
    EXPECT_GT(found->facts.at("memory_bytes").get<std::size_t>(), 0U);
  }
  EXPECT_TRUE(is_healthy(findings));
  const Finding& reach = findings.back();
  EXPECT_EQ(reach.status, Status::SHORTFALL);
  EXPECT_THAT(reach.text, HasSubstr("GPU:0 to GPU:3"));
  EXPECT_EQ(reach.facts.at("pairs_apart"), 1);
  EXPECT_THAT(reach.advice, HasSubstr("nvidia-smi"));
}

TEST_F(DoctorGpusTest, EveryPairIsCopiedBetween) {
  const Findings findings = probe_copies();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].status, Status::OK) << findings[0].text;
  EXPECT_EQ(findings[0].facts.at("gpus"), kGpus);
  const int num_devices = kGpus + num_logical_cpu_devices();
  EXPECT_EQ(findings[0].facts.at("pairs"), num_devices * num_devices);
}

/// As where an IOMMU loses them: the call says that all is well.
TEST_F(DoctorGpusTest, ACopyThatDoesNotComeIsWrongBytes) {
  testing::emulated_cuda().calls().inject({.function = "cuda.memcpy_async", .status = 0});
  const Findings findings = probe_copies();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].status, Status::FAILURE);
  EXPECT_THAT(findings[0].text, HasSubstr("WRONG BYTES: CPU:0 to GPU:0: byte "));
  EXPECT_THAT(findings[0].advice, HasSubstr("PCIe access control"));
  EXPECT_FALSE(is_healthy(findings));
}

TEST_F(DoctorGpusTest, OurKernelsAndNcclReduce) {
  for (const Findings& findings : {probe_gpu_all_reduce(), probe_nccl_all_reduce()}) {
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings[0].status, Status::OK) << findings[0].text;
    EXPECT_THAT(findings[0].text, HasSubstr("4 GPUs"));
    EXPECT_EQ(findings[0].facts.at("wrong"), "");
  }
}

/// The processes that the probe starts, as threads. That there are at least two GPUs is the probe's to ask.
TEST_F(DoctorGpusTest, WorkersWithAGpuEachReduceThroughNccl) {
  const std::string path(kNcclWorkers);
  testing::emulated_cuda().calls().clear();
  const std::vector<std::string> errors =
      testing::run_clusters(kGpus, [&](const std::shared_ptr<Cluster>& cluster) {
        const Device device = device_of_worker(path, *cluster);
        EXPECT_EQ(device, Device(name_of(cluster->rank())));
        const Finding finding = reduce_among_workers(path, cluster, device);
        EXPECT_EQ(finding.status, Status::OK) << finding.text;
        EXPECT_EQ(finding.name, "all-reduce, NCCL workers");
        EXPECT_THAT(finding.text, HasSubstr("4 workers with a GPU each"));
      });
  EXPECT_EQ(errors, testing::no_errors(kGpus));
  EXPECT_GT(testing::emulated_cuda().calls().count("nccl.all_reduce"), 0U);
}

TEST_F(DoctorGpusTest, NcclIsNamedWithItsFile) {
  const Findings findings = probe_nccl();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].status, Status::OK);
  EXPECT_FALSE(findings[0].facts.at("path").get<std::string>().empty());
}

}  // namespace
}  // namespace crossdevice::doctor
