// SPDX-License-Identifier: Apache-2.0
// Workers that have nothing but IPv6: they meet, reduce, and go on among themselves when one has left.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/fake_remote_shell.h"
#include "bench/namespace_obstacle.h"
#include "bench/running_job.h"
#include "run/network_namespaces.h"

namespace crossdevice::run {
namespace {

/// What the workers print, in order.
std::vector<std::string> lines_of_workers(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t close = line.find("] ");  // of the rank that crossdevice-run puts in front
    lines.push_back(close == std::string::npos ? line : line.substr(close + 2));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> expected_lines(int workers) {
  std::vector<std::string> lines(
      static_cast<std::size_t>(workers) - 1,
      fmt::format("{} workers: 0 wrong; {} left: 0 wrong", workers, workers - 1));
  lines.push_back(fmt::format("{} workers: 0 wrong; leaves", workers));
  return lines;
}

/// Hosts with a network of their own, "fd77::1" and so on, that have no IPv4 address but loopback's.
class Ipv6Hosts {
 public:
  explicit Ipv6Hosts(int count) : namespaces_(count, "", AddressFamily::IPV6) {
    const std::string begin = fmt::format("{}ipv6_namespace_{}_", ::testing::TempDir(), ::getpid());
    for (int i = 0; i < count; ++i) {
      const std::string name = NetworkNamespaces::address(i, AddressFamily::IPV6);
      std::filesystem::create_symlink(
          fmt::format("/proc/{}/fd/{}", ::getpid(), namespaces_.descriptor(i)), begin + name);
      links_.push_back(begin + name);
      list_ += fmt::format("{}[{}]:1", i == 0 ? "" : ",", name);
    }
    shell_.emplace(fmt::format("nsenter --net={}$host", begin));
  }
  ~Ipv6Hosts() {
    for (const std::string& link : links_) ::unlink(link.c_str());
  }
  Ipv6Hosts(const Ipv6Hosts&) = delete;
  Ipv6Hosts& operator=(const Ipv6Hosts&) = delete;

  /// For crossdevice-run.
  [[nodiscard]] std::vector<std::string> on(const std::vector<std::string>& command) const {
    std::vector<std::string> arguments{"--hosts",      list_,          "--remote-shell",
                                       shell_->path(), "--keep-going", "--"};
    arguments.insert(arguments.end(), command.begin(), command.end());
    return arguments;
  }

 private:
  NetworkNamespaces namespaces_;
  std::optional<FakeRemoteShell> shell_;
  std::vector<std::string> links_;
  std::string list_;
};

class Ipv6NamespacesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = ipv6_namespace_obstacle();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(Ipv6NamespacesTest, HostsHaveNoIPv4AddressThatOthersSee) {
  const Ipv6Hosts hosts(2);
  RunningJob job(hosts.on({"sh", "-c",
                           "echo $(ip -o -4 addr show dev eth0 | wc -l) "
                           "$(ip -o -6 addr show dev eth0 scope global | grep -c \"$HERE/64\") "
                           "${CROSSDEVICE_CHIEF_ADDRESS%:*}"}));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(lines_of_workers(job.out), std::vector<std::string>(2, "0 1 [fd77::1]"));
}

TEST_F(Ipv6NamespacesTest, WorkersSumAndGoOnWhenOneHasLeft) {
  for (const int workers : {2, 3}) {
    const Ipv6Hosts hosts(workers);
    for (const int leaving : {0, workers - 1}) {  // the chief's successor must be found, too
      RunningJob job(hosts.on({CROSSDEVICE_LEAVING_WORKER, std::to_string(leaving)}));
      EXPECT_EQ(job.finish(), 0) << job.err;
      EXPECT_EQ(lines_of_workers(job.out), expected_lines(workers)) << job.err;
    }
  }
}

/// A port of [::1] that the kernel gives nobody else.
class LoopbackPort {
 public:
  LoopbackPort() : socket_(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    socklen_t size = sizeof address;
    if (::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
        ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
      number_ = ntohs(address.sin6_port);
    }
  }
  ~LoopbackPort() {
    if (socket_ >= 0) ::close(socket_);
  }
  LoopbackPort(const LoopbackPort&) = delete;
  LoopbackPort& operator=(const LoopbackPort&) = delete;

  /// 0: this machine has no such address.
  [[nodiscard]] int number() const { return number_; }

 private:
  int socket_;
  int number_ = 0;
};

/// Workers of one machine that take themselves for several, so that they talk over TCP. `shell`: the program that runs a script; `before`: the script's first lines.
void sum_on_loopback(const std::vector<std::string>& shell, const std::string& before, int port) {
  for (const int workers : {2, 3}) {
    for (const int leaving : {0, workers - 1}) {
      std::string script =
          fmt::format("{}export CROSSDEVICE_NUM_WORKERS={} CROSSDEVICE_CHIEF_ADDRESS=[::1]:{}\n",
                      before, workers, port);
      for (int rank = 0; rank < workers; ++rank) {
        script += fmt::format("CROSSDEVICE_RANK={0} CROSSDEVICE_HOST_ID={0} \"$0\" {1} &\n", rank,
                              leaving);
      }
      std::vector<std::string> command = shell;
      for (const std::string& word : {std::string("-c"), script + "wait"}) command.push_back(word);
      command.emplace_back(CROSSDEVICE_LEAVING_WORKER);
      RunningJob job(command, "/usr/bin/env");
      EXPECT_EQ(job.finish(), 0) << job.err;
      EXPECT_EQ(lines_of_workers(job.out), expected_lines(workers)) << job.err;
    }
  }
}

TEST(Ipv6LoopbackTest, WorkersMeetThereAndGoOnWhenOneHasLeft) {
  const LoopbackPort port;
  if (port.number() == 0) GTEST_SKIP() << "this machine has no address ::1";
  sum_on_loopback({"sh"}, "", port.number());
}

/// Their tensors go over ::1, too.
TEST_F(Ipv6NamespacesTest, LoopbackWithoutAnIPv4AddressWillDo) {
  sum_on_loopback({"unshare", "-n", "sh"},
                  "ip link set lo up || exit 1\nip addr del 127.0.0.1/8 dev lo || exit 1\n", 61440);
}

}  // namespace
}  // namespace crossdevice::run
