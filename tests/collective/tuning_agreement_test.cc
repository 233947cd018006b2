// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/tuning_agreement.h"

#include <cstdlib>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "crossdevice/core/error.h"

#include "device/detail/poison.h"
#include "support/threaded_cluster.h"

namespace crossdevice::detail {
namespace {

using ::testing::HasSubstr;

/// While it lives no descriptor can be opened.
class NoDescriptors {
 public:
  NoDescriptors() {
    const int next = ::dup(0);
    ::close(next);
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(next);
    ::setrlimit(RLIMIT_NOFILE, &now);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

// What the file holds would be an error; it is not read.
const bool kIsSet = (::setenv("CROSSDEVICE_TUNING_FILE", "/proc/self/status", 1), true);

TEST(TuningAgreementTest, AFileThatCannotBeOpenedForLackOfDescriptorsIsExhaustionOnAllRanks) {
  ASSERT_TRUE(kIsSet);
  // It looks into memory through a pipe, and takes an object that it cannot look at for none.
  if (kHasAddressSanitizer) GTEST_SKIP() << "a sanitizer needs descriptors of its own";
  const auto work = [](const std::shared_ptr<Cluster>& cluster) {
    cluster->barrier();
    std::unique_ptr<NoDescriptors> none;
    if (cluster->rank() == 0) none = std::make_unique<NoDescriptors>();
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
