// SPDX-License-Identifier: Apache-2.0
// What crossdevice-doctor says where each GPU, an emulated one, is split into several devices: NCCL takes it once.
#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/device/device.h"

#include "doctor/gpus.h"
#include "doctor/probes.h"
#include "support/gpu_fixture.h"

namespace crossdevice::doctor {
namespace {

constexpr int kGpus = 3;
constexpr int kDevicesPerGpu = 2;

[[maybe_unused]] const bool kInstalled = [] {
  testing::install_emulated_gpus(kGpus);
  set_logical_gpu_devices(kDevicesPerGpu);
  return true;
}();

class DoctorLogicalGpusTest : public testing::GpuTest {};

TEST_F(DoctorLogicalGpusTest, TheFirstDeviceStandsForItsGpu) {
  EXPECT_EQ(num_gpus(), kDevicesPerGpu * kGpus);
  EXPECT_EQ(one_device_of_each_gpu(),
            (std::vector<Device>{Device("GPU:0"), Device("GPU:2"), Device("GPU:4")}));
}

TEST_F(DoctorLogicalGpusTest, NcclTakesEachGpuOnce) {
  const Findings findings = probe_nccl_all_reduce();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].status, Status::OK) << findings[0].text;
  EXPECT_THAT(findings[0].text, ::testing::HasSubstr("3 GPUs"));
}

}  // namespace
}  // namespace crossdevice::doctor
