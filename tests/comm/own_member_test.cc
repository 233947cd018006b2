// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/own_member.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/log_keeper.h"

namespace crossdevice::detail {
namespace {

using ::testing::HasSubstr;

/// The longest that there are.
ControlPlaneOptions options_with(std::size_t num_addresses) {
  ControlPlaneOptions options;
  options.rank = 3;
  options.host = std::string(64, 'h');
  options.host_id = std::string(255, 'i');
  for (std::size_t i = 0; i < num_addresses; ++i) {
    const std::string number = std::to_string(1000 + i);
    options.addresses.push_back("[2001:0db8:aaaa:bbbb:cccc:dddd:eeee:" + number + "]:65535");
  }
  return options;
}

TEST(OwnMemberTest, AFewAddressesAreAllSaid) {
  const crossdevice::testing::LogKeeper log;
  for (const std::size_t num : {std::size_t{0}, std::size_t{1}, kMaxOwnAddresses}) {
    const ControlPlaneOptions options = options_with(num);
    EXPECT_EQ(own_member(options).addresses, options.addresses);
  }
  EXPECT_EQ(log.texts(), "");
}

TEST(OwnMemberTest, AHelloWithManyAddressesIsShortEnoughForAStranger) {
  for (const std::size_t num : {kMaxOwnAddresses + 1, std::size_t{100}}) {
    const crossdevice::testing::LogKeeper log;
    Hello hello;
    hello.member = own_member(options_with(num));
    ASSERT_EQ(hello.member.addresses.size(), kMaxOwnAddresses);
    EXPECT_EQ(hello.member.addresses[0], options_with(1).addresses[0]);
    EXPECT_LE(encode_frame(ControlKind::HELLO, hello.encode()).size(),
              kFrameHeadBytes + kMaxStrangerFrameBytes);
    EXPECT_THAT(log.texts(), HasSubstr("rank 3 has " + std::to_string(num) + " addresses"));
    EXPECT_THAT(log.texts(),
                HasSubstr("leaves " + std::to_string(num - kMaxOwnAddresses) + " out"));
  }
}

}  // namespace
}  // namespace crossdevice::detail
