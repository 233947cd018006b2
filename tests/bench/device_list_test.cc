// SPDX-License-Identifier: Apache-2.0
/// Tests of support/device_list.h.
#include "support/device_list.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "support/program.h"

namespace crossdevice::programs {
namespace {

TEST(DeviceListTest, NamesStandBetweenCommas) {
  EXPECT_EQ(split_device_names("CPU:0"), (std::vector<std::string>{"CPU:0"}));
  EXPECT_EQ(split_device_names("CPU:0,CPU:1, CPU:7 "),
            (std::vector<std::string>{"CPU:0", "CPU:1", "CPU:7"}));
}

TEST(DeviceListTest, RefusesEmptyNames) {
  for (const char* const list : {"", ",", "CPU:0,", ",CPU:0", "CPU:0,,CPU:1", " "}) {
    EXPECT_THROW((void)split_device_names(list), ArgumentError) << list;
  }
}

TEST(DeviceListTest, KeepsTheOrder) {
  EXPECT_EQ(parse_devices("CPU:3,CPU:1"), (Devices{"CPU:3", "CPU:1"}));
}

TEST(DeviceListTest, RefusesDevicesThatAreAbsentUnknownOrNamedTwice) {
  EXPECT_THROW((void)parse_devices("CPU:100000"), ValueError);
  EXPECT_THROW((void)parse_devices("GPU:99"), ValueError);
  EXPECT_THROW((void)parse_devices("FPGA:0"), ValueError);
  EXPECT_THROW((void)parse_devices("CPU:0,CPU:1,CPU:0"), ArgumentError);
}

TEST(DeviceListTest, CountsFromTheFirstDevice) {
  if (num_gpus() > 0) GTEST_SKIP() << "this host has GPUs, which come first";
  EXPECT_EQ(first_devices(2), (Devices{"CPU:0", "CPU:1"}));
  EXPECT_EQ(default_devices(), (Devices{"CPU:0", "CPU:1", "CPU:2", "CPU:3"}));
  EXPECT_THROW((void)first_devices(0), ArgumentError);
  EXPECT_THROW((void)first_devices(100000), ValueError);
}

}  // namespace
}  // namespace crossdevice::programs
