// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/authentication.h"

#include <cstdio>
#include <string>

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

std::string hex(const Mac& mac) {
  std::string text;
  for (const unsigned char byte : mac) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

// The message is the part's length as 8 bytes, least significant first, then the part.
TEST(AuthenticationTest, IsHmacSha256OfThePartsWithTheirLengths) {
  // printf '\1\0\0\0\0\0\0\0a' | openssl dgst -sha256 -hmac key
  EXPECT_EQ(hex(authenticate("key", {"a"})),
            "4d30f2fef774442885ccd660df94d97bb23131c92dd4c09a3706b88145854430");
}

TEST(AuthenticationTest, DependsOnTheSecretAndOnWhereThePartsEnd) {
  const Mac mac = authenticate("secret", {"ab", "c"});
  EXPECT_TRUE(is_equal(mac, authenticate("secret", {"ab", "c"})));
  EXPECT_FALSE(is_equal(mac, authenticate("secret", {"a", "bc"})));
  EXPECT_FALSE(is_equal(mac, authenticate("secret", {"abc"})));
  EXPECT_FALSE(is_equal(mac, authenticate("secret2", {"ab", "c"})));
  EXPECT_FALSE(is_equal(mac, authenticate("", {"ab", "c"})));
  Mac last = mac;
  last.back() ^= 1U;
  EXPECT_FALSE(is_equal(mac, last));
}

TEST(AuthenticationTest, NoncesDiffer) { EXPECT_NE(make_nonce(), make_nonce()); }

}  // namespace
}  // namespace crossdevice::detail
