// SPDX-License-Identifier: Apache-2.0
// Whatever bytes stand in the variables: an identity that makes sense, or a ValueError. Seeded, so that a failure can be repeated.
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/comm/detect_cluster_resolver.h"
#include "crossdevice/core/error.h"

#include "comm/detail/node_list.h"
#include "comm/environment_map.h"

namespace crossdevice {
namespace {

constexpr int kRounds = 4000;

/// Everything that any launcher sets, with values it might set.
const Variables kEverything{
    {"CROSSDEVICE_RANK", "1"},
    {"CROSSDEVICE_NUM_WORKERS", "2"},
    {"CROSSDEVICE_LOCAL_RANK", "0"},
    {"CROSSDEVICE_LOCAL_NUM_WORKERS", "1"},
    {"CROSSDEVICE_CHIEF_ADDRESS", "[fd00::1]:4000"},
    {"CROSSDEVICE_LAUNCHER", ""},
    {"TF_CONFIG",
     R"({"cluster": {"chief": ["c:1"], "worker": {"0": "a:1", "1": "b:2222"}, "ps": []}, "task": {"type": "worker", "index": "0"}, "rpc_layer": "grpc", "environment": "cloud", "x": [1, {"y": null}]})"},
    {"RANK", "1"},
    {"WORLD_SIZE", "2"},
    {"LOCAL_RANK", "0"},
    {"LOCAL_WORLD_SIZE", "1"},
    {"MASTER_ADDR", "node-a"},
    {"MASTER_PORT", "29500"},
    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
    {"PET_NNODES", "2:2"},
    {"PET_NODE_RANK", "1"},
    {"PET_MASTER_ADDR", "10.0.0.1"},
    {"PET_MASTER_PORT", "1"},
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
    {"OMPI_MCA_orte_hnp_uri", "283705344.0;tcp://192.0.2.2,198.51.100.7:37563;tcp6://[fd00::2]:1"},
    {"PMIX_RANK", "1"},
    {"PMIX_NAMESPACE", "prterun-host-4711@1"},
    {"PMI_RANK", "1"},
    {"PMI_SIZE", "2"},
    {"MPI_LOCALRANKID", "0"},
    {"MPI_LOCALNRANKS", "1"},
    {"SLURM_PROCID", "1"},
    {"SLURM_STEP_NUM_TASKS", "2"},
    {"SLURM_LOCALID", "0"},
    {"SLURM_NODEID", "1"},
    {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
    {"SLURM_STEP_NODELIST", "n[1-2],m5,o[3-4,06]"},
    {"SLURM_JOB_ID", "4711"}};

class Fuzzer {
 public:
  explicit Fuzzer(std::uint32_t seed) : random_(seed) {}

  std::size_t below(std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_);
  }
  char byte() { return static_cast<char>(1 + below(255)); }  // a variable has no zero byte

  std::string noise() {
    std::string text(below(40), ' ');
    for (char& c : text) c = byte();
    return text;
  }

  /// `text` with a few bytes changed, dropped, repeated or put in.
  std::string mutated(std::string text) {
    static constexpr std::string_view kTelling = "[](){},:;.-x\"\\0199999 \n\xff";
    for (std::size_t edits = 1 + below(4); edits-- > 0;) {
      const std::size_t at = below(text.size() + 1);
      const char c = below(2) == 0 ? byte() : kTelling[below(kTelling.size())];
      switch (below(5)) {
        case 0:
          text.insert(at, 1, c);
          break;
        case 1:
          text.erase(at, 1 + below(3));
          break;
        case 2:
          text.insert(at, text.substr(0, below(20)));
          break;
        case 3:
          text.resize(at);
          break;
        case 4:
          if (at < text.size()) text[at] = c;
          break;
      }
    }
    return text;
  }

 private:
  std::mt19937 random_;
};

/// Nothing but a ValueError may come out, and nothing but a sound identity.
void expect_sound(const Variables& variables) {
  try {
    const WorkerIdentity identity = detect_cluster_resolver(source_of(variables))->identity();
    EXPECT_NO_THROW(validate(identity));
  } catch (const ValueError& error) {
    EXPECT_NE(std::string(error.what()), "");
  }
}

TEST(LauncherFuzzTest, MutationsOfOneLaunchersVariables) {
  const std::vector<std::string> words{"crossdevice", "tf_config", "torchrun", "openmpi",
                                       "pmix",        "mpich",     "slurm"};
  Fuzzer fuzzer(20261);
  for (int round = 0; round < kRounds; ++round) {
    Variables variables = kEverything;
    variables["CROSSDEVICE_LAUNCHER"] = words[fuzzer.below(words.size())];
    if (fuzzer.below(2) == 0) variables["CROSSDEVICE_CHIEF_ADDRESS"] = "";
    if (fuzzer.below(2) == 0) variables["LOCAL_RANK"] = "";
    auto victim = variables.begin();
    std::advance(victim, static_cast<std::ptrdiff_t>(fuzzer.below(variables.size())));
    victim->second = fuzzer.below(4) == 0 ? fuzzer.noise() : fuzzer.mutated(victim->second);
    SCOPED_TRACE("round " + std::to_string(round) + ": " + victim->first + "=" + victim->second);
    expect_sound(variables);
  }
}

TEST(LauncherFuzzTest, AnySubsetOfTheVariables) {
  Fuzzer fuzzer(20262);
  for (int round = 0; round < kRounds; ++round) {
    Variables variables;
    for (const auto& [name, value] : kEverything) {
      const std::size_t fate = fuzzer.below(16);
      if (fate < 10) variables[name] = value;
      if (fate == 10) variables[name] = fuzzer.mutated(value);
      if (fate == 11) variables[name] = fuzzer.noise();
    }
    SCOPED_TRACE("round " + std::to_string(round));
    expect_sound(variables);
  }
}

TEST(LauncherFuzzTest, MutationsOfTFConfig) {
  Fuzzer fuzzer(20263);
  for (int round = 0; round < kRounds; ++round) {
    const std::string text = fuzzer.mutated(kEverything.at("TF_CONFIG"));
    SCOPED_TRACE("round " + std::to_string(round) + ": " + text);
    expect_sound({{"TF_CONFIG", text}});
  }
}

TEST(LauncherFuzzTest, MutationsOfNodeLists) {
  Fuzzer fuzzer(20264);
  for (int round = 0; round < kRounds; ++round) {
    const std::string text = fuzzer.mutated("n[1-2],m5,o[3-4,06]x[0-9]");
    const auto hosts = detail::expand_node_list(text);
    if (hosts.has_value()) {
      EXPECT_FALSE(hosts->empty()) << text;
      EXPECT_LE(hosts->size(), 100'000U) << text;
      for (const std::string& host : *hosts) ASSERT_FALSE(host.empty()) << text;
    }
    (void)detail::expand_task_counts(fuzzer.mutated("4(x2),3,1(x7)"));
  }
}

}  // namespace
}  // namespace crossdevice
