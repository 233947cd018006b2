// SPDX-License-Identifier: Apache-2.0
// Real sockets in real namespaces. What becomes of each packet, and when, is link_traffic_test.cc's; here, that the policies are those of these links.
#include "chaos/link_relay.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/network_namespace.h"

namespace crossdevice::chaos {
namespace {

using run::Descriptor;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::uint16_t kPort = 4000;
/// Sent before any of them is received: less than any queue on the way holds.
constexpr std::uint32_t kLot = 100;

sockaddr_in address_of(int host, std::uint16_t port = kPort) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, LinkRelay::address(host).c_str(), &address.sin_addr);
  return address;
}

/// Of a host.
Descriptor socket_at(const LinkRelay& relay, int host, int type, bool waits = true) {
  const run::NetworkExcursion excursion;
  run::enter_network_namespace(relay.descriptor(host));
  const int flags = waits ? 0 : SOCK_NONBLOCK;
  Descriptor socket(::socket(AF_INET, type | SOCK_CLOEXEC | flags, 0));
  const sockaddr_in own = address_of(host);
  const int large = 4 << 20;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUFFORCE, &large, sizeof(large));
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof(large));
  if (type == SOCK_DGRAM || !waits) {
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
  }
  return socket;
}

/// A host that sends and receives numbered datagrams.
class Talker {
 public:
  Talker(const LinkRelay& relay, int host) : socket_(socket_at(relay, host, SOCK_DGRAM)) {}

  void send(int to, std::uint32_t number, std::size_t size = 1000) {
    std::vector<std::byte> bytes(size, std::byte{0x5A});
    std::memcpy(bytes.data(), &number, sizeof(number));
    const sockaddr_in address = address_of(to);
    EXPECT_EQ(::sendto(socket_.get(), bytes.data(), size, 0,
                       reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              static_cast<ssize_t>(size))
        << std::strerror(errno);  // NOLINT(concurrency-mt-unsafe)
  }
  /// The next one; fails after a long while.
  std::uint32_t receive() {
    constexpr int kLongMilliseconds = 30'000;
    pollfd waited{socket_.get(), POLLIN, 0};
    if (::poll(&waited, 1, kLongMilliseconds) != 1) {
      ADD_FAILURE() << "nothing comes";
      return ~0U;
    }
    std::array<std::byte, 2000> bytes{};
    const ssize_t size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    std::uint32_t number = ~0U;
    if (size >= static_cast<ssize_t>(sizeof(number)))
      std::memcpy(&number, bytes.data(), sizeof(number));
    for (ssize_t i = sizeof(number); i < size; ++i) {
      EXPECT_EQ(bytes[static_cast<std::size_t>(i)], std::byte{0x5A});
    }
    return number;
  }
  /// Those before `last`, which has been sent behind them.
  std::vector<std::uint32_t> receive_until(std::uint32_t last) {
    std::vector<std::uint32_t> numbers;
    for (;;) {
      const std::uint32_t number = receive();
      if (number == last || number == ~0U) return numbers;
      numbers.push_back(number);
    }
  }

 private:
  Descriptor socket_;
};

constexpr std::uint32_t kLast = 1'000'000;

class LinkRelayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = LinkRelay::obstacle();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

TEST(LinkRelayObstacleTest, WithoutRootItSaysWhatItNeeds) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    ::_exit(LinkRelay::obstacle() == "a network namespace needs root (CAP_SYS_ADMIN)" ? 0 : 1);
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(LinkRelayTest, WithoutAPolicyEverythingArrivesInOrder) {
  LinkRelay relay(3, 1);
  std::vector<Talker> hosts;
  hosts.reserve(3);
  for (int host = 0; host < 3; ++host) hosts.emplace_back(relay, host);
  for (std::uint32_t lot = 0; lot < 10; ++lot) {
    for (std::uint32_t i = 0; i < kLot; ++i)
      hosts[0].send(1 + static_cast<int>(lot % 2), lot * kLot + i);
    for (std::uint32_t i = 0; i < kLot; ++i) {
      ASSERT_EQ(hosts[1 + lot % 2].receive(), lot * kLot + i);
    }
  }
  for (const std::size_t size : {4U, 5U, 1471U, 1472U}) {  // of which the last just fits a packet
    hosts[2].send(0, 7, size);
    EXPECT_EQ(hosts[0].receive(), 7U);
  }
}

TEST_F(LinkRelayTest, EveryHostReachesEveryOther) {
  constexpr int kHosts = 8;
  LinkRelay relay(kHosts, 1);
  std::vector<Talker> hosts;
  hosts.reserve(kHosts);
  for (int host = 0; host < kHosts; ++host) hosts.emplace_back(relay, host);
  for (int from = 0; from < kHosts; ++from) {
    for (int to = 0; to < kHosts; ++to) {
      hosts[static_cast<std::size_t>(from)].send(to,
                                                 static_cast<std::uint32_t>(from * kHosts + to));
      EXPECT_EQ(hosts[static_cast<std::size_t>(to)].receive(),
                static_cast<std::uint32_t>(from * kHosts + to));
    }
  }
}

TEST_F(LinkRelayTest, LosesAboutAsManyAsItIsTold) {
  constexpr std::uint32_t kLots = 40;
  LinkRelay relay(2, 1);
  Talker a(relay, 0);
  Talker b(relay, 1);
  std::size_t num_arrived = 0;
  for (std::uint32_t lot = 0; lot < kLots; ++lot) {
    relay.set(1, {.lost = 0.2});
    for (std::uint32_t i = 0; i < kLot; ++i) a.send(1, i);
    relay.set(1, {});
    a.send(1, kLast);
    num_arrived += b.receive_until(kLast).size();
  }
  EXPECT_NEAR(static_cast<double>(num_arrived), 0.8 * kLots * kLot, 150);
  EXPECT_EQ(relay.counts(1).lost, kLots * kLot - num_arrived);
}

TEST_F(LinkRelayTest, ADelayIsNoLessThanItIsTold) {
  LinkRelay relay(2, 1);
  Talker a(relay, 0);
  Talker b(relay, 1);
  relay.set(0, {.delay = milliseconds(60)});
  const Clock::time_point begun = Clock::now();
  a.send(1, 1);
  EXPECT_EQ(b.receive(), 1U);
  EXPECT_GE(Clock::now() - begun, milliseconds(60));
  b.send(0, 2);
  EXPECT_EQ(a.receive(), 2U);
  EXPECT_GE(Clock::now() - begun, milliseconds(120));
}

TEST_F(LinkRelayTest, SomeComeTwice) {
  LinkRelay relay(2, 1);
  Talker a(relay, 0);
  Talker b(relay, 1);
  relay.set(0, {.doubled = 0.5});
  for (std::uint32_t i = 0; i < kLot; ++i) a.send(1, i);
  relay.set(0, {});
  a.send(1, kLast);
  const std::vector<std::uint32_t> numbers = b.receive_until(kLast);
  const std::uint64_t num_doubled = relay.counts(0).doubled;
  EXPECT_GT(num_doubled, 20U);
  EXPECT_EQ(numbers.size(), kLot + num_doubled);
  EXPECT_EQ(std::set<std::uint32_t>(numbers.begin(), numbers.end()).size(), kLot);
}

TEST_F(LinkRelayTest, SomeComeLate) {
  LinkRelay relay(2, 1);
  Talker a(relay, 0);
  Talker b(relay, 1);
  relay.set(0, {.late = 0.5});
  std::multiset<std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < kLot; ++i) a.send(1, i);
  for (std::uint32_t i = 0; i < kLot; ++i) numbers.insert(b.receive());
  EXPECT_EQ(std::set<std::uint32_t>(numbers.begin(), numbers.end()).size(), kLot);
  EXPECT_GT(relay.counts(0).late, 20U);
}

TEST_F(LinkRelayTest, ARateIsNoMoreThanItIsTold) {
  constexpr std::uint64_t kRate = 250'000;  // bytes in a second
  LinkRelay relay(2, 1);
  Talker a(relay, 0);
  Talker b(relay, 1);
  relay.set(0, {.bytes_per_second = kRate});
  const Clock::time_point begun = Clock::now();
  std::uint64_t num_bytes = 0;
  for (std::uint32_t i = 0; i < 60; ++i) {
    a.send(1, i);
    EXPECT_EQ(b.receive(), i);
    num_bytes += 1028;  // with the heads of IP and UDP
  }
  const std::chrono::duration<double> time = Clock::now() - begun;
  EXPECT_GE(time.count(), static_cast<double>(num_bytes - LinkTraffic::kBurstBytes) / kRate);
}

TEST_F(LinkRelayTest, DownMeansNothingAndUpAgainGoesOn) {
  LinkRelay relay(3, 1);
  Talker a(relay, 0);
  Talker b(relay, 1);
  Talker c(relay, 2);
  a.send(1, 1);
  EXPECT_EQ(b.receive(), 1U);
  relay.set(1, {.sends = false, .receives = false});
  for (std::uint32_t i = 0; i < kLot; ++i) a.send(1, 10 + i);
  b.send(0, 2);
  a.send(2, 3);  // another link
  EXPECT_EQ(c.receive(), 3U);
  c.send(0, 4);
  EXPECT_EQ(a.receive(), 4U);
  relay.set(1, {});
  a.send(1, 5);
  b.send(0, 6);
  EXPECT_EQ(b.receive(), 5U);
  EXPECT_EQ(a.receive(), 6U);
}

TEST_F(LinkRelayTest, TwoHostsMayBeParted) {
  LinkRelay relay(3, 1);
  Talker a(relay, 0);
  Talker b(relay, 1);
  Talker c(relay, 2);
  relay.set_between(0, 1, false);
  a.send(1, 1);
  b.send(0, 2);
  a.send(2, 3);
  b.send(2, 4);
  EXPECT_EQ(c.receive() + c.receive(), 7U);
  relay.set_between(0, 1, true);
  a.send(1, 5);
  b.send(0, 6);
  EXPECT_EQ(b.receive(), 5U);
  EXPECT_EQ(a.receive(), 6U);
}

TEST_F(LinkRelayTest, AStreamStaysWhatItIsWhateverHappensToItsPackets) {
  LinkRelay relay(2, 1);
  const Descriptor listener = socket_at(relay, 0, SOCK_STREAM, /*waits=*/false);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const auto byte_at = [](std::size_t i) { return static_cast<std::uint8_t>(i * 31 + i / 4096); };
  const pid_t sender = ::fork();
  if (sender == 0) {
    const Descriptor socket = socket_at(relay, 1, SOCK_STREAM);
    const sockaddr_in there = address_of(0);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there), sizeof(there)) != 0)
      ::_exit(1);
    std::vector<std::uint8_t> bytes(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) bytes[i] = byte_at(i);
    for (std::size_t sent = 0; sent < kBytes;) {
      const ssize_t count = ::send(socket.get(), bytes.data() + sent, kBytes - sent, MSG_NOSIGNAL);
      if (count <= 0) ::_exit(2);
      sent += static_cast<std::size_t>(count);
    }
    ::_exit(0);
  }
  relay.set(1, {.lost = 0.03, .delay = milliseconds(1), .late = 0.05, .doubled = 0.05});
  pollfd waited{listener.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&waited, 1, 60'000), 1);
  const Descriptor socket(::accept(listener.get(), nullptr, nullptr));
  std::vector<std::uint8_t> bytes(65536);
  std::size_t received = 0;
  for (;;) {
    waited = {socket.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&waited, 1, 60'000), 1) << received;
    const ssize_t count = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    ASSERT_GE(count, 0);
    if (count == 0) break;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      ASSERT_EQ(bytes[i], byte_at(received + i)) << received + i;
    }
    received += static_cast<std::size_t>(count);
  }
  EXPECT_EQ(received, kBytes);
  const LinkCounts counts = relay.counts(1);
  EXPECT_GT(counts.lost, 0U);
  EXPECT_GT(counts.late, 0U);
  EXPECT_GT(counts.doubled, 0U);
  int status = -1;
  ::waitpid(sender, &status, 0);
  EXPECT_EQ(status, 0);
}

std::set<std::string> own_devices() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/net")) {
    names.insert(entry.path().filename());
  }
  return names;
}

std::size_t num_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST_F(LinkRelayTest, NothingIsLeftAndNothingIsSeenOutside) {
  const std::set<std::string> devices = own_devices();
  const std::size_t descriptors = num_descriptors();
  const std::string home = std::filesystem::read_symlink("/proc/self/ns/net");
  pid_t process = 0;
  {
    const LinkRelay relay(4, 1);
    process = relay.process();
    EXPECT_EQ(own_devices(), devices);
    EXPECT_EQ(::kill(process, 0), 0);
    EXPECT_EQ(std::filesystem::read_symlink("/proc/self/ns/net"), home);
  }
  EXPECT_EQ(own_devices(), devices);
  EXPECT_EQ(num_descriptors(), descriptors);
  EXPECT_EQ(::kill(process, 0), -1);
}

TEST_F(LinkRelayTest, ADeadRelayIsToldOf) {
  LinkRelay relay(2, 1);
  ASSERT_EQ(::kill(relay.process(), SIGKILL), 0);
  EXPECT_THROW(relay.set(0, {}), std::runtime_error);
}

TEST_F(LinkRelayTest, SomeNumbersOfHostsCannotBe) {
  EXPECT_THROW(LinkRelay(0, 1), std::runtime_error);
  EXPECT_THROW(LinkRelay(LinkRelay::kMaxHosts + 1, 1), std::runtime_error);
  const LinkRelay one(1, 1);
  EXPECT_GE(one.descriptor(0), 0);
}

}  // namespace
}  // namespace crossdevice::chaos
