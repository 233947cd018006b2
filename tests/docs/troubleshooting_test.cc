// SPDX-License-Identifier: Apache-2.0
// docs/troubleshooting.md quotes what the library says: here it says so, and the table must have it.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <regex>
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
#include "support/worker_processes.h"

namespace cd = crossdevice;
using cd::ReduceOp;
using cd::detail::ReservedPort;
using crossdevice::testing::all_well;
using crossdevice::testing::LogKeeper;
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

bool matches(const std::string& said, const std::string& quoted) {
  std::size_t at = 0;
  for (std::size_t begin = 0; begin <= quoted.size();) {
    const std::size_t end = std::min(quoted.find("...", begin), quoted.size());
    at = said.find(quoted.substr(begin, end - begin), at);
    if (at == std::string::npos) return false;
    at += end - begin;
    begin = end + 3;
  }
  return true;
}

/// Whether the table has a row for what was said.
bool is_told(const std::string& said) {
  const std::string plain = without_particulars(said);
  for (const std::string& quoted : quoted_texts()) {
    if (matches(plain, quoted)) return true;
  }
  std::fprintf(stderr, "docs/troubleshooting.md does not have: %s\n", said.c_str());
  return false;
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
  if (cd::num_gpus() > 0) return;
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
        const auto reduce = [&] {
          ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 0.3});
        };
        const bool first = is_told(what_is_said(reduce));
        return first && is_told(what_is_said(reduce)) ? 0 : 2;
      });
}

int dead(cd::Cluster& joined) {
  return with_others(
      joined, [](cd::Cluster& cluster, cd::CrossDeviceOps& ops, const cd::PerReplica& value) {
        if (cluster.rank() == 1) ::_exit(0);
        return is_told(what_is_said([&] { ops.reduce_into(ReduceOp::SUM, value, value); })) ? 0 : 1;
      });
}

int different(cd::Cluster& joined) {
  return with_others(
      joined, [](cd::Cluster& cluster, cd::CrossDeviceOps& ops, const cd::PerReplica&) {
        const std::size_t count = cluster.rank() == 1 ? 999 : 1000;
        const cd::PerReplica other{cd::Tensor::zeros(cd::DType::FLOAT32, {count}, "CPU:0")};
        return is_told(what_is_said([&] { ops.reduce_into(ReduceOp::SUM, other, other); })) ? 0 : 1;
      });
}

TEST(TroubleshootingTest, AWorkerThatDoesNotCome) {
  EXPECT_EQ(run_workers("late", 2), all_well(2));
}
TEST(TroubleshootingTest, AWorkerThatDies) { EXPECT_EQ(run_workers("dead", 2), all_well(2)); }
TEST(TroubleshootingTest, AWorkerThatCallsSomethingElse) {
  EXPECT_EQ(run_workers("different", 2), all_well(2));
}

}  // namespace

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(
      argc, argv, {{"late", late}, {"dead", dead}, {"different", different}});
}
