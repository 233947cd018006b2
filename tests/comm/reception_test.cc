// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/reception.h"

#include <array>
#include <cstddef>
#include <string>
#include <system_error>
#include <utility>

#include <asio/connect.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <gtest/gtest.h>
#include <openssl/rand.h>

#include "comm/detail/control_message.h"
#include "support/log_keeper.h"

namespace crossdevice::detail {
namespace {

using asio::ip::tcp;

/// While it lives the system has no random bytes.
class NoRandomBytes {
 public:
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  NoRandomBytes() : before_(RAND_get_rand_method()) { RAND_set_rand_method(&kFailing); }
  ~NoRandomBytes() { RAND_set_rand_method(before_); }
#pragma GCC diagnostic pop
  NoRandomBytes(const NoRandomBytes&) = delete;
  NoRandomBytes& operator=(const NoRandomBytes&) = delete;

 private:
  static int fail(unsigned char* /*bytes*/, int /*count*/) { return 0; }
  static constexpr RAND_METHOD kFailing = {nullptr, &fail, nullptr, nullptr, &fail, nullptr};
  const RAND_METHOD* before_;
};

/// How many bytes a stranger gets to read before the end of its connection; those of a whole head are enough.
std::size_t bytes_for_a_stranger(asio::io_context& io, const tcp::endpoint& where) {
  tcp::socket socket(io);
  std::array<char, kFrameHeadBytes> head{};
  std::size_t count = 0;
  bool is_over = false;
  socket.async_connect(where, [&](std::error_code failed) {
    ASSERT_FALSE(failed) << failed.message();
    asio::async_read(socket, asio::buffer(head), [&](std::error_code, std::size_t read) {
      count = read;
      is_over = true;
    });
  });
  while (!is_over && io.run_one() > 0) {
  }
  return count;
}

TEST(ReceptionTest, WhoeverComesWhileThereAreNoRandomBytesIsTurnedAwayAndMayComeAgain) {
  const testing::LogKeeper log;
  asio::io_context io;
  Reception reception(io, [](const auto&, const Nonce&, const Frame&) {});
  tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  const tcp::endpoint where = acceptor.local_endpoint();
  reception.open(std::move(acceptor), "the test");
  {
    const NoRandomBytes none;
    EXPECT_EQ(bytes_for_a_stranger(io, where), 0U);
  }
  EXPECT_NE(log.texts().find("turned away: the system has no random bytes"), std::string::npos);
  EXPECT_EQ(bytes_for_a_stranger(io, where), kFrameHeadBytes);
  reception.close();
}

}  // namespace
}  // namespace crossdevice::detail
