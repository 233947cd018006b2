// SPDX-License-Identifier: Apache-2.0
// TF_CONFIG as TensorFlow and Kubeflow write it, and everything that only looks like it.
#include "crossdevice/comm/tf_config_cluster_resolver.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "comm/environment_map.h"

namespace crossdevice {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

TFConfigClusterResolver resolver_of(const std::string& text, TFConfigOptions options = {}) {
  options.source = source_of({{"TF_CONFIG", text}});
  return TFConfigClusterResolver(std::move(options));
}

WorkerIdentity identity_of(const std::string& text) { return resolver_of(text).identity(); }

void expect_error(const std::string& text, const std::string& message) {
  EXPECT_THAT([&] { (void)identity_of(text); }, ThrowsMessage<ValueError>(HasSubstr(message)))
      << text;
}

TEST(TFConfigClusterResolverTest, TheChiefIsRank0AndTheWorkersFollow) {
  const std::string cluster =
      R"({"cluster": {"worker": ["w0:1", "w1:1"], "ps": ["p:1"], "chief": ["c:1"]}, "task": )";
  const WorkerIdentity chief = identity_of(cluster + R"({"type": "chief", "index": 0}})");
  EXPECT_EQ(chief.rank, 0);
  EXPECT_EQ(chief.num_workers, 3);
  EXPECT_EQ(chief.chief_address, "c:1");
  EXPECT_EQ(chief.launcher, "TF_CONFIG");
  EXPECT_EQ(chief.job, "chief");
  const WorkerIdentity worker = identity_of(cluster + R"({"type": "worker", "index": "1"}})");
  EXPECT_EQ(worker.rank, 2);
  EXPECT_EQ(worker.num_workers, 3);
  EXPECT_EQ(worker.chief_address, "c:1");
  EXPECT_EQ(worker.job, "worker");
  EXPECT_EQ(worker.task_index, 1);
  EXPECT_EQ(worker.local_rank, std::nullopt);
  ASSERT_TRUE(worker.cluster_spec.has_value());
  EXPECT_EQ(worker.cluster_spec->num_tasks("ps"), 1);
}

TEST(TFConfigClusterResolverTest, WithoutAChiefWorker0Leads) {
  const WorkerIdentity identity = identity_of(
      R"({"cluster": {"worker": {"0": "w0:1", "1": "w1:1"}}, "task": {"type": "worker", "index": 1}})");
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.num_workers, 2);
  EXPECT_EQ(identity.chief_address, "w0:1");
}

TEST(TFConfigClusterResolverTest, AnEvaluatorIsByItself) {
  const WorkerIdentity identity = identity_of(
      R"({"cluster": {"worker": ["w0:1", "w1:1"]}, "task": {"type": "evaluator", "index": 0}})");
  EXPECT_EQ(identity.rank, 0);
  EXPECT_EQ(identity.num_workers, 1);
  EXPECT_EQ(identity.job, "evaluator");
}

TEST(TFConfigClusterResolverTest, NoClusterIsASingleProcess) {
  for (const char* text : {"", "{}", R"({"cluster": {}})", R"({"cluster": null})",
                           R"({"cluster": {"worker": []}})", R"({"other": [1, {"a": 2.5}]})"}) {
    const WorkerIdentity identity = identity_of(text);
    EXPECT_EQ(identity.num_workers, 1) << text;
    EXPECT_EQ(identity.chief_address, "") << text;
    EXPECT_TRUE(resolver_of(text).cluster_spec().empty()) << text;
    EXPECT_EQ(resolver_of(text).task_type(), std::nullopt) << text;
    EXPECT_EQ(resolver_of(text).task_id(), std::nullopt) << text;
    EXPECT_EQ(resolver_of(text).rpc_layer(), std::nullopt) << text;
  }
  EXPECT_EQ(TFConfigClusterResolver({.source = source_of({})}).identity().num_workers, 1);
}

TEST(TFConfigClusterResolverTest, OneWorkerNeedsNoAddress) {
  const WorkerIdentity identity =
      identity_of(R"({"cluster": {"worker": ["w0:1"]}, "task": {"type": "worker", "index": 0}})");
  EXPECT_EQ(identity.num_workers, 1);
  EXPECT_EQ(identity.chief_address, "");
}

TEST(TFConfigClusterResolverTest, ASparseClusterWithEveryWorkerIsACluster) {
  const WorkerIdentity identity = identity_of(
      R"({"sparseCluster": {"worker": {"0": "a:1", "1": "b:2"}, "ps": ["p0:1"]}, "task": {"type": "worker", "index": 1}})");
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.num_workers, 2);
  EXPECT_EQ(identity.chief_address, "a:1");
  const WorkerIdentity with_chief = identity_of(
      R"({"sparseCluster": {"chief": {"0": "c:1"}, "worker": {"0": "a:1"}}, "task": {"type": "worker", "index": 0}})");
  EXPECT_EQ(with_chief.rank, 1);
  EXPECT_EQ(with_chief.num_workers, 2);
  EXPECT_EQ(with_chief.chief_address, "c:1");
  expect_error(
      R"({"sparseCluster": {"worker": {"0": "a:1", "2": "c:1"}}, "task": {"type": "worker", "index": 2}})",
      "the indices of job 'worker' have gaps");
  EXPECT_EQ(
      identity_of(
          R"({"sparseCluster": {"worker": {"0": "a:1"}}, "task": {"type": "evaluator", "index": 0}})")
          .job,
      "evaluator");
}

TEST(TFConfigClusterResolverTest, ASparseClusterWithoutTheOthersCanBeReadButNotTrainedWith) {
  const auto resolver = resolver_of(
      R"({"sparseCluster": {"worker": {"3": "w3:1"}, "ps": ["p0:1", "p1:1"]}, "task": {"type": "worker", "index": 3}})");
  EXPECT_EQ(resolver.cluster_spec().task_address("worker", 3), "w3:1");
  EXPECT_EQ(resolver.cluster_spec().num_tasks("ps"), 2);
  EXPECT_EQ(resolver.master(), "w3:1");
  EXPECT_THAT([&] { (void)resolver.identity(); },
              ThrowsMessage<ValueError>(HasSubstr("enableDynamicWorker")));
  // Worker 0's list has no gap, but neither has it the others.
  expect_error(
      R"({"sparseCluster": {"worker": {"0": "w0:1"}, "ps": []}, "task": {"type": "worker", "index": 0}})",
      "lists no worker but this one");
  expect_error(R"({"cluster": {}, "sparseCluster": {}})", "both 'cluster' and 'sparseCluster'");
}

TEST(TFConfigClusterResolverTest, TheEnvironmentKeyIsReadAndTheConstructorWins) {
  EXPECT_EQ(resolver_of(R"({"environment": "cloud"})").environment(), "cloud");
  EXPECT_EQ(resolver_of("{}").environment(), "");
  EXPECT_EQ(resolver_of(R"({"environment": "cloud"})", {.environment = "google"}).environment(),
            "google");
}

TEST(TFConfigClusterResolverTest, TheConstructorMayNameTheTaskAlone) {
  const auto resolver = resolver_of(R"({"cluster": {"worker": ["w0:1", "w1:1"]}})",
                                    {.task_type = "worker", .task_id = 1});
  EXPECT_EQ(resolver.identity().rank, 1);
}

TEST(TFConfigClusterResolverTest, ReadsAnewEveryTime) {
  auto variables = std::make_shared<Variables>();
  const TFConfigClusterResolver resolver(
      {.source = [=](const std::string& name) { return source_of(*variables)(name); }});
  EXPECT_TRUE(resolver.cluster_spec().empty());
  (*variables)["TF_CONFIG"] =
      R"({"cluster": {"worker": ["w0:1", "w1:1"]}, "task": {"type": "worker", "index": 1}})";
  EXPECT_EQ(resolver.cluster_spec().num_tasks("worker"), 2);
  EXPECT_EQ(resolver.identity().rank, 1);
}

TEST(TFConfigClusterResolverTest, WhatIsNoTFConfigIsRefused) {
  expect_error("{", "TF_CONFIG: expected JSON, got '{'");
  expect_error("{\"a\": \"\xff\"}", "TF_CONFIG: expected JSON");
  expect_error("[]", "the whole: expected an object, got []");
  expect_error("1", "the whole: expected an object, got 1");
  expect_error("{} {}", "expected JSON");
  expect_error(R"({"cluster": []})", "cluster: expected an object of jobs, got []");
  expect_error(R"({"cluster": {"worker": "a:1"}})", "worker: expected a list of addresses");
  expect_error(R"({"cluster": {"worker": [1]}})", "worker: expected addresses as strings, got 1");
  expect_error(R"({"cluster": {"worker": {"x": "a:1"}}})",
               "worker: expected task indices as keys, got {\"x\":\"a:1\"}");
  expect_error(R"({"cluster": {"worker": {"-1": "a:1"}}})", "task indices as keys");
  expect_error(R"({"cluster": {"worker": {"1": "a:1", "01": "b:1"}}})", "task 1 is given twice");
  expect_error(R"({"cluster": {"worker": {"2147483647": "a:1"}}})",
               "expected a task index from 0 to 1000000");
  expect_error(R"({"cluster": {"worker": {"99999999999": "a:1"}}})", "task indices as keys");
  expect_error(R"({"cluster": {"": ["a:1"]}})", "TF_CONFIG: cluster: a job needs a name");
  expect_error(R"({"task": []})", "task: expected an object, got []");
  expect_error(R"({"task": {"type": 1.5}})", "task: type: expected a string, got 1.5");
  for (const char* index : {"-1", "1.0", "true", "\"x\"", "\"\"", "[0]", "99999999999"}) {
    expect_error(std::string(R"({"task": {"index": )") + index + "}}",
                 "task: index: expected a whole number");
  }
  expect_error(R"({"rpc_layer": 1})", "rpc_layer: expected a string, got 1");
  expect_error(R"({"session_master": {}})", "session_master: expected a string");
  expect_error(R"({"environment": false})", "environment: expected a string");
}

TEST(TFConfigClusterResolverTest, AKeyGivenTwiceIsRefusedWhereverItIs) {
  expect_error(R"({"task": {}, "task": {}})", "the key 'task' is given twice");
  expect_error(R"({"cluster": {"worker": ["a:1"], "worker": ["b:1"]}})",
               "the key 'worker' is given twice");
  expect_error(R"({"x": [{"a": 1}, {"b": 2, "c": {"b": 1}, "b": 3}]})",
               "the key 'b' is given twice");
  EXPECT_NO_THROW((void)identity_of(R"({"x": {"a": 1}, "y": {"a": 1, "x": {"a": 2}}})"));
}

TEST(TFConfigClusterResolverTest, ATaskThatDoesNotFitItsClusterIsRefused) {
  const std::string cluster = R"({"cluster": {"worker": ["w0:1", "w1:1"], "ps": ["p:1"]})";
  expect_error(cluster + "}",
               "TF_CONFIG: the cluster has tasks, but nobody says which one this is");
  expect_error(cluster + R"(, "task": {"type": "worker"}})", "task_id is missing");
  expect_error(cluster + R"(, "task": {"index": 0}})", "task_type is missing");
  expect_error(cluster + R"(, "task": {"type": "worker", "index": 2}})",
               "TF_CONFIG: task_id 2 is not among the 2 tasks");
  expect_error(cluster + R"(, "task": {"type": "ps", "index": 0}})", "does not train");
  expect_error(cluster + R"(, "task": {"type": "chief", "index": 0}})", "no tasks in the cluster");
  expect_error(
      R"({"cluster": {"worker": {"0": "a:1", "2": "b:1"}}, "task": {"type": "worker", "index": 0}})",
      "gaps");
  expect_error(
      R"({"cluster": {"worker": ["nowhere", "w1:1"]}, "task": {"type": "worker", "index": 1}})",
      "there is no port");
  expect_error(R"({"cluster": {"worker": ["", "w1:1"]}, "task": {"type": "worker", "index": 1}})",
               "the address of the first task is empty");
}

TEST(TFConfigClusterResolverTest, DeepTextsAreRefusedAndLongOnesAreFine) {
  const auto nested = [](const char* key, std::size_t depth) {
    return std::string("{\"") + key + "\": " + std::string(depth, '[') + std::string(depth, ']') +
           "}";
  };
  EXPECT_NO_THROW((void)identity_of(nested("x", 30)));
  for (const char* key : {"x", "cluster", "task"}) {
    expect_error(nested(key, 100'000), "nested deeper than 32 levels");
  }
  std::string workers;
  for (int i = 0; i < 1000; ++i) {
    workers += (i == 0 ? "" : ",") + ("\"job-worker-" + std::to_string(i) + ".ns.svc:2222\"");
  }
  const WorkerIdentity identity = identity_of(R"({"cluster": {"worker": [)" + workers +
                                              R"(]}, "task": {"type": "worker", "index": 999}})");
  EXPECT_EQ(identity.num_workers, 1000);
  EXPECT_EQ(identity.rank, 999);
}

TEST(TFConfigClusterResolverTest, MasterNeedsATaskOnceThereAreSeveral) {
  EXPECT_THAT([] { (void)resolver_of(R"({"cluster": {"worker": ["a:1", "b:1"]}})").master(); },
              ThrowsMessage<ValueError>(StartsWith("master: expected a task_type and a task_id")));
}

}  // namespace
}  // namespace crossdevice
