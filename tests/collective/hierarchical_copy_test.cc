// SPDX-License-Identifier: Apache-2.0
/// Hierarchical copy: TF's steps for even counts, and a correct all-reduce for every count.
#include "crossdevice/collective/hierarchical_copy.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using Kind = ScheduleStep::Kind;

/// Runs a schedule on values that are the lists of the inputs summed into them.
std::vector<std::vector<std::size_t>> execute_symbolically(const Schedule& schedule) {
  std::vector<std::vector<std::size_t>> values;
  for (std::size_t i = 0; i < schedule.num_participants; ++i) values.push_back({i});
  for (const ScheduleStep& step : schedule.steps) {
    std::vector<std::size_t> value;
    if (step.kind == Kind::COPY) {
      EXPECT_EQ(step.sources.size(), 1u);
    }
    for (const std::size_t source : step.sources) {
      value.insert(value.end(), values.at(source).begin(), values.at(source).end());
    }
    values.at(step.target) = value;
  }
  return values;
}

constexpr std::size_t kNumElements = 10;

Schedule schedule_of(std::size_t num_participants, std::size_t pack) {
  return hierarchical_copy_schedule(num_participants, kNumElements, pack);
}

/// The schedule as text, without the range, which is the same in every step.
std::string steps(std::size_t num_participants, std::size_t pack) {
  std::string text = schedule_of(num_participants, pack).to_string();
  const std::string range = "[0, 10) ";
  for (std::size_t at = text.find(range); at != std::string::npos; at = text.find(range, at)) {
    text.erase(at, range.size());
  }
  return text;
}

TEST(HierarchicalCopyTest, TwoDevicesTakeTfsSteps) {
  EXPECT_EQ(steps(2, 0), "reduce 0 <- 0\nreduce 1 <- 1\nreduce 0 <- 0 1\ncopy 1 <- 0\n");
  EXPECT_EQ(steps(2, 1), "reduce 1 <- 1\nreduce 0 <- 0\nreduce 1 <- 1 0\ncopy 0 <- 1\n");
}

TEST(HierarchicalCopyTest, FourDevicesTakeTfsSteps) {
  EXPECT_EQ(steps(4, 0),
            "reduce 0 <- 0 1\nreduce 2 <- 2 3\nreduce 0 <- 0 2\n"
            "copy 2 <- 0\ncopy 1 <- 0\ncopy 3 <- 2\n");
  EXPECT_EQ(steps(4, 1),
            "reduce 1 <- 0 1\nreduce 3 <- 2 3\nreduce 1 <- 1 3\n"
            "copy 3 <- 1\ncopy 0 <- 1\ncopy 2 <- 3\n");
  EXPECT_EQ(steps(4, 2),
            "reduce 2 <- 2 3\nreduce 0 <- 0 1\nreduce 2 <- 2 0\n"
            "copy 0 <- 2\ncopy 1 <- 0\ncopy 3 <- 2\n");
  EXPECT_EQ(steps(4, 3),
            "reduce 3 <- 2 3\nreduce 1 <- 0 1\nreduce 3 <- 3 1\n"
            "copy 1 <- 3\ncopy 0 <- 1\ncopy 2 <- 3\n");
}

/// Every pack of eight devices differs in its main devices alone, so the expected text is written once around them.
std::string expected_for_eight(std::size_t main0, std::size_t main1) {
  const std::string low = "0 1 2 3";
  const std::string high = "4 5 6 7";
  const std::string m0 = std::to_string(main0);
  const std::string m1 = std::to_string(main1);
  std::string text = "reduce " + m0 + " <- " + (main0 < 4 ? low : high) + "\n";
  text += "reduce " + m1 + " <- " + (main0 < 4 ? high : low) + "\n";
  text += "reduce " + m0 + " <- " + m0 + " " + m1 + "\ncopy " + m1 + " <- " + m0 + "\n";
  for (std::size_t device = 0; device < 8; ++device) {
    if (device == main0 || device == main1) continue;
    const bool same_half_as_main0 = (device < 4) == (main0 < 4);
    text += "copy " + std::to_string(device) + " <- " + (same_half_as_main0 ? m0 : m1) + "\n";
  }
  return text;
}

TEST(HierarchicalCopyTest, EightDevicesTakeTfsSteps) {
  EXPECT_EQ(steps(8, 3),
            "reduce 3 <- 0 1 2 3\nreduce 7 <- 4 5 6 7\nreduce 3 <- 3 7\ncopy 7 <- 3\n"
            "copy 0 <- 3\ncopy 1 <- 3\ncopy 2 <- 3\ncopy 4 <- 7\ncopy 5 <- 7\ncopy 6 <- 7\n");
  const std::size_t opposite[8] = {4, 5, 6, 7, 0, 1, 2, 3};
  for (std::size_t pack = 0; pack < 8; ++pack) {
    EXPECT_EQ(steps(8, pack), expected_for_eight(pack, opposite[pack])) << "pack " << pack;
  }
}

TEST(HierarchicalCopyTest, PackNumbersWrapAround) {
  for (std::size_t n = 1; n <= 8; ++n) {
    for (std::size_t pack = 0; pack < n; ++pack) {
      EXPECT_EQ(schedule_of(n, pack + n), schedule_of(n, pack));
    }
  }
  const std::size_t last = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(schedule_of(5, last), schedule_of(5, last % 5));
}

TEST(HierarchicalCopyTest, AnOddLastDeviceBelongsToTheSecondHalf) {
  EXPECT_EQ(steps(3, 0),
            "reduce 0 <- 0\nreduce 1 <- 1 2\nreduce 0 <- 0 1\ncopy 1 <- 0\ncopy 2 <- 1\n");
  EXPECT_EQ(steps(3, 1),
            "reduce 1 <- 1 2\nreduce 0 <- 0\nreduce 1 <- 1 0\ncopy 0 <- 1\ncopy 2 <- 1\n");
  EXPECT_EQ(steps(3, 2),
            "reduce 2 <- 1 2\nreduce 0 <- 0\nreduce 2 <- 2 0\ncopy 0 <- 2\ncopy 1 <- 2\n");
}

TEST(HierarchicalCopyTest, ASingleDeviceReducesItself) {
  EXPECT_EQ(steps(1, 0), "reduce 0 <- 0\n");
  EXPECT_EQ(steps(1, 5), "reduce 0 <- 0\n");
}

TEST(HierarchicalCopyTest, EveryDeviceContributesOnceAndEveryDeviceReceivesTheSame) {
  for (std::size_t n = 1; n <= 17; ++n) {
    std::vector<std::size_t> everyone;
    for (std::size_t i = 0; i < n; ++i) everyone.push_back(i);
    for (std::size_t pack = 0; pack <= 2 * n; ++pack) {
      const auto values = execute_symbolically(schedule_of(n, pack));
      for (std::size_t device = 0; device < n; ++device) {
        // The same list in the same order: all devices hold the same bits, not only the same sum.
        EXPECT_EQ(values[device], values[0]) << n << " devices, pack " << pack;
        std::vector<std::size_t> sorted = values[device];
        std::ranges::sort(sorted);
        EXPECT_EQ(sorted, everyone) << n << " devices, pack " << pack << ", device " << device;
      }
    }
  }
}

TEST(HierarchicalCopyTest, MainDevicesLieInDifferentHalvesAndEachReducesItsOwn) {
  for (std::size_t n = 2; n <= 17; ++n) {
    const std::size_t first_half = hierarchical_first_half(n);
    for (std::size_t pack = 0; pack < n; ++pack) {
      const Schedule schedule = schedule_of(n, pack);
      const std::size_t main0 = schedule.steps[0].target;
      const std::size_t main1 = schedule.steps[1].target;
      EXPECT_EQ(main0, pack);
      EXPECT_NE(main0 < first_half, main1 < first_half) << n << " devices, pack " << pack;
      for (const std::size_t step : {0u, 1u}) {
        const std::vector<std::size_t>& sources = schedule.steps[step].sources;
        EXPECT_NE(std::ranges::find(sources, schedule.steps[step].target), sources.end());
      }
    }
  }
}

TEST(HierarchicalCopyTest, StepsAreTwoSumsOneCombinationAndACopyPerOtherDevice) {
  for (std::size_t n = 2; n <= 17; ++n) {
    for (std::size_t pack = 0; pack < n; ++pack) {
      const Schedule schedule = schedule_of(n, pack);
      ASSERT_EQ(schedule.steps.size(), 3 + (n - 1));
      std::set<std::size_t> copied;
      for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
        EXPECT_EQ(schedule.steps[i].kind, i < 3 ? Kind::REDUCE : Kind::COPY);
        if (i >= 3) {
          EXPECT_TRUE(copied.insert(schedule.steps[i].target).second);
        }
      }
      EXPECT_EQ(schedule.steps[0].sources.size() + schedule.steps[1].sources.size(), n);
    }
  }
}

TEST(HierarchicalCopyTest, NoDevicesIsAValueError) {
  EXPECT_THROW((void)schedule_of(0, 0), ValueError);
}

TEST(HierarchicalCopyTest, WithoutElementsThereAreNoSteps) {
  const Schedule schedule = hierarchical_copy_schedule(4, 0, 1);
  EXPECT_TRUE(schedule.steps.empty());
  EXPECT_EQ(schedule.num_participants, 4u);
}

}  // namespace
}  // namespace crossdevice
