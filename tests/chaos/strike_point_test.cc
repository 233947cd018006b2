// SPDX-License-Identifier: Apache-2.0
#include "chaos/strike_point.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "comm/detail/tcp_connection.h"
#include "comm/detail/tcp_message.h"

namespace crossdevice::chaos {
namespace {

class StrikePointTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends_.data()), 0); }
  ~StrikePointTest() override {
    (void)disarm_strike();
    for (const int end : ends_) ::close(end);
  }
  void arm(Direction direction, std::uint64_t number) {
    strike_at_message(direction, number, [this] { ++strikes_; });
  }
  void say() {
    char byte = 'x';
    iovec piece{&byte, 1};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    ASSERT_EQ(::sendmsg(ends_[0], &message, 0), 1);
  }
  ssize_t hear() {
    char byte = 0;
    iovec piece{&byte, 1};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    return ::recvmsg(ends_[1], &message, MSG_DONTWAIT);
  }

  std::array<int, 2> ends_{-1, -1};
  int strikes_ = 0;
};

TEST_F(StrikePointTest, ComesOnceBeforeTheMessageIsSent) {
  arm(Direction::SEND, 3);
  for (int i = 1; i <= 5; ++i) {
    say();
    EXPECT_EQ(strikes_, i < 3 ? 0 : 1) << i;
  }
  EXPECT_FALSE(disarm_strike());
}

TEST_F(StrikePointTest, WhatHasNotComeIsNotCounted) {
  arm(Direction::RECEIVE, 2);
  EXPECT_EQ(hear(), -1);
  EXPECT_EQ(errno, EAGAIN);
  say();
  say();
  EXPECT_EQ(strikes_, 0);
  EXPECT_EQ(hear(), 1);
  EXPECT_EQ(strikes_, 0);
  EXPECT_EQ(hear(), 1);
  EXPECT_EQ(strikes_, 1);
}

/// By whichever call of the system they leave and come.
TEST_F(StrikePointTest, CountsTheFramesOfATcpConnection) {
  using detail::TcpConnection;
  TcpConnection sender(std::exchange(ends_[0], -1));
  TcpConnection receiver(std::exchange(ends_[1], -1));
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, std::size_t{40'000}}) {
    std::vector<std::byte> payload(size);
    detail::TcpHead head;
    head.payload_size = static_cast<std::uint32_t>(size);
    head.size = size;
    strikes_ = 0;
    arm(Direction::SEND, 1);
    sender.begin_frame(head);
    std::size_t count = 0;
    ASSERT_EQ(sender.push(payload.data(), /*more=*/false, count), TcpConnection::Result::MOVED);
    EXPECT_EQ(strikes_, 1) << size;
    arm(Direction::RECEIVE, 1);
    ASSERT_EQ(receiver.read({}, TcpConnection::kAsMuchAsThereIs, count),
              TcpConnection::Result::MOVED);
    EXPECT_EQ(strikes_, 2) << size;
    ASSERT_NE(receiver.head(), nullptr);
    receiver.skip(receiver.ahead().size());
    if (receiver.num_expected() > 0) {  // what is longer than what is read ahead
      arm(Direction::RECEIVE, 1);
      ASSERT_EQ(receiver.read(std::span(payload).first(receiver.num_expected()),
                              TcpConnection::kAsMuchAsThereIs, count),
                TcpConnection::Result::MOVED);
      EXPECT_EQ(strikes_, 3) << size;
    }
    receiver.end_frame();
  }
}

TEST_F(StrikePointTest, ComesNoMoreOnceItIsDisarmed) {
  arm(Direction::SEND, 2);
  say();
  EXPECT_TRUE(disarm_strike());
  EXPECT_FALSE(disarm_strike());
  say();
  say();
  EXPECT_EQ(strikes_, 0);
}

}  // namespace
}  // namespace crossdevice::chaos
