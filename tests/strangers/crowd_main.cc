// SPDX-License-Identifier: Apache-2.0
/// main() of tests that send crowds to a job's doors: as worker_main.cc, with many descriptors.
#include <algorithm>
#include <optional>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "strangers/job.h"

int main(int argc, char** argv) {
  if (const std::optional<int> status = crossdevice::strangers::run_as_worker()) return *status;
  rlimit descriptors{};
  (void)::getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = std::min<rlim_t>(descriptors.rlim_max, 8192);
  (void)::setrlimit(RLIMIT_NOFILE, &descriptors);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
