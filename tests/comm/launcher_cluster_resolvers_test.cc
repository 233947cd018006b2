// SPDX-License-Identifier: Apache-2.0
// Workers that other people's launchers started: what each sets, as it really sets it, and what is missing or wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/callback_cluster_resolver.h"
#include "crossdevice/comm/mpich_cluster_resolver.h"
#include "crossdevice/comm/open_mpi_cluster_resolver.h"
#include "crossdevice/comm/pmix_cluster_resolver.h"
#include "crossdevice/comm/slurm_cluster_resolver.h"
#include "crossdevice/comm/torchrun_cluster_resolver.h"
#include "crossdevice/core/error.h"

#include "comm/environment_map.h"
#include "support/log_keeper.h"

namespace crossdevice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

/// `variables` with one changed; an empty value counts as unset.
Variables changed(Variables variables, const char* name, const char* value) {
  variables[name] = value;
  return variables;
}

template <class Resolver>
WorkerIdentity resolve(const Variables& variables) {
  return Resolver(source_of(variables)).identity();
}

template <class Resolver>
void expect_error(const Variables& variables, const char* message) {
  EXPECT_THAT([&] { (void)resolve<Resolver>(variables); },
              ThrowsMessage<ValueError>(HasSubstr(message)));
}

// torchrun --nnodes 2 --nproc-per-node 2, node 1, the second process.
const Variables kTorchrun{{"RANK", "3"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"GROUP_RANK", "1"},
                          {"ROLE_RANK", "3"},
                          {"ROLE_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node-a"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                          {"TORCHELASTIC_RUN_ID", "none"}};

TEST(TorchrunClusterResolverTest, ReadsWhatTorchrunSets) {
  const WorkerIdentity identity = resolve<TorchrunClusterResolver>(kTorchrun);
  EXPECT_EQ(identity.rank, 3);
  EXPECT_EQ(identity.num_workers, 4);
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.local_num_workers, 2);
  EXPECT_EQ(identity.chief_address, "node-a:29500");
  EXPECT_EQ(identity.launcher, "torchrun");
  EXPECT_EQ(identity.job_id, "");
  EXPECT_EQ(
      resolve<TorchrunClusterResolver>(changed(kTorchrun, "TORCHELASTIC_RUN_ID", "mine")).job_id,
      "mine");
  EXPECT_EQ(identity.task_index, 3);
}

TEST(TorchrunClusterResolverTest, ATakenPortIsReplacedByAnotherOne) {
  const auto address = [](const char* port) {
    return resolve<TorchrunClusterResolver>(
               changed(changed(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True"), "MASTER_PORT",
                       port))
        .chief_address;
  };
  EXPECT_EQ(address("29500"), "node-a:" + std::to_string(61440 + 29501 % 4096));
  for (const char* port : {"1", "61440", "61441", "65534", "65535"}) {
    EXPECT_NE(address(port), std::string("node-a:") + port);
  }
}

TEST(TorchrunClusterResolverTest, TheLocalHalfMayBeMissingAndIPv6GetsBrackets) {
  Variables variables = changed(changed(kTorchrun, "LOCAL_RANK", ""), "LOCAL_WORLD_SIZE", "");
  variables["MASTER_ADDR"] = "fd00::1";
  const WorkerIdentity identity = resolve<TorchrunClusterResolver>(variables);
  EXPECT_EQ(identity.local_rank, std::nullopt);
  EXPECT_EQ(identity.chief_address, "[fd00::1]:29500");
}

// As scripts write it that take the machine's own name or address for MASTER_ADDR.
TEST(TorchrunClusterResolverTest, OnOneMachineRankZeroListensOnLoopback) {
  Variables variables = changed(kTorchrun, "LOCAL_WORLD_SIZE", "4");
  EXPECT_EQ(resolve<TorchrunClusterResolver>(variables).chief_address, "127.0.0.1:29500");
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(resolve<TorchrunClusterResolver>(variables).chief_address,
            "127.0.0.1:" + std::to_string(61440 + 29501 % 4096));
  variables["CROSSDEVICE_CHIEF_ADDRESS"] = "b:7";
  EXPECT_EQ(resolve<TorchrunClusterResolver>(variables).chief_address, "b:7");
}

TEST(TorchrunClusterResolverTest, OurOwnAddressWins) {
  Variables variables = changed(kTorchrun, "CROSSDEVICE_CHIEF_ADDRESS", "b:7");
  variables.erase("MASTER_ADDR");
  EXPECT_EQ(resolve<TorchrunClusterResolver>(variables).chief_address, "b:7");
}

TEST(TorchrunClusterResolverTest, WhatIsMissingOrWrongIsNamed) {
  using Resolver = TorchrunClusterResolver;
  expect_error<Resolver>({}, "torchrun: WORLD_SIZE is not set");
  expect_error<Resolver>(changed(kTorchrun, "RANK", "4"),
                         "torchrun: RANK is 4, which is not below WORLD_SIZE = 4");
  expect_error<Resolver>(changed(kTorchrun, "WORLD_SIZE", "x"), "WORLD_SIZE: expected");
  expect_error<Resolver>(changed(kTorchrun, "LOCAL_RANK", ""),
                         "LOCAL_WORLD_SIZE is '2', but LOCAL_RANK is not set");
  expect_error<Resolver>(changed(kTorchrun, "MASTER_ADDR", ""), "MASTER_ADDR is not set");
  expect_error<Resolver>(changed(kTorchrun, "MASTER_PORT", ""), "MASTER_PORT is not set");
  for (const char* port : {"0", "65536", "-1", "x"}) {
    expect_error<Resolver>(changed(kTorchrun, "MASTER_PORT", port),
                           "MASTER_PORT: expected a whole number from 1 to 65535");
  }
  expect_error<Resolver>(changed(kTorchrun, "MASTER_ADDR", "a b"), "bytes no address has");
  expect_error<Resolver>(changed(kTorchrun, "LOCAL_WORLD_SIZE", "5"),
                         "expected 1 to 4 workers on this host, got 5");
}

// A pod of Kubeflow's Trainer, in which the program runs without torchrun.
const Variables kPod{{"PET_NNODES", "2"},
                     {"PET_NPROC_PER_NODE", "auto"},
                     {"PET_NODE_RANK", "1"},
                     {"PET_MASTER_ADDR", "job-node-0-0.job"},
                     {"PET_MASTER_PORT", "29500"}};

/// Kubernetes' operators set it for torchrun, which the pod may well do without: no warning, but a note for who reads those.
TEST(TorchrunClusterResolverTest, ProcessesThatNobodyStartsAreNoWarning) {
  const testing::LogKeeper log;
  for (const char* count : {"", "1", "auto", "8"}) {
    (void)resolve<TorchrunClusterResolver>(changed(kPod, "PET_NPROC_PER_NODE", count));
  }
  EXPECT_THAT(log.texts(), ::testing::IsEmpty());
}

TEST(TorchrunClusterResolverTest, APodIsOneWorker) {
  for (const Variables& variables :
       {kPod, changed(kPod, "PET_NPROC_PER_NODE", "8"), changed(kPod, "PET_NNODES", "2:2"),
        // PyTorchJob writes these too, with the pod's number for a rank among processes.
        changed(changed(kPod, "RANK", "1"), "WORLD_SIZE", "16")}) {
    const WorkerIdentity identity = resolve<TorchrunClusterResolver>(variables);
    EXPECT_EQ(identity.rank, 1);
    EXPECT_EQ(identity.num_workers, 2);
    EXPECT_EQ(identity.local_rank, 0);
    EXPECT_EQ(identity.local_num_workers, 1);
    EXPECT_EQ(identity.chief_address, "job-node-0-0.job:29500");
    EXPECT_EQ(identity.launcher, "torchrun (PET_*)");
  }
}

TEST(TorchrunClusterResolverTest, UnderTorchrunThePodIsOnlyItsInput) {
  Variables variables = kPod;
  variables.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(resolve<TorchrunClusterResolver>(variables).rank, 3);
}

TEST(TorchrunClusterResolverTest, APodWithoutAFixedPlaceIsRefused) {
  using Resolver = TorchrunClusterResolver;
  expect_error<Resolver>(changed(kPod, "PET_NNODES", "1:4"),
                         "PET_NNODES: expected one number of nodes, not a range, got '1:4'");
  for (const char* nodes : {"0", "x", ":", "2:", ":2", "1000001"}) {
    expect_error<Resolver>(changed(kPod, "PET_NNODES", nodes), "PET_NNODES: expected");
  }
  expect_error<Resolver>(changed(kPod, "PET_NODE_RANK", "2"), "PET_NODE_RANK: expected");
  expect_error<Resolver>(changed(kPod, "PET_MASTER_ADDR", ""), "PET_MASTER_ADDR is not set");
  expect_error<Resolver>(changed(kPod, "PET_MASTER_PORT", "x"), "PET_MASTER_PORT: expected");
}

// Open MPI 4.1.4: mpirun -n 4 over two hosts, the last process of the second one.
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                         {"OMPI_MCA_orte_hnp_uri",
                          "283705344.0;tcp://192.0.2.2,198.51.100.7:37563;tcp6://[fd00::2]:37563"},
                         {"PMIX_RANK", "3"},
                         {"PMIX_NAMESPACE", "283705345"}};

TEST(OpenMpiClusterResolverTest, ReadsWhatMpirunSets) {
  const WorkerIdentity identity = resolve<OpenMpiClusterResolver>(kOpenMpi);
  EXPECT_EQ(identity.rank, 3);
  EXPECT_EQ(identity.num_workers, 4);
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.local_num_workers, 2);
  EXPECT_EQ(identity.chief_address,
            "192.0.2.2:" + std::to_string(61440 + (283705344 / 4096) % 4096));
  EXPECT_THAT(identity.more_chief_addresses,
              ElementsAre("198.51.100.7:" + std::to_string(61440 + (283705344 / 4096) % 4096),
                          "[fd00::2]:" + std::to_string(61440 + (283705344 / 4096) % 4096)));
  EXPECT_EQ(identity.launcher, "Open MPI");
  EXPECT_EQ(identity.job_id, "283705345");
}

TEST(OpenMpiClusterResolverTest, EveryFormOfTheUri) {
  const auto address = [](const char* uri) {
    return resolve<OpenMpiClusterResolver>(changed(kOpenMpi, "OMPI_MCA_orte_hnp_uri", uri))
        .chief_address;
  };
  EXPECT_EQ(address("0.0;tcp://10.96.0.1:34911"), "10.96.0.1:61440");
  EXPECT_EQ(address("8192.0;tcp://head.cluster:1"), "head.cluster:61442");
  EXPECT_EQ(address("8192.0;usock;tcp://head.cluster:1;"), "head.cluster:61442");
  EXPECT_EQ(address("4096.0;tcp6://[fe80::1,fd00:2::3]:43370"), "[fd00:2::3]:61441");
}

TEST(OpenMpiClusterResolverTest, OnOneHostTheChiefIsOnLoopback) {
  const Variables one_host = changed(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  EXPECT_THAT(resolve<OpenMpiClusterResolver>(one_host).more_chief_addresses, ::testing::IsEmpty());
  EXPECT_THAT(resolve<OpenMpiClusterResolver>(one_host).chief_address,
              ::testing::StartsWith("127.0.0.1:"));
  // Open MPI 5 has no URI, but a name that is the job's own.
  const auto address = [&](const char* job) {
    return resolve<OpenMpiClusterResolver>(
               changed(changed(one_host, "OMPI_MCA_orte_hnp_uri", ""), "PMIX_NAMESPACE", job))
        .chief_address;
  };
  EXPECT_THAT(address("prterun-host-4711@1"), ::testing::StartsWith("127.0.0.1:6"));
  EXPECT_EQ(address("prterun-host-4711@1"), address("prterun-host-4711@1"));
  EXPECT_NE(address("prterun-host-4711@1"), address("prterun-host-4712@1"));
  EXPECT_EQ(address(""), "");
}

TEST(OpenMpiClusterResolverTest, Version5OnSeveralHostsTellsNoAddress) {
  const Variables variables = changed(kOpenMpi, "OMPI_MCA_orte_hnp_uri", "");
  EXPECT_EQ(resolve<OpenMpiClusterResolver>(variables).chief_address, "");
  EXPECT_EQ(resolve<OpenMpiClusterResolver>(changed(variables, "CROSSDEVICE_CHIEF_ADDRESS", "a:1"))
                .chief_address,
            "a:1");
}

TEST(OpenMpiClusterResolverTest, WhatIsMissingOrWrongIsNamed) {
  using Resolver = OpenMpiClusterResolver;
  expect_error<Resolver>(changed(kOpenMpi, "OMPI_COMM_WORLD_SIZE", ""),
                         "Open MPI: OMPI_COMM_WORLD_SIZE is not set");
  expect_error<Resolver>(changed(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", ""),
                         "OMPI_COMM_WORLD_LOCAL_RANK is '1', but");
  for (const char* uri :
       {"x", ";", "1;tcp://a:1", "x.0;tcp://a:1", "1.0;", "1.0;udp://a:1", "1.0;tcp://",
        "1.0;tcp://:1", "1.0;tcp://a", "1.0;tcp6://[a", "1.0;tcp6://a:1", "1.0;tcp://a,:1",
        "1.0;tcp://a:1;tcp6://[", "-1.0;tcp://a:1", ".0;tcp://a:1"}) {
    expect_error<Resolver>(changed(kOpenMpi, "OMPI_MCA_orte_hnp_uri", uri),
                           "OMPI_MCA_orte_hnp_uri: expected a URI");
  }
}

// MPICH 4.0.2: mpiexec -n 4.
const Variables kMpich{{"PMI_RANK", "2"},
                       {"PMI_SIZE", "4"},
                       {"MPI_LOCALRANKID", "2"},
                       {"MPI_LOCALNRANKS", "4"},
                       {"PMI_FD", "9"}};

TEST(MpichClusterResolverTest, ReadsWhatMpiexecSets) {
  const WorkerIdentity identity = resolve<MpichClusterResolver>(kMpich);
  EXPECT_EQ(identity.rank, 2);
  EXPECT_EQ(identity.num_workers, 4);
  EXPECT_EQ(identity.local_rank, 2);
  EXPECT_EQ(identity.local_num_workers, 4);
  EXPECT_EQ(identity.chief_address, "");
  EXPECT_EQ(resolve<MpichClusterResolver>(changed(kMpich, "CROSSDEVICE_CHIEF_ADDRESS", "a:1"))
                .chief_address,
            "a:1");
}

TEST(MpichClusterResolverTest, WhatIsMissingOrWrongIsNamed) {
  expect_error<MpichClusterResolver>(changed(kMpich, "PMI_RANK", ""), "MPICH: PMI_RANK is not set");
  expect_error<MpichClusterResolver>(changed(kMpich, "PMI_SIZE", "2"),
                                     "PMI_RANK is 2, which is not");
  expect_error<MpichClusterResolver>(changed(kMpich, "MPI_LOCALRANKID", ""),
                                     "MPI_LOCALNRANKS is '4', but MPI_LOCALRANKID is not set");
}

TEST(PmixClusterResolverTest, SomebodyElseMustSayHowManyThereAre) {
  const Variables variables{{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "prterun-host-4711@1"}};
  expect_error<PmixClusterResolver>(
      variables,
      "PMIx: PMIX_RANK is 2, but no variable says how many workers there are: set "
      "CROSSDEVICE_NUM_WORKERS");
  const WorkerIdentity identity =
      resolve<PmixClusterResolver>(changed(variables, "CROSSDEVICE_NUM_WORKERS", "4"));
  EXPECT_EQ(identity.rank, 2);
  EXPECT_EQ(identity.num_workers, 4);
  EXPECT_EQ(identity.job_id, "prterun-host-4711@1");
  EXPECT_EQ(PmixClusterResolver(source_of(variables), 3).identity().num_workers, 3);
  EXPECT_THROW((void)PmixClusterResolver(source_of(variables), 2).identity(), ValueError);
  expect_error<PmixClusterResolver>({}, "PMIX_RANK is not set");
  expect_error<PmixClusterResolver>({{"PMIX_RANK", "-1"}}, "PMIX_RANK: expected");
}

// srun -N 3, tasks 4(x2),3: the second task of the second host.
const Variables kSlurm{{"SLURM_JOB_ID", "12345678"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "5"},
                       {"SLURM_NTASKS", "11"},
                       {"SLURM_STEP_NUM_TASKS", "11"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                       {"SLURM_STEP_NODELIST", "n[1-2],m5"}};

TEST(SlurmClusterResolverTest, ReadsWhatSrunSets) {
  const WorkerIdentity identity = resolve<SlurmClusterResolver>(kSlurm);
  EXPECT_EQ(identity.rank, 5);
  EXPECT_EQ(identity.num_workers, 11);
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.local_num_workers, 4);
  EXPECT_EQ(identity.chief_address, "n1:" + std::to_string(61440 + 12345678 % 4096));
  EXPECT_EQ(identity.launcher, "Slurm");
}

TEST(SlurmClusterResolverTest, OnOneHostTheChiefIsOnLoopback) {
  EXPECT_EQ(
      resolve<SlurmClusterResolver>(changed(kSlurm, "SLURM_STEP_NODELIST", "n7")).chief_address,
      "127.0.0.1:" + std::to_string(61440 + 12345678 % 4096));
}

TEST(SlurmClusterResolverTest, StepsOfOneJobDoNotMeet) {
  EXPECT_EQ(resolve<SlurmClusterResolver>(kSlurm).job_id, "12345678.0");
  const WorkerIdentity second =
      resolve<SlurmClusterResolver>(changed(kSlurm, "SLURM_STEP_ID", "1"));
  EXPECT_EQ(second.job_id, "12345678.1");
  EXPECT_EQ(second.chief_address, "n1:" + std::to_string(61440 + (12345678 + 61) % 4096));
  // One that Slurm itself has made.
  EXPECT_EQ(resolve<SlurmClusterResolver>(changed(kSlurm, "SLURM_STEP_ID", "4294967290")).job_id,
            "12345678.4294967290");
  // Where the user says where the chief is, the job still has its name, if Slurm gives one.
  Variables given = changed(kSlurm, "CROSSDEVICE_CHIEF_ADDRESS", "h:1");
  EXPECT_EQ(resolve<SlurmClusterResolver>(given).job_id, "12345678.0");
  given.erase("SLURM_JOB_ID");
  EXPECT_EQ(resolve<SlurmClusterResolver>(given).job_id, "");
}

TEST(SlurmClusterResolverTest, ABatchScriptIsNoWorker) {
  Variables without_step_size = kSlurm;
  without_step_size.erase("SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(resolve<SlurmClusterResolver>(without_step_size).num_workers, 11);
  const Variables batch{{"SLURM_JOB_ID", "1"},
                        {"SLURM_PROCID", "0"},
                        {"SLURM_NTASKS", "8"},
                        {"SLURM_LOCALID", "0"},
                        {"SLURM_NODELIST", "n[1-2]"}};
  EXPECT_FALSE(SlurmClusterResolver::is_present(source_of(batch)));
  expect_error<SlurmClusterResolver>(batch, "Slurm: SLURM_STEP_NUM_TASKS is not set");
  EXPECT_TRUE(SlurmClusterResolver::is_present(source_of(kSlurm)));
}

TEST(SlurmClusterResolverTest, ThePlaceOnTheHostMayBeUnknown) {
  for (const char* name : {"SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE"}) {
    const WorkerIdentity identity = resolve<SlurmClusterResolver>(changed(kSlurm, name, ""));
    EXPECT_EQ(identity.local_rank, std::nullopt) << name;
    EXPECT_EQ(identity.local_num_workers, std::nullopt) << name;
  }
}

TEST(SlurmClusterResolverTest, WhatIsMissingOrWrongIsNamed) {
  using Resolver = SlurmClusterResolver;
  expect_error<Resolver>(changed(kSlurm, "SLURM_PROCID", "11"), "SLURM_PROCID is 11, which is not");
  expect_error<Resolver>(changed(kSlurm, "SLURM_JOB_ID", ""), "SLURM_JOB_ID is not set");
  expect_error<Resolver>(changed(kSlurm, "SLURM_JOB_ID", "1_2"), "SLURM_JOB_ID: expected");
  expect_error<Resolver>(changed(kSlurm, "SLURM_STEP_ID", "batch"),
                         "SLURM_STEP_ID: expected a whole number, got 'batch'");
  expect_error<Resolver>(changed(kSlurm, "SLURM_STEP_NODELIST", ""),
                         "SLURM_STEP_NODELIST is not set");
  expect_error<Resolver>(
      changed(kSlurm, "SLURM_STEP_NODELIST", "n[1-"),
      "SLURM_STEP_NODELIST: expected a list of hosts like 'n[1-2],m5', got 'n[1-'");
  expect_error<Resolver>(changed(kSlurm, "SLURM_STEP_TASKS_PER_NODE", "4(2)"),
                         "SLURM_STEP_TASKS_PER_NODE: expected a list of numbers");
  expect_error<Resolver>(changed(kSlurm, "SLURM_NODEID", "3"),
                         "SLURM_NODEID is 3, but SLURM_STEP_TASKS_PER_NODE '4(x2),3' has 3 nodes");
  expect_error<Resolver>(changed(kSlurm, "SLURM_LOCALID", "4"),
                         "expected a local rank from 0 to 3");
}

TEST(CallbackClusterResolverTest, IsWhatItsCallerSays) {
  int calls = 0;
  const CallbackClusterResolver resolver(
      1, 2, [&](std::span<const std::byte> mine, std::span<std::byte> all) {
        ++calls;
        for (std::size_t rank = 0; rank < 2; ++rank) {
          std::copy(mine.begin(), mine.end(),
                    all.begin() + static_cast<std::ptrdiff_t>(rank * mine.size()));
        }
      });
  const WorkerIdentity identity = resolver.identity();
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.num_workers, 2);
  EXPECT_EQ(identity.chief_address, "");
  EXPECT_TRUE(resolver.can_all_gather());
  EXPECT_EQ(calls, 0);
  EXPECT_THAT(resolver.all_gather("abc"), ElementsAre("abc", "abc"));
  EXPECT_EQ(calls, 2);
}

TEST(CallbackClusterResolverTest, NonsenseIsRefusedAtOnce) {
  const AllGatherBytes nothing = [](std::span<const std::byte>, std::span<std::byte>) {};
  EXPECT_THROW(CallbackClusterResolver(2, 2, nothing), ValueError);
  EXPECT_THROW(CallbackClusterResolver(-1, 2, nothing), ValueError);
  EXPECT_THROW(CallbackClusterResolver(0, 0, nothing), ValueError);
  EXPECT_THROW(CallbackClusterResolver(0, 1, nullptr), ValueError);
}

}  // namespace
}  // namespace crossdevice
