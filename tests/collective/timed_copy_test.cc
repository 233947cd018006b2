// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/timed_copy.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

constexpr std::size_t kParts = std::size_t{8} << 20;
constexpr std::size_t kSize = 2 * kParts + 5;

TEST(TimedCopyTest, CopiesAllAndAsksBeforeEachPart) {
  std::vector<std::byte> from(kSize);
  for (std::size_t i = 0; i < kSize; ++i) from[i] = static_cast<std::byte>(i % 251);
  std::vector<std::byte> to(kSize);
  int num_asked = 0;
  copy_in_time(to.data(), from.data(), kSize, [&num_asked] { ++num_asked; });
  EXPECT_EQ(to, from);
  EXPECT_EQ(num_asked, 3);
}

TEST(TimedCopyTest, EndsBeforeThePartForWhichThereIsNoTime) {
  const std::vector<std::byte> from(kSize, std::byte{1});
  std::vector<std::byte> to(kSize);
  int num_asked = 0;
  const auto once = [&num_asked] {
    if (++num_asked == 2) throw std::runtime_error("no time");
  };
  EXPECT_THROW(copy_in_time(to.data(), from.data(), kSize, once), std::runtime_error);
  EXPECT_EQ(std::count(to.begin(), to.end(), std::byte{1}), static_cast<std::ptrdiff_t>(kParts));
}

TEST(TimedCopyTest, NothingNeedsNoTimeAndNoMemory) {
  copy_in_time(nullptr, nullptr, 0, [] { FAIL() << "asked"; });
}

}  // namespace
}  // namespace crossdevice::detail
