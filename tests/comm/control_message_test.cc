// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/control_message.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

Hello some_hello() {
  Hello hello;
  hello.library_version = "0.1.0";
  hello.num_workers = 4;
  hello.member = {.rank = 3, .host = "b", .host_id = "id", .pid = 4711};
  hello.nonce = make_nonce();
  return hello;
}

/// One of each message.
std::vector<std::string> payloads() {
  const RankInfo rank{.rank = 3, .replica = -1, .host = "b", .pid = 7, .last_operation = "x #1"};
  return {Challenge{.nonce = make_nonce()}.encode(),
          some_hello().encode(),
          Welcome{.cluster_id = 77}.encode(),
          Refused{StatusCode::INTERNAL, "no", {rank}}.encode(),
          Members{{some_hello().member, some_hello().member}}.encode(),
          Exchange{{1, 2}, {0, 3}, "barrier", "bytes"}.encode(),
          Exchanged{{1, 2}, {"a", "", "c"}}.encode(),
          ExchangeFailed{{1, 2}, StatusCode::ABORTED, "no", {rank, rank}}.encode(),
          WhoIsMissing{{1, 2}}.encode(),
          Missing{{1, 2}, {rank}}.encode(),
          GiveUp{{1, 2}, "late"}.encode(),
          MemberLost{2, "gone"}.encode(),
          Abort{2, "why"}.encode(),
          Heartbeat{"all_reduce #3", 5}.encode(),
          Ask{7}.encode(),
          ClockReading{1, 2, "the clock"}.encode(),
          Post{5, 1, {0, 2}, "bytes"}.encode()};
}

void decode_as(std::size_t kind, std::string_view payload) {
  switch (kind) {
    case 0:
      (void)Challenge::decode(payload);
      return;
    case 1:
      (void)Hello::decode(payload);
      return;
    case 2:
      (void)Welcome::decode(payload);
      return;
    case 3:
      (void)Refused::decode(payload);
      return;
    case 4:
      (void)Members::decode(payload);
      return;
    case 5:
      (void)Exchange::decode(payload);
      return;
    case 6:
      (void)Exchanged::decode(payload);
      return;
    case 7:
      (void)ExchangeFailed::decode(payload);
      return;
    case 8:
      (void)WhoIsMissing::decode(payload);
      return;
    case 9:
      (void)Missing::decode(payload);
      return;
    case 10:
      (void)GiveUp::decode(payload);
      return;
    case 11:
      (void)MemberLost::decode(payload);
      return;
    case 12:
      (void)Abort::decode(payload);
      return;
    case 13:
      (void)Heartbeat::decode(payload);
      return;
    case 14:
      (void)Ask::decode(payload);
      return;
    case 15:
      (void)ClockReading::decode(payload);
      return;
    default:
      (void)Post::decode(payload);
      return;
  }
}

TEST(ControlMessageTest, WhatWasEncodedIsDecoded) {
  const Hello hello = some_hello();
  const Hello copy = Hello::decode(hello.encode());
  EXPECT_EQ(copy.encode(), hello.encode());
  EXPECT_EQ(copy.member.pid, 4711);
  EXPECT_EQ(copy.member.host, "b");
  EXPECT_EQ(copy.num_workers, 4);
  EXPECT_EQ(copy.nonce, hello.nonce);

  const Exchange exchange = Exchange::decode(Exchange{{1, 2}, {0, 3}, "barrier", "b\0x"}.encode());
  EXPECT_EQ(exchange.id, (RoundId{1, 2}));
  EXPECT_EQ(exchange.members, (std::vector<int>{0, 3}));
  EXPECT_EQ(exchange.kind, "barrier");

  const Exchanged exchanged = Exchanged::decode(Exchanged{{8, 9}, {"a", "", "c"}}.encode());
  EXPECT_EQ(exchanged.parts, (std::vector<std::string>{"a", "", "c"}));

  const ExchangeFailed failed = ExchangeFailed::decode(
      ExchangeFailed{{1, 2}, StatusCode::UNAVAILABLE, "no", {{.rank = 5, .host = "h"}}}.encode());
  EXPECT_EQ(failed.code, StatusCode::UNAVAILABLE);
  EXPECT_EQ(failed.culprits.at(0).rank, 5);
  EXPECT_EQ(failed.culprits.at(0).host, "h");
}

TEST(ControlMessageTest, OfAnotherProtocolOnlyItsNumberIsRead) {
  std::string hello = some_hello().encode();
  EXPECT_EQ(protocol_of(hello), kControlProtocol);
  hello[0] = 3;
  EXPECT_EQ(protocol_of(hello.substr(0, 9)), 3U);  // whatever its layout is
  EXPECT_THROW((void)protocol_of(hello.substr(0, 3)), WireError);
  std::string challenge = Challenge{.protocol = 77, .nonce = make_nonce()}.encode();
  EXPECT_EQ(Challenge::decode(challenge + "and more").protocol, 77U);
  EXPECT_EQ(Challenge::decode(challenge.substr(0, 9)).protocol, 77U);
}

TEST(ControlMessageTest, EveryShorterOrLongerPayloadIsRefused) {
  const std::vector<std::string> all = payloads();
  for (std::size_t kind = 0; kind < all.size(); ++kind) {
    decode_as(kind, all[kind]);
    EXPECT_THROW(decode_as(kind, all[kind] + "x"), WireError) << kind;
    for (std::size_t size = 0; size < all[kind].size(); ++size) {
      EXPECT_THROW(decode_as(kind, all[kind].substr(0, size)), WireError) << kind << ' ' << size;
    }
  }
}

TEST(ControlMessageTest, NoBytesCrashADecoder) {
  std::mt19937 random(20240901);
  const std::vector<std::string> all = payloads();
  std::size_t num_refused = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::size_t kind = random() % all.size();
    std::string payload = all[kind];
    if (round % 4 == 0) {
      payload.assign(random() % 64, '\0');
      for (char& byte : payload) byte = static_cast<char>(random());
    } else {
      for (std::uint32_t flips = 1 + random() % 4; flips > 0; --flips) {
        payload[random() % payload.size()] = static_cast<char>(random());
      }
    }
    try {
      decode_as(kind, payload);
    } catch (const WireError&) {
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 1000U);
}

TEST(ControlMessageTest, FramesAreBounded) {
  const std::string frame = encode_frame(ControlKind::HEARTBEAT, "abc");
  EXPECT_EQ(decode_frame_head(frame.substr(0, kFrameHeadBytes), 4), 4U);
  EXPECT_THROW((void)decode_frame_head(frame.substr(0, kFrameHeadBytes), 3), WireError);
  EXPECT_THROW((void)decode_frame_head(std::string(4, '\0'), 100), WireError);
  EXPECT_THROW((void)decode_frame_head(std::string(4, '\xff'), kMaxFrameBytes), WireError);
  EXPECT_EQ(decode_frame_body(frame.substr(kFrameHeadBytes)).payload, "abc");
  EXPECT_THROW((void)decode_frame_body(std::string(1, '\0')), WireError);
  EXPECT_THROW((void)decode_frame_body(std::string(1, '\x40')), WireError);
  EXPECT_THROW((void)decode_frame_body(""), WireError);
}

TEST(ControlMessageTest, AProofHoldsForOneHelloOneChallengeAndOneSecretOnly) {
  const Hello hello = some_hello();
  const Nonce challenge = make_nonce();
  const Mac mac = hello.expected_mac("secret", challenge);
  EXPECT_EQ(mac, hello.expected_mac("secret", challenge));
  EXPECT_NE(mac, hello.expected_mac("other", challenge));
  EXPECT_NE(mac, hello.expected_mac("secret", make_nonce()));
  Hello other_rank = hello;
  other_rank.member.rank = 2;
  EXPECT_NE(mac, other_rank.expected_mac("secret", challenge));
  Hello with_mac = hello;
  with_mac.mac = mac;
  EXPECT_EQ(mac, with_mac.expected_mac("secret", challenge));
  Welcome welcome{.cluster_id = 5, .mac = {}};
  EXPECT_NE(welcome.expected_mac("secret", challenge), mac);
}

}  // namespace
}  // namespace crossdevice::detail
