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
void expect_to_stay_together(int num_workers, const char* idle_seconds) {
  RunningJob job(
      {"-n", std::to_string(num_workers), "--plain", "--", CROSSDEVICE_IDLE_WORKER, idle_seconds});
  EXPECT_EQ(job.finish(), 0) << job.err;
  std::istringstream lines(job.out);
  int num_right = 0;
  const std::string sum_of_ranks = std::to_string(num_workers * (num_workers - 1) / 2);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line, sum_of_ranks);
    ++num_right;
  }
  EXPECT_EQ(num_right, num_workers);
}

TEST(IdleWorkersTest, TwoHundredAndFiftySixProcessesStayTogether) {
  expect_to_stay_together(256, "15");
}

TEST(IdleWorkersTest, AThousandProcessesStayTogether) { expect_to_stay_together(1000, "30"); }

}  // namespace
}  // namespace crossdevice::run
