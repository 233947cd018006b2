// SPDX-License-Identifier: Apache-2.0
// As many worker processes as one machine can hold, which mostly have nothing to say.
#include <cstddef>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "bench/running_job.h"

namespace crossdevice::run {
namespace {

/// A member that says nothing for 10 s is given up. These do nothing for longer.
TEST(IdleWorkersTest, TwoHundredAndFiftySixProcessesStayTogether) {
  constexpr int kWorkers = 256;
  RunningJob job({"-n", std::to_string(kWorkers), "--plain", "--", CROSSDEVICE_IDLE_WORKER, "15"});
  EXPECT_EQ(job.finish(), 0) << job.err;
  std::istringstream lines(job.out);
  int num_right = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line, std::to_string(kWorkers * (kWorkers - 1) / 2));
    ++num_right;
  }
  EXPECT_EQ(num_right, kWorkers);
}

}  // namespace
}  // namespace crossdevice::run
