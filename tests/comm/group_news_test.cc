// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/group_news.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "support/threaded_cluster.h"

namespace crossdevice::detail {
namespace {

using Kind = GroupNews::Kind;
using testing::no_errors;
using testing::run_clusters;

RankInfo by_its_own_name(const RankInfo& member) { return member; }

bool await(const GroupNews& news, Kind kind) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (news.kind() != kind && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return news.kind() == kind;
}

TEST(GroupNewsTest, AnAbortIsToldWithWhoAndWhyAlsoToWhoListensLater) {
  const auto work = [](const std::shared_ptr<Cluster>& cluster) {
    GroupNews news;
    news.listen(*cluster, by_its_own_name);
    EXPECT_EQ(news.item().text, "");
    cluster->barrier();
    if (cluster->rank() == 1) cluster->abort_collective_ops("on purpose");
    EXPECT_TRUE(await(news, Kind::ABORTED));
    GroupNews later;
    later.listen(*cluster, [](const RankInfo& member) {
      RankInfo renamed = member;
      renamed.rank = 70 + member.rank;
      return renamed;
    });
    EXPECT_TRUE(await(later, Kind::ABORTED));
    EXPECT_EQ(news.item().kind, Kind::ABORTED);
    EXPECT_EQ(news.item().culprit.rank, 1);
    EXPECT_EQ(later.item().culprit.rank, 71);
    EXPECT_NE(news.item().text.find(" aborted: on purpose"), std::string::npos);
    EXPECT_NE(later.item().text.find("rank 71"), std::string::npos) << later.item().text;
  };
  EXPECT_EQ(run_clusters(2, work), no_errors(2));
}

}  // namespace
}  // namespace crossdevice::detail
