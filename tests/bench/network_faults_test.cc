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

using ::testing::HasSubstr;

class NetworkFaultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = namespace_obstacle();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

/// The last line of each rank.
std::map<int, std::string> run_job(int workers, const std::string& fault, int faulty_rank,
                                   int& status) {
  RunningJob job({"-n", std::to_string(workers), "--netns", std::to_string(workers), "--keep-going",
                  "--", CROSSDEVICE_FAULTY_WORKER, fault, std::to_string(faulty_rank)});
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
      EXPECT_THAT(lines[rank], HasSubstr("UNAVAILABLE names " + std::to_string(faulty)));
    }
  }
}

TEST_F(NetworkFaultsTest, AKilledChiefIsNamed) {
  int status = -1;
  std::map<int, std::string> lines = run_job(3, "kill", 0, status);
  EXPECT_THAT(lines[1], HasSubstr("UNAVAILABLE names 0"));
  EXPECT_THAT(lines[2], HasSubstr("UNAVAILABLE names 0"));
}

TEST_F(NetworkFaultsTest, AWorkerWhoseLinkIsCutIsNamedWhenItsHeartbeatIsMissed) {
  int status = -1;
  std::map<int, std::string> lines = run_job(3, "cut", 2, status);
  EXPECT_THAT(lines[0], HasSubstr("UNAVAILABLE names 2"));
  EXPECT_THAT(lines[1], HasSubstr("UNAVAILABLE names 2"));
  EXPECT_THAT(lines[2], HasSubstr("UNAVAILABLE names"));  // it hears nobody
}

TEST_F(NetworkFaultsTest, AChiefWhoseLinkIsCutIsNamedToo) {
  int status = -1;
  std::map<int, std::string> lines = run_job(3, "cut", 0, status);
  EXPECT_THAT(lines[1], HasSubstr("UNAVAILABLE names 0"));
  EXPECT_THAT(lines[2], HasSubstr("UNAVAILABLE names 0"));
  EXPECT_THAT(lines[0], HasSubstr("UNAVAILABLE names"));
}

}  // namespace
}  // namespace crossdevice::run
