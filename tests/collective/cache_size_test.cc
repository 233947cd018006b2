// SPDX-License-Identifier: Apache-2.0
/// The size of the caches, read from directories like the kernel's.
#include "collective/detail/cache_size.h"

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "crossdevice/core/usable_cores.h"

namespace crossdevice::detail {
namespace {

constexpr std::size_t kKiB = 1024;

class CacheSizeTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void describe(int core, int index, const std::string& level, const std::string& size,
                const std::string& shared_cpu_list) const {
    const std::filesystem::path directory =
        root_ / ("cpu" + std::to_string(core)) / "cache" / ("index" + std::to_string(index));
    std::filesystem::create_directories(directory);
    std::ofstream(directory / "level") << level << '\n';
    std::ofstream(directory / "size") << size << '\n';
    std::ofstream(directory / "shared_cpu_list") << shared_cpu_list << '\n';
  }
  /// Two first-level caches, one second-level, one third-level cache, as a core has them.
  void describe_core(int core, const std::string& siblings, const std::string& size) const {
    describe(core, 0, "1", "32K", siblings);
    describe(core, 1, "1", "32K", siblings);
    describe(core, 2, "2", size, siblings);
    describe(core, 3, "3", "32768K", "0-127");
  }

  const std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) /
      ("crossdevice_cache_size_" +
       std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST_F(CacheSizeTest, AddsUpTheSecondLevelOfTheAllowedCores) {
  for (const int core : {0, 1, 2, 3}) describe_core(core, std::to_string(core), "512K");
  EXPECT_EQ(second_level_cache_bytes(root_, {0, 1, 3}), 3 * 512 * kKiB);
}

TEST_F(CacheSizeTest, CountsACacheThatCoresShareOnce) {
  describe_core(0, "0,64", "1024K");
  describe_core(64, "0,64", "1024K");
  describe_core(1, "1,65", "1024K");
  EXPECT_EQ(second_level_cache_bytes(root_, {0, 1, 64}), 2 * 1024 * kKiB);
}

TEST_F(CacheSizeTest, UnderstandsRangesOfCoresAndMegabytes) {
  for (const int core : {0, 1, 2, 3, 8}) describe_core(core, core < 4 ? "0-3,16-19" : "8", "2M");
  EXPECT_EQ(second_level_cache_bytes(root_, {0, 1, 2, 3, 8}), 2 * 2048 * kKiB);
}

TEST_F(CacheSizeTest, IsZeroWhereNothingIsDescribed) {
  EXPECT_EQ(second_level_cache_bytes(root_, {0, 1}), 0u);
  EXPECT_EQ(second_level_cache_bytes(root_, {}), 0u);
  EXPECT_EQ(second_level_cache_bytes(root_ / "absent", {0}), 0u);
}

TEST_F(CacheSizeTest, NonsenseIsNotASize) {
  describe_core(0, "nonsense", "nonsense");
  describe_core(1, "1-", "-5K");
  EXPECT_EQ(second_level_cache_bytes(root_, {0, 1}), 0u);
}

TEST_F(CacheSizeTest, IsKnownOnEveryMachine) {
  EXPECT_GE(second_level_cache_bytes(), 16 * kKiB);
  EXPECT_EQ(second_level_cache_bytes(), second_level_cache_bytes());
}

TEST(CacheSizeDeathTest, AThreadBoundToOneCoreLearnsWhatTheProcessHas) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the answer is found out once per process
  EXPECT_EXIT(
      {
        std::size_t seen = 0;
        std::thread([&seen] {
          cpu_set_t one;
          CPU_ZERO(&one);
          CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
          sched_setaffinity(0, sizeof one, &one);
          seen = second_level_cache_bytes();
        }).join();
        const std::set<int> cores = usable_cores();
        std::size_t expected = second_level_cache_bytes("/sys/devices/system/cpu", cores);
        if (expected == 0) expected = cores.size() * 1024 * kKiB;
        _exit(seen == expected ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace crossdevice::detail
