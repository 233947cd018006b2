// SPDX-License-Identifier: Apache-2.0
// Workers are processes, of which one lacks descriptors while all make their cluster anew: this program starts itself once per rank.
#include <cstddef>
#include <iostream>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/error.h"

#include "support/without_descriptors.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

constexpr int kNumWorkers = 6;
/// Nobody is left out for being slow.
constexpr RebuildOptions kOptions{.timeout_seconds = 60, .patience_seconds = 30};

/// While it lives this process may open so many more descriptors; what closes meanwhile would come on top.
class FewDescriptors {
 public:
  explicit FewDescriptors(std::size_t more) {
    (void)::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    // The number of the first that is one too many.
    std::size_t num_free = 0;
    for (limit.rlim_cur = 0;; ++limit.rlim_cur) {
      const bool is_open = ::fcntl(static_cast<int>(limit.rlim_cur), F_GETFD) != -1;
      if (!is_open && num_free++ == more) break;
    }
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~FewDescriptors() { (void)::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

/// Whether it is its own error; the others wait meanwhile, of whom none ends up with an error.
bool lacks_descriptors(Cluster& cluster, std::size_t more) {
  const FewDescriptors few(more);
  cluster.barrier();  // only now do the others call, and ask whoever they find
  try {
    (void)cluster.rebuild(Survivors::ONLY, kOptions);
    std::cerr << "with " << more << " descriptors: no error\n";
  } catch (const ResourceExhaustedError& error) {
    const bool names_itself =
        error.culprits().empty() ||
        (error.culprits().size() == 1 && error.culprits()[0].rank == cluster.rank());
    const std::string text = error.what();
    const bool says_what = text.find("Too many open files") != std::string::npos &&
                           (more > 0 || text.find("has no place to meet: ") != std::string::npos);
    if (names_itself && says_what) return true;
    std::cerr << "with " << more << " descriptors it says something else: " << text << '\n';
  } catch (const std::exception& error) {
    std::cerr << "with " << more << " descriptors: " << error.what() << '\n';
  }
  return false;
}

int lack(Cluster& cluster, int who, std::size_t more) {
  cluster.barrier();  // whatever was open for a moment while they joined is closed
  if (cluster.rank() != who) {
    cluster.barrier();
  } else if (!lacks_descriptors(cluster, more)) {
    return 1;
  }
  const Rebuilt rebuilt = cluster.rebuild(Survivors::ONLY, kOptions);
  if (rebuilt.cluster->num_workers() != kNumWorkers) {
    std::cerr << "rank " << cluster.rank() << " is one of " << rebuilt.cluster->num_workers()
              << '\n';
    return 2;
  }
  rebuilt.cluster->barrier();
  return 0;
}

Works works() {
  Works all;
  for (const auto& [who, more] :
       {std::pair(0, 0U), std::pair(0, 3U), std::pair(0, 4U), std::pair(0, 5U), std::pair(5, 0U)}) {
    all.emplace(fmt::format("{} has {}", who, more),
                [who = who, more = more](Cluster& cluster) { return lack(cluster, who, more); });
  }
  return all;
}

/// Of the first, which is to be the next cluster's chief: it cannot ask, nor listen; or listen, but take in no more than some of the others.
TEST(RebuildWantTest, WhoCannotTakeAllInIsNotTheChiefAndSaysWhatItLacks) {
  if (!can_do_without_descriptors()) GTEST_SKIP() << "a sanitizer needs descriptors";
  for (const char* const work : {"0 has 0", "0 has 3", "0 has 4", "0 has 5"}) {
    EXPECT_EQ(run_workers(work, kNumWorkers), all_well(kNumWorkers)) << work;
  }
}

/// Of the last, which asks the others.
TEST(RebuildWantTest, WhoCannotAskSaysWhatItLacks) {
  if (!can_do_without_descriptors()) GTEST_SKIP() << "a sanitizer needs descriptors";
  EXPECT_EQ(run_workers("5 has 0", kNumWorkers), all_well(kNumWorkers));
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::works());
}
