// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/argument_agreement.h"

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::no_errors;
using ::testing::Not;
using testing::run_clusters;

std::string number(int value) { return std::to_string(value); }

/// What agree_on_arguments() throws, which must be a ValueError; "" where nothing.
std::string refusal(Cluster& cluster, const std::function<std::string()>& describe,
                    std::optional<double> timeout_seconds = std::nullopt) {
  try {
    (void)agree_on_arguments(cluster, describe, meeting_deadline(timeout_seconds));
  } catch (const ValueError& error) {
    return error.what();
  }
  return "";
}

TEST(AgreeOnArguments, EverybodyGetsEverybodysText) {
  for (const std::size_t n : {1U, 2U, 3U, 5U}) {
    EXPECT_EQ(run_clusters(n,
                           [n](const std::shared_ptr<Cluster>& cluster) {
                             std::vector<std::string> texts(n);  // the first one has none
                             for (std::size_t i = 1; i < n; ++i) texts[i] = std::string(i, 'T');
                             const std::string mine =
                                 texts[static_cast<std::size_t>(cluster->rank())];
                             EXPECT_EQ(agree_on_arguments(*cluster, [&] { return mine; }), texts);
                           }),
              no_errors(n));
  }
}

TEST(AgreeOnArguments, TheTroubleOfOneIsAnErrorOfAll) {
  for (const std::size_t n : {1U, 2U, 3U, 5U}) {
    for (const int culprit : {0, static_cast<int>(n) - 1}) {
      EXPECT_EQ(run_clusters(n,
                             [=](const std::shared_ptr<Cluster>& cluster) {
                               const std::string text = refusal(*cluster, [&]() -> std::string {
                                 if (cluster->rank() == culprit) throw ValueError("no such thing");
                                 return "fine";
                               });
                               EXPECT_THAT(text, HasSubstr("rank " + number(culprit) + " ("));
                               EXPECT_THAT(text, HasSubstr("): no such thing"));
                               EXPECT_THAT(text, Not(HasSubstr(";")));
                               cluster->barrier();  // it is whole
                             }),
                no_errors(n));
    }
  }
}

TEST(AgreeOnArguments, AllTroublesAreTold) {
  EXPECT_EQ(run_clusters(4,
                         [](const std::shared_ptr<Cluster>& cluster) {
                           const std::string text = refusal(*cluster, [&]() -> std::string {
                             // Of any kind, and of any length.
                             if (cluster->rank() == 1) throw std::runtime_error("first");
                             if (cluster->rank() == 3) throw ValueError(std::string(5000000, 'x'));
                             return "fine";
                           });
                           EXPECT_THAT(text, AllOf(HasSubstr("rank 1 ("), HasSubstr("): first; "),
                                                   HasSubstr("rank 3 (")));
                           EXPECT_LT(text.size(), 20000U);
                         }),
            no_errors(4));
}

TEST(AgreeOnArguments, WhoHasNoMemoryIsNamedToAll) {
  EXPECT_EQ(run_clusters(3,
                         [](const std::shared_ptr<Cluster>& cluster) {
                           const auto describe = [&]() -> std::string {
                             if (cluster->rank() == 1) throw std::bad_alloc();
                             return "fine";
                           };
                           try {
                             (void)agree_on_arguments(*cluster, describe);
                             ADD_FAILURE() << "no error";
                           } catch (const ResourceExhaustedError& error) {
                             EXPECT_THAT(error.what(), HasSubstr("no memory left in rank 1"));
                             ASSERT_EQ(error.culprits().size(), 1U);
                             EXPECT_EQ(error.culprits()[0].rank, 1);
                           }
                         }),
            no_errors(3));
}

TEST(AgreeOnArguments, WhoDoesNotComeIsWaitedForUntilTheTimeout) {
  EXPECT_EQ(run_clusters(3,
                         [](const std::shared_ptr<Cluster>& cluster) {
                           const std::shared_ptr<Cluster> all = cluster->subgroup({0, 1, 2});
                           if (cluster->rank() == 1) {
                             // Its own trouble is what it can do something about.
                             EXPECT_EQ(
                                 refusal(
                                     *all, []() -> std::string { throw ValueError("mine"); }, 0.2),
                                 "mine");
                           } else if (cluster->rank() == 0) {
                             try {
                               (void)agree_on_arguments(
                                   *all, [] { return "fine"; }, meeting_deadline(0.2));
                               ADD_FAILURE() << "no error";
                             } catch (const DeadlineExceededError& error) {
                               EXPECT_THAT(error.what(), HasSubstr("rank 2"));
                             }
                           }
                           cluster->barrier();
                         }),
            no_errors(3));
}

TEST(AgreeOnArguments, ATimeoutThatIsNoneDoesNoHarm) {
  for (const double timeout : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(run_clusters(2,
                           [=](const std::shared_ptr<Cluster>& cluster) {
                             EXPECT_EQ(refusal(
                                           *cluster, [] { return "fine"; }, timeout),
                                       "");
                           }),
              no_errors(2));
  }
}

}  // namespace
}  // namespace crossdevice
