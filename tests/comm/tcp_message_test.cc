// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tcp_message.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

TcpHead example() {
  return {.kind = TcpFrameKind::MESSAGE,
          .payload_size = 1000,
          .operation_count = 0x0102030405060708,
          .number = 77,
          .size = 5000,
          .offset = 4000,
          .operation = pack_operation({.kind = "all_reduce",
                                       .reduce_op = ReduceOp::PROD,
                                       .dtype = DType::INT64,
                                       .num_values = 3,
                                       .size_bytes = 5000,
                                       .fingerprint = 0xABCDEF})};
}

TEST(TcpMessageTest, HeadsComeBackAsTheyWere) {
  const TcpHead head = example();
  const TcpHead back = decode_tcp_head(encode_tcp_head(head));
  EXPECT_EQ(back.kind, head.kind);
  EXPECT_EQ(back.payload_size, head.payload_size);
  EXPECT_EQ(back.operation_count, head.operation_count);
  EXPECT_EQ(back.number, head.number);
  EXPECT_EQ(back.size, head.size);
  EXPECT_EQ(back.offset, head.offset);
  EXPECT_EQ(back.operation, head.operation);
}

TEST(TcpMessageTest, HeadsThatCannotBeAreRefused) {
  const auto is_refused = [](auto change) {
    TcpHead head = example();
    change(head);
    try {
      (void)decode_tcp_head(encode_tcp_head(head));
    } catch (const WireError&) {
      return true;
    }
    return false;
  };
  EXPECT_FALSE(is_refused([](TcpHead&) {}));
  EXPECT_TRUE(is_refused([](TcpHead& head) { head.payload_size = 1001; }));
  EXPECT_TRUE(is_refused([](TcpHead& head) { head.payload_size = 0; }));
  EXPECT_TRUE(is_refused([](TcpHead& head) { head.offset = ~std::uint64_t{0}; }));
  EXPECT_TRUE(is_refused([](TcpHead& head) { head.offset = 5001; }));
  EXPECT_TRUE(is_refused([](TcpHead& head) {
    head.size = ~std::uint64_t{0};
    head.payload_size = (1U << 18U) + 1;
  }));
  EXPECT_TRUE(is_refused([](TcpHead& head) { head.kind = TcpFrameKind(0); }));
  EXPECT_TRUE(is_refused([](TcpHead& head) { head.kind = TcpFrameKind(4); }));
  EXPECT_TRUE(is_refused([](TcpHead& head) { head.kind = TcpFrameKind::GOODBYE; }));
  EXPECT_TRUE(is_refused([](TcpHead& head) {
    head.kind = TcpFrameKind::STOPPED;
    head.payload_size = 8193;
  }));
}

TEST(TcpMessageTest, WhateverBytesComeAHeadIsWithinItsBounds) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    TcpHeadBytes bytes = encode_tcp_head(example());
    for (unsigned changes = random() % 4; changes-- > 0;) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    try {
      const TcpHead head = decode_tcp_head(bytes);
      if (head.kind == TcpFrameKind::MESSAGE) {
        ASSERT_LE(head.payload_size, kMaxTcpPayloadBytes);
        ASSERT_LE(head.offset, head.size);
        ASSERT_LE(head.payload_size, head.size - head.offset);
      } else {
        ASSERT_LE(head.payload_size, kMaxStopBytes);
      }
      (void)to_string(head.operation);
    } catch (const WireError&) {
      continue;
    }
  }
}

TransportFailure failure() {
  return {.code = StatusCode::UNAVAILABLE,
          .text = "it is gone",
          .culprits = {{.rank = 3, .host = "b", .pid = 4711, .last_operation = "broadcast #3"},
                       {.rank = 1}},
          .origin = 2};
}

TEST(TcpMessageTest, ReasonsComeBackAsTheyWere) {
  const TransportFailure back = decode_stop(encode_stop(failure()), 4);
  EXPECT_EQ(back.code, StatusCode::UNAVAILABLE);
  EXPECT_EQ(back.text, "it is gone");
  EXPECT_EQ(back.origin, 2);
  ASSERT_EQ(back.culprits.size(), 2);
  EXPECT_EQ(to_string(back.culprits[0]), to_string(failure().culprits[0]));
  EXPECT_EQ(back.culprits[1].rank, 1);
}

TEST(TcpMessageTest, LongReasonsAreCut) {
  TransportFailure longest = failure();
  longest.text = std::string(100000, 'x');
  longest.culprits.assign(
      1000, {.rank = 1, .host = std::string(1000, 'h'), .last_operation = std::string(1000, 'o')});
  const std::string bytes = encode_stop(longest);
  EXPECT_LE(bytes.size(), kMaxStopBytes);
  const TransportFailure back = decode_stop(bytes, 4);
  EXPECT_EQ(back.text, std::string(4096, 'x'));
  EXPECT_EQ(back.culprits.size(), 16);
}

TEST(TcpMessageTest, WhateverBytesComeAReasonIsReadOrRefused) {
  const std::string good = encode_stop(failure());
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW((void)decode_stop(good.substr(0, size), 4), WireError);
  }
  EXPECT_THROW((void)decode_stop(good + "x", 4), WireError);
  EXPECT_THROW((void)decode_stop(good, 2), WireError);  // there is no rank 2
  std::mt19937 random(1);
  for (int i = 0; i < 50000; ++i) {
    std::string bytes = good;
    for (int changes = 0; changes < 3; ++changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    try {
      const TransportFailure back = decode_stop(bytes, 4);
      ASSERT_LT(back.origin, 4);
      ASSERT_GE(back.origin, -1);
    } catch (const WireError&) {
      continue;
    }
  }
}

}  // namespace
}  // namespace crossdevice::detail
