// SPDX-License-Identifier: Apache-2.0
/// Tests whose workers run with each placement on machines.
#pragma once

#include <future>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/worker_processes.h"

namespace crossdevice::testing {

class MachinesTest : public ::testing::TestWithParam<Machines> {
 protected:
  [[nodiscard]] static std::vector<int> run(const std::string& work, int num_workers) {
    return run_workers(work, num_workers, -1, GetParam());
  }
  /// Once with each number of workers.
  static void expect_well(const std::string& work, std::initializer_list<int> nums_workers) {
    for (const int n : nums_workers) EXPECT_EQ(run(work, n), all_well(n)) << n << " workers";
  }
  /// The same with all numbers at once: for work that waits for a time limit, and computes next to nothing.
  static void expect_well_at_once(const std::string& work,
                                  std::initializer_list<int> nums_workers) {
    std::map<int, std::future<std::vector<int>>> results;
    for (const int n : nums_workers) {
      results[n] = std::async(std::launch::async, [&work, n] { return run(work, n); });
    }
    for (auto& [n, result] : results) EXPECT_EQ(result.get(), all_well(n)) << n << " workers";
  }
};

/// For INSTANTIATE_TEST_SUITE_P.
inline std::string machines_name(const ::testing::TestParamInfo<Machines>& tested) {
  return to_string(tested.param);
}

}  // namespace crossdevice::testing
