// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/inquest.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/threaded_cluster.h"

namespace crossdevice::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// What each of three members hears: those in `late` come to the operation long after the others; each blames the member behind it.
std::vector<std::string> verdicts(const std::vector<int>& late,
                                  std::vector<std::vector<int>>& culprits) {
  std::vector<std::string> texts(3);
  culprits.assign(3, {});
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    Inquest inquest(cluster);
    const int rank = cluster->rank();
    const bool is_late = std::find(late.begin(), late.end(), rank) != late.end();
    if (!is_late) inquest.begin();
    if (!late.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    cluster->barrier();
    if (is_late || late.empty()) inquest.begin();
    const RankInfo next = cluster->worker((rank + 2) % 3);
    try {
      inquest.hold("reduce #7", pack_operation({.kind = "reduce"}),
                   DeadlineExceededError("timed out: waiting for " + to_string(next),
                                         {.operation = {}, .culprits = {next}}),
                   true);
    } catch (const DeadlineExceededError& error) {
      texts[static_cast<std::size_t>(rank)] = error.what();
      for (const RankInfo& each : error.culprits()) {
        culprits[static_cast<std::size_t>(rank)].push_back(each.rank);
      }
    }
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(3, work), testing::no_errors(3));
  return texts;
}

TEST(InquestTest, WhoCameLateIsNamedAndNotWhoWaitedForIt) {
  std::vector<std::vector<int>> culprits;
  const std::vector<std::string> texts = verdicts({1}, culprits);
  EXPECT_THAT(culprits, ElementsAre(ElementsAre(1), ElementsAre(1), ElementsAre(1)));
  EXPECT_THAT(texts[0], HasSubstr("reduce #7 timed out: waiting for rank 1"));
  EXPECT_THAT(texts[1], HasSubstr("reduce #7: the others have given up waiting for this worker"));
  EXPECT_EQ(texts[2], texts[0]);
}

TEST(InquestTest, SeveralMayComeLate) {
  std::vector<std::vector<int>> culprits;
  const std::vector<std::string> texts = verdicts({0, 2}, culprits);
  EXPECT_THAT(culprits[1], ElementsAre(0, 2));
  EXPECT_THAT(texts[0], HasSubstr("given up waiting for this worker, rank 0"));
  EXPECT_THAT(texts[2], HasSubstr("given up waiting for this worker, rank 2"));
}

TEST(InquestTest, WhereNobodyCameLateTheFirstSaysWhomItWaitedFor) {
  std::vector<std::vector<int>> culprits;
  const std::vector<std::string> texts = verdicts({}, culprits);
  EXPECT_THAT(culprits, ElementsAre(ElementsAre(2), ElementsAre(2), ElementsAre(2)));
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("reduce #7: timed out: waiting for rank 2"));
  }
}

}  // namespace
}  // namespace crossdevice::detail
