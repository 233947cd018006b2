// SPDX-License-Identifier: Apache-2.0
// Workers in network namespaces of their own, so really on several hosts as far as the network can tell: what they compute, and what they hear when a link is
// cut or one of them dies.
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/namespace_obstacle.h"
#include "bench/running_job.h"

namespace crossdevice::run {
namespace {

using ::testing::StartsWith;

class NetworkFaultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = namespace_obstacle();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

/// What all workers of a job are given.
constexpr int kHeartbeatSeconds = 4;

/// The last line of each rank.
std::map<int, std::string> run_job(int workers, const std::string& fault, int faulty_rank,
                                   int& status) {
  RunningJob job({"-n", std::to_string(workers), "--netns", std::to_string(workers), "--keep-going",
                  "--", CROSSDEVICE_FAULTY_WORKER, fault, std::to_string(faulty_rank),
                  std::to_string(kHeartbeatSeconds)});
  if (fault != "none") {  // each has said what it has heard, and may leave
    EXPECT_TRUE(job.read_until("\n", fault == "kill" ? workers - 1 : workers)) << job.err;
    job.send(SIGUSR1);
  }
  status = job.finish();
  std::map<int, std::string> lines;
  std::istringstream stream(job.out);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t close = line.find("] ");
    if (close == std::string::npos) continue;
    lines[std::stoi(line.substr(1, close))] = line.substr(close + 2);
  }
  if (::testing::Test::HasFailure() || lines.empty()) ADD_FAILURE() << job.out << job.err;
  return lines;
}

/// That a worker's call has ended by an error that names `culprit` (-1: anybody) before a heartbeat may be missed, which is what a worker is promised; as long again is
/// room for a machine that has other things to do.
void expect_named_in_time(const std::string& line, int culprit) {
  SCOPED_TRACE(line);
  const std::string names = "UNAVAILABLE names " + (culprit < 0 ? "" : std::to_string(culprit));
  EXPECT_THAT(line, StartsWith(names));
  const std::size_t after = line.find(" after ");
  ASSERT_NE(after, std::string::npos);
  EXPECT_LT(std::stoll(line.substr(after + 7)), 2 * 1000 * kHeartbeatSeconds);
}

TEST_F(NetworkFaultsTest, ReducesAcrossHosts) {
  for (const int workers : {2, 3, 4}) {
    int status = -1;
    const std::map<int, std::string> lines = run_job(workers, "none", 0, status);
    EXPECT_EQ(status, 0);
    for (int rank = 0; rank < workers; ++rank) EXPECT_EQ(lines.at(rank), "all right");
  }
}

TEST_F(NetworkFaultsTest, AKilledWorkerIsNamed) {
  for (const int faulty : {1, 2}) {
    int status = -1;
    std::map<int, std::string> lines = run_job(3, "kill", faulty, status);
    EXPECT_EQ(lines.count(faulty), 0U);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == faulty) continue;
      expect_named_in_time(lines[rank], faulty);
    }
  }
}

TEST_F(NetworkFaultsTest, AKilledChiefIsNamed) {
  int status = -1;
  std::map<int, std::string> lines = run_job(3, "kill", 0, status);
  expect_named_in_time(lines[1], 0);
  expect_named_in_time(lines[2], 0);
}

TEST_F(NetworkFaultsTest, AWorkerWhoseLinkIsCutIsNamedWhenItsHeartbeatIsMissed) {
  int status = -1;
  std::map<int, std::string> lines = run_job(3, "cut", 2, status);
  expect_named_in_time(lines[0], 2);
  expect_named_in_time(lines[1], 2);
  expect_named_in_time(lines[2], -1);  // it hears nobody
}

TEST_F(NetworkFaultsTest, AChiefWhoseLinkIsCutIsNamedToo) {
  int status = -1;
  std::map<int, std::string> lines = run_job(3, "cut", 0, status);
  expect_named_in_time(lines[1], 0);
  expect_named_in_time(lines[2], 0);
  expect_named_in_time(lines[0], -1);
}

}  // namespace
}  // namespace crossdevice::run
