// SPDX-License-Identifier: Apache-2.0
// CollectiveAllReduce among processes: rank 0's file says which algorithm all take.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

/// The file is written by the test; rank 0 alone reads it.
int obey_tuning(Cluster& cluster) {
  const char* const expected = std::getenv("TEST_EXPECTED");
  try {
    CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
    const std::string text = ops.explain(1 << 20);
    for (const std::string& theirs : cluster.all_gather_bytes(text)) {
      if (theirs != text) return 1;
    }
    const std::string packs = ops.explain_packs();
    for (const std::string& theirs : cluster.all_gather_bytes(packs)) {
      if (theirs != packs) return 3;
    }
    const char* const expected_packs = std::getenv("TEST_EXPECTED_PACKS");
    if (packs.find(expected_packs) == std::string::npos) {
      std::cerr << packs << '\n';
      return 4;
    }
    if (text.starts_with(expected)) return 0;
    std::cerr << text << '\n';
  } catch (const ValueError& error) {
    if (std::string(error.what()).find(expected) != std::string::npos) return 0;
    std::cerr << "unexpected: " << error.what() << '\n';
  }
  return 2;
}

TEST(CollectiveAllReduceTuning, AFileOfRank0PinsTheAlgorithmForAll) {
  const std::string file = ::testing::TempDir() + "tuning_" + std::to_string(::getpid());
  ::setenv("CROSSDEVICE_TUNING_FILE", file.c_str(), 1);
  const auto run_with = [&](const std::string& text, const std::string& expected,
                            const std::string& packs) {
    std::ofstream(file) << text;
    ::setenv("TEST_EXPECTED", expected.c_str(), 1);
    ::setenv("TEST_EXPECTED_PACKS", packs.c_str(), 1);
    EXPECT_EQ(run_workers("obey tuning", 3, -1, Machines::ONE_EACH), all_well(3));
  };
  run_with(
      R"({"all_reduce": [{"up_to_bytes": 1000, "algorithm": "ring"}, {"algorithm": "rechd"}]})",
      "rechd, ", ": 4 MiB a pack, as no links are known");
  run_with(R"({"links": {"latency_seconds": 1e-3, "ring_bytes_per_second": 1e9,
                         "mesh_bytes_per_second": 1e3}})",
           "ring, 5398.1 us expected (shuffle ", ": 32 MiB a pack, 50739.2 us expected, ");
  // 4 rounds and 2 in which all agree, 4/3 of the bytes: 6 of 146 ms.
  run_with(R"({"links": {"latency_seconds": 1e-3, "ring_bytes_per_second": 1e7,
                         "mesh_bytes_per_second": 1e3}})",
           "ring, ",
           ": 1 MiB a pack, 145810.1 us expected, 4.1 % of it for no bytes (256 KiB 14.7 %");
  const std::string at_fault = "rank 0: CROSSDEVICE_TUNING_FILE: " + file + ": tuning: ";
  run_with("nonsense", at_fault + "[json.exception.parse_error.101]", "");
  run_with(R"({"lnks": {}})", at_fault + R"(the file has no "lnks", but links, all_reduce)", "");
  std::filesystem::remove(file);
  ::setenv("TEST_EXPECTED", "rank 0: CROSSDEVICE_TUNING_FILE: ", 1);
  EXPECT_EQ(run_workers("obey tuning", 2, -1, Machines::ONE_EACH), all_well(2));
  ::unsetenv("CROSSDEVICE_TUNING_FILE");
  ::setenv("TEST_EXPECTED", "direct reduction in shared memory", 1);
  ::setenv("TEST_EXPECTED_PACKS", ": 4 MiB a pack", 1);
  EXPECT_EQ(run_workers("obey tuning", 2), all_well(2));
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, {{"obey tuning", crossdevice::obey_tuning}});
}
