// SPDX-License-Identifier: Apache-2.0
// CROSSDEVICE_* tell a worker who it is; whatever is wrong with them is said with its name and value.
#include "crossdevice/comm/environment_cluster_resolver.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "comm/environment_map.h"

namespace crossdevice {
namespace {

using ::testing::StrEq;
using ::testing::ThrowsMessage;

const Variables kWorker{{"CROSSDEVICE_RANK", "1"},
                        {"CROSSDEVICE_NUM_WORKERS", "4"},
                        {"CROSSDEVICE_LOCAL_RANK", "0"},
                        {"CROSSDEVICE_LOCAL_NUM_WORKERS", "2"},
                        {"CROSSDEVICE_CHIEF_ADDRESS", "10.0.0.1:4000"}};

WorkerIdentity resolve(const Variables& variables) {
  return EnvironmentClusterResolver(source_of(variables)).identity();
}

/// kWorker with one variable changed; nullptr removes it.
Variables changed(const char* name, const char* value) {
  Variables variables = kWorker;
  variables.erase(name);
  if (value != nullptr) variables[name] = value;
  return variables;
}

void expect_error(const Variables& variables, const char* message) {
  EXPECT_THAT([&] { (void)resolve(variables); }, ThrowsMessage<ValueError>(StrEq(message)));
}

TEST(EnvironmentClusterResolverTest, ReadsAllOfIt) {
  const WorkerIdentity identity = resolve(kWorker);
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.num_workers, 4);
  EXPECT_EQ(identity.local_rank, 0);
  EXPECT_EQ(identity.local_num_workers, 2);
  EXPECT_EQ(identity.chief_address, "10.0.0.1:4000");
  EXPECT_EQ(identity.launcher, "CROSSDEVICE_*");
  EXPECT_EQ(identity.job, "worker");
  EXPECT_EQ(identity.task_index, 1);
  EXPECT_EQ(identity.cluster_spec, std::nullopt);
}

TEST(EnvironmentClusterResolverTest, TheHostsPartMayBeLeftOut) {
  Variables variables = kWorker;
  variables["CROSSDEVICE_LOCAL_RANK"] = "";
  variables.erase("CROSSDEVICE_LOCAL_NUM_WORKERS");
  const WorkerIdentity identity = resolve(variables);
  EXPECT_EQ(identity.local_rank, std::nullopt);
  EXPECT_EQ(identity.local_num_workers, std::nullopt);
}

TEST(EnvironmentClusterResolverTest, ASingleWorkerNeedsNoChief) {
  const WorkerIdentity identity =
      resolve({{"CROSSDEVICE_RANK", "0"}, {"CROSSDEVICE_NUM_WORKERS", "1"}});
  EXPECT_EQ(identity.num_workers, 1);
  EXPECT_EQ(identity.chief_address, "");
}

TEST(EnvironmentClusterResolverTest, EveryErrorNamesTheVariableAndItsValue) {
  expect_error({}, "CROSSDEVICE_*: CROSSDEVICE_NUM_WORKERS is not set");
  expect_error(changed("CROSSDEVICE_RANK", nullptr), "CROSSDEVICE_*: CROSSDEVICE_RANK is not set");
  expect_error(changed("CROSSDEVICE_RANK", "4"),
               "CROSSDEVICE_*: CROSSDEVICE_RANK is 4, which is not below CROSSDEVICE_NUM_WORKERS = "
               "4");
  expect_error(changed("CROSSDEVICE_NUM_WORKERS", "0"),
               "CROSSDEVICE_*: CROSSDEVICE_NUM_WORKERS: expected a whole number from 1 to 1000000, "
               "got '0'");
  expect_error(changed("CROSSDEVICE_LOCAL_RANK", ""),
               "CROSSDEVICE_*: CROSSDEVICE_LOCAL_NUM_WORKERS is '2', but CROSSDEVICE_LOCAL_RANK is "
               "not set");
  expect_error(changed("CROSSDEVICE_LOCAL_NUM_WORKERS", nullptr),
               "CROSSDEVICE_*: CROSSDEVICE_LOCAL_RANK is '0', but CROSSDEVICE_LOCAL_NUM_WORKERS is "
               "not set");
  expect_error(changed("CROSSDEVICE_LOCAL_NUM_WORKERS", "5"),
               "CROSSDEVICE_*: expected 1 to 4 workers on this host, got 5");
  expect_error(changed("CROSSDEVICE_CHIEF_ADDRESS", nullptr),
               "rank 1 of 4, as CROSSDEVICE_RANK says: CROSSDEVICE_CHIEF_ADDRESS is not set; give "
               "all workers the same host:port, where rank 0 listens");
  expect_error(
      changed("CROSSDEVICE_CHIEF_ADDRESS", "a"),
      "CROSSDEVICE_*: the chief's address: \"a\" is no address: there is no port; expected "
      "host:port or [address]:port");
}

TEST(EnvironmentClusterResolverTest, NumbersAreDigitsAndNothingElse) {
  for (const char* text : {"-1", "+1", " 1", "1 ", "1.0", "0x1", "1e0", "one", "1\n", "\xff",
                           "99999999999999999999", "4294967297"}) {
    EXPECT_THROW((void)resolve(changed("CROSSDEVICE_RANK", text)), ValueError) << text;
    EXPECT_THROW((void)resolve(changed("CROSSDEVICE_LOCAL_RANK", text)), ValueError) << text;
  }
  EXPECT_EQ(resolve(changed("CROSSDEVICE_RANK", "03")).rank, 3);
}

TEST(EnvironmentClusterResolverTest, ReadsAnewEveryTime) {
  Variables variables = kWorker;
  const EnvironmentClusterResolver resolver(
      [&](const std::string& name) { return source_of(variables)(name); });
  EXPECT_EQ(resolver.identity().rank, 1);
  variables["CROSSDEVICE_RANK"] = "3";
  EXPECT_EQ(resolver.identity().rank, 3);
}

TEST(EnvironmentClusterResolverTest, ReadsTheRealEnvironmentUnlessToldOtherwise) {
  ASSERT_EQ(setenv("CROSSDEVICE_RANK", "0", 1), 0);         // NOLINT(concurrency-mt-unsafe)
  ASSERT_EQ(setenv("CROSSDEVICE_NUM_WORKERS", "1", 1), 0);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(EnvironmentClusterResolver().identity().num_workers, 1);
  unsetenv("CROSSDEVICE_RANK");         // NOLINT(concurrency-mt-unsafe)
  unsetenv("CROSSDEVICE_NUM_WORKERS");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_THROW((void)EnvironmentClusterResolver().identity(), ValueError);
}

}  // namespace
}  // namespace crossdevice
