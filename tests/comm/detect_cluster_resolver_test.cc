// SPDX-License-Identifier: Apache-2.0
// One launcher is found, several must agree, and two that do not are named with what they say.
#include "crossdevice/comm/detect_cluster_resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "comm/environment_map.h"
#include "support/log_keeper.h"

namespace crossdevice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

WorkerIdentity detect(const Variables& variables) {
  return detect_cluster_resolver(source_of(variables))->identity();
}

void expect_error(const Variables& variables, const char* message) {
  EXPECT_THAT([&] { (void)detect(variables); }, ThrowsMessage<ValueError>(HasSubstr(message)));
}

Variables both(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

Variables ours(const char* rank, const char* size) {
  return {{"CROSSDEVICE_RANK", rank},
          {"CROSSDEVICE_NUM_WORKERS", size},
          {"CROSSDEVICE_CHIEF_ADDRESS", "ours:1"}};
}
Variables torchrun(const char* rank, const char* size) {
  return {{"RANK", rank}, {"WORLD_SIZE", size}, {"MASTER_ADDR", "torch"}, {"MASTER_PORT", "1"}};
}
Variables open_mpi(const char* rank, const char* size) {
  return {{"OMPI_COMM_WORLD_RANK", rank},
          {"OMPI_COMM_WORLD_SIZE", size},
          {"OMPI_MCA_orte_hnp_uri", "0.0;tcp://10.0.0.1:1"}};
}
Variables pmi(const char* rank, const char* size) {
  return {{"PMI_RANK", rank}, {"PMI_SIZE", size}};
}
Variables slurm(const char* rank, const char* size) {
  return {{"SLURM_PROCID", rank},
          {"SLURM_STEP_NUM_TASKS", size},
          {"SLURM_STEP_NODELIST", "n[1-2]"},
          {"SLURM_JOB_ID", "0"}};
}
const Variables kTfConfig{
    {"TF_CONFIG",
     R"({"cluster": {"worker": ["tf:1", "b:1"]}, "task": {"type": "worker", "index": 1}})"}};

TEST(DetectClusterResolverTest, NobodyIsASingleProcess) {
  const WorkerIdentity identity = detect({});
  EXPECT_EQ(identity.num_workers, 1);
  EXPECT_EQ(identity.launcher, "single process");
  EXPECT_TRUE(detect_cluster_resolver(source_of({}))->cluster_spec().empty());
}

TEST(DetectClusterResolverTest, EveryLauncherIsFoundByItself) {
  EXPECT_EQ(detect(ours("1", "2")).launcher, "CROSSDEVICE_*");
  EXPECT_EQ(detect(kTfConfig).launcher, "TF_CONFIG");
  EXPECT_EQ(detect(torchrun("1", "2")).launcher, "torchrun");
  EXPECT_EQ(detect({{"PET_NODE_RANK", "1"},
                    {"PET_NNODES", "2"},
                    {"PET_MASTER_ADDR", "a"},
                    {"PET_MASTER_PORT", "1"}})
                .launcher,
            "torchrun (PET_*)");
  EXPECT_EQ(detect(open_mpi("1", "2")).launcher, "Open MPI");
  EXPECT_EQ(detect(pmi("1", "2")).launcher, "MPICH");
  EXPECT_EQ(detect(slurm("1", "2")).launcher, "Slurm");
  EXPECT_EQ(detect({{"PMIX_RANK", "1"}, {"CROSSDEVICE_NUM_WORKERS", "2"}}).launcher, "PMIx");
}

// Each worker would work alone, and nothing would fail.
TEST(DetectClusterResolverTest, AnUnknownLauncherOfSeveralIsWarnedOfOnce) {
  const testing::LogKeeper log;
  for (const Variables& quiet :
       {Variables{}, Variables{{"WORLD_SIZE", "1"}},
        Variables{{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "1"}},
        both(torchrun("1", "2"), {{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "2"}}),
        Variables{{"HOROVOD_SIZE", "2"}, {"CROSSDEVICE_LAUNCHER", "none"}}}) {
    (void)detect(quiet);
    EXPECT_THAT(log.texts(), Not(HasSubstr("works alone")));
  }
  const Variables horovod{{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "4"}, {"RANK", "1"}};
  for (int times = 0; times < 2; ++times) EXPECT_EQ(detect(horovod).num_workers, 1);
  EXPECT_THAT(log.texts(), HasSubstr("HOROVOD_RANK is '1', HOROVOD_SIZE is '4', RANK is '1', but"));
  EXPECT_THAT(log.texts(), HasSubstr("this worker works alone"));
  const std::string texts = log.texts();
  EXPECT_EQ(texts.find("works alone"), texts.rfind("works alone"));
}

TEST(DetectClusterResolverTest, AStrayVariableIsNobody) {
  for (const Variables& variables :
       {Variables{{"RANK", "1"}}, Variables{{"WORLD_SIZE", "2"}}, Variables{{"PMI_RANK", "1"}},
        Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, Variables{{"TF_CONFIG", "{}"}},
        Variables{{"CROSSDEVICE_RANK", ""}}, Variables{{"PET_NNODES", "2"}}}) {
    EXPECT_EQ(detect(variables).launcher, "single process") << variables.begin()->first;
  }
}

TEST(DetectClusterResolverTest, ThoseWhoAgreeAreTakenInTheOrderOfTrust) {
  Variables all = ours("1", "2");
  for (const Variables& more : {kTfConfig, torchrun("1", "2"), open_mpi("1", "2"), pmi("1", "2"),
                                slurm("1", "2"), Variables{{"PMIX_RANK", "1"}}}) {
    all = both(all, more);
  }
  EXPECT_EQ(detect(all).launcher, "CROSSDEVICE_*");
  all.erase("CROSSDEVICE_RANK");
  EXPECT_EQ(detect(all).launcher, "TF_CONFIG");
  all.erase("TF_CONFIG");
  EXPECT_EQ(detect(all).launcher, "torchrun");
  all.erase("RANK");
  EXPECT_EQ(detect(all).launcher, "Open MPI");
}

TEST(DetectClusterResolverTest, TheOneWhoKnowsTheAddressIsTaken) {
  EXPECT_EQ(detect(both(pmi("1", "2"), slurm("1", "2"))).chief_address, "n1:61440");
  EXPECT_EQ(detect(both(pmi("1", "2"), {{"CROSSDEVICE_CHIEF_ADDRESS", "a:1"}})).chief_address,
            "a:1");
  const WorkerIdentity pmix = detect(both({{"PMIX_RANK", "1"}}, slurm("1", "2")));
  EXPECT_EQ(pmix.launcher, "Slurm");
  EXPECT_EQ(pmix.num_workers, 2);
}

TEST(DetectClusterResolverTest, TwoThatDisagreeAreNamedWithTheirValues) {
  EXPECT_THAT(
      [] { (void)detect(both(torchrun("3", "4"), slurm("1", "2"))); },
      ThrowsMessage<ValueError>(
          StrEq("torchrun says rank 3 of 4, but Slurm says rank 1 of 2: expected one launcher, or "
                "several that agree; CROSSDEVICE_LAUNCHER picks one")));
  expect_error(both(open_mpi("0", "4"), slurm("0", "2")),
               "Open MPI says rank 0 of 4, but Slurm says rank 0 of 2");
  expect_error(both(ours("0", "2"), kTfConfig),
               "CROSSDEVICE_* says rank 0 of 2, but TF_CONFIG says rank 1 of 2");
  expect_error(both(open_mpi("3", "4"), {{"PMIX_RANK", "2"}}),
               "Open MPI says rank 3 of 4, but PMIx says rank 2 of 4");
  expect_error(both(open_mpi("3", "4"), {{"PMIX_RANK", "7"}}), "PMIx says rank 7 of 4");
  expect_error(both(pmi("0", "1"), slurm("3", "4")), "MPICH says rank 0 of 1");
  // Also where the third one is the odd one out.
  expect_error(both(both(torchrun("1", "2"), pmi("1", "2")), slurm("0", "2")),
               "torchrun says rank 1 of 2, but Slurm says rank 0 of 2");
}

// Open MPI 4.1.4 that has three nodes from Slurm, two workers on each: on the third.
TEST(DetectClusterResolverTest, SlurmsTaskMayBeADaemonOfMpirun) {
  const Variables inside{{"OMPI_COMM_WORLD_RANK", "5"},
                         {"OMPI_COMM_WORLD_SIZE", "6"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"OMPI_MCA_orte_hnp_uri", "1155596288.0;tcp://192.0.2.2:46691"},
                         {"OMPI_MCA_orte_local_daemon_uri", "1155596288.2;tcp://192.0.2.4:34811"},
                         {"OMPI_MCA_orte_num_nodes", "3"},
                         {"SLURM_JOB_ID", "77"},
                         {"SLURM_PROCID", "1"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_NTASKS", "2"},
                         {"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                         {"SLURM_STEP_NODELIST", "nodeb,nodec"}};
  const WorkerIdentity identity = detect(inside);
  EXPECT_EQ(identity.launcher, "Open MPI");
  EXPECT_EQ(identity.rank, 5);
  EXPECT_EQ(identity.num_workers, 6);
  // An mpirun that srun has started is its workers' daemon itself; of other tasks, and other jobs, none is.
  for (const auto& [name, value] :
       {std::pair{"OMPI_MCA_orte_local_daemon_uri", "1155596288.0;tcp://192.0.2.2:46691"},
        std::pair{"OMPI_MCA_orte_local_daemon_uri", "1155596288.1;tcp://192.0.2.3:34811"},
        std::pair{"OMPI_MCA_orte_local_daemon_uri", "1155596289.2;tcp://192.0.2.4:34811"},
        std::pair{"OMPI_MCA_orte_local_daemon_uri", ""}, std::pair{"OMPI_MCA_orte_num_nodes", "1"},
        std::pair{"OMPI_MCA_orte_num_nodes", ""}, std::pair{"SLURM_LOCALID", "1"}}) {
    Variables changed = inside;
    changed[name] = value;
    if (changed["SLURM_LOCALID"] == "1") changed["SLURM_STEP_TASKS_PER_NODE"] = "2(x2)";
    expect_error(changed, "Open MPI says rank 5 of 6, but Slurm says rank 1 of 2");
  }
}

TEST(DetectClusterResolverTest, CrossdeviceLauncherPicksOne) {
  const Variables all = both(both(both(torchrun("3", "4"), slurm("1", "2")), kTfConfig),
                             {{"PMIX_RANK", "0"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}});
  const auto pick = [&](const char* word) {
    return detect(both(all, {{"CROSSDEVICE_LAUNCHER", word}})).launcher;
  };
  EXPECT_EQ(pick("torchrun"), "torchrun");
  EXPECT_EQ(pick("slurm"), "Slurm");
  EXPECT_EQ(pick("tf_config"), "TF_CONFIG");
  EXPECT_EQ(pick("mpich"), "MPICH");
  EXPECT_EQ(pick("none"), "single process");
  EXPECT_THROW((void)pick(""), ValueError);
  expect_error(both(all, {{"CROSSDEVICE_LAUNCHER", "openmpi"}}), "OMPI_COMM_WORLD_SIZE is not set");
  expect_error(both(all, {{"CROSSDEVICE_LAUNCHER", "pmix"}}), "no variable says how many workers");
  expect_error(both(all, {{"CROSSDEVICE_LAUNCHER", "crossdevice"}}),
               "CROSSDEVICE_NUM_WORKERS is not set");
  expect_error(both(all, {{"CROSSDEVICE_LAUNCHER", "MPI"}}),
               "CROSSDEVICE_LAUNCHER: expected crossdevice, tf_config, torchrun, openmpi, pmix, "
               "mpich, slurm, or none, got 'MPI'");
}

TEST(DetectClusterResolverTest, TheNumberOfWorkersAloneIsACheck) {
  EXPECT_EQ(detect(both(slurm("1", "2"), {{"CROSSDEVICE_NUM_WORKERS", "2"}})).launcher, "Slurm");
  expect_error(both(slurm("1", "2"), {{"CROSSDEVICE_NUM_WORKERS", "3"}}),
               "CROSSDEVICE_NUM_WORKERS is '3', but Slurm says that there are 2 workers");
  expect_error({{"CROSSDEVICE_NUM_WORKERS", "3"}},
               "CROSSDEVICE_NUM_WORKERS is '3', but CROSSDEVICE_RANK is not set");
}

TEST(DetectClusterResolverTest, AMalformedLauncherIsNotPassedOver) {
  expect_error(both(slurm("1", "2"), {{"TF_CONFIG", "{"}}), "TF_CONFIG: expected JSON");
  expect_error(both(slurm("1", "2"), {{"RANK", "x"}, {"WORLD_SIZE", "2"}}), "torchrun: RANK");
  expect_error({{"CROSSDEVICE_RANK", "0"}}, "CROSSDEVICE_NUM_WORKERS is not set");
}

}  // namespace
}  // namespace crossdevice
