// SPDX-License-Identifier: Apache-2.0
/// main() of tests whose jobs' workers are this program again.
#include <optional>

#include <gtest/gtest.h>

#include "strangers/job.h"

int main(int argc, char** argv) {
  if (const std::optional<int> status = crossdevice::strangers::run_as_worker()) return *status;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
