// SPDX-License-Identifier: Apache-2.0
// The conformance suite over UCX's shared memory and over its TCP on loopback. No RDMA device is needed, and none is used.
#include "crossdevice/comm/ucx_transport.h"

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "comm/transport_conformance.h"
#include "comm/transport_processes.h"
#include "comm/ucx_choice.h"
#include "support/sanitizers.h"
#include "support/threaded_clusters.h"
#include "support/thrown.h"
#include "support/worker_processes.h"

namespace crossdevice::testing {
namespace {

Transports make_transports(int num_ranks) {
  // Kept until the next ones are made: a transport that ends shall not take its worker with it.
  static std::unique_ptr<ThreadedClusters> clusters;
  clusters = std::make_unique<ThreadedClusters>(num_ranks);
  Transports transports(static_cast<std::size_t>(num_ranks));
  clusters->for_each_worker([&](int rank) {
    transports[static_cast<std::size_t>(rank)] = make_ucx_transport(clusters->of(rank));
  });
  return transports;
}

Transports make_over_shared_memory(int num_ranks) {
  choose_ucx(kUcxSharedMemory);
  return make_transports(num_ranks);
}

Transports make_over_tcp(int num_ranks) {
  choose_ucx(kUcxTcp);
  return make_transports(num_ranks);
}

std::vector<TransportCase> cases() {
  if (!why_no_ucx().empty()) return {};
  return {{"shared_memory", make_over_shared_memory}, {"tcp", make_over_tcp}};
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance, ::testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name; });

// ---------------------------------------------------------------------------------------------- processes

class UcxTransportTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!why_no_ucx().empty()) GTEST_SKIP() << why_no_ucx();
    choose_ucx(GetParam());  // for the workers, too
  }
};

INSTANTIATE_TEST_SUITE_P(Ucx, UcxTransportTest, ::testing::Values(kUcxSharedMemory, kUcxTcp),
                         [](const auto& each) {
                           return std::string(each.param) == kUcxTcp ? "tcp" : "shared_memory";
                         });

TEST_P(UcxTransportTest, ProcessesExchange) {
  for (const int num_workers : {1, 2, 3, 5}) {
    EXPECT_EQ(run_workers("exchange", num_workers), all_well(num_workers));
  }
}

TEST_P(UcxTransportTest, AKilledWorkerIsNamedByTheOthers) {
  EXPECT_EQ(run_workers("lose a worker", 4), (std::vector<int>{0, -SIGKILL, 0, 0}));
  EXPECT_EQ(run_workers("lose the chief", 3), (std::vector<int>{-SIGKILL, 0, 0}));
}

TEST_P(UcxTransportTest, AStoppedWorkerIsNamedAtTheDeadline) {
  EXPECT_EQ(run_workers("silence", 2, 1), (std::vector<int>{0, -SIGKILL}));
}

TEST_P(UcxTransportTest, AnAbortEndsEverybodysWait) {
  EXPECT_EQ(run_workers("abort", 3), all_well(3));
}

TEST_P(UcxTransportTest, AWorkerThatEndsTooEarlyIsNamed) {
  EXPECT_EQ(run_workers("leave", 3), all_well(3));
}

TEST_P(UcxTransportTest, WhoDoesNotConnectIsNamed) {
  EXPECT_EQ(run_workers("miss", 3), all_well(3));
}

TEST_P(UcxTransportTest, WhoGoesBeforeItHasConnectedIsNamed) {
  EXPECT_EQ(run_workers("leave before connecting", 3), all_well(3));
  EXPECT_EQ(run_workers("die before connecting", 3), (std::vector<int>{0, -SIGKILL, 0}));
}

TEST_P(UcxTransportTest, WhoHasConnectedMayGoWhileOthersConnect) {
  EXPECT_EQ(run_workers("leave while others connect", 3), all_well(3));
}

TEST_P(UcxTransportTest, AChildOfForkThrowsAndItsParentGoesOn) {
  EXPECT_EQ(run_workers("fork", 2), all_well(2));
}

TEST_P(UcxTransportTest, SubgroupsHaveTransports) {
  EXPECT_EQ(run_workers("subgroup", 3), all_well(3));
}

// ---------------------------------------------------------------------------------------------- a good guest

/// TCP sockets of this process that listen.
std::size_t num_listening() {
  std::set<std::string> mine;  // "socket:[inode]"
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    mine.insert(std::filesystem::read_symlink(each.path(), error).string());
  }
  std::size_t count = 0;
  for (const char* const table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::vector<std::string> row{std::istream_iterator<std::string>(words), {}};
      if (row.size() < 10 || row[3] != "0A") continue;
      count += mine.count("socket:[" + row[9] + "]");
    }
  }
  return count;
}

/// One worker; whether its UCX begins to listen.
int listens(Cluster& cluster) {
  const std::size_t before = num_listening();
  const auto transport = make_worker_transport(testing::shared(cluster), meeting_deadline());
  return static_cast<int>(num_listening() - before);
}

TEST(UcxGuestTest, NoPortIsOpenedUnlessAskedFor) {
  if (!why_no_ucx().empty()) GTEST_SKIP() << why_no_ucx();
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread is there
  ::unsetenv("UCX_TLS");
  EXPECT_EQ(run_workers("listen", 1), std::vector<int>{0});
  choose_ucx(kUcxTcp);
  EXPECT_NE(run_workers("listen", 1), std::vector<int>{0});  // the test can tell
}

/// 0: they are as before.
int keep_signal_handlers() {
  std::array<struct sigaction, 32> before{};
  for (std::size_t i = 1; i < before.size(); ++i) {
    (void)::sigaction(static_cast<int>(i), nullptr, &before[i]);
  }
  if (!why_no_ucx().empty()) return 1;
  const ThreadedClusters clusters(1);
  const auto transport = make_worker_transport(clusters.of(0), meeting_deadline());
  for (std::size_t i = 1; i < before.size(); ++i) {
    struct sigaction now {};
    (void)::sigaction(static_cast<int>(i), nullptr, &now);
    if (now.sa_handler != before[i].sa_handler || now.sa_flags != before[i].sa_flags) {
      std::cerr << "signal " << i << " has another handler\n";
      return 2;
    }
  }
  return 0;
}

TEST(UcxGuestTest, SignalHandlersStayAsTheyWere) {
  if (!why_no_ucx().empty()) GTEST_SKIP() << why_no_ucx();
  EXPECT_EQ(run_workers("keep signal handlers", 1), std::vector<int>{0});
}

/// 0: what is missing is said, and the process goes on and has its transport when it is there.
int lack_something() {
  if (!why_no_ucx().empty()) return 1;
  const ThreadedClusters clusters(1);
  const auto what_is_missing = [&](int resource, rlim_t so_many) {
    rlimit before{};
    (void)::getrlimit(static_cast<__rlimit_resource>(resource), &before);
    rlimit limit = before;
    limit.rlim_cur = so_many;
    (void)::setrlimit(static_cast<__rlimit_resource>(resource), &limit);
    const std::string said = thrown<ResourceExhaustedError>(
        [&] { (void)make_ucx_transport(clusters.of(0), meeting_deadline()); });
    (void)::setrlimit(static_cast<__rlimit_resource>(resource), &before);
    return said;
  };
  if (what_is_missing(RLIMIT_NOFILE, 40).find("file descriptors") == std::string::npos) return 2;
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t a_little_more = (pages << 12U) + (std::size_t{12} << 20U);
  const std::string said = what_is_missing(RLIMIT_AS, a_little_more);
  if (said.find("of memory that it may need") == std::string::npos) return 3;
  return make_ucx_transport(clusters.of(0), meeting_deadline()) == nullptr ? 4 : 0;
}

/// UCX itself ends the process then.
TEST(UcxGuestTest, WhatIsMissingForItIsAnError) {
  if (!why_no_ucx().empty()) GTEST_SKIP() << why_no_ucx();
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer needs the memory";
  EXPECT_EQ(run_workers("lack something", 1), std::vector<int>{0});
}

Works works() {
  Works all = transport_works(make_ucx_transport);
  all.emplace("listen", listens);
  all.emplace("keep signal handlers", keep_signal_handlers);
  all.emplace("lack something", lack_something);
  return all;
}

}  // namespace
}  // namespace crossdevice::testing

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::testing::works());
}
