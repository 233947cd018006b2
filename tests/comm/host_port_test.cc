// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/host_port.h"

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

TEST(HostPortTest, NamesAndAddresses) {
  EXPECT_EQ(parse_host_port("localhost:80"), (HostPort{"localhost", 80}));
  EXPECT_EQ(parse_host_port("127.0.0.1:65535"), (HostPort{"127.0.0.1", 65535}));
  EXPECT_EQ(parse_host_port("[::1]:1"), (HostPort{"::1", 1}));
}

TEST(HostPortTest, EverythingElseIsRefused) {
  for (const char* text : {"", ":", "a", "a:", ":1", "a:0", "a:65536", "a:1x", "a:-1", "a: 1",
                           "::1", "::1:80", "[::1]", "[]:1", "a:+1", "a:1 "}) {
    EXPECT_THROW((void)parse_host_port(text), ValueError) << text;
  }
}

TEST(JoinHostPortTest, AnAddressWithColonsGetsBrackets) {
  EXPECT_EQ(join_host_port("a", 1), "a:1");
  EXPECT_EQ(join_host_port("10.0.0.1", 65535), "10.0.0.1:65535");
  EXPECT_EQ(join_host_port("fe80::1", 80), "[fe80::1]:80");
  EXPECT_EQ(join_host_port("[fe80::1]", 80), "[fe80::1]:80");
}

}  // namespace
}  // namespace crossdevice::detail
