// SPDX-License-Identifier: Apache-2.0
// Jobs and tasks come back as they were given, sorted; gaps in the indices stay gaps.
#include "crossdevice/comm/cluster_spec.h"

#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

TEST(ClusterSpecTest, NothingAtAll) {
  const ClusterSpec spec;
  EXPECT_TRUE(spec.empty());
  EXPECT_THAT(spec.jobs(), IsEmpty());
  EXPECT_THAT(spec.tasks(), IsEmpty());
  EXPECT_EQ(to_string(spec), "{}");
  EXPECT_THAT([&] { (void)spec.num_tasks("worker"); },
              ThrowsMessage<ValueError>(StrEq("no job 'worker' in the cluster, which has none")));
}

TEST(ClusterSpecTest, JobsByNameTasksByIndex) {
  const ClusterSpec spec{{"worker", {"w0:1", "w1:1", "w2:1"}}, {"ps", {"p0:1"}}, {"chief", {}}};
  EXPECT_FALSE(spec.empty());
  EXPECT_THAT(spec.jobs(), ElementsAre("chief", "ps", "worker"));
  EXPECT_EQ(spec.num_tasks("worker"), 3);
  EXPECT_EQ(spec.num_tasks("chief"), 0);
  EXPECT_TRUE(spec.has_job("ps"));
  EXPECT_FALSE(spec.has_job("evaluator"));
  EXPECT_THAT(spec.task_indices("worker"), ElementsAre(0, 1, 2));
  EXPECT_EQ(spec.task_address("worker", 2), "w2:1");
  EXPECT_THAT(spec.job_tasks("worker"), ElementsAre("w0:1", "w1:1", "w2:1"));
  EXPECT_TRUE(spec.is_dense("worker"));
  EXPECT_TRUE(spec.is_dense("chief"));
  EXPECT_THAT(spec.tasks(),
              ElementsAre(ClusterTask{"ps", 0, "p0:1"}, ClusterTask{"worker", 0, "w0:1"},
                          ClusterTask{"worker", 1, "w1:1"}, ClusterTask{"worker", 2, "w2:1"}));
  EXPECT_EQ(to_string(spec), "{chief: [], ps: [p0:1], worker: [w0:1, w1:1, w2:1]}");
}

TEST(ClusterSpecTest, OneTaskAndOneJobAreNotMistakenForAnythingElse) {
  EXPECT_EQ(ClusterSpec({{"worker", {"a:1"}}}).num_tasks("worker"), 1);
  EXPECT_EQ(ClusterSpec({{"worker", {"a:1", "b:1"}}}).num_tasks("worker"), 2);
}

TEST(ClusterSpecTest, GapsStay) {
  const ClusterSpec spec(std::vector<ClusterTask>{{"worker", 3, "w3:1"}, {"worker", 1, "w1:1"}});
  EXPECT_EQ(spec.num_tasks("worker"), 2);
  EXPECT_THAT(spec.task_indices("worker"), ElementsAre(1, 3));
  EXPECT_THAT(spec.job_tasks("worker"), ElementsAre("", "w1:1", "", "w3:1"));
  EXPECT_FALSE(spec.is_dense("worker"));
  EXPECT_THAT([&] { (void)spec.task_address("worker", 0); },
              ThrowsMessage<ValueError>(
                  StrEq("no task 0 in job 'worker', which has 2, the last one is 3")));
  std::ostringstream out;
  out << spec;
  EXPECT_EQ(out.str(), "{worker: {1: w1:1, 3: w3:1}}");
}

TEST(ClusterSpecTest, ListsAndTasksMakeTheSameSpec) {
  EXPECT_EQ(ClusterSpec({{"worker", {"a:1", "b:1"}}}),
            ClusterSpec(std::vector<ClusterTask>{{"worker", 1, "b:1"}, {"worker", 0, "a:1"}}));
  EXPECT_FALSE(ClusterSpec({{"worker", {"a:1"}}}) == ClusterSpec({{"worker", {"a:2"}}}));
}

TEST(ClusterSpecTest, WhatCannotBeIsRefused) {
  const auto make = [](const std::vector<ClusterTask>& tasks) { (void)ClusterSpec(tasks); };
  EXPECT_THAT(
      [&] {
        make({{"", 0, "a:1"}});
      },
      ThrowsMessage<ValueError>(StrEq("a job needs a name")));
  for (const int index : {-1, 1'000'001, std::numeric_limits<int>::max()}) {
    EXPECT_THAT(
        [&] {
          make({{"worker", index, "a:1"}});
        },
        ThrowsMessage<ValueError>(HasSubstr("expected a task index from 0 to 1000000")));
  }
  EXPECT_THAT(
      [&] {
        make({{"worker", 1, "a:1"}, {"worker", 1, "b:1"}});
      },
      ThrowsMessage<ValueError>(
          StrEq("job 'worker': task 1 is given twice, with 'a:1' and 'b:1'")));
  EXPECT_THROW((ClusterSpec{{"ps", {}}, {"ps", {}}}), ValueError);
  EXPECT_THROW((ClusterSpec{{"", {}}}), ValueError);
}

}  // namespace
}  // namespace crossdevice
