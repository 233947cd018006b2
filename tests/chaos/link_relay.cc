// SPDX-License-Identifier: Apache-2.0
#include "chaos/link_relay.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/network_namespace.h"
#include "run/system_error.h"

namespace crossdevice::chaos {
namespace {

using run::Descriptor;
using run::system_failure;

constexpr const char* kTunFile = "/dev/net/tun";
/// Packets that wait for the relay to be given a core; the kernel's 500 are few where there are more processes than cores.
constexpr int kDeviceQueue = 10'000;
constexpr std::size_t kMaxPacketBytes = 65536;
/// Read from one device before the next one's turn.
constexpr int kTurnPackets = 64;
/// The relay is the network, which is not slower where its hosts have much to do.
constexpr int kNiceness = -10;
constexpr std::array<std::uint8_t, 3> kNetwork = {10, 200, 0};

enum class Wish : std::uint8_t { COUNTS, POLICY, CARRY, PART };

/// What the relay's process is asked for; it always answers with the host's counts.
struct Question {
  Wish wish = Wish::COUNTS;
  int host = 0;
  int other = 0;  // CARRY, PART
  LinkPolicy policy{};
};
static_assert(std::is_trivially_copyable_v<Question> && std::is_trivially_copyable_v<LinkCounts>);

// ---------------------------------------------------------------------------------------------- devices

ifreq request_of(const char* device) {
  ifreq request{};
  std::strncpy(static_cast<char*>(request.ifr_name), device, IFNAMSIZ - 1);
  return request;
}

void control(int fd, unsigned long what, ifreq& request, const char* purpose) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): that is how the system has it
  if (::ioctl(fd, what, &request) != 0) throw system_failure(purpose);
}

void set_address(int fd, unsigned long what, const std::string& text, const char* purpose) {
  ifreq request = request_of(LinkRelay::kInterface);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, text.c_str(), &address.sin_addr);
  std::memcpy(&request.ifr_addr, &address, sizeof(address));
  control(fd, what, request, purpose);
}

void bring_up(int fd, const char* device) {
  ifreq request = request_of(device);
  control(fd, SIOCGIFFLAGS, request, "read a device's flags");
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP | IFF_RUNNING);
  control(fd, SIOCSIFFLAGS, request, "bring a device up");
}

Descriptor open_tun() {
  Descriptor tun(::open(kTunFile, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!tun.is_open()) throw system_failure(std::string("open ") + kTunFile);
  ifreq request = request_of(LinkRelay::kInterface);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  control(tun.get(), TUNSETIFF, request, "make a TUN device");
  return tun;
}

/// In the calling thread's namespace: the device with its address, and the loopback.
Descriptor make_device(int host) {
  Descriptor tun = open_tun();
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) throw system_failure("make a socket");
  bring_up(socket.get(), "lo");
  ifreq queue = request_of(LinkRelay::kInterface);
  queue.ifr_qlen = kDeviceQueue;
  control(socket.get(), SIOCSIFTXQLEN, queue, "set a device's queue");
  set_address(socket.get(), SIOCSIFADDR, LinkRelay::address(host), "give a device its address");
  set_address(socket.get(), SIOCSIFNETMASK, "255.255.255.0", "give a device its network");
  bring_up(socket.get(), LinkRelay::kInterface);
  return tun;
}

/// The host that a packet is for; nothing: for no host, as what IPv6 asks its neighbours, which nobody here has.
std::optional<int> destination(std::span<const std::byte> packet, int num_hosts) {
  constexpr std::size_t kMinHeadBytes = 20;
  constexpr std::size_t kDestination = 16;
  if (packet.size() < kMinHeadBytes || std::to_integer<int>(packet[0]) >> 4 != 4) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < kNetwork.size(); ++i) {
    if (std::to_integer<std::uint8_t>(packet[kDestination + i]) != kNetwork[i]) return std::nullopt;
  }
  const int host = std::to_integer<int>(packet[kDestination + kNetwork.size()]) - 1;
  if (host < 0 || host >= num_hosts) return std::nullopt;
  return host;
}

// ---------------------------------------------------------------------------------------------- the process

class Relay {
 public:
  Relay(std::vector<Descriptor> devices, Descriptor control, std::uint64_t seed)
      : devices_(std::move(devices)),
        control_(std::move(control)),
        traffic_(static_cast<int>(devices_.size()), seed) {
    polled_.reserve(devices_.size() + 1);
    for (const Descriptor& device : devices_) polled_.push_back({device.get(), POLLIN, 0});
    polled_.push_back({control_.get(), POLLIN, 0});
  }

  /// Until nobody asks any more.
  void run() {
    for (;;) {
      deliver();
      wait();
      if (polled_.back().revents != 0 && !answer()) return;
      for (std::size_t host = 0; host < devices_.size(); ++host) {
        if (polled_[host].revents != 0) take(static_cast<int>(host), kTurnPackets);
      }
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void wait() {
    timespec time{};
    const std::optional<LinkTraffic::Time> next = traffic_.next();
    if (next.has_value()) {
      const auto left = std::max<std::chrono::nanoseconds>(*next - Clock::now(), {});
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
      time = {.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
    }
    (void)::ppoll(polled_.data(), polled_.size(), next.has_value() ? &time : nullptr, nullptr);
  }

  void deliver() {
    const Clock::time_point now = Clock::now();
    while (const std::optional<LinkTraffic::Arrival> arrival = traffic_.arrival(now)) {
      const Descriptor& device = devices_[static_cast<std::size_t>(arrival->to)];
      // What the system does not take is lost, as in any network.
      (void)!::write(device.get(), arrival->bytes.data(), arrival->bytes.size());
    }
  }

  void take(int from, int max_packets) {
    for (int i = 0; i < max_packets; ++i) {
      const ssize_t size =
          ::read(devices_[static_cast<std::size_t>(from)].get(), buffer_.data(), buffer_.size());
      if (size <= 0) return;
      const std::span<const std::byte> packet(buffer_.data(), static_cast<std::size_t>(size));
      const std::optional<int> to = destination(packet, static_cast<int>(devices_.size()));
      if (to.has_value()) traffic_.send(from, *to, packet, Clock::now());
    }
  }

  bool answer() {
    Question question;
    if (::recv(control_.get(), &question, sizeof(question), 0) != sizeof(question)) return false;
    if (question.wish != Wish::COUNTS) {
      // What was sent before has the policy of before.
      for (std::size_t host = 0; host < devices_.size(); ++host) {
        take(static_cast<int>(host), kDeviceQueue);
      }
      deliver();
    }
    if (question.wish == Wish::POLICY) traffic_.set(question.host, question.policy);
    if (question.wish == Wish::CARRY) traffic_.set_between(question.host, question.other, true);
    if (question.wish == Wish::PART) traffic_.set_between(question.host, question.other, false);
    const LinkCounts& counts = traffic_.counts(question.host);
    return ::send(control_.get(), &counts, sizeof(counts), MSG_NOSIGNAL) == sizeof(counts);
  }

  std::vector<Descriptor> devices_;
  Descriptor control_;
  LinkTraffic traffic_;
  std::vector<pollfd> polled_;
  std::array<std::byte, kMaxPacketBytes> buffer_{};
};

[[noreturn]] void become_relay(std::vector<Descriptor> devices, Descriptor control,
                               std::uint64_t seed) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)::setpriority(PRIO_PROCESS, 0, kNiceness);
  try {
    Relay(std::move(devices), std::move(control), seed).run();
  } catch (const std::exception&) {
    ::_exit(1);
  }
  ::_exit(0);
}

LinkCounts ask(int control, const Question& question) {
  LinkCounts counts;
  if (::send(control, &question, sizeof(question), MSG_NOSIGNAL) != sizeof(question) ||
      ::recv(control, &counts, sizeof(counts), 0) != sizeof(counts)) {
    throw std::runtime_error("the relay of links has died");
  }
  return counts;
}

}  // namespace

std::string LinkRelay::address(int host) {
  return fmt::format("{}.{}.{}.{}", kNetwork[0], kNetwork[1], kNetwork[2], host + 1);
}

std::string LinkRelay::obstacle() {
  try {
    const run::NetworkExcursion excursion;
    const Descriptor there = run::new_network_namespace("a network namespace");
    (void)open_tun();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

LinkRelay::LinkRelay(int num_hosts, std::uint64_t seed) {
  if (num_hosts < 1 || num_hosts > kMaxHosts) {
    throw std::runtime_error(fmt::format("{} hosts, not 1 to {}", num_hosts, kMaxHosts));
  }
  std::vector<Descriptor> devices;
  devices.reserve(static_cast<std::size_t>(num_hosts));
  namespaces_.reserve(static_cast<std::size_t>(num_hosts));
  {
    const run::NetworkExcursion excursion;
    for (int host = 0; host < num_hosts; ++host) {
      namespaces_.push_back(run::new_network_namespace("a network namespace"));
      devices.push_back(make_device(host));
    }
  }
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw system_failure("make a pair of sockets");
  }
  control_ = Descriptor(ends[0]);
  Descriptor theirs(ends[1]);
  process_ = ::fork();
  if (process_ < 0) throw system_failure("start the relay of links");
  if (process_ == 0) {
    control_.reset();  // with the last of it the process ends
    namespaces_.clear();
    become_relay(std::move(devices), std::move(theirs), seed);
  }
}

LinkRelay::~LinkRelay() {
  (void)::kill(process_, SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void LinkRelay::set(int host, const LinkPolicy& policy) {
  (void)ask(control_.get(), {.wish = Wish::POLICY, .host = host, .policy = policy});
}

void LinkRelay::set_between(int a, int b, bool carries) {
  (void)ask(control_.get(), {.wish = carries ? Wish::CARRY : Wish::PART, .host = a, .other = b});
}

LinkCounts LinkRelay::counts(int host) { return ask(control_.get(), {.host = host}); }

}  // namespace crossdevice::chaos
