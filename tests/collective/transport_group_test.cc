// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/transport_group.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/in_process_transport.h"

#include "support/threaded_cluster.h"

namespace crossdevice::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// What an operation says that must miss its deadline; the ranks that it names are appended.
std::string failure_of(TransportGroup& group, const CollectiveRequest& request,
                       const std::function<void()>& body, std::vector<int>& culprits) {
  try {
    group.run(request, {.kind = request.kind, .sequence = request.sequence}, body);
  } catch (const DeadlineExceededError& error) {
    for (const RankInfo& each : error.culprits()) culprits.push_back(each.rank);
    return error.what();
  }
  return "no error";
}

/// Rank 1 has done its part and gone when the deadline passes on rank 0, which is not done with its own.
TEST(TransportGroup, WhoIsLateItselfBlamesNobodyElse) {
  std::vector<std::unique_ptr<Transport>> transports = make_in_process_transports(2);
  std::vector<std::string> texts(2);
  std::vector<std::vector<int>> culprits(2);
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    const Deadline patience = Deadline::after(std::chrono::seconds(60));
    TransportGroup group(cluster, std::move(transports[rank]), patience);
    CollectiveRequest request{.kind = "reduce", .sequence = 5, .deadline = patience};
    if (rank == 0) {
      request.deadline = Deadline::after(std::chrono::seconds(2));
      const auto body = [&] {
        group.agree(patience);
        std::this_thread::sleep_until(request.deadline.moment());
        group.transport().require_time_left(request.deadline);
      };
      texts[rank] = failure_of(group, request, body, culprits[rank]);
      cluster->barrier();
    } else {
      group.run(request, {.kind = request.kind, .sequence = request.sequence},
                [&] { group.agree(patience); });
      cluster->barrier();
      request.sequence = 6;
      texts[rank] = failure_of(
          group, request, [&] { group.agree(patience); }, culprits[rank]);
    }
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(2, work), testing::no_errors(2));
  EXPECT_THAT(culprits, ElementsAre(ElementsAre(0), ElementsAre(0)));
  EXPECT_THAT(texts[0], HasSubstr("reduce #5: timed out: rank 0"));
  EXPECT_THAT(texts[1], HasSubstr("reduce #6: rank 0"));
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("had not done its own part"));
  }
}

/// By the first engine of a cluster; the others take over what it has found. A cluster of its own has its own links.
TEST(TransportGroup, LinksAreMeasuredOncePerCluster) {
  constexpr int kRanks = 3;
  std::vector<std::vector<std::unique_ptr<Transport>>> transports(3);
  for (auto& each : transports) each = make_in_process_transports(kRanks);
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    const Deadline patience = Deadline::after(std::chrono::seconds(60));
    const std::shared_ptr<Cluster> other = cluster->duplicate();
    const TransportGroup first(cluster, std::move(transports[0][rank]), patience);
    const TransportGroup second(cluster, std::move(transports[1][rank]), patience);
    const TransportGroup elsewhere(other, std::move(transports[2][rank]), patience);
    EXPECT_GT(first.transport().counters().messages_sent, 0U);
    EXPECT_EQ(second.transport().counters(), TransportCounters());
    EXPECT_GT(elsewhere.transport().counters().messages_sent, 0U);
    ASSERT_TRUE(second.tuning().links.has_value());
    EXPECT_EQ(to_string(second.tuning()), to_string(first.tuning()));
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(kRanks, work), testing::no_errors(kRanks));
}

}  // namespace
}  // namespace crossdevice::detail
