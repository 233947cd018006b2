// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/message_transport.h"

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/ucx_transport.h"
#include "crossdevice/core/environment.h"

#include "comm/transport_processes.h"
#include "comm/ucx_choice.h"
#include "support/without_descriptors.h"
#include "support/worker_processes.h"

namespace crossdevice::testing {
namespace {

constexpr const char* kVariable = "CROSSDEVICE_TRANSPORT";

/// 0: the error says all of that.
int expect_words(Cluster& cluster, std::initializer_list<const char*> words) {
  try {
    (void)make_message_transport(testing::shared(cluster));
  } catch (const std::exception& error) {
    for (const char* const each : words) {
      if (std::string(error.what()).find(each) == std::string::npos) {
        std::cerr << "unexpected: " << error.what() << '\n';
        return 1;
      }
    }
    return 0;
  }
  std::cerr << "no error\n";
  return 1;
}

int disagree(Cluster& cluster) {
  return expect_words(cluster,
                      {"CROSSDEVICE_TRANSPORT is tcp in rank 1 (", "but ucx in rank 2 (", "host"});
}

int start_in_vain(Cluster& cluster) {
  return expect_words(cluster, {"rank 0 (", why_no_ucx().empty() ? "UCX does not start" : "UCX"});
}

/// Rank 1 cannot even listen; everybody hears it from the round of the control plane, also rank 1 itself, whose words come after those of rank 0.
int start_without_descriptors(Cluster& cluster) {
  std::optional<WithoutDescriptors> limit;
  if (cluster.rank() == 1) limit.emplace();
  const int status = expect_words(cluster, {"rank 1 (", "Too many open files"});
  limit.reset();
  cluster.barrier(60);
  return status;
}

/// 0: rank 1 lacks descriptors before UCX was ever loaded, which everybody hears, and has UCX when it has them again.
int load_ucx_without_descriptors(Cluster& cluster) {
  std::optional<WithoutDescriptors> limit;
  if (cluster.rank() == 1) limit.emplace();
  const bool is_loaded = why_no_ucx().empty();
  const int status = expect_words(cluster, {"rank 1 (", "UCX", "file descriptors"});
  limit.reset();
  cluster.barrier(60);
  if (is_loaded != (cluster.rank() != 1) || status != 0) return 1;
  (void)make_message_transport(testing::shared(cluster));
  return 0;
}

Works works() {
  Works all = transport_works(make_message_transport);
  all.emplace("disagree", disagree);
  all.emplace("start in vain", start_in_vain);
  all.emplace("start without descriptors", start_without_descriptors);
  all.emplace("load UCX without descriptors", load_ucx_without_descriptors);
  return all;
}

/// In the place of a launcher that gives each worker its own.
JoinOptions prepare(const std::string& work) {
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread is there
  const std::string rank = process_environment()(kRankVariable).value_or("");
  if (work == "disagree" && rank != "0") ::setenv(kVariable, rank == "1" ? "tcp" : "ucx", 1);
  if (work == "load UCX without descriptors") {
    ::setenv(kVariable, "ucx", 1);
    choose_ucx(kUcxTcp);
  }
  if (work == "start in vain") {
    ::setenv(kVariable, "ucx", 1);
    ::setenv("UCX_TLS", "no_such_transport", 1);
  }
  // NOLINTEND(concurrency-mt-unsafe)
  return {.timeout_seconds = 60};
}

TEST(MessageTransportTest, WhereNobodySaysAnythingMessagesGo) {
  EXPECT_EQ(run_workers("exchange", 3), all_well(3));
}

TEST(MessageTransportTest, MembersThatSayDifferentThingsAreNamedOnAll) {
  EXPECT_EQ(run_workers("disagree", 3), all_well(3));
}

TEST(MessageTransportTest, UcxThatIsAskedForAndDoesNotStartIsAnErrorOnAll) {
  EXPECT_EQ(run_workers("start in vain", 2), all_well(2));
}

TEST(MessageTransportTest, WhoCannotListenIsNamedOnAll) {
  if (!can_do_without_descriptors()) GTEST_SKIP() << "a sanitizer needs descriptors";
  EXPECT_EQ(run_workers("start without descriptors", 3), all_well(3));
}

TEST(MessageTransportTest, UcxThatCouldNotBeLoadedForWantIsTriedAgain) {
  if (!can_do_without_descriptors()) GTEST_SKIP() << "a sanitizer needs descriptors";
  if (!why_no_ucx().empty()) GTEST_SKIP() << why_no_ucx();
  EXPECT_EQ(run_workers("load UCX without descriptors", 2), all_well(2));
}

}  // namespace
}  // namespace crossdevice::testing

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::testing::works(),
                                           crossdevice::testing::prepare);
}
