// SPDX-License-Identifier: Apache-2.0
// Interned devices and lists of them: one handle per device, however it is spelled; what is present.
#include "crossdevice/device/device.h"

#include <array>
#include <atomic>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/device_spec.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/label_filter.h"

#include "support/allocation_counter.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

using crossdevice::testing::thrown;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string naming_error(std::string_view name) {
  return thrown<ValueError>([&] { (void)Device(name); });
}

// Leaves the number of logical devices as it was found.
class CpuDevices {
 public:
  explicit CpuDevices(int count) { set_logical_cpu_devices(count); }
  ~CpuDevices() { set_logical_cpu_devices(before_); }
  CpuDevices(const CpuDevices&) = delete;
  CpuDevices& operator=(const CpuDevices&) = delete;

 private:
  int before_ = num_logical_cpu_devices();
};

TEST(DeviceTest, EverySpellingIsTheSameDevice) {
  const Device device("CPU:0");
  for (const char* spelling : {"/cpu:0", "cpu:0", "/CPU:0", "/device:CPU:0", "/device:cpu:00",
                               "/job:localhost", "/job:localhost/replica:0/task:0/device:CPU:0",
                               "/cpu:0/task:0", "/replica:0", "//task:0//"}) {
    EXPECT_EQ(Device(spelling), device) << spelling;
    EXPECT_EQ(Device(spelling).hash(), device.hash()) << spelling;
    EXPECT_EQ(Device(spelling).name(), "/job:localhost/replica:0/task:0/device:CPU:0");
  }
}

TEST(DeviceTest, IsMadeFromEveryKindOfString) {
  const std::string text = "CPU:1";
  const Device a = "CPU:1";
  const Device b = std::string_view("CPU:1 and more").substr(0, 5);
  const Device c = text;
  EXPECT_EQ(a, b);
  EXPECT_EQ(a, c);
}

TEST(DeviceTest, SaysWhatItIs) {
  const Device host("/job:worker/task:1");
  EXPECT_EQ(host.type(), DeviceType::CPU);
  EXPECT_EQ(host.index(), 0);
  EXPECT_TRUE(host.is_host());
  EXPECT_EQ(host.name(), "/job:worker/replica:0/task:1/device:CPU:0");
  EXPECT_EQ(host.short_name(), host.name());
  EXPECT_EQ(host.spec(), DeviceSpec::from_string(host.name()));

  const Device gpu("gpu:7");
  EXPECT_EQ(gpu.type(), DeviceType::GPU);
  EXPECT_EQ(gpu.index(), 7);
  EXPECT_FALSE(gpu.is_host());
  EXPECT_EQ(gpu.name(), "/job:localhost/replica:0/task:0/device:GPU:7");
  EXPECT_EQ(gpu.short_name(), "GPU:7");
  std::ostringstream out;
  out << gpu << ' ' << host;
  EXPECT_EQ(out.str(), "GPU:7 /job:worker/replica:0/task:1/device:CPU:0");
  EXPECT_EQ(to_string(DeviceType::CPU), "CPU");
  EXPECT_EQ(to_string(DeviceType::GPU), "GPU");
}

TEST(DeviceTest, LabelsTellDevicesApart) {
  const std::vector<Device> devices = {"CPU:0",      "CPU:1",         "GPU:0",
                                       "/job:w",     "/job:w/task:1", "/job:w/replica:1",
                                       "/task:1",    "/job:w/cpu:1",  "/job:localhost/task:2",
                                       "/replica:1", "/job:w/gpu:0"};
  EXPECT_EQ(std::unordered_set<Device>(devices.begin(), devices.end()).size(), devices.size());
}

TEST(DeviceTest, NamesThatAreNoDeviceAreRefusedWithTheirText) {
  EXPECT_THAT(naming_error(""), AllOf(HasSubstr("\"\""), HasSubstr("names nothing")));
  EXPECT_THAT(naming_error("//"), AllOf(HasSubstr("\"//\""), HasSubstr("names nothing")));
  EXPECT_THAT(naming_error("GPU"), AllOf(HasSubstr("\"GPU\""), HasSubstr("has no index")));
  EXPECT_THAT(naming_error("cpu:*"), AllOf(HasSubstr("\"cpu:*\""), HasSubstr("has no index")));
  EXPECT_THAT(naming_error("CPU:-1"), AllOf(HasSubstr("\"CPU:-1\""), HasSubstr("has index -1")));
  EXPECT_THAT(naming_error("CPU:2147483648"), HasSubstr("has index 2147483648"));
  EXPECT_THAT(naming_error("TPU:0"), AllOf(HasSubstr("\"TPU:0\""), HasSubstr("CPU or GPU")));
  EXPECT_THAT(naming_error("/device:FOO:0"), HasSubstr("has type FOO"));
  EXPECT_THAT(naming_error("/device:Gpu:0"), HasSubstr("\"/device:Gpu:0\""));
  EXPECT_THAT(naming_error("CPU:0/GPU:0"), HasSubstr("Multiple device types"));
  EXPECT_THAT(naming_error("bogus"), HasSubstr("Unknown attribute 'bogus'"));
  const char* null = nullptr;
  EXPECT_THAT(thrown<ValueError>([&] { (void)Device(null); }), HasSubstr("null pointer"));
  EXPECT_EQ(Device("CPU:2147483647").index(), 2147483647);
}

TEST(DeviceTest, NamingIsNotUsing) {
  const Device absent("GPU:9");
  EXPECT_FALSE(absent.is_present());
  EXPECT_EQ(thrown<ValueError>([&] { absent.require_present(); }),
            "GPU:9: this host has 0 GPUs: " + detail::gpu_platform().reason_against);
  EXPECT_EQ(num_gpus(), 0);
}

TEST(DeviceTest, AsManyHostDevicesArePresentAsTheProgramSays) {
  const CpuDevices two(2);
  EXPECT_EQ(num_logical_cpu_devices(), 2);
  EXPECT_TRUE(Device("CPU:0").is_present());
  EXPECT_TRUE(Device("CPU:1").is_present());
  EXPECT_NO_THROW(Device("CPU:1").require_present());
  EXPECT_FALSE(Device("CPU:2").is_present());
  EXPECT_EQ(thrown<ValueError>([] { Device("CPU:2").require_present(); }),
            "CPU:2: this process has 2 logical host devices (CROSSDEVICE_CPU_DEVICES)");
  const CpuDevices one(1);
  EXPECT_EQ(thrown<ValueError>([] { Device("/job:w/cpu:1").require_present(); }),
            "/job:w/replica:0/task:0/device:CPU:1: this process has 1 logical host device "
            "(CROSSDEVICE_CPU_DEVICES)");
}

TEST(DeviceTest, TheNumberOfHostDevicesHasLimits) {
  const CpuDevices restored(3);
  for (const int bad : {0, -1, 4097}) {
    EXPECT_THAT(thrown<ValueError>([&] { set_logical_cpu_devices(bad); }),
                AllOf(HasSubstr("1 to 4096"), HasSubstr("got " + std::to_string(bad))));
    EXPECT_EQ(num_logical_cpu_devices(), 3);
  }
  set_logical_cpu_devices(4096);
  EXPECT_TRUE(Device("CPU:4095").is_present());
  EXPECT_FALSE(Device("CPU:4096").is_present());
}

TEST(DeviceTest, WithoutAClusterEveryLabelIsThisProcesss) {
  EXPECT_TRUE(Device("/job:worker/task:1").is_present());
  EXPECT_TRUE(Device("/job:other/replica:3/task:7/cpu:1").is_present());
}

TEST(DeviceTest, ALabelFilterNarrowsWhatIsPresent) {
  detail::set_label_filter([](const DeviceSpec& device) { return device.job == "mine"; });
  EXPECT_TRUE(Device("/job:mine/cpu:1").is_present());
  EXPECT_FALSE(Device("/job:mine/cpu:100000").is_present());
  EXPECT_FALSE(Device("/job:theirs").is_present());
  const std::string error = thrown<ValueError>([] { Device("/job:theirs").require_present(); });
  detail::set_label_filter(nullptr);
  EXPECT_EQ(error,
            "/job:theirs/replica:0/task:0/device:CPU:0: job, replica and task are those of another "
            "process");
  EXPECT_TRUE(Device("/job:theirs").is_present());
}

struct Options {
  Devices devices = {};
};

TEST(DevicesTest, IsWrittenAsAListOfNames) {
  const Devices two{"CPU:0", "CPU:1"};
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0], Device("CPU:0"));
  EXPECT_EQ(two[1], Device("CPU:1"));
  EXPECT_EQ(two.to_string(), "[CPU:0, CPU:1]");
  std::ostringstream out;
  out << two;
  EXPECT_EQ(out.str(), two.to_string());

  // Two braces around two names are two devices, not one string made of two iterators.
  const auto size = [](const Options& options) { return options.devices.size(); };
  EXPECT_EQ(size({{"GPU:0", "GPU:1"}}), 2u);
  EXPECT_EQ(size({.devices = {"GPU:0", "GPU:1"}}), 2u);
  EXPECT_EQ(size({.devices = {"GPU:0"}}), 1u);
  EXPECT_EQ(size({}), 0u);
}

TEST(DevicesTest, WorkerPrefixesAreDevices) {
  const Devices workers{"/job:worker/task:0", "/job:worker/task:1"};
  EXPECT_EQ(
      workers.to_string(),
      "[/job:worker/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:0]");
}

TEST(DevicesTest, OrderAndRepetitionsCount) {
  const Devices ab{"CPU:0", "CPU:1"};
  const Devices ba{"CPU:1", "CPU:0"};
  const Devices aab{"CPU:0", "CPU:0", "CPU:1"};
  EXPECT_EQ(ab, (Devices{"/cpu:0", "/device:CPU:1"}));
  EXPECT_EQ(ab.hash(), (Devices{"/cpu:0", "/device:CPU:1"}).hash());
  EXPECT_NE(ab, ba);
  EXPECT_NE(ab, aab);
  EXPECT_FALSE(ab.has_duplicates());
  EXPECT_TRUE(aab.has_duplicates());
  EXPECT_EQ((std::unordered_set<Devices>{ab, ba, aab, Devices{}, Devices{"CPU:0"}}).size(), 5u);
}

TEST(DevicesTest, WhatIsKnownAtRunTimeIsARange) {
  const std::vector<std::string> names{"CPU:0", "CPU:1"};
  const std::vector<Device> devices{"CPU:0", "CPU:1"};
  const Devices ab{"CPU:0", "CPU:1"};
  EXPECT_EQ(Devices(names), ab);
  EXPECT_EQ(Devices(devices), ab);
  EXPECT_EQ(Devices(std::array{"CPU:0", "CPU:1"}), ab);
  EXPECT_EQ(Devices{names}, ab);
  EXPECT_TRUE(Devices(std::vector<std::string>{}).empty());
  EXPECT_EQ(Devices(std::string("CPU:1")), Devices{"CPU:1"});
  EXPECT_THROW(Devices(std::vector<std::string>{"CPU:0", "nonsense"}), ValueError);
  static_assert(!std::is_convertible_v<std::vector<std::string>, Devices>);
}

TEST(DevicesTest, SameSetIgnoresOrderAndRepetitions) {
  const std::vector<Devices> same = {Devices{"CPU:0", "GPU:1", "CPU:2"},
                                     Devices{"CPU:2", "CPU:0", "GPU:1"},
                                     Devices{"GPU:1", "GPU:1", "CPU:0", "CPU:2", "CPU:0"}};
  const std::vector<Devices> others = {Devices{}, Devices{"CPU:0"}, Devices{"CPU:0", "GPU:1"},
                                       Devices{"CPU:0", "GPU:1", "CPU:2", "CPU:3"},
                                       Devices{"CPU:0", "GPU:0", "CPU:2"}};
  for (const Devices& a : same) {
    for (const Devices& b : same) EXPECT_TRUE(a.same_set(b)) << a << b;
    for (const Devices& b : others) EXPECT_FALSE(a.same_set(b) || b.same_set(a)) << a << b;
  }
  EXPECT_TRUE(Devices{}.same_set(Devices{}));
  EXPECT_TRUE((Devices{"CPU:0", "CPU:0"}).same_set(Device("CPU:0")));
  EXPECT_TRUE(Devices(Device("CPU:0")).same_set(Devices{"CPU:0", "CPU:0"}));
}

TEST(DevicesTest, OneDeviceAndNoneAreListsToo) {
  const Device device("CPU:3");
  const Devices one = device;
  EXPECT_EQ(one, Devices{"CPU:3"});
  EXPECT_EQ(one, Devices(std::span<const Device>(&device, 1)));
  EXPECT_THAT(one, ElementsAre(device));
  EXPECT_FALSE(one.has_duplicates());
  EXPECT_TRUE(one.contains(device));
  EXPECT_FALSE(one.contains("CPU:4"));

  const Devices none;
  EXPECT_EQ(none, Devices{});
  EXPECT_EQ(none, Devices(std::span<const Device>()));
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(none.all_host());
  EXPECT_FALSE(none.has_duplicates());
  EXPECT_EQ(none.begin(), none.end());
  EXPECT_EQ(none.to_string(), "[]");
}

TEST(DevicesTest, AllHostMeansEveryOneOfThem) {
  EXPECT_TRUE((Devices{"CPU:0", "/job:w/cpu:1"}).all_host());
  EXPECT_FALSE((Devices{"CPU:0", "GPU:1"}).all_host());
  EXPECT_FALSE((Devices{"GPU:0"}).all_host());
}

TEST(DevicesTest, ListsOfEveryLengthAreFoundAgain) {
  std::vector<Device> devices;
  std::vector<Devices> first_seen;
  for (int i = 0; i < 300; ++i) {
    devices.emplace_back("/job:long/cpu:" + std::to_string(i));
    first_seen.emplace_back(devices);
  }
  for (std::size_t n = 1; n <= devices.size(); ++n) {
    const Devices again(std::span<const Device>(devices).first(n));
    EXPECT_EQ(again, first_seen[n - 1]);
    ASSERT_EQ(again.size(), n);
    EXPECT_EQ(again[n - 1], devices[n - 1]);
  }
}

TEST(DevicesTest, WhatWasSeenBeforeIsFoundWithoutAllocating) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "the heap is a sanitizer's";
  const std::string text = "/job:localhost/replica:0/task:0/device:CPU:11";
  std::size_t hashes = 0;
  const auto name_all = [&] {
    const Device device("CPU:11");
    hashes += device.hash() + Device(text).hash() + Device(std::string_view("/job:w")).hash();
    hashes += Devices("CPU:11").hash() + Devices{"CPU:11", "CPU:12", "CPU:11"}.hash();
    hashes += Devices().hash() + Devices(std::span<const Device>(&device, 1)).hash();
    hashes += device.is_present() ? 1u : 0u;
    device.require_present();
  };
  name_all();
  const std::size_t before = testing::num_allocations_of_this_thread();
  for (int i = 0; i < 100; ++i) name_all();
  EXPECT_EQ(testing::num_allocations_of_this_thread() - before, 0u);
  EXPECT_NE(hashes, 0u);
}

// Every thread names the same devices and lists, each in its own order and spelling, while the tables grow: all must get the same
// handles, and a handle must be complete when it is seen.
TEST(DevicesTest, ThreadsThatNameTheSameDevicesGetTheSameHandles) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kDevices = 1500;
  std::vector<std::vector<Device>> seen(kThreads, std::vector<Device>(kDevices, Device("CPU:0")));
  std::vector<std::vector<Devices>> lists(kThreads, std::vector<Devices>(kDevices));
  std::atomic<int> wrong{0};
  std::atomic<std::size_t> ready{0};
  const auto body = [&](std::size_t thread) {
    ready.fetch_add(1);
    while (ready.load() < kThreads) std::this_thread::yield();
    for (std::size_t step = 0; step < kDevices; ++step) {
      const std::size_t i = thread % 2 == 0 ? step : kDevices - 1 - step;
      const std::string number = std::to_string(i);
      const Device device(thread < 2 ? "/job:race/cpu:" + number : "cpu:" + number + "/job:race");
      if (device.index() != static_cast<int>(i) || device.spec().job != "race") ++wrong;
      seen[thread][i] = device;
      lists[thread][i] = Devices{device, "CPU:0", device};
      if (lists[thread][i].size() != 3 || !lists[thread][i].same_set({"CPU:0", device})) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) threads.emplace_back(body, t);
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(wrong.load(), 0);
  for (std::size_t t = 1; t < kThreads; ++t) {
    EXPECT_EQ(seen[t], seen[0]);
    EXPECT_EQ(lists[t], lists[0]);
  }
  EXPECT_EQ(std::unordered_set<Device>(seen[0].begin(), seen[0].end()).size(), kDevices);
  EXPECT_EQ(std::unordered_set<Devices>(lists[0].begin(), lists[0].end()).size(), kDevices);
}

}  // namespace
}  // namespace crossdevice
