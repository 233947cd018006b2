// SPDX-License-Identifier: Apache-2.0
#include "chaos/growth.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdevice::chaos {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kKibibyte = 1 << 10;
constexpr std::size_t kMebibyte = 1 << 20;

/// Of so many calls, after each of which there is what `footprint` says.
std::vector<std::string> growth(std::uint64_t calls,
                                const std::function<Footprint(std::uint64_t)>& footprint,
                                const GrowthSlack& slack = {}) {
  Growth growth(calls);
  for (std::uint64_t call = 1; call <= calls; ++call) {
    if (growth.is_due(call)) growth.note(call, footprint(call));
  }
  return growth.what_grows(slack);
}

TEST(GrowthTest, WhatComesAndGoesIsNoGrowth) {
  const auto up_and_down = [](std::uint64_t call) {
    const std::size_t some = call * 7919 % 64;
    return Footprint{.heap_bytes = kMebibyte * (1 + some),
                     .private_bytes = kMebibyte * (4 + some),
                     .shared_bytes = kMebibyte * call,
                     .threads = 3,
                     .descriptors = 14,
                     .segments = 4};
  };
  EXPECT_THAT(growth(1500, up_and_down), IsEmpty());
  EXPECT_THAT(growth(100'000, up_and_down), IsEmpty());
  EXPECT_THAT(growth(1000, [](std::uint64_t) { return Footprint{}; }), IsEmpty());
}

TEST(GrowthTest, CachesFillInTheFirstHalf) {
  EXPECT_THAT(growth(1000,
                     [](std::uint64_t call) {
                       return Footprint{
                           .heap_bytes = std::min<std::uint64_t>(call, 500) * kMebibyte,
                           .threads = call < 500 ? 1U : 7U};
                     }),
              IsEmpty());
}

TEST(GrowthTest, AKilobyteLostInEachOfAFewCallsIsSeen) {
  const auto losing = [](std::size_t bytes) {
    return growth(1500, [bytes](std::uint64_t call) {
      const std::size_t held = call % 10 * 100 * kKibibyte;
      return Footprint{.heap_bytes = kMebibyte + held + call * bytes};
    });
  };
  EXPECT_THAT(losing(1000), ElementsAre("heap"));
  EXPECT_THAT(losing(100), IsEmpty());  // 37 KiB in a quarter
}

TEST(GrowthTest, EachKindIsToldByItsName) {
  const auto late = [](std::uint64_t call) { return call > 750 ? std::size_t{1} : 0; };
  EXPECT_THAT(growth(1000,
                     [&](std::uint64_t call) {
                       return Footprint{.heap_bytes = 65 * kKibibyte * late(call),
                                        .private_bytes = 3 * kMebibyte * late(call),
                                        .threads = 3 + late(call),
                                        .descriptors = 14 + late(call),
                                        .segments = 4 + 2 * late(call)};
                     }),
              ElementsAre("threads", "descriptors", "segments"));  // of memory the least counts
  EXPECT_THAT(growth(1000,
                     [&](std::uint64_t call) {
                       const std::size_t last = call >= 750 ? 1 : 0;
                       return Footprint{.heap_bytes = 65 * kKibibyte * last,
                                        .pool_bytes = 65 * kKibibyte * last,
                                        .private_bytes = 3 * kMebibyte * last};
                     }),
              ElementsAre("heap", "pools", "private memory"));
  EXPECT_THAT(growth(1000, [&](std::uint64_t call) { return Footprint{.segments = late(call)}; }),
              IsEmpty());
}

}  // namespace
}  // namespace crossdevice::chaos
