// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tcp_connection.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crossdevice/comm/group_operation.h"

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

GroupOperation operation(std::uint64_t fingerprint) {
  GroupOperation operation;
  operation.fingerprint = fingerprint;
  return operation;
}

/// A member that says what a test makes it say.
class TcpConnectionTest : public ::testing::Test {
 protected:
  TcpConnectionTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    connection_.emplace(ends[0]);
    member_ = ends[1];
  }
  ~TcpConnectionTest() override { end(); }
  void end() {
    if (member_ >= 0) ::close(member_);
    member_ = -1;
  }
  /// What fits into the socket is read at once, so that more does.
  void say(std::string_view bytes) {
    constexpr std::size_t kPieceBytes = 4096;
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kPieceBytes))) {
      const std::string_view piece = bytes.substr(0, kPieceBytes);
      ASSERT_EQ(::send(member_, piece.data(), piece.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(piece.size()));
      ASSERT_TRUE(connection_->read_all());
    }
  }
  std::string frame(const TcpHead& head, std::string_view payload) {
    const TcpHeadBytes bytes = encode_tcp_head(head, said_);
    if (head.kind == TcpFrameKind::MESSAGE) said_.remember(head.operation);
    std::string all(reinterpret_cast<const char*>(bytes.view().data()), bytes.size);
    return all.append(payload);
  }
  std::string message(std::string_view payload, std::uint64_t fingerprint = 1) {
    TcpHead head;
    head.payload_size = static_cast<std::uint32_t>(payload.size());
    head.size = payload.size();
    head.operation = operation(fingerprint);
    return frame(head, payload);
  }
  std::string messages(int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += message("");
    return all;
  }
  std::string stopped(std::string_view why) {
    TcpHead head;
    head.kind = TcpFrameKind::STOPPED;
    head.payload_size = static_cast<std::uint32_t>(why.size());
    return frame(head, why);
  }
  /// Without reading it.
  void send(std::string_view bytes) {
    ASSERT_EQ(::send(member_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  /// What the system holds for the connection.
  [[nodiscard]] std::size_t num_held() const {
    int count = 0;
    EXPECT_EQ(::ioctl(connection_->socket(), FIONREAD, &count), 0);
    return static_cast<std::size_t>(count);
  }
  /// The heads of messages are short from now on, and the connection knows it.
  void say_operation() {
    say(messages(2));
    take_message(0);
    take_message(0);
  }
  TcpConnection::Result read_ahead(std::size_t max_ahead) {
    std::size_t num_read = 0;
    const TcpConnection::Result result = connection_->read({}, max_ahead, num_read);
    EXPECT_EQ(num_read, 0U);
    return result;
  }
  void take_message(std::size_t size) {
    ASSERT_NE(connection_->head(), nullptr);
    ASSERT_EQ(connection_->num_expected(), size);
    connection_->skip(size);
    connection_->end_frame();
  }

  std::optional<TcpConnection> connection_;
  int member_ = -1;
  SaidOperations said_;
};

TEST_F(TcpConnectionTest, ReadsWhatIsMissingOfAFrameAndNoMore) {
  say_operation();
  const std::string second = message("abcdefgh");
  const std::string third = message("ABCDEFGH");
  send(second + third);
  EXPECT_EQ(connection_->num_missing(8), second.size());
  ASSERT_EQ(read_ahead(connection_->num_missing(8)), TcpConnection::Result::MOVED);
  EXPECT_EQ(num_held(), third.size());
  take_message(8);
  EXPECT_TRUE(connection_->may_end_next()) << "nothing of the next one has been read";
  // In pieces, the head too.
  for (const std::size_t size : {std::size_t{4}, third.size() - 6}) {
    const std::size_t missing = connection_->num_missing(8);
    ASSERT_EQ(read_ahead(size), TcpConnection::Result::MOVED);
    EXPECT_EQ(connection_->num_missing(8), missing - size);
    EXPECT_FALSE(connection_->may_end_next()) << "it is a message";
  }
  ASSERT_NE(connection_->head(), nullptr);
  EXPECT_EQ(connection_->num_missing(0), 2U) << "of the frame under way, whatever is asked for";
  ASSERT_EQ(read_ahead(2), TcpConnection::Result::MOVED);
  take_message(8);
  EXPECT_EQ(num_held(), 0U);
}

TEST_F(TcpConnectionTest, AHeadMayBeLongerThanTheOneBefore) {
  say_operation();
  const std::string longer = message("abcdefgh", 2);  // says its operation
  send(longer);
  int num_reads = 0;
  for (; connection_->head() == nullptr || connection_->ahead().size() < 8; ++num_reads) {
    ASSERT_LT(num_reads, 3);
    ASSERT_EQ(read_ahead(connection_->num_missing(8)), TcpConnection::Result::MOVED);
  }
  take_message(8);
}

TEST_F(TcpConnectionTest, TheKindOfTheNextFrameSaysWhetherItIsTheEnd) {
  say_operation();
  const std::string second = message("2");
  const std::string last = stopped("why");
  send(second + last);
  EXPECT_FALSE(connection_->may_end_next());
  ASSERT_EQ(read_ahead(connection_->num_missing(1) + kTcpKindBytes), TcpConnection::Result::MOVED);
  EXPECT_FALSE(connection_->may_end_next()) << "a message is";
  take_message(1);
  EXPECT_TRUE(connection_->may_end_next());
  EXPECT_EQ(num_held(), last.size() - kTcpKindBytes);
  ASSERT_EQ(read_ahead(last.size() - kTcpKindBytes - 1), TcpConnection::Result::MOVED);
  ASSERT_NE(connection_->head(), nullptr);
  EXPECT_EQ(connection_->head()->kind, TcpFrameKind::STOPPED);
  EXPECT_TRUE(connection_->may_end_next()) << "of which a byte is missing";
}

TEST_F(TcpConnectionTest, LastWordsAreFoundBehindWhatNobodyAsksFor) {
  // What a head says depends on those before.
  std::string all = message("12345678");
  all += message("", 2);
  all += message("ab", 1);
  all += message("", 3);
  all += message("", 2);
  all += stopped("why");
  say(all);
  for (int i = 0; i < 2; ++i) {
    const TcpConnection::LastWords words = connection_->last_words();
    EXPECT_EQ(words.kind, TcpFrameKind::STOPPED);
    EXPECT_EQ(words.payload, "why");
    EXPECT_EQ(words.num_looked_at, i == 0 ? 6U : 1U);
  }
  // What has been looked at is still there to be taken.
  take_message(8);
  take_message(0);
  take_message(2);
  for (const std::uint64_t fingerprint : {3U, 2U}) {
    ASSERT_NE(connection_->head(), nullptr);
    EXPECT_EQ(connection_->head()->operation, operation(fingerprint));
    take_message(0);
  }
  EXPECT_EQ(connection_->last_words().payload, "why");
  ASSERT_NE(connection_->head(), nullptr);
  EXPECT_EQ(connection_->head()->kind, TcpFrameKind::STOPPED);
  EXPECT_EQ(connection_->last_words().kind, TcpFrameKind::MESSAGE) << "nothing is behind them";
}

/// However many messages a hostile member leaves, and however often its last words are looked for.
TEST_F(TcpConnectionTest, NoMessageIsLookedAtTwice) {
  constexpr int kNumMessages = 100'000;
  say(messages(kNumMessages));
  EXPECT_EQ(connection_->last_words().num_looked_at, kNumMessages);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(connection_->last_words().num_looked_at, 0U);
  say(messages(3));
  EXPECT_EQ(connection_->last_words().num_looked_at, 3U);
  // Nor when some have been taken, and the others moved to the beginning of the buffer.
  for (int i = 0; i < 1000; ++i) take_message(0);
  say(messages(kNumMessages));
  EXPECT_EQ(connection_->last_words().num_looked_at, kNumMessages);
  EXPECT_EQ(connection_->last_words().num_looked_at, 0U);
  end();
  ASSERT_TRUE(connection_->read_all());
  EXPECT_TRUE(connection_->has_ended());
  EXPECT_EQ(connection_->last_words().num_looked_at, 0U);
}

TEST_F(TcpConnectionTest, OnlyAMessageThatHasNotComeWholeIsLookedAtAgain) {
  const std::string split = message(std::string(1000, 'x'), 2);
  say(message("") + split.substr(0, split.size() - 1));
  EXPECT_EQ(connection_->last_words().num_looked_at, 2U);
  EXPECT_EQ(connection_->last_words().num_looked_at, 1U);
  say(split.substr(split.size() - 1) + stopped("why"));
  const TcpConnection::LastWords words = connection_->last_words();
  EXPECT_EQ(words.payload, "why");
  EXPECT_EQ(words.num_looked_at, 2U);
}

TEST_F(TcpConnectionTest, WhatIsTakenBeyondWhereOneHasLookedIsPassed) {
  say(message("1", 1) + message("2", 2));
  EXPECT_EQ(connection_->last_words().num_looked_at, 2U);
  say(message("3", 3) + message("4", 4) + message("5", 5));
  for (int i = 0; i < 4; ++i) take_message(1);
  say(stopped("why"));
  const TcpConnection::LastWords words = connection_->last_words();
  EXPECT_EQ(words.payload, "why");
  EXPECT_EQ(words.num_looked_at, 2U);
}

TEST_F(TcpConnectionTest, NothingIsLookedForInTheMiddleOfAMessage) {
  const std::string split = message("12345678");
  say(split.substr(0, split.size() - 4));
  ASSERT_NE(connection_->head(), nullptr);
  EXPECT_EQ(connection_->last_words().num_looked_at, 0U);
  connection_->skip(4);
  say(split.substr(split.size() - 4) + stopped("why"));
  EXPECT_EQ(connection_->last_words().payload, "why");
}

TEST_F(TcpConnectionTest, NonsenseIsNonsenseAgain) {
  say(messages(2) + "nonsense");
  for (int i = 0; i < 2; ++i) EXPECT_THROW((void)connection_->last_words(), WireError);
}

}  // namespace
}  // namespace crossdevice::detail
