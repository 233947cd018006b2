// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tcp_message.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <span>
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

/// In this order.
SaidOperations said_before(std::initializer_list<GroupOperation> operations) {
  SaidOperations said;
  for (const GroupOperation& each : operations) said.remember(each);
  return said;
}

/// Of different calls.
GroupOperation other(std::uint64_t fingerprint) {
  return pack_operation({.kind = "reduce", .fingerprint = fingerprint});
}

TcpHead decoded(const TcpHeadBytes& bytes, const SaidOperations& said = {}) {
  return decode_tcp_head(bytes.view(), said);
}

bool is_refused(std::string bytes, const SaidOperations& said = {}) {
  if (bytes.size() > 1) bytes[1] = static_cast<char>(bytes.size());
  try {
    (void)decode_tcp_head(std::as_bytes(std::span(bytes)), said);
  } catch (const WireError&) {
    return true;
  }
  return false;
}

std::string text_of(const TcpHeadBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.bytes.data()), bytes.size};
}

void expect_equal(const TcpHead& a, const TcpHead& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.payload_size, b.payload_size);
  EXPECT_EQ(a.operation_count, b.operation_count);
  EXPECT_EQ(a.number, b.number);
  EXPECT_EQ(a.size, b.size);
  EXPECT_EQ(a.offset, b.offset);
  EXPECT_EQ(a.operation, b.operation);
}

TEST(TcpMessageTest, HeadsComeBackAsTheyWere) {
  const TcpHead head = example();
  expect_equal(decoded(encode_tcp_head(head)), head);
  for (const SaidOperations& said :
       {said_before({head.operation}), said_before({other(1)}),
        said_before({other(1), other(2), head.operation, other(3)}),
        said_before({head.operation, other(1), other(2), other(3), other(4)})}) {
    expect_equal(decoded(encode_tcp_head(head, said), said), head);
  }
  TcpHead largest = head;
  largest.operation_count = largest.number = largest.size = ~std::uint64_t{0};
  largest.payload_size = kMaxTcpPayloadBytes;
  largest.offset = largest.size - largest.payload_size;
  const TcpHeadBytes bytes = encode_tcp_head(largest);
  EXPECT_LE(bytes.size, kMaxTcpHeadBytes);
  expect_equal(decoded(bytes), largest);
}

TEST(TcpMessageTest, WhatHasBeenSaidIsNotSaidAgain) {
  TcpHead head = example();
  head.offset = 0;
  head.size = head.payload_size = 2000;
  head.operation_count = 10000;
  constexpr std::size_t kShort = 8;  // of which payload and count take two each
  constexpr std::size_t kWithOperation = 64;
  const auto size_after = [&](std::initializer_list<GroupOperation> operations) {
    return encode_tcp_head(head, said_before(operations)).size;
  };
  EXPECT_EQ(size_after({}), kWithOperation);
  EXPECT_EQ(size_after({head.operation}), kShort);
  EXPECT_EQ(size_after({head.operation, other(1), other(2), other(3)}), kShort);
  EXPECT_EQ(size_after({head.operation, other(1), other(2), other(1), other(2), other(1)}), kShort);
  // The places are taken in turn, also those that were used a moment ago.
  EXPECT_EQ(size_after({head.operation, other(1), other(2), other(3), other(4)}), kWithOperation);
  EXPECT_EQ(size_after({head.operation, other(1), other(2), other(3), head.operation, other(4)}),
            kWithOperation);
  EXPECT_EQ(size_after({other(1), other(2), other(3), other(4), head.operation, other(5)}), kShort);
  TcpHead goodbye;
  goodbye.kind = TcpFrameKind::GOODBYE;
  EXPECT_EQ(encode_tcp_head(goodbye).size, 6);
  // Who has not heard it does not guess.
  const SaidOperations fourth = said_before({other(1), other(2), other(3), head.operation});
  EXPECT_FALSE(is_refused(text_of(encode_tcp_head(head, fourth)), fourth));
  EXPECT_TRUE(is_refused(text_of(encode_tcp_head(head, fourth))));
  EXPECT_TRUE(is_refused(text_of(encode_tcp_head(head, fourth)),
                         said_before({head.operation, other(1), other(2)})));
}

TEST(TcpMessageTest, TheSizeOfAHeadIsKnownFromItsFirstBytes) {
  const TcpHeadBytes bytes = encode_tcp_head(example());
  EXPECT_EQ(tcp_head_size({}), 0);
  EXPECT_EQ(tcp_head_size(bytes.view().first(1)), 0);
  EXPECT_EQ(tcp_head_size(bytes.view().first(2)), bytes.size);
  EXPECT_EQ(tcp_head_size(bytes.view()), bytes.size);
  TcpHeadBytes changed = bytes;
  changed.bytes[0] = std::byte{'x'};
  EXPECT_THROW((void)tcp_head_size(changed.view().first(1)), WireError);
  for (const int size : {0, 5, 105, 255}) {
    changed = bytes;
    changed.bytes[1] = static_cast<std::byte>(size);
    EXPECT_THROW((void)tcp_head_size(changed.view()), WireError) << size;
  }
}

TEST(TcpMessageTest, ThereIsOneWayToWriteAHead) {
  TcpHead head = example();
  head.operation_count = 5;
  const SaidOperations said = said_before({other(1), head.operation});
  const std::string good = text_of(
      encode_tcp_head(head, said));  // payload_size takes two bytes, operation_count follows
  EXPECT_FALSE(is_refused(good, said));
  std::string longer = good;
  longer.replace(5, 1, "\x85\x00", 2);
  EXPECT_TRUE(is_refused(longer, said));
  longer.replace(5, 2, std::string(9, '\xff') + '\x02');  // more than 64 bits
  EXPECT_TRUE(is_refused(longer, said));
  longer.replace(5, 10, std::string(10, '\x80') + '\x01');
  EXPECT_TRUE(is_refused(longer, said));
  EXPECT_TRUE(is_refused(good + '\0', said));
  EXPECT_TRUE(is_refused(text_of(encode_tcp_head(head)), said));  // said before
  // A head that says its operation says nothing of a place, as does one that has none.
  std::string new_operation = text_of(encode_tcp_head(head, said_before({other(1)})));
  EXPECT_FALSE(is_refused(new_operation, said_before({other(1)})));
  new_operation[2] = static_cast<char>(new_operation[2] | 0x40);
  EXPECT_TRUE(is_refused(new_operation, said_before({other(1)})));
  TcpHead whole = head;
  whole.offset = 0;
  whole.size = 1000;
  std::string part = text_of(encode_tcp_head(whole, said));
  part[2] = static_cast<char>(part[2] | 0x10);
  EXPECT_TRUE(is_refused(part + "\xe8\x07" + '\0', said));  // a part that is all of it
  for (const int flag : {0x10, 0x20, 0x40, 0x80}) {
    TcpHead goodbye;
    goodbye.kind = TcpFrameKind::GOODBYE;
    std::string bytes = text_of(encode_tcp_head(goodbye));
    bytes[2] = static_cast<char>(bytes[2] | flag);
    EXPECT_TRUE(is_refused(bytes + std::string(flag == 0x10 ? 2 : 0, '\0')));
  }
}

TEST(TcpMessageTest, HeadsThatCannotBeAreRefused) {
  const auto is_refused = [](auto change) {
    TcpHead head = example();
    change(head);
    return crossdevice::detail::is_refused(text_of(encode_tcp_head(head)));
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
      bytes.bytes[random() % bytes.size] = static_cast<std::byte>(random());
    }
    try {
      const TcpHead head = decoded(bytes);
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
