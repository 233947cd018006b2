// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tcp_greeting.h"

#include <gtest/gtest.h>

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

constexpr const char* kSecret = "secret";
const TcpPair kPair{.cluster_id = 0x1122334455667788, .dialler = 1, .listener = 4};

TEST(TcpGreetingTest, BothProveThatTheyHoldTheSecret) {
  const Nonce challenge = make_nonce();
  const Nonce nonce = make_nonce();
  EXPECT_EQ(decode_challenge(encode_challenge(challenge)), challenge);
  const TcpHello hello = decode_hello(encode_hello(kSecret, kPair, challenge, nonce));
  EXPECT_EQ(hello.pair, kPair);
  EXPECT_EQ(hello.nonce, nonce);
  EXPECT_NO_THROW(check_hello(hello, kSecret, challenge));
  EXPECT_NO_THROW(check_welcome(encode_welcome(kSecret, kPair, challenge, nonce), kSecret, kPair,
                                challenge, nonce));
  EXPECT_NO_THROW(check_here(encode_here()));
}

TEST(TcpGreetingTest, ADifferenceInAnyBitIsSeen) {
  const Nonce challenge = make_nonce();
  const Nonce nonce = make_nonce();
  const HelloBytes hello = encode_hello(kSecret, kPair, challenge, nonce);
  for (std::size_t bit = 0; bit < 8 * hello.size(); ++bit) {
    HelloBytes changed = hello;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_THROW(check_hello(decode_hello(changed), kSecret, challenge), WireError);
  }
  const WelcomeBytes welcome = encode_welcome(kSecret, kPair, challenge, nonce);
  for (std::size_t bit = 0; bit < 8 * welcome.size(); ++bit) {
    WelcomeBytes changed = welcome;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_THROW(check_welcome(changed, kSecret, kPair, challenge, nonce), WireError);
  }
  const HereBytes here = encode_here();
  for (std::size_t bit = 0; bit < 8 * here.size(); ++bit) {
    HereBytes changed = here;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_THROW(check_here(changed), WireError);
  }
}

TEST(TcpGreetingTest, WhatWasSaidElsewhereIsNotBelieved) {
  const Nonce challenge = make_nonce();
  const Nonce nonce = make_nonce();
  const TcpHello hello = decode_hello(encode_hello(kSecret, kPair, challenge, nonce));
  EXPECT_THROW(check_hello(hello, "another", challenge), WireError);
  EXPECT_THROW(check_hello(hello, "", challenge), WireError);
  EXPECT_THROW(check_hello(hello, kSecret, make_nonce()), WireError);  // to another challenge

  const WelcomeBytes welcome = encode_welcome(kSecret, kPair, challenge, nonce);
  const auto is_refused = [&](const TcpPair& pair, const Nonce& theirs, const Nonce& mine) {
    try {
      check_welcome(welcome, kSecret, pair, theirs, mine);
    } catch (const WireError&) {
      return true;
    }
    return false;
  };
  EXPECT_FALSE(is_refused(kPair, challenge, nonce));
  EXPECT_TRUE(is_refused({.cluster_id = 1, .dialler = 1, .listener = 4}, challenge, nonce));
  EXPECT_TRUE(
      is_refused({.cluster_id = kPair.cluster_id, .dialler = 4, .listener = 1}, challenge, nonce));
  EXPECT_TRUE(
      is_refused({.cluster_id = kPair.cluster_id, .dialler = 1, .listener = 3}, challenge, nonce));
  EXPECT_TRUE(is_refused(kPair, make_nonce(), nonce));
  EXPECT_TRUE(is_refused(kPair, challenge, make_nonce()));
  // A hello sent back is no welcome.
  WelcomeBytes reflected = welcome;
  std::copy(hello.mac.begin(), hello.mac.end(), reflected.begin() + kGreetingMagicBytes);
  EXPECT_THROW(check_welcome(reflected, kSecret, kPair, challenge, nonce), WireError);
}

}  // namespace
}  // namespace crossdevice::detail
