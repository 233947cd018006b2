// SPDX-License-Identifier: Apache-2.0
// docs/troubleshooting.md quotes what the library says: here it says so, and the table must have it; and a row that nobody says is an error too.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <crossdevice/comm/reserved_port.h>
#include <crossdevice/crossdevice.h>

#include "support/log_keeper.h"
#include "support/loopback_listener.h"
#include "support/worker_processes.h"

namespace cd = crossdevice;
using cd::ReduceOp;
using cd::detail::ReservedPort;
using crossdevice::testing::all_well;
using crossdevice::testing::await_the_others;
using crossdevice::testing::LogKeeper;
using crossdevice::testing::LoopbackListener;
using crossdevice::testing::run_workers;

namespace {

/// Names, numbers and addresses differ from run to run.
std::string without_particulars(const std::string& text) {
  std::string plain =
      std::regex_replace(text, std::regex("fingerprint [0-9a-f]+"), "fingerprint ...");
  plain = std::regex_replace(plain, std::regex("host [^ ,)]+, pid"), "host H, pid");
  return std::regex_replace(plain, std::regex("[0-9]+"), "#");
}

/// The first column of the table, as patterns: "..." stands for anything.
std::vector<std::string> quoted_texts() {
  std::ifstream in(CROSSDEVICE_TROUBLESHOOTING);
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| `")) continue;
    all.push_back(without_particulars(line.substr(3, line.find("` |") - 3)));
  }
  return all;
}

/// Where `quoted` begins in what was said; npos: nowhere.
std::size_t place_in(const std::string& said, const std::string& quoted) {
  std::size_t first = std::string::npos;
  std::size_t at = 0;
  for (std::size_t begin = 0; begin <= quoted.size();) {
    const std::size_t end = std::min(quoted.find("...", begin), quoted.size());
    at = said.find(quoted.substr(begin, end - begin), at);
    if (at == std::string::npos) return at;
    first = std::min(first, at);
    at += end - begin;
    begin = end + 3;
  }
  return first;
}

/// The file that rows are noted in when they are found; every process of this test adds to it.
constexpr const char* kRowsVariable = "TEST_ROWS";

void note_row(const std::string& quoted) {
  if (const char* path = std::getenv(kRowsVariable)) {
    std::ofstream(path, std::ios::app) << quoted << '\n';
  }
}

/// Whether the table has a row for what was said: of several the one that begins first, as errors quote others at their end.
bool is_told(const std::string& said) {
  const std::string plain = without_particulars(said);
  std::size_t first = std::string::npos;
  std::string row;
  for (const std::string& quoted : quoted_texts()) {
    const std::size_t at = place_in(plain, quoted);
    if (at >= first) continue;
    first = at;
    row = quoted;
  }
  if (first == std::string::npos) {
    std::fprintf(stderr, "docs/troubleshooting.md does not have: %s\n", said.c_str());
    return false;
  }
  note_row(row);
  return true;
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// What this test cannot bring about, and the test that does: it expects these words.
struct ToldElsewhere {
  std::string words;
  std::string test;
};
const std::vector<ToldElsewhere>& told_elsewhere() {
  static const auto& all = *new std::vector<ToldElsewhere>{
      // Another machine: another network namespace, which needs root.
      {"is not at a loopback address, which needs a secret", "tests/strangers/namespaces_test.cc"},
      // A host that is down.
      {"no answer to the connection attempts: the ", "tests/comm/chief_link_test.cc"},
      // A stranger.
      {"it refuses without a proof", "tests/comm/chief_link_test.cc"},
      // Another library.
      {"has crossdevice ", "tests/comm/chief_test.cc"},
      // Programs under crossdevice-run.
      {"is set here, but not there", "tests/bench/tls_job_test.cc"},
      {"the remote shell to host ", "tests/bench/remote_hosts_test.cc"},
      {"nothing was heard for ", "tests/bench/remote_job.h"},
      // GPUs, and an NCCL that does not come back.
      {"only the process's end is safe", "tests/ops/nccl_failures_test.cc"},
      // A process without descriptors, and links that are cut.
      {"has no place to meet: ", "tests/comm/rebuild_want_test.cc"},
      {"which had not heard that all had come: ", "tests/comm/late_worker_test.cc"},
      {") that does not hear it", "tests/collective/inquest_test.cc"},
      {"cannot be reached: what was sent to it has not been answered for ",
       "tests/bench/network_faults_test.cc"},
      // A process stays what it has joined as.
      {"those of another process", "tests/comm/logical_workers_test.cc"},
  };
  return all;
}

/// How many rows of the table nobody says, here or elsewhere.
int count_untold(const std::string& path_of_rows) {
  std::set<std::string> told;
  std::ifstream in(path_of_rows);
  for (std::string line; std::getline(in, line);) told.insert(line);
  int untold = 0;
  for (const std::string& quoted : quoted_texts()) {
    bool is_told = told.contains(quoted);
    for (const ToldElsewhere& other : told_elsewhere()) {
      if (quoted.find(other.words) == std::string::npos) continue;
      is_told = text_of(CROSSDEVICE_ROOT "/" + other.test).find(other.words) != std::string::npos;
    }
    if (is_told) continue;
    std::fprintf(stderr, "docs/troubleshooting.md: nobody says: %s\n", quoted.c_str());
    ++untold;
  }
  return untold;
}

template <class F>
std::string what_is_said(const F& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

/// A worker that a launcher has started, as far as these variables say.
std::string said_when_joining(const std::map<std::string, std::string>& variables) {
  return what_is_said([&] {
    const auto resolver =
        cd::detect_cluster_resolver([&](const std::string& name) -> std::optional<std::string> {
          const auto found = variables.find(name);
          if (found == variables.end()) return std::nullopt;
          return found->second;
        });
    (void)cd::Cluster::join(*resolver, {.timeout_seconds = 0.3});
  });
}

TEST(TroubleshootingTest, TheTableIsRead) { EXPECT_GT(quoted_texts().size(), 10U); }

TEST(TroubleshootingTest, WorkersThatDoNotMeet) {
  const LogKeeper log;
  const ReservedPort port;
  EXPECT_TRUE(is_told(said_when_joining({{"CROSSDEVICE_RANK", "1"},
                                         {"CROSSDEVICE_NUM_WORKERS", "3"},
                                         {"CROSSDEVICE_CHIEF_ADDRESS", port.address()}})));
  EXPECT_TRUE(is_told(said_when_joining({{"CROSSDEVICE_RANK", "0"},
                                         {"CROSSDEVICE_NUM_WORKERS", "3"},
                                         {"CROSSDEVICE_CHIEF_ADDRESS", port.address()}})));
  EXPECT_TRUE(is_told(said_when_joining({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})));
  EXPECT_TRUE(is_told(said_when_joining({{"OMPI_COMM_WORLD_RANK", "1"},
                                         {"OMPI_COMM_WORLD_SIZE", "3"},
                                         {"RANK", "0"},
                                         {"WORLD_SIZE", "2"},
                                         {"MASTER_ADDR", "host-a"},
                                         {"MASTER_PORT", "2222"}})));
}

TEST(TroubleshootingTest, AnAddressThatIsTaken) {
  const LoopbackListener other(1);
  EXPECT_TRUE(is_told(said_when_joining({{"CROSSDEVICE_RANK", "0"},
                                         {"CROSSDEVICE_NUM_WORKERS", "2"},
                                         {"CROSSDEVICE_CHIEF_ADDRESS", other.address()}})));
}

TEST(TroubleshootingTest, WrongValues) {
  std::vector<float> a(1000);
  std::vector<float> b(999);
  cd::ReductionToOneDevice ops;
  EXPECT_TRUE(is_told(what_is_said([&] {
    const cd::PerReplica value{cd::Tensor::view(std::span(a), "CPU:0"),
                               cd::Tensor::view(std::span(b), "CPU:1")};
    ops.reduce_into(ReduceOp::SUM, value, value);
  })));
  EXPECT_TRUE(is_told(what_is_said([] {
    (void)cd::Tensor::empty(cd::DType::FLOAT32, {1},
                            "CPU:" + std::to_string(cd::num_logical_cpu_devices() + 6));
  })));
  EXPECT_TRUE(is_told(what_is_said([] {
    (void)cd::parse_environment([](const char* name) {
      return name == std::string_view("CROSSDEVICE_DEFAULT_TIMEOUT") ? "x" : nullptr;
    });
  })));
  if (cd::num_gpus() > 0) {  // this host cannot say so
    return note_row(
        without_particulars("GPU:0: this host has 0 GPUs: this library was built without CUDA"));
  }
  // Why there are none is this build's, or this machine's, own.
  const std::string said =
      what_is_said([] { (void)cd::Tensor::empty(cd::DType::FLOAT32, {1}, "GPU:0"); });
  EXPECT_TRUE(is_told(said.substr(0, said.rfind(": ")) + ": this library was built without CUDA"));
}

TEST(TroubleshootingTest, AFallback) {
  const LogKeeper log;
  cd::NcclAllReduce ops;
  const cd::PerReplica value{cd::Tensor::zeros(cd::DType::FLOAT32, {8}, "CPU:0"),
                             cd::Tensor::zeros(cd::DType::FLOAT32, {8}, "CPU:1")};
  ops.reduce_into(ReduceOp::SUM, value, value);
  EXPECT_TRUE(is_told(log.texts()));
}

TEST(TroubleshootingTest, AChild) {
  (void)cd::Tensor::zeros(cd::DType::FLOAT32, {8}, "CPU:0");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::_exit(is_told(what_is_said([] { (void)cd::Cluster::join(); })) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

/// All begin alike; then rank 1 misbehaves, and the others say what they see.
template <class F>
int with_others(cd::Cluster& joined, const F& then) {
  const std::shared_ptr<cd::Cluster> cluster(&joined, [](cd::Cluster*) {});
  cd::CollectiveAllReduce ops({"CPU:0"}, cluster->num_workers(), {}, cluster);
  const cd::PerReplica value{cd::Tensor::zeros(cd::DType::FLOAT32, {1000}, "CPU:0")};
  ops.reduce_into(ReduceOp::SUM, value, value);
  return then(*cluster, ops, value);
}

int late(cd::Cluster& joined) {
  return with_others(
      joined, [](cd::Cluster& cluster, cd::CrossDeviceOps& ops, const cd::PerReplica& value) {
        if (cluster.rank() == 1) {  // does something else, until the other gives up
          return what_is_said([&] { cluster.barrier(50); }) == "nothing" ? 1 : 0;
        }
        // Meanwhile a heartbeat says what the late one does, however slow it is to say it when it is missed.
        const auto reduce = [&] {
          ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 6});
        };
        const bool first = is_told(what_is_said(reduce));
        return first && is_told(what_is_said(reduce)) ? 0 : 2;
      });
}

int dead(cd::Cluster& joined) {
  return with_others(
      joined, [](cd::Cluster& cluster, cd::CrossDeviceOps& ops, const cd::PerReplica& value) {
        if (cluster.rank() == 1) ::_exit(0);
        if (!is_told(what_is_said([&] { ops.reduce_into(ReduceOp::SUM, value, value); }))) return 1;
        if (!is_told(what_is_said([&] { (void)cluster.rebuild(cd::Survivors::ONLY); }))) return 2;
        const cd::Rebuilt alone = cluster.rebuild(cd::Survivors::ONLY, {.min_workers = 1});
        return alone.cluster->num_workers() == 1 ? 0 : 3;
      });
}

int rebuilt(cd::Cluster& joined) {
  return with_others(
      joined, [](cd::Cluster& cluster, cd::CrossDeviceOps& ops, const cd::PerReplica& value) {
        const cd::Rebuilt next = cluster.rebuild(cd::Survivors::ALL);
        const auto reduce = [&] { ops.reduce_into(ReduceOp::SUM, value, value); };
        const bool told = is_told(what_is_said(reduce));
        next.cluster->barrier();
        return told ? 0 : 1;
      });
}

int different(cd::Cluster& joined) {
  return with_others(joined, [](cd::Cluster& cluster, cd::CrossDeviceOps& ops,
                                const cd::PerReplica&) {
    const std::size_t count = cluster.rank() == 1 ? 999 : 1000;
    const cd::PerReplica other{cd::Tensor::zeros(cd::DType::FLOAT32, {count}, "CPU:0")};
    const bool told = is_told(what_is_said([&] { ops.reduce_into(ReduceOp::SUM, other, other); }));
    await_the_others();  // who is late is to hear of it, and not that this one has gone
    return told ? 0 : 1;
  });
}

int forgetful(cd::Cluster& joined) {
  return with_others(
      joined, [](cd::Cluster& cluster, cd::CrossDeviceOps& ops, const cd::PerReplica& value) {
        cluster.barrier();
        cd::GradientBucketer bucketer(ops, std::vector{value});
        if (cluster.rank() == 0) bucketer.ready(0);
        const std::string said = what_is_said([&] { bucketer.wait(); });
        await_the_others();
        return cluster.rank() == 1 || is_told(said) ? 0 : 1;
      });
}

/// What docs/troubleshooting.md says of what stands behind the values' size: only what differs.
int different_within(cd::Cluster& joined) {
  const bool is_first = joined.rank() == 0;
  const auto batch_of = [](std::size_t first, std::size_t second) {
    return std::vector{cd::PerReplica{cd::Tensor::zeros(cd::DType::FLOAT32, {first}, "CPU:0")},
                       cd::PerReplica{cd::Tensor::zeros(cd::DType::FLOAT32, {second}, "CPU:0")}};
  };
  const std::vector<cd::PerReplica> equal = batch_of(10, 20);
  const std::vector<cd::PerReplica> other = is_first ? batch_of(10, 20) : batch_of(20, 10);
  const std::shared_ptr<cd::Cluster> cluster(&joined, [](cd::Cluster*) {});
  const auto differ = [&](const std::vector<cd::PerReplica>& batch,
                          const cd::CommunicationOptions& options, const char* how) {
    cd::CollectiveAllReduce ops({"CPU:0"}, cluster->num_workers(), {}, cluster);
    const std::string said =
        what_is_said([&] { ops.batch_reduce_into(ReduceOp::SUM, batch, options); });
    cluster->barrier();
    const std::string call = " batch_reduce #1 SUM of 2 float32 values, 120 bytes, ";
    const std::regex all("workers make different calls: rank 0" + call + how + "; rank 1" + call +
                         how);
    if (std::regex_match(said, all)) return true;
    std::fprintf(stderr, "not %s alone: %s\n", how, said.c_str());
    return false;
  };
  if (!differ(other, {}, "value 0: (10|20) float32")) return 1;
  if (!differ(equal, {.bytes_per_pack = is_first ? 1 << 10 : 1 << 20},
              "bytes_per_pack (1024|1048576)"))
    return 2;
  if (!differ(equal, {.deterministic = is_first}, "(not )?deterministic")) return 3;
  return 0;
}

/// Rank 0 has a secret, and waits for the other until it is killed.
int with_a_forgotten_secret() {
  const std::string path = std::string(std::getenv(kRowsVariable)) + ".secret";
  if (std::getenv("CROSSDEVICE_RANK") == std::string_view("0")) {
    std::ofstream(path) << "a secret that only one of them knows\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    ::setenv("CROSSDEVICE_SECRET_FILE", path.c_str(), 1);
  } else {
    ::unsetenv("CROSSDEVICE_SECRET_FILE");
  }
  const std::string said = what_is_said([] { (void)cd::Cluster::join({.timeout_seconds = 60}); });
  return is_told(said) ? 0 : 1;
}

/// Every worker has a secret of its own; the first one waits for the other until it is killed.
int with_a_secret_of_its_own() {
  const std::string rank = std::getenv("CROSSDEVICE_RANK");
  const std::string path = std::string(std::getenv(kRowsVariable)) + ".secret" + rank;
  std::ofstream(path) << "the secret of rank " << rank << " and of nobody else\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  ::setenv("CROSSDEVICE_SECRET_FILE", path.c_str(), 1);
  const std::string said = what_is_said([] { (void)cd::Cluster::join({.timeout_seconds = 60}); });
  std::filesystem::remove(path);
  return is_told(said) ? 0 : 1;
}

TEST(TroubleshootingTest, ASecretThatIsNone) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(std::filesystem::path(std::getenv(kRowsVariable)).parent_path());
  const auto said_of = [](const char* secret, std::filesystem::perms mode) {
    std::ofstream("job.secret") << secret;
    std::filesystem::permissions("job.secret", mode);
    return what_is_said([] { (void)cd::Cluster::join({.secret_file = "job.secret"}); });
  };
  using std::filesystem::perms;
  EXPECT_TRUE(is_told(said_of("hunter\n", perms::owner_read | perms::owner_write)));
  EXPECT_TRUE(is_told(said_of("hunter\n", perms::owner_read | perms::owner_write |
                                              perms::group_read | perms::others_read)));
  std::filesystem::remove("job.secret");
  std::filesystem::current_path(before);
}
TEST(TroubleshootingTest, AWorkerWithAnotherSecret) {
  EXPECT_EQ(run_workers("with_a_secret_of_its_own", 2, /*stopped=*/0)[1], 0);
}
TEST(TroubleshootingTest, AWorkerWithoutASecret) {
  EXPECT_EQ(run_workers("with_a_forgotten_secret", 2, /*stopped=*/0)[1], 0);
}
TEST(TroubleshootingTest, AWorkerThatDoesNotCome) {
  EXPECT_EQ(run_workers("late", 2), all_well(2));
}
TEST(TroubleshootingTest, AWorkerThatDies) { EXPECT_EQ(run_workers("dead", 2), all_well(2)); }
TEST(TroubleshootingTest, AnObjectOfAnEarlierCluster) {
  EXPECT_EQ(run_workers("rebuilt", 2), all_well(2));
}
TEST(TroubleshootingTest, AWorkerThatForgetsAGradient) {
  EXPECT_EQ(run_workers("forgetful", 2), all_well(2));
}
TEST(TroubleshootingTest, AWorkerThatCallsSomethingElse) {
  EXPECT_EQ(run_workers("different", 2), all_well(2));
  EXPECT_EQ(run_workers("different_within", 2), all_well(2));
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_worker = std::getenv(kRowsVariable) != nullptr;
  const bool is_filtered = argc > 1;
  std::string folder = "/tmp/troubleshooting.XXXXXX";
  if (!is_worker) {
    if (::mkdtemp(folder.data()) == nullptr) return 1;
    ::setenv(kRowsVariable, (folder + "/rows").c_str(), 1);
  }
  const int result =
      crossdevice::testing::worker_main(argc, argv,
                                        {{"late", late},
                                         {"dead", dead},
                                         {"forgetful", forgetful},
                                         {"rebuilt", rebuilt},
                                         {"different", different},
                                         {"different_within", different_within},
                                         {"with_a_secret_of_its_own", with_a_secret_of_its_own},
                                         {"with_a_forgotten_secret", with_a_forgotten_secret}});
  if (is_worker) return result;
  const int untold = is_filtered ? 0 : count_untold(folder + "/rows");
  std::filesystem::remove_all(folder);
  return result != 0 || untold != 0 ? 1 : 0;
}
