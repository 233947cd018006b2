// SPDX-License-Identifier: Apache-2.0
/// Into how many stages what goes over a transport is cut.
#include "collective/detail/program_cache.h"

#include <cstddef>

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

constexpr std::size_t kPart = std::size_t{64} << 10;

std::size_t stages(std::size_t n, std::size_t num_bytes, std::size_t element_size = 4) {
  return num_stages({.num_elements = num_bytes / element_size, .element_size = element_size}, n, n);
}

TEST(NumStages, AsManyAsLeavePartsOf64KiB) {
  for (const std::size_t n : {3U, 4U, 5U, 16U, 64U}) {
    for (const std::size_t size : {1U, 2U, 4U, 8U, 16U}) {
      EXPECT_EQ(stages(n, 0, size), 1U);
      EXPECT_EQ(stages(n, 2 * n * kPart - size, size), 1U);
      EXPECT_EQ(stages(n, 2 * n * kPart, size), 2U);
      EXPECT_EQ(stages(n, 16 * n * kPart - size, size), 15U);
      EXPECT_EQ(stages(n, 16 * n * kPart, size), 16U);
      EXPECT_EQ(stages(n, 1000 * n * kPart, size), 16U);
    }
  }
}

TEST(NumStages, TwoHaveNothingElseToSend) {
  EXPECT_EQ(stages(1, 1000 * kPart), 1U);
  EXPECT_EQ(stages(2, 1000 * kPart), 1U);
}

TEST(NumStages, SchedulesOfManyStaySmall) {
  EXPECT_EQ(stages(128, 1000 * 128 * kPart), 8U);
  EXPECT_EQ(stages(256, 1000 * 256 * kPart), 2U);
  EXPECT_EQ(stages(1000, 1000 * 1000 * kPart), 1U);
}

TEST(NumStages, SchedulesHaveThem) {
  using Kind = ProgramKey::Kind;
  const auto steps = [](Kind kind, std::size_t num_bytes) {
    return make_schedule({.kind = kind, .num_elements = num_bytes / 4, .element_size = 4}, 4)
        .steps.size();
  };
  for (const Kind kind : {Kind::ALL_REDUCE_SHUFFLE, Kind::ALL_REDUCE_HALVING_DOUBLING}) {
    EXPECT_EQ(steps(kind, 5 * 4 * kPart), 5 * steps(kind, kPart));
  }
}

}  // namespace
}  // namespace crossdevice::detail
