// SPDX-License-Identifier: Apache-2.0
// TransportGroup where rank 0's file pins every size; the variable is read once, so this is a program of its own.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/comm/in_process_transport.h"

#include "collective/detail/transport_group.h"
#include "collective/detail/tuning_agreement.h"
#include "support/threaded_cluster.h"

namespace crossdevice::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string& tuning_file() {
  static const std::string file = ::testing::TempDir() + "pinned_" + std::to_string(::getpid());
  return file;
}
// NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
const int kSet = ::setenv("CROSSDEVICE_TUNING_FILE", tuning_file().c_str(), 1);

/// What the workers of a group have sent when it is made, with this file; and whether rank 0 knows links.
TransportCounters made_with(const std::string& text, int num_ranks, bool has_links) {
  std::ofstream(tuning_file()) << text;
  std::vector<std::unique_ptr<Transport>> transports = make_in_process_transports(num_ranks);
  std::vector<TransportCounters> counters(static_cast<std::size_t>(num_ranks));
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    const TransportGroup group(cluster, std::move(transports[rank]),
                               Deadline::after(std::chrono::seconds(60)));
    counters[rank] = group.transport().counters();
    EXPECT_EQ(group.tuning().links.has_value(), has_links);
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(static_cast<std::size_t>(num_ranks), work),
            testing::no_errors(static_cast<std::size_t>(num_ranks)));
  ::unlink(tuning_file().c_str());
  for (const TransportCounters& each : counters) EXPECT_EQ(each, counters[0]);
  return counters[0];
}

TEST(TransportGroupPinned, WhereEverySizeIsPinnedNoLinkIsMeasured) {
  ASSERT_EQ(kSet, 0);
  for (const char* const pins :
       {R"([{"algorithm": "rechd"}])",
        R"([{"up_to_bytes": 16384, "algorithm": "exchange"}, {"algorithm": "shuffle"}])"}) {
    EXPECT_EQ(made_with(std::string(R"({"all_reduce": )") + pins + "}", 3, false),
              TransportCounters());
  }
}

TEST(TransportGroupPinned, WhereOnePinIsNotPossibleTheLinksAre) {
  for (
      const char* const text :
      {"{}",
       R"({"all_reduce": [{"up_to_bytes": 16385, "algorithm": "exchange"}, {"algorithm": "ring"}]})"}) {
    EXPECT_GT(made_with(text, 3, true).messages_sent, 0U);
  }
}

TEST(TransportGroupPinned, LinksThatAreGivenAreNotMeasured) {
  EXPECT_EQ(
      made_with(
          R"({"links": {"latency_seconds": 1e-4, "ring_bytes_per_second": 1e8, "mesh_bytes_per_second": 1e8}})",
          2, true),
      TransportCounters());
}

TEST(TransportGroupPinned, WhatIsSaidOfIt) {
  const AllReduceTuning tuning = parse_all_reduce_tuning(
      R"({"all_reduce": [{"up_to_bytes": 16384, "algorithm": "exchange"}, {"algorithm": "ring"}]})");
  EXPECT_THAT(
      describe(tuning, 4, true),
      HasSubstr("links not measured, all choices pinned; exchange from 8 bytes ring from 32 KiB"));
  EXPECT_THAT(explain(rank_all_reduce_algorithms(4, 1 << 20, true, tuning), tuning),
              StartsWith("ring, pinned"));
}

}  // namespace
}  // namespace crossdevice::detail
