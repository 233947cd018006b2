// SPDX-License-Identifier: Apache-2.0
// What the catalogue leaves open: texts of errors, jobs without tasks, an evaluator that is in no list.
#include "crossdevice/comm/multi_worker_util.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using ::testing::StrEq;
using ::testing::ThrowsMessage;

void expect_refused(const ClusterSpec& spec, const char* task_type, int task_id,
                    const char* message) {
  EXPECT_THAT([&] { validate_cluster_spec(spec, task_type, task_id); },
              ThrowsMessage<ValueError>(StrEq(message)));
}

TEST(ValidateClusterSpecTest, SaysWhatWasExpectedAndWhatCame) {
  const ClusterSpec workers{{"worker", {"a:1", "b:1"}}};
  expect_refused({{"master", {"a:1"}}}, "worker", 0,
                 "cluster: expected the jobs chief, worker, ps or evaluator, got 'master'");
  expect_refused(workers, "", 0, "task_type: expected chief, worker, ps or evaluator, got ''");
  expect_refused(workers, "\n", 0,
                 "task_type: expected chief, worker, ps or evaluator, got '\\x0a'");
  expect_refused(workers, "ps", 0, "task_type 'ps' has no tasks in the cluster");
  expect_refused(workers, "worker", 2, "task_id 2 is not among the 2 tasks of job 'worker'");
  expect_refused(workers, "worker", -1, "task_id -1 is not among the 2 tasks of job 'worker'");
  expect_refused({{"chief", {"a:1", "b:1"}}}, "chief", 0,
                 "cluster: expected at most one chief, got 2");
  expect_refused({{"worker", {"a:1"}}, {"evaluator", {"a:1", "b:1"}}}, "worker", 0,
                 "cluster: expected at most one evaluator, got 2");
}

TEST(MultiWorkerUtilTest, AJobWithoutTasksIsNone) {
  const ClusterSpec spec{{"chief", {}}, {"worker", {"a:1"}}};
  EXPECT_TRUE(is_chief(spec, "worker", 0));
  EXPECT_EQ(worker_count(spec, "worker"), 1);
  EXPECT_EQ(id_in_cluster(spec, "worker", 0), 0);
  EXPECT_EQ(collective_leader(spec, "worker", 0), "/job:worker/replica:0/task:0");
  EXPECT_THROW((void)is_chief(spec, "chief", 0), ValueError);
}

TEST(MultiWorkerUtilTest, AnEvaluatorNeedNotBeListed) {
  const ClusterSpec spec{{"worker", {"a:1", "b:1"}}};
  EXPECT_TRUE(is_chief(spec, "evaluator", 0));
  EXPECT_EQ(worker_count(spec, "evaluator"), 1);
  EXPECT_EQ(id_in_cluster(spec, "evaluator", 0), 0);
}

}  // namespace
}  // namespace crossdevice
