// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/tuning_agreement.h"

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "support/threaded_cluster.h"
#include "support/without_descriptors.h"

namespace crossdevice::detail {
namespace {

using ::testing::HasSubstr;

// What the file holds would be an error; it is not read.
const bool kIsSet = (::setenv("CROSSDEVICE_TUNING_FILE", "/proc/self/status", 1), true);

TEST(TuningAgreementTest, AFileThatCannotBeOpenedForLackOfDescriptorsIsExhaustionOnAllRanks) {
  ASSERT_TRUE(kIsSet);
  if (!testing::can_do_without_descriptors()) GTEST_SKIP() << "a sanitizer needs descriptors";
  const auto work = [](const std::shared_ptr<Cluster>& cluster) {
    cluster->barrier();
    std::optional<testing::WithoutDescriptors> none;
    if (cluster->rank() == 0) none.emplace();
    try {
      (void)receive_tuning(*cluster, Deadline::after(std::chrono::seconds(30)));
      ADD_FAILURE() << "no error";
    } catch (const ResourceExhaustedError& error) {
      EXPECT_THAT(error.what(), HasSubstr("CROSSDEVICE_TUNING_FILE: /proc/self/status cannot be "
                                          "opened: Too many open files"));
      ASSERT_EQ(error.culprits().size(), 1U);
      EXPECT_EQ(error.culprits()[0].rank, 0);
    }
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(2, work), testing::no_errors(2));
}

}  // namespace
}  // namespace crossdevice::detail
