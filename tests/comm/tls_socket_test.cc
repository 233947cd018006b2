// SPDX-License-Identifier: Apache-2.0
// An encrypted connection whose other side is slow, or gone.
#include "comm/detail/tls_socket.h"

#include <chrono>
#include <string>
#include <system_error>

#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <gtest/gtest.h>

#include "comm/transport_fixture.h"

namespace crossdevice::detail {
namespace {

using asio::ip::tcp;
using testing::Bytes;
using testing::pattern;

constexpr std::chrono::seconds kTime{5};

/// A read or a write under way.
struct Task {
  [[nodiscard]] TlsSocket::Handler handler() {
    return [this](std::error_code its_error, std::size_t count) {
      is_over = true;
      error = its_error;
      num_moved = count;
    };
  }
  bool is_over = false;
  std::error_code error;
  std::size_t num_moved = 0;
};

/// Both ends of a connection over loopback, each on a socket with small buffers.
class Ends {
 public:
  Ends() {
    tcp::acceptor acceptor(io_, {asio::ip::address_v4::loopback(), 0});
    acceptor.set_option(asio::socket_base::receive_buffer_size(4096));
    near_socket_.open(tcp::v4());
    near_socket_.set_option(asio::socket_base::send_buffer_size(4096));
    near_socket_.connect(acceptor.local_endpoint());
    far_socket_ = acceptor.accept();
    const auto key = TlsKey::make("secret");
    near.begin({.key = key, .role = TlsChannel::Role::DIALLER, .plain_greeting = "plain"});
    far.begin({.key = key, .role = TlsChannel::Role::LISTENER, .plain_greeting = "plain"});
    exchange(far, near);
    exchange(near, far);
  }

  /// Until it is over. Whether that was in time.
  bool finish(const Task& task) {
    const auto deadline = std::chrono::steady_clock::now() + kTime;
    while (!task.is_over && std::chrono::steady_clock::now() < deadline) {
      io_.restart();
      (void)io_.run_one_for(std::chrono::milliseconds(10));
    }
    return task.is_over;
  }
  void run_for(std::chrono::milliseconds time) {
    io_.restart();
    (void)io_.run_for(time);
  }
  void close_far() {
    far.forget();
    far_socket_.close();
  }

 private:
  void exchange(TlsSocket& from, TlsSocket& to) {
    const std::string words = "words";
    std::string came(words.size(), '\0');
    Task write;
    Task read;
    from.write(asio::buffer(words), write.handler());
    to.read(asio::buffer(came), read.handler());
    EXPECT_TRUE(finish(write) && finish(read));
    EXPECT_EQ(came, words);
  }

  asio::io_context io_;
  tcp::socket near_socket_{io_};
  tcp::socket far_socket_{io_};

 public:
  TlsSocket near{near_socket_};
  TlsSocket far{far_socket_};
};

/// The far side ends without having read all, and so resets the connection; a write notices that before what it said last has been read.
TEST(TlsSocketTest, WhatWasSaidBeforeAResetIsReadAfterAFailedWrite) {
  Ends ends;
  const std::string last_words = "goodbye";
  Task said;
  Task unread;
  ends.far.write(asio::buffer(last_words), said.handler());
  ends.near.write(asio::buffer(last_words), unread.handler());
  ASSERT_TRUE(ends.finish(said) && ends.finish(unread));
  ends.close_far();
  Task failed;
  ends.near.write(asio::buffer(last_words), failed.handler());
  ASSERT_TRUE(ends.finish(failed));
  EXPECT_TRUE(failed.error);
  std::string came(last_words.size(), '\0');
  Task read;
  ends.near.read(asio::buffer(came), read.handler());
  ASSERT_TRUE(ends.finish(read));
  EXPECT_FALSE(read.error) << read.error.message();
  EXPECT_EQ(came, last_words);
  Task end;
  ends.near.read(asio::buffer(came), end.handler());
  ASSERT_TRUE(ends.finish(end));
  EXPECT_TRUE(end.error);
  Task later;
  ends.near.write(asio::buffer(last_words), later.handler());
  ASSERT_TRUE(ends.finish(later));
  EXPECT_TRUE(later.error);
}

TEST(TlsSocketTest, ALargeWriteGoesOnWhenThereIsRoomAgain) {
  Ends ends;
  const Bytes bytes = pattern(std::size_t{1} << 20, 1);
  Task write;
  ends.near.write(asio::buffer(bytes), write.handler());
  ends.run_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(write.is_over);  // nobody reads
  Bytes came(bytes.size());
  Task read;
  ends.far.read(asio::buffer(came), read.handler());
  ASSERT_TRUE(ends.finish(write) && ends.finish(read));
  EXPECT_FALSE(write.error) << write.error.message();
  EXPECT_EQ(write.num_moved, bytes.size());
  EXPECT_TRUE(came == bytes);
}

}  // namespace
}  // namespace crossdevice::detail
