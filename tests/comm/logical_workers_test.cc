// SPDX-License-Identifier: Apache-2.0
// Each test is a process of its own: what it joins as it stays.
#include "crossdevice/comm/logical_workers.h"

#include <iostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"

#include "comm/detail/own_tasks.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

bool is_present(const std::string& device) { return Device(device).is_present(); }
std::string task(int number) { return "/job:worker/task:" + std::to_string(number); }

TEST(LogicalWorkersTest, WithoutAClusterEveryLabelIsOwnWhateverIsDeclared) {
  EXPECT_TRUE(is_present(task(1)));
  set_logical_workers({task(0)});
  EXPECT_TRUE(is_present(task(1)));
  EXPECT_TRUE(is_present("/job:other/replica:3/task:7/cpu:1"));
}

TEST(LogicalWorkersTest, WhoHasJoinedIsItsTaskAndWhatIsDeclared) {
  detail::add_own_task("worker", 1);
  EXPECT_TRUE(is_present(task(1) + "/device:CPU:3"));
  EXPECT_TRUE(is_present("CPU:2"));
  EXPECT_TRUE(is_present("/job:localhost/replica:0/task:0/device:CPU:0"));
  EXPECT_FALSE(is_present(task(0)));
  EXPECT_FALSE(is_present("/job:worker/replica:1/task:1"));
  EXPECT_FALSE(is_present("/job:chief/task:1"));
  EXPECT_FALSE(is_present(task(1) + "/device:CPU:100000"));

  set_logical_workers({task(0), "/job:ps/replica:0/task:2"});
  EXPECT_TRUE(is_present(task(0)));
  EXPECT_TRUE(is_present(task(1)));
  EXPECT_TRUE(is_present("/job:ps/task:2"));
  EXPECT_FALSE(is_present(task(2)));
  set_logical_workers({});  // what was said before counts no more
  EXPECT_FALSE(is_present(task(0)));
  EXPECT_TRUE(is_present(task(1)));
}

TEST(LogicalWorkersTest, ThreadsThatAreSeveralWorkersAreAllOfThem) {
  detail::add_own_task("worker", 1);
  detail::add_own_task("worker", 3);
  EXPECT_TRUE(is_present(task(1)));
  EXPECT_TRUE(is_present(task(3)));
  EXPECT_FALSE(is_present(task(2)));
}

TEST(LogicalWorkersTest, ListsOfDevicesAreHeldToIt) {
  detail::add_own_task("worker", 1);
  Devices({"CPU:0", Device(task(1))}).require_present();
  EXPECT_THAT(([] {
                Devices({"CPU:0", Device(task(0))}).require_present();
              }),
              ThrowsMessage<ValueError>(HasSubstr(
                  "/job:worker/replica:0/task:0/device:CPU:0: job, replica and task are those of "
                  "another process")));
}

TEST(LogicalWorkersTest, WhatIsNoWorkerIsRefusedAndChangesNothing) {
  detail::add_own_task("worker", 1);
  set_logical_workers({task(0)});
  for (const std::string wrong :
       {"", "/job:worker", "/task:1", "CPU:0", "/job:worker/replica:1/task:0",
        "/job:worker/task:0/device:CPU:0"}) {
    EXPECT_THAT(
        [&] {
          set_logical_workers({task(2), wrong});
        },
        ThrowsMessage<ValueError>(HasSubstr("'" + wrong + "'")))
        << wrong;
  }
  EXPECT_TRUE(is_present(task(0)));
  EXPECT_FALSE(is_present(task(2)));
}

/// As a worker of several.
int own_devices_alone(Cluster& cluster) {
  const std::string mine = task(cluster.rank());
  const std::string theirs = task(1 - cluster.rank());
  (void)Tensor::zeros(DType::FLOAT32, {2}, mine);
  try {
    (void)Tensor::zeros(DType::FLOAT32, {2}, theirs);
    std::cerr << "no error\n";
    return 1;
  } catch (const ValueError& error) {
    if (std::string(error.what()).find("those of another process") == std::string::npos) return 2;
  }
  set_logical_workers({theirs});
  (void)Tensor::zeros(DType::FLOAT32, {2}, theirs);
  return 0;
}

TEST(LogicalWorkersTest, AWorkerHasNoMemoryOnAnothersDevices) {
  EXPECT_EQ(run_workers("own devices alone", 2), all_well(2));
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv,
                                           {{"own devices alone", crossdevice::own_devices_alone}});
}
