// SPDX-License-Identifier: Apache-2.0
// TensorFlow's tests of its cluster resolvers and of multi_worker_util, by the ids of our catalogue.
#include <memory>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/multi_worker_util.h"
#include "crossdevice/comm/simple_cluster_resolver.h"
#include "crossdevice/comm/tf_config_cluster_resolver.h"
#include "crossdevice/comm/union_cluster_resolver.h"
#include "crossdevice/core/error.h"

#include "comm/environment_map.h"

namespace crossdevice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr const char* kCluster =
    R"("cluster": {"ps": ["ps0:2222", "ps1:2222"], "worker": ["worker0:2222", "worker1:2222", "worker2:2222"]})";

TFConfigClusterResolver tf_config(const std::string& text, TFConfigOptions options = {}) {
  options.source = source_of({{"TF_CONFIG", text}});
  return TFConfigClusterResolver(std::move(options));
}

/// {kCluster, ...}.
TFConfigClusterResolver with_cluster(const std::string& rest, TFConfigOptions options = {}) {
  return tf_config(std::string("{") + kCluster + ", " + rest + "}", std::move(options));
}

TEST(ClusterConformance, CL1_NormalClusterSpecRead) {
  const ClusterSpec spec = with_cluster(R"("task": {"type": "ps", "index": 0})").cluster_spec();
  EXPECT_EQ(spec, (ClusterSpec{{"ps", {"ps0:2222", "ps1:2222"}},
                               {"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}}}));
}

TEST(ClusterConformance, CL1_SparseClusterSpecRead) {
  const ClusterSpec spec =
      tf_config(
          R"({"cluster": {"ps": ["ps0:2222", "ps1:2222"], "worker": {"1": "worker1:2222"}}, "task": {"type": "worker", "index": 1}})")
          .cluster_spec();
  EXPECT_THAT(spec.task_indices("worker"), ElementsAre(1));
  EXPECT_EQ(spec.task_address("worker", 1), "worker1:2222");
  EXPECT_EQ(spec.num_tasks("ps"), 2);
}

TEST(ClusterConformance, CL2_AutomaticMasterRead) {
  EXPECT_EQ(with_cluster(R"("task": {"type": "ps", "index": 0})").master(), "ps0:2222");
}

TEST(ClusterConformance, CL2_SpecifiedTaskTypeAndIndexMasterRead) {
  EXPECT_EQ(with_cluster(R"("task": {"type": "ps", "index": 0})").master("worker", 1),
            "worker1:2222");
}

TEST(ClusterConformance, CL2_SessionMasterRead) {
  EXPECT_EQ(
      with_cluster(R"("session_master": "sessionmaster:2222", "task": {"type": "ps", "index": 0})")
          .master(),
      "sessionmaster:2222");
}

TEST(ClusterConformance, CL2_RpcLayerRead) {
  EXPECT_EQ(with_cluster(R"("rpc_layer": "grpc", "task": {"type": "ps", "index": 0})").master(),
            "grpc://ps0:2222");
}

TEST(ClusterConformance, CL3_TaskTypeIndexRpcRead) {
  const auto resolver = with_cluster(R"("rpc_layer": "grpc", "task": {"type": "ps", "index": 0})");
  EXPECT_EQ(resolver.task_type(), "ps");
  EXPECT_EQ(resolver.task_id(), 0);
  EXPECT_EQ(resolver.rpc_layer(), "grpc");
}

TEST(ClusterConformance, CL3_ParameterOverrides) {
  auto resolver = with_cluster(R"("rpc_layer": "grpc", "task": {"type": "ps", "index": 1})",
                               {.task_type = "ps", .task_id = 0});
  EXPECT_EQ(resolver.master(), "grpc://ps0:2222");
  EXPECT_EQ(resolver.task_type(), "ps");
  EXPECT_EQ(resolver.task_id(), 0);
  resolver.set_task_type("worker");
  resolver.set_task_id(1);
  resolver.set_rpc_layer("test");
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.rpc_layer(), "test");
  EXPECT_EQ(resolver.master(), "test://worker1:2222");
}

TEST(ClusterConformance, CL3_TaskTypeCastToString) {
  EXPECT_EQ(
      tf_config(R"({"cluster": {"123456": ["ps0:2222"]}, "task": {"type": 123456}})").task_type(),
      "123456");
}

TEST(ClusterConformance, CL3_TaskIndexCastToInteger) {
  EXPECT_EQ(with_cluster(R"("rpc_layer": "grpc", "task": {"type": "ps", "index": "1"})").task_id(),
            1);
}

TEST(ClusterConformance, CL3_TaskIndexOverride) {
  EXPECT_EQ(tf_config(R"({"cluster": {"worker": ["worker0:2222", "worker1:2222"]},
                          "task": {"type": "worker", "index": "0"}})",
                      {.task_id = 1})
                .task_id(),
            1);
}

TEST(ClusterConformance, CL4_ZeroItemsInClusterSpecMasterRead) {
  EXPECT_EQ(tf_config("{}").master(), "");
}

TEST(ClusterConformance, CL4_OneItemInClusterSpecMasterRead) {
  EXPECT_EQ(tf_config(R"({"cluster": {"worker": ["worker1:2222"]}})").master(), "");
}

// The half that does not depend on devices of other tasks.
TEST(ClusterConformance, CL5_NumAccelerators) {
  EXPECT_THAT(with_cluster(R"("task": {"type": "worker", "index": 0})").num_accelerators(),
              IsEmpty());
  const SimpleClusterResolver resolver(ClusterSpec(), {.num_accelerators = {{"GPU", 2}}});
  EXPECT_THAT(resolver.num_accelerators(), UnorderedElementsAre(Pair("GPU", 2)));
}

const ClusterSpec kTwoJobs{{"ps", {"ps0:2222", "ps1:2222"}},
                           {"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}}};

using Resolvers = std::vector<std::shared_ptr<const ClusterResolver>>;

std::shared_ptr<const ClusterResolver> simple(ClusterSpec spec,
                                              SimpleClusterResolverOptions options = {}) {
  return std::make_shared<SimpleClusterResolver>(std::move(spec), std::move(options));
}

ClusterSpec sparse(const std::vector<int>& indices) {
  std::vector<ClusterTask> tasks;
  tasks.reserve(indices.size());
  for (const int index : indices) {
    tasks.push_back({"worker", index, "sparse" + std::to_string(index) + ":2222"});
  }
  return ClusterSpec(tasks);
}

TEST(ClusterConformance, CL6_SimpleClusterResolver) {
  SimpleClusterResolver resolver(kTwoJobs, {.task_type = "ps",
                                            .task_id = 1,
                                            .environment = "cloud",
                                            .num_accelerators = {{"GPU", 8}},
                                            .rpc_layer = "grpc"});
  EXPECT_EQ(resolver.cluster_spec(), kTwoJobs);
  EXPECT_EQ(resolver.task_type(), "ps");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.environment(), "cloud");
  EXPECT_THAT(resolver.num_accelerators(), ElementsAre(Pair("GPU", 8)));
  EXPECT_EQ(resolver.rpc_layer(), "grpc");
  resolver.set_task_type("worker");
  resolver.set_task_id(2);
  resolver.set_rpc_layer("http");
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 2);
  EXPECT_EQ(resolver.rpc_layer(), "http");
}

TEST(ClusterConformance, CL6_SimpleMaster) {
  const SimpleClusterResolver resolver(kTwoJobs, {.master = "given:1", .rpc_layer = "grpc"});
  EXPECT_EQ(resolver.master(), "grpc://given:1");
  EXPECT_EQ(resolver.master("worker", 2), "grpc://worker2:2222");
  EXPECT_EQ(resolver.master("worker", 2, "http"), "http://worker2:2222");
  EXPECT_EQ(SimpleClusterResolver(kTwoJobs).master(), "");
}

TEST(ClusterConformance, CL6_UnionTakesThePropertiesOfTheFirst) {
  const Resolvers both{
      simple(kTwoJobs, {.task_type = "ps",
                        .task_id = 1,
                        .environment = "cloud",
                        .num_accelerators = {{"GPU", 8}},
                        .rpc_layer = "grpc"}),
      simple(kTwoJobs, {.task_type = "worker", .task_id = 2, .rpc_layer = "http"})};
  UnionClusterResolver resolver(both);
  EXPECT_EQ(resolver.task_type(), "ps");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.environment(), "cloud");
  EXPECT_THAT(resolver.num_accelerators(), ElementsAre(Pair("GPU", 8)));
  EXPECT_EQ(resolver.rpc_layer(), "grpc");
  resolver.set_task_type("worker");
  resolver.set_task_id(2);
  resolver.set_rpc_layer("http");
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 2);
  EXPECT_EQ(resolver.rpc_layer(), "http");
  EXPECT_EQ(UnionClusterResolver(both, {.task_type = "worker"}).task_type(), "worker");
}

TEST(ClusterConformance, CL6_TwoNonOverlappingJobMergedClusterResolver) {
  const UnionClusterResolver resolver(
      {simple({{"ps", {"ps0:2222", "ps1:2222"}}}),
       simple({{"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}}})});
  EXPECT_EQ(resolver.cluster_spec(), kTwoJobs);
}

TEST(ClusterConformance, CL6_MergedClusterResolverMaster) {
  const UnionClusterResolver resolver(
      {simple({{"ps", {"ps0:2222", "ps1:2222"}}}, {.master = "m:1"}),
       simple({{"worker", {"worker0:2222", "worker1:2222"}}})});
  EXPECT_EQ(resolver.master("worker", 1), "worker1:2222");
  EXPECT_EQ(resolver.master("worker", 1, "test"), "test://worker1:2222");
  EXPECT_EQ(resolver.master(), "m:1");
}

TEST(ClusterConformance, CL6_OverlappingJobMergedClusterResolver) {
  const UnionClusterResolver resolver(
      {simple({{"worker", {"worker4:2222", "worker5:2222"}}}),
       simple({{"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}}})});
  EXPECT_THAT(
      resolver.cluster_spec().job_tasks("worker"),
      ElementsAre("worker4:2222", "worker5:2222", "worker0:2222", "worker1:2222", "worker2:2222"));
}

TEST(ClusterConformance, CL6_OverlappingSparseJobThrowsError) {
  EXPECT_THROW((void)UnionClusterResolver({simple(sparse({7, 9})), simple(sparse({3, 6, 7}))})
                   .cluster_spec(),
               ValueError);
}

TEST(ClusterConformance, CL6_OverlappingDictAndListThrowsError) {
  EXPECT_THROW((void)UnionClusterResolver({simple({{"worker", {"worker4:2222", "worker5:2222"}}}),
                                           simple(sparse({1, 2, 3}))})
                   .cluster_spec(),
               ValueError);
}

TEST(ClusterConformance, CL6_DisjointIndicesMerge) {
  EXPECT_THAT(UnionClusterResolver({simple(sparse({5, 9})), simple(sparse({3, 6, 7}))})
                  .cluster_spec()
                  .task_indices("worker"),
              ElementsAre(3, 5, 6, 7, 9));
  const ClusterSpec mixed =
      UnionClusterResolver(
          {simple({{"worker", {"worker4:2222", "worker5:2222"}}}), simple(sparse({3, 6, 7}))})
          .cluster_spec();
  EXPECT_THAT(mixed.task_indices("worker"), ElementsAre(0, 1, 3, 6, 7));
  EXPECT_EQ(mixed.task_address("worker", 1), "worker5:2222");
  const ClusterSpec kept =
      UnionClusterResolver({simple(sparse({1, 5})), simple({{"ps", {"ps0:2222"}}})}).cluster_spec();
  EXPECT_THAT(kept.task_indices("worker"), ElementsAre(1, 5));
}

TEST(ClusterConformance, CL6_AUnionNeedsResolvers) {
  EXPECT_THROW((void)UnionClusterResolver(Resolvers{}), ValueError);
  EXPECT_THROW((void)UnionClusterResolver(Resolvers{nullptr}), ValueError);
}

// The forms that TF normalises are constructors here; a list does not compile.
TEST(ClusterConformance, CL7_NormalizeClusterSpec) {
  const ClusterSpec from_dict{{"chief", {"127.0.0.1:1234"}}, {"ps", {"127.0.0.1:1235"}}};
  EXPECT_EQ(ClusterSpec(from_dict.tasks()), from_dict);
  static_assert(!std::is_constructible_v<ClusterSpec, std::vector<std::string>>);
}

const ClusterSpec kWithChief{{"chief", {"127.0.0.1:1234"}},
                             {"worker", {"127.0.0.1:8964", "127.0.0.1:2333"}},
                             {"ps", {"127.0.0.1:1926", "127.0.0.1:3141"}}};
const ClusterSpec kWithoutChief{{"worker", {"127.0.0.1:8964", "127.0.0.1:2333"}},
                                {"ps", {"127.0.0.1:1926", "127.0.0.1:3141"}}};
const ClusterSpec kWithEvaluator{{"chief", {"127.0.0.1:1234"}},
                                 {"worker", {"127.0.0.1:8964", "127.0.0.1:2333"}},
                                 {"evaluator", {"127.0.0.1:2019"}}};

TEST(ClusterConformance, CL8_IsChief) {
  EXPECT_TRUE(is_chief(kWithChief, "chief", 0));
  EXPECT_FALSE(is_chief(kWithChief, "worker", 0));
  EXPECT_TRUE(is_chief(kWithoutChief, "worker", 0));
  EXPECT_FALSE(is_chief(kWithoutChief, "worker", 1));
  EXPECT_THROW((void)is_chief(kWithoutChief, "chief", 0), ValueError);
  EXPECT_THROW((void)is_chief(kWithoutChief, "worker", 2), ValueError);
  EXPECT_TRUE(is_chief(kWithEvaluator, "evaluator", 0));
}

TEST(ClusterConformance, CL9_NumWorkers) {
  EXPECT_EQ(worker_count(kWithChief, "chief"), 3);
  EXPECT_EQ(worker_count(kWithChief, "worker"), 3);
  EXPECT_EQ(worker_count(kWithoutChief, "worker"), 2);
  EXPECT_EQ(worker_count(kWithEvaluator, "evaluator"), 1);
  EXPECT_THROW((void)worker_count(ClusterSpec(), ""), ValueError);
  EXPECT_THROW((void)worker_count(ClusterSpec(), "worker"), ValueError);
  EXPECT_THROW((void)worker_count(kWithChief, "ps"), ValueError);
}

TEST(ClusterConformance, CL10_IdInCluster) {
  EXPECT_EQ(id_in_cluster(kWithChief, "chief", 0), 0);
  EXPECT_EQ(id_in_cluster(kWithChief, "worker", 1), 2);
  EXPECT_EQ(id_in_cluster(kWithoutChief, "worker", 1), 1);
  EXPECT_EQ(id_in_cluster(kWithEvaluator, "evaluator", 0), 0);
  EXPECT_THROW((void)id_in_cluster(kWithChief, "ps", 0), ValueError);
  EXPECT_THROW((void)id_in_cluster({{"chief", {"a:1", "b:1"}}}, "chief", 1), ValueError);
}

TEST(ClusterConformance, CL11_CollectiveLeader) {
  EXPECT_EQ(collective_leader(kWithChief, "worker", 0), "/job:chief/replica:0/task:0");
  EXPECT_EQ(collective_leader(kWithoutChief, "worker", 1), "/job:worker/replica:0/task:0");
  EXPECT_EQ(collective_leader(kWithEvaluator, "evaluator", 0), "");
  EXPECT_EQ(collective_leader(ClusterSpec(), "", 0), "");
}

TEST(ClusterConformance, CL12_ClusterSpecValidation) {
  EXPECT_NO_THROW(validate_cluster_spec(kWithChief, "evaluator", 0));
  EXPECT_THROW(validate_cluster_spec({{"chief", {"a:1"}}}, "worker", 0), ValueError);
}

}  // namespace
}  // namespace crossdevice
