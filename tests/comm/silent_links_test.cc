// SPDX-License-Identifier: Apache-2.0
// Who does not read, or says nothing, is not silent. A link that is cut is in tests/bench/network_faults_test.cc, whose machines can be cut off.
#include "comm/detail/silent_links.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/loopback_listener.h"

namespace crossdevice::detail {
namespace {

using Clock = SilentLinks::Clock;

/// The shortest limit, which is 3 s.
constexpr std::chrono::duration<double> kHeartbeat{0.5};
constexpr std::chrono::milliseconds kLonger{4200};

class SilentLinksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const testing::LoopbackListener listener(1);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place.sin_port = htons(listener.port());
    near_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::connect(near_, reinterpret_cast<sockaddr*>(&place), sizeof place), 0);
    far_ = ::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    ASSERT_GE(far_, 0);
  }
  void TearDown() override {
    ::close(near_);
    ::close(far_);
  }

  /// Looks as often as a transport that waits.
  void look_for_long(SilentLinks& links) const {
    const std::array<pollfd, 1> sockets{{{.fd = near_, .events = POLLIN, .revents = 0}}};
    const std::array<int, 1> ranks{7};
    for (const auto end = Clock::now() + kLonger; Clock::now() < end;) {
      links.look(sockets, ranks, Clock::now());
      std::this_thread::sleep_until(std::min(end, links.next_look()));
    }
  }

  int near_ = -1;
  int far_ = -1;
};

TEST_F(SilentLinksTest, WhoDoesNotReadAnswersAllTheSame) {
  SilentLinks links(kHeartbeat);
  links.watch(near_);
  const std::vector<std::byte> much(std::size_t{1} << 20);
  while (::send(near_, much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  look_for_long(links);
  EXPECT_EQ(links.found(), -1);
  pollfd state{.fd = near_, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&state, 1, 0), 0);  // neither ended nor failed
}

TEST_F(SilentLinksTest, WhoSaysNothingAnswersToo) {
  SilentLinks links(kHeartbeat);
  links.watch(near_);
  look_for_long(links);
  EXPECT_EQ(links.found(), -1);
  const char said = 'x';
  char heard = 0;
  EXPECT_EQ(::send(far_, &said, 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(::recv(near_, &heard, 1, 0), 1);
  EXPECT_EQ(heard, said);
}

TEST_F(SilentLinksTest, TheSystemAsksWithinTheLimit) {
  for (const double heartbeat : {0.01, 1.0, 10.0, 60.0, 1e9}) {
    const SilentLinks links{std::chrono::duration<double>(heartbeat)};
    links.watch(near_);
    const auto value_of = [&](int level, int name) {
      int value = 0;
      socklen_t size = sizeof value;
      EXPECT_EQ(::getsockopt(near_, level, name, &value, &size), 0);
      return value;
    };
    EXPECT_EQ(value_of(SOL_SOCKET, SO_KEEPALIVE), 1);
    const int between = value_of(IPPROTO_TCP, TCP_KEEPINTVL);
    const int all = between * value_of(IPPROTO_TCP, TCP_KEEPCNT);
    EXPECT_EQ(value_of(IPPROTO_TCP, TCP_KEEPIDLE), between);
    EXPECT_GE(all, std::min(heartbeat, 10'000.0) + 2);  // a pause that is not longer is survived
    EXPECT_GE(all - between, std::min(heartbeat, 10'000.0));
    EXPECT_LE(all, (heartbeat + 3) * 13 / 12 + 1);
  }
}

}  // namespace
}  // namespace crossdevice::detail
