// SPDX-License-Identifier: Apache-2.0
// What somebody on the path between two members sees of a tensor: all of it, or nothing where the job encrypts. And what it can do by changing a byte.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/detail/tcp_connection.h"
#include "comm/detail/tcp_meeting.h"
#include "comm/transport_fixture.h"
#include "support/log_keeper.h"

namespace crossdevice::detail {
namespace {

using testing::Bytes;
using ::testing::HasSubstr;
using testing::LogKeeper;
using testing::pattern;
using testing::soon;

/// Between a dialler and one port of this machine; keeps what passes, and changes a bit of what passes the `spoil`-th byte.
class Relay {
 public:
  explicit Relay(std::uint16_t target, std::size_t spoil = SIZE_MAX)
      : spoil_(spoil),
        target_(target),
        listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 4), 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Relay() { end(); }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Everything that has passed, both ways.
  const std::string& end() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
    if (listener_ >= 0) ::close(listener_);
    listener_ = -1;
    return seen_;
  }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  void serve() {
    while (!is_over_) {
      pollfd waiting{.fd = listener_, .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, 10) <= 0) continue;
      const int from = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const int to = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in address = loopback(target_);
      EXPECT_EQ(::connect(to, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
      carry(from, to);
      ::close(from);
      ::close(to);
    }
  }
  void carry(int a, int b) {
    const std::array<int, 2> ends{a, b};
    while (!is_over_) {
      std::array<pollfd, 2> waiting{{{a, POLLIN, 0}, {b, POLLIN, 0}}};
      if (::poll(waiting.data(), waiting.size(), 10) <= 0) continue;
      for (std::size_t i = 0; i < 2; ++i) {
        if (waiting[i].revents == 0) continue;
        std::array<char, 65536> bytes{};
        const ssize_t count = ::recv(ends[i], bytes.data(), bytes.size(), 0);
        if (count <= 0) return;
        const auto size = static_cast<std::size_t>(count);
        if (seen_.size() <= spoil_ && spoil_ < seen_.size() + size) {
          bytes[spoil_ - seen_.size()] = static_cast<char>(bytes[spoil_ - seen_.size()] ^ 1);
        }
        seen_.append(bytes.data(), size);
        (void)::send(ends[1 - i], bytes.data(), size, MSG_NOSIGNAL);
      }
    }
  }

  const std::size_t spoil_;
  const std::uint16_t target_;
  int listener_;
  std::uint16_t port_ = 0;
  std::string seen_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

std::unique_ptr<TcpMeeting> meeting_of(int rank, const std::shared_ptr<const TlsKey>& tls,
                                       const std::string& secret = "secret") {
  TcpMeetingOptions options;
  options.rank = rank;
  options.num_ranks = 2;
  options.cluster_id = 42;
  options.secret = secret;
  options.tls = tls;
  return std::make_unique<TcpMeeting>(options);
}

std::string announcement(std::uint16_t port) {
  return WireWriter().number(port).text("127.0.0.1").number(std::uint32_t{0}).take();
}

void meet(TcpMeeting& meeting, int other, const Deadline& deadline) {
  const std::vector<int> peers = {other};
  meeting.meet(peers, deadline, [] { return false; });
}

/// Rank 0 and rank 1 look for each other in vain, for a moment.
void meet_in_vain(TcpMeeting& dialler, TcpMeeting& listener) {
  dialler.learn(1, listener.announcement(), true);
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(300));
  std::thread listening([&] { meet(listener, 0, deadline); });
  meet(dialler, 1, deadline);
  listening.join();
  EXPECT_TRUE(dialler.take_connected().empty());
  EXPECT_TRUE(listener.take_connected().empty());
}

/// A tensor from rank 0 to rank 1 through `relay`; what came.
Bytes carry_tensor(TcpMeeting& dialler, TcpMeeting& listener, const Bytes& tensor) {
  std::thread listening([&] { meet(listener, 0, soon()); });
  meet(dialler, 1, soon());
  listening.join();
  auto out = dialler.take_connected();
  auto in = listener.take_connected();
  if (out.size() != 1 || in.size() != 1) return {};
  TcpConnection from(out[0].socket, std::move(out[0].tls));
  TcpConnection to(in[0].socket, std::move(in[0].tls));
  TcpHead head;
  head.payload_size = static_cast<std::uint32_t>(tensor.size());
  head.size = tensor.size();
  from.begin_frame(head);
  Bytes came(tensor.size());
  std::size_t num_came = 0;
  const Deadline deadline = soon();
  while (num_came < came.size() && !deadline.has_passed()) {
    std::size_t count = 0;
    if (from.is_in_frame()) {
      (void)from.push(tensor.data() + (tensor.size() - from.num_left()), false, count);
    }
    if (to.head() == nullptr) {
      (void)to.read({}, TcpConnection::kAsMuchAsThereIs, count);
      continue;
    }
    const std::span<const std::byte> ahead = to.ahead();
    std::copy(ahead.begin(), ahead.end(), came.begin() + static_cast<std::ptrdiff_t>(num_came));
    num_came += ahead.size();
    to.skip(ahead.size());
    (void)to.read(std::span(came).subspan(num_came), TcpConnection::kAsMuchAsThereIs, count);
    num_came += count;
  }
  return came;
}

bool shows(const std::string& seen, const Bytes& tensor) {
  return seen.find(std::string(reinterpret_cast<const char*>(tensor.data()) + 1000, 16)) !=
         std::string::npos;
}

TEST(TlsWireTest, ATensorIsOnTheWireOnlyWhereNothingIsEncrypted) {
  const Bytes tensor = pattern(200000, 7);
  for (const bool is_encrypted : {false, true}) {
    const auto key = is_encrypted ? TlsKey::make("secret") : nullptr;
    const auto listener = meeting_of(1, key);
    Relay relay(listener->port());
    const auto dialler = meeting_of(0, key);
    dialler->learn(1, announcement(relay.port()), true);
    EXPECT_TRUE(carry_tensor(*dialler, *listener, tensor) == tensor);
    const std::string& seen = relay.end();
    EXPECT_GT(seen.size(), tensor.size());
    EXPECT_EQ(shows(seen, tensor), !is_encrypted);
    EXPECT_EQ(seen.find("xdevtcp3") != std::string::npos, !is_encrypted);
  }
}

TEST(TlsWireTest, AChangedTensorIsNotTaken) {
  const Bytes tensor = pattern(200000, 7);
  for (const bool is_encrypted : {false, true}) {
    const auto key = is_encrypted ? TlsKey::make("secret") : nullptr;
    const auto listener = meeting_of(1, key);
    Relay relay(listener->port(), 100000);
    const auto dialler = meeting_of(0, key);
    dialler->learn(1, announcement(relay.port()), true);
    if (is_encrypted) {
      EXPECT_THROW((void)carry_tensor(*dialler, *listener, tensor), TlsError);
    } else {
      EXPECT_FALSE(carry_tensor(*dialler, *listener, tensor) == tensor);
    }
  }
}

TEST(TlsWireTest, MembersThatDoNotAgreeAreNamedOnBothSides) {
  for (const bool is_dialler_encrypted : {false, true}) {
    const LogKeeper log;
    const auto key = TlsKey::make("secret");
    const auto listener = meeting_of(1, is_dialler_encrypted ? nullptr : key);
    const auto dialler = meeting_of(0, is_dialler_encrypted ? key : nullptr);
    meet_in_vain(*dialler, *listener);
    EXPECT_THAT(dialler->last_error(1),
                HasSubstr(is_dialler_encrypted ? kTlsOnlyHere : kTlsOnlyThere));
    EXPECT_THAT(log.texts(), HasSubstr(is_dialler_encrypted ? kTlsOnlyThere : kTlsOnlyHere));
  }
}

TEST(TlsWireTest, AnotherSecretIsRefused) {
  const LogKeeper log;
  const auto listener = meeting_of(1, TlsKey::make("guessed"), "guessed");
  const auto dialler = meeting_of(0, TlsKey::make("secret"));
  meet_in_vain(*dialler, *listener);
  EXPECT_THAT(dialler->last_error(1), HasSubstr("it does not hold the secret of this job"));
  EXPECT_THAT(log.texts(), HasSubstr("it does not hold the secret of this job"));
}

/// A member whose hello is overtaken by strangers who begin TLS and stall.
TEST(TlsWireTest, StrangersWhoStallInTheHandshakeKeepNobodyOut) {
  const LogKeeper log;
  const auto key = TlsKey::make("secret");
  const auto listener = meeting_of(1, key);
  const auto dialler = meeting_of(0, key);
  dialler->learn(1, listener->announcement(), true);
  TlsChannel template_channel(key, TlsChannel::Role::DIALLER, kTcpGreeting);
  template_channel.shake_hands();
  const std::span<const std::byte> hello = template_channel.outgoing();
  std::vector<int> strangers;
  for (int i = 0; i < 200; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(listener->port());
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    (void)::send(fd, hello.data(), i % 2 == 0 ? hello.size() : hello.size() / 2, MSG_NOSIGNAL);
    strangers.push_back(fd);
  }
  const Bytes tensor = pattern(5000, 7);
  EXPECT_TRUE(carry_tensor(*dialler, *listener, tensor) == tensor);
  for (const int each : strangers) ::close(each);
}

}  // namespace
}  // namespace crossdevice::detail
