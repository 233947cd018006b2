// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/host_name.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/callback_cluster_resolver.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"

#include "comm/detail/chief_address.h"

namespace crossdevice::detail {
namespace {

using ::testing::HasSubstr;

TEST(HostIdTest, WhatIsGivenIsTaken) {
  for (const std::string& id : {std::string("rack 7"), std::string(kMaxHostIdBytes, 'i')}) {
    ::setenv(kHostIdVariable, id.c_str(), 1);
    EXPECT_EQ(host_id(), id);
  }
  ::unsetenv(kHostIdVariable);
}

TEST(HostIdTest, WhatTheKernelSaysIsShortEnough) {
  ::unsetenv(kHostIdVariable);
  EXPECT_THAT(host_id(), HasSubstr(host_name()));
  EXPECT_LE(host_id().size(), kMaxHostIdBytes);
  ::setenv(kHostIdVariable, "", 1);  // as if it were not there
  EXPECT_THAT(host_id(), HasSubstr(host_name()));
  ::unsetenv(kHostIdVariable);
}

TEST(HostIdTest, WhatIsTooLongIsRefused) {
  ::setenv(kHostIdVariable, std::string(kMaxHostIdBytes + 1, 'i').c_str(), 1);
  try {
    (void)host_id();
    ADD_FAILURE() << "nobody would be told it";
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), HasSubstr("CROSSDEVICE_HOST_ID"));
    EXPECT_THAT(error.what(), HasSubstr("256"));
  }
  ::unsetenv(kHostIdVariable);
}

TEST(HostIdTest, WhoMayNotSayItsOwnLeavesNobodyWaitingForIt) {
  ::setenv(kHostIdVariable, std::string(kMaxHostIdBytes + 1, 'i').c_str(), 1);
  bool has_gathered = false;
  const CallbackClusterResolver resolver(
      1, 2, [&](std::span<const std::byte> mine, std::span<std::byte> all) {
        has_gathered = true;
        std::copy(mine.begin(), mine.end(), all.begin());
        std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(mine.size()));
      });
  EXPECT_THROW((void)agree_on_chief(resolver, 1), ValueError);
  EXPECT_TRUE(has_gathered);
  ::unsetenv(kHostIdVariable);
}

}  // namespace
}  // namespace crossdevice::detail
