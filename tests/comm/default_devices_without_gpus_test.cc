// SPDX-License-Identifier: Apache-2.0
// A host without GPUs, as this one may be.
#include <cstdlib>

#include <gtest/gtest.h>

#include "crossdevice/comm/default_devices.h"
#include "crossdevice/device/gpu_platform.h"

#include "support/log_keeper.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kSpeaksOfEverything =
    ::setenv("CROSSDEVICE_LOG_LEVEL", "info", 1) == 0;  // read once, later

TEST(DefaultDevicesWithoutGpusTest, SaysOnceWhyThereAreNone) {
  if (detail::gpu_platform().has_gpus()) GTEST_SKIP() << "this host has GPUs";
  const testing::LogKeeper log;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(default_devices(), Devices{"CPU:0"});
  EXPECT_EQ(log.texts(), "default devices: CPU:0, for there is no GPU: " +
                             detail::gpu_platform().reason_against + "\n");
}

}  // namespace
}  // namespace crossdevice
