// SPDX-License-Identifier: Apache-2.0
// crossdevice-run --netns: workers on hosts of their own, which see each other and nothing else, and nothing is left.
#include "run/network_namespaces.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/namespace_obstacle.h"
#include "bench/running_job.h"
#include "run/layout.h"

namespace crossdevice::run {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class NetworkNamespacesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = namespace_obstacle();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

std::vector<std::string> shell(int workers, int namespaces, const std::string& script,
                               const std::vector<std::string>& options = {}) {
  std::vector<std::string> arguments{"-n", std::to_string(workers), "--netns",
                                     std::to_string(namespaces)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  for (const char* word : {"--", "sh", "-c"}) arguments.emplace_back(word);
  arguments.push_back(script);
  return arguments;
}

/// What each rank printed, of one line each.
std::map<int, std::string> line_of_rank(const std::string& out) {
  std::map<int, std::string> lines;
  std::istringstream stream(out);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t close = line.find("] ");
    lines[std::stoi(line.substr(1, close))] = line.substr(close + 2);
  }
  return lines;
}

/// Runs the body as a process without rights and returns what the exception says that it throws.
std::string refusal_without_root() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::string text = "no refusal";
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
    try {
      const NetworkNamespaces namespaces(1, "");
    } catch (const std::exception& error) {
      text = error.what();
    }
    ::_exit(::write(ends[1], text.data(), text.size()) > 0 ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text(1000, '\0');
  const ssize_t count = ::read(ends[0], text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  ::close(ends[0]);
  ::waitpid(pid, nullptr, 0);
  return text;
}

/// The devices of the namespace this test runs in.
std::set<std::string> own_devices() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/net")) {
    names.insert(entry.path().filename());
  }
  return names;
}

TEST(NetworkNamespacesRefusalTest, WithoutRootItSaysWhatItNeeds) {
  EXPECT_EQ(refusal_without_root(), "--netns needs root (CAP_SYS_ADMIN)");
}

TEST(LayoutTest, WorkersAreDealtInBlocks) {
  for (int workers = 1; workers <= 17; ++workers) {
    for (int hosts = 1; hosts <= workers; ++hosts) {
      std::vector<std::vector<int>> of_host(static_cast<std::size_t>(hosts));
      int last_host = 0;
      for (int rank = 0; rank < workers; ++rank) {
        const HostPlace place = place_on_host(rank, workers, hosts);
        ASSERT_GE(place.host, last_host);
        ASSERT_LT(place.host, hosts);
        last_host = place.host;
        std::vector<int>& ranks = of_host[static_cast<std::size_t>(place.host)];
        EXPECT_EQ(place.local_rank, static_cast<int>(ranks.size()));
        ranks.push_back(place.local_num_workers);
      }
      for (const std::vector<int>& ranks : of_host) {
        EXPECT_THAT(ranks, Each(static_cast<int>(ranks.size())));
        EXPECT_GE(static_cast<int>(ranks.size()), workers / hosts);
        EXPECT_LE(static_cast<int>(ranks.size()), (workers + hosts - 1) / hosts);
      }
    }
  }
}

TEST_F(NetworkNamespacesTest, WorkersAreOnHostsOfTheirOwn) {
  RunningJob job(shell(5, 2, "echo $(readlink /proc/self/ns/net)"));
  EXPECT_EQ(job.finish(), 0) << job.err;
  const std::map<int, std::string> where = line_of_rank(job.out);
  ASSERT_EQ(where.size(), 5U);
  EXPECT_EQ(where.at(0), where.at(1));
  EXPECT_EQ(where.at(0), where.at(2));
  EXPECT_NE(where.at(0), where.at(3));
  EXPECT_EQ(where.at(3), where.at(4));
  const std::string here = std::filesystem::read_symlink("/proc/self/ns/net");
  EXPECT_NE(where.at(0), here);
  EXPECT_NE(where.at(3), here);
}

TEST_F(NetworkNamespacesTest, TheirVariablesSaySo) {
  RunningJob job(
      shell(5, 2,
            "echo $CROSSDEVICE_RANK $CROSSDEVICE_LOCAL_RANK/$CROSSDEVICE_LOCAL_NUM_WORKERS "
            "$CROSSDEVICE_CHIEF_ADDRESS ${CROSSDEVICE_HOST_ID##*.} $CROSSDEVICE_SOCKET_IFNAME"));
  EXPECT_EQ(job.finish(), 0) << job.err;
  const std::map<int, std::string> lines = line_of_rank(job.out);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines.at(0), "0 0/3 10.200.0.1:61440 0 eth0");
  EXPECT_EQ(lines.at(1), "1 1/3 10.200.0.1:61440 0 eth0");
  EXPECT_EQ(lines.at(2), "2 2/3 10.200.0.1:61440 0 eth0");
  EXPECT_EQ(lines.at(3), "3 0/2 10.200.0.1:61440 1 eth0");
  EXPECT_EQ(lines.at(4), "4 1/2 10.200.0.1:61440 1 eth0");
}

TEST_F(NetworkNamespacesTest, NothingLeadsOut) {
  RunningJob job(shell(2, 2, "echo $(ip -o route)"));
  EXPECT_EQ(job.finish(), 0) << job.err;
  const std::map<int, std::string> routes = line_of_rank(job.out);
  EXPECT_THAT(routes.at(0), HasSubstr("10.200.0.0/24 dev eth0"));
  EXPECT_THAT(routes.at(0), HasSubstr("src 10.200.0.1"));
  EXPECT_THAT(routes.at(1), HasSubstr("src 10.200.0.2"));
  for (const auto& [rank, text] : routes) EXPECT_EQ(text.find("default"), std::string::npos);
}

TEST_F(NetworkNamespacesTest, WorkersMeetAcrossThem) {
  for (const int hosts : {1, 3, 5}) {
    RunningJob job({"-n", "5", "--netns", std::to_string(hosts), "--", CROSSDEVICE_MEETING_WORKER});
    EXPECT_EQ(job.finish(), 0) << job.err;
    const std::map<int, std::string> lines = line_of_rank(job.out);
    ASSERT_EQ(lines.size(), 5U);
    const HostPlace last = place_on_host(4, 5, hosts);
    EXPECT_EQ(lines.at(4), "rank 4 of 5, local " + std::to_string(last.local_rank) + " of " +
                               std::to_string(last.local_num_workers) + ": 0,1,2,3,4,");
  }
}

TEST_F(NetworkNamespacesTest, TheRateIsTheLinks) {
  if (!succeeds_in_namespace("tc qdisc add dev lo root tbf rate 1mbit burst 32k latency 50ms")) {
    GTEST_SKIP() << "the program tc or the kernel's token bucket filter is missing";
  }
  RunningJob job(shell(2, 2, "echo $(tc qdisc show dev eth0)", {"--rate", "200mbit"}));
  EXPECT_EQ(job.finish(), 0) << job.err;
  for (const auto& [rank, text] : line_of_rank(job.out)) {
    EXPECT_THAT(text, HasSubstr("tbf"));
    // The bucket holds the largest packet. In bytes: in which unit tc says it differs.
    EXPECT_THAT(text, HasSubstr("rate 200Mbit burst 70"));
  }
  RunningJob without(shell(1, 1, "echo $(tc qdisc show dev eth0)"));
  EXPECT_EQ(without.finish(), 0);
  EXPECT_EQ(without.out.find("tbf"), std::string::npos);
}

TEST_F(NetworkNamespacesTest, NothingIsLeftHoweverItEnds) {
  const std::set<std::string> before = own_devices();
  RunningJob failing(shell(4, 2, "exit 3"));
  EXPECT_EQ(failing.finish(), 3);
  RunningJob no_program({"-n", "2", "--netns", "2", "--", "/nonexistent/program"});
  EXPECT_EQ(no_program.finish(), 127);
  for (const int number : {SIGINT, SIGTERM, SIGKILL}) {
    RunningJob job(shell(4, 2, "echo ready; exec sleep 1000"));
    ASSERT_TRUE(job.read_until("ready", 4));
    EXPECT_EQ(own_devices(), before) << "nothing may be seen from outside";
    job.send(number);
    job.wait_for_everybody();
  }
  EXPECT_EQ(own_devices(), before);
}

TEST_F(NetworkNamespacesTest, ManyOfThem) {
  RunningJob job(
      shell(64, 64, "ip -o -4 addr show dev eth0 | grep -c 10.200.0.$((CROSSDEVICE_RANK + 1))/24"));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(line_of_rank(job.out).size(), 64U);
}

}  // namespace
}  // namespace crossdevice::run
