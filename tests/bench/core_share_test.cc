// SPDX-License-Identifier: Apache-2.0
#include "run/core_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdevice::run {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CoreShareTest, EachHasItsOwnAndAllAreGiven) {
  for (int num_cores = 1; num_cores < 40; ++num_cores) {
    std::set<int> cores;
    for (int core = 0; core < num_cores; ++core) cores.insert(3 * core + 1);
    for (int count = 1; count <= num_cores; ++count) {
      std::set<int> given;
      for (int index = 0; index < count; ++index) {
        const std::set<int> share = share_of_cores(cores, index, count);
        EXPECT_GE(static_cast<int>(share.size()), num_cores / count);
        EXPECT_LE(static_cast<int>(share.size()), num_cores / count + 1);
        for (const int core : share) EXPECT_TRUE(given.insert(core).second);
      }
      EXPECT_EQ(given, cores);
    }
  }
  EXPECT_THAT(share_of_cores({2, 4, 6, 8}, 1, 2), ElementsAre(6, 8));
}

TEST(CoreShareTest, TooFewAreEverybodys) {
  EXPECT_THAT(share_of_cores({0, 1}, 2, 3), ElementsAre(0, 1));
  EXPECT_THAT(share_of_cores({}, 0, 1), IsEmpty());
}

}  // namespace
}  // namespace crossdevice::run
