// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/inquest.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/told_chief_loss_error.h"

#include "support/threaded_cluster.h"

namespace crossdevice::detail {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Matcher;
using ::testing::Not;

/// What each of three members hears, and whom it names.
struct Verdicts {
  std::vector<std::string> texts = std::vector<std::string>(3);
  std::vector<std::vector<int>> culprits = std::vector<std::vector<int>>(3);

  void add(int rank, const OpError& error) {
    texts[static_cast<std::size_t>(rank)] = error.what();
    for (const RankInfo& each : error.culprits()) {
      culprits[static_cast<std::size_t>(rank)].push_back(each.rank);
    }
  }
};

/// By member.
using Named = std::vector<std::vector<int>>;

/// Whether somebody was named beside those expected, or heard that it is itself given up.
bool names_more(const Named& named, const Named& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (named[i] == std::vector{static_cast<int>(i)}) continue;
    const bool has_all = std::all_of(expected[i].begin(), expected[i].end(), [&](int rank) {
      return std::find(named[i].begin(), named[i].end(), rank) != named[i].end();
    });
    if (!has_all) return false;
  }
  return named != expected;
}

/// That they hear this, which it returns. Whom a busy machine holds up for longer than kGrace the others name, too, which is right, and tried again.
Verdicts expect_verdicts(const std::function<Verdicts()>& hear, const Named& culprits,
                         const Matcher<const std::vector<std::string>&>& texts) {
  constexpr int kTries = 5;
  Verdicts heard = hear();
  for (int i = 1; i < kTries && names_more(heard.culprits, culprits); ++i) heard = hear();
  EXPECT_EQ(heard.culprits, culprits);
  EXPECT_THAT(heard.texts, texts);
  return heard;
}

/// Those in `late` come to the operation long after the others; each blames the member behind it.
Verdicts verdicts(const std::vector<int>& late) {
  Verdicts heard;
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    Inquest inquest(cluster);
    const int rank = cluster->rank();
    const bool is_late = std::find(late.begin(), late.end(), rank) != late.end();
    const GroupOperation operation = pack_operation({.kind = "reduce", .sequence = 7});
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    if (!is_late) inquest.begin(operation, deadline);
    if (!late.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(2000));
    cluster->barrier();
    if (is_late || late.empty()) inquest.begin(operation, deadline);
    const RankInfo next = cluster->worker((rank + 2) % 3);
    try {
      inquest.hold("reduce #7",
                   DeadlineExceededError("timed out: waiting for " + to_string(next),
                                         {.operation = {}, .culprits = {next}}),
                   true);
    } catch (const DeadlineExceededError& error) {
      heard.add(rank, error);
    }
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(3, work), testing::no_errors(3));
  return heard;
}

TEST(InquestTest, WhoCameLateIsNamedAndNotWhoWaitedForIt) {
  const Verdicts heard = expect_verdicts(
      [] { return verdicts({1}); }, Named{{1}, {1}, {1}},
      ElementsAre(HasSubstr("reduce #7 timed out: waiting for rank 1"),
                  HasSubstr("reduce #7: the others have given up waiting for this worker"), _));
  EXPECT_EQ(heard.texts[2], heard.texts[0]);
}

TEST(InquestTest, SeveralMayComeLate) {
  expect_verdicts(
      [] {
        return verdicts({0, 2});
      },
      Named{{0}, {0, 2}, {2}},
      ElementsAre(HasSubstr("given up waiting for this worker, rank 0"), _,
                  HasSubstr("given up waiting for this worker, rank 2")));
}

/// Rank 1 looks at its deadline long after it.
Verdicts verdicts_after_a_stop() {
  Verdicts heard;
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    Inquest inquest(cluster);
    const int rank = cluster->rank();
    inquest.begin(pack_operation({.kind = "reduce", .sequence = 7}),
                  Deadline::after(std::chrono::milliseconds(rank == 1 ? 100 : 60000)));
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    cluster->barrier();
    const RankInfo next = cluster->worker((rank + 1) % 3);
    try {
      inquest.hold("reduce #7",
                   DeadlineExceededError("timed out: waiting for " + to_string(next),
                                         {.operation = {}, .culprits = {next}}),
                   true);
    } catch (const DeadlineExceededError& error) {
      heard.add(rank, error);
    }
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(3, work), testing::no_errors(3));
  return heard;
}

/// What has come to it meanwhile is not late, nor is who has sent it.
TEST(InquestTest, WhoWasStoppedBeyondItsDeadlineIsNamedItself) {
  expect_verdicts(
      verdicts_after_a_stop, Named{{1}, {1}, {1}},
      ElementsAre(AllOf(HasSubstr("reduce #7 timed out: waiting for rank 1"),
                        HasSubstr(", which saw only 1.")),
                  HasSubstr("the others have given up waiting for this worker, rank 1"), _));
}

/// A ring, each of which waits for the one before: what rank 1 has sent has not come to rank 2, if a message `is_missing`.
Verdicts verdicts_in_a_ring(bool is_missing) {
  Verdicts heard;
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    Inquest inquest(cluster);
    const int rank = cluster->rank();
    cluster->barrier();
    inquest.begin(pack_operation({.kind = "reduce", .sequence = 7}),
                  Deadline::after(std::chrono::seconds(60)));
    const PeerTraffic traffic[] = {{.rank = (rank + 2) % 3,
                                    .num_sent = 0,
                                    .num_received = is_missing && rank == 2 ? 3U : 4U,
                                    .is_awaited = true},
                                   {.rank = (rank + 1) % 3, .num_sent = 4, .num_received = 0}};
    try {
      // As the first one to give up has told it.
      inquest.hold("reduce #7",
                   DeadlineExceededError("timed out: waiting for rank 0",
                                         {.operation = {}, .culprits = {cluster->worker(0)}}),
                   true, traffic);
    } catch (const DeadlineExceededError& error) {
      heard.add(rank, error);
    }
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(3, work), testing::no_errors(3));
  return heard;
}

TEST(InquestTest, WhereAllWaitForEachOtherThoseAreNamedBetweenWhomAMessageIsMissing) {
  for (const bool is_missing : {true, false}) {
    const Verdicts heard =
        expect_verdicts([is_missing] { return verdicts_in_a_ring(is_missing); },
                        Named(3, is_missing ? std::vector({1, 2}) : std::vector({0})),
                        Each(HasSubstr(is_missing ? "waiting is rank 2 (" : "waiting for rank 0")));
    EXPECT_THAT(heard.texts, Each(heard.texts[0]));
  }
}

/// Who does not come is waited for no longer than the caller was promised, and a moment.
TEST(InquestTest, AfterADeadlineItEndsSoon) {
  std::chrono::nanoseconds waited = std::chrono::hours(1);
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    Inquest inquest(cluster);
    cluster->barrier();
    if (cluster->rank() == 0) {
      const Deadline deadline = Deadline::after(std::chrono::milliseconds(50));
      inquest.begin(pack_operation({.kind = "reduce", .sequence = 7}), deadline);
      std::this_thread::sleep_until(deadline.moment());
      EXPECT_THROW(inquest.hold("reduce #7", DeadlineExceededError("timed out"), true),
                   DeadlineExceededError);
      waited =
          std::min<std::chrono::nanoseconds>(waited, Deadline::Clock::now() - deadline.moment());
    }
    cluster->barrier();
  };
  constexpr int kTries = 20;  // a busy machine takes its time, but not always
  constexpr std::chrono::milliseconds kSoon{350};
  for (int i = 0; i < kTries && waited >= kSoon; ++i) {
    EXPECT_EQ(testing::run_clusters(2, work), testing::no_errors(2));
  }
  EXPECT_LT(waited, kSoon);
}

/// Whom each of three members names where rank 1, which is in no operation, does not come. Rank 0's time is over 1 s before rank 2's, after `enter`; it waits
/// for messages from `awaited`.
std::vector<std::vector<int>> named_where_rank_1_is_missing(
    const std::function<void(Cluster& cluster)>& enter, bool comes_rank_2,
    const std::vector<int>& awaited = {}) {
  std::vector<std::vector<int>> culprits(3);
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    Inquest inquest(cluster);
    const int rank = cluster->rank();
    enter(*cluster);
    cluster->barrier();
    if (rank == 1 || (rank == 2 && !comes_rank_2)) return cluster->barrier();
    // A heartbeat of rank 2 has said what it does when rank 0's time is over.
    const Deadline deadline = Deadline::after(std::chrono::milliseconds(rank == 0 ? 3000 : 4000));
    inquest.begin(pack_operation({.kind = "reduce", .sequence = 7}), deadline);
    std::this_thread::sleep_until(deadline.moment());
    try {
      std::vector<RankInfo> ranks;
      ranks.reserve(awaited.size());
      for (const int each : awaited) ranks.push_back(cluster->worker(each));
      inquest.hold("reduce #7",
                   DeadlineExceededError("timed out", {.operation = {}, .culprits = ranks}), true);
    } catch (const DeadlineExceededError& error) {
      for (const RankInfo& each : error.culprits()) {
        culprits[static_cast<std::size_t>(rank)].push_back(each.rank);
      }
    }
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(3, work, {.timeout_seconds = 60, .heartbeat_timeout_seconds = 4}),
            testing::no_errors(3));
  return culprits;
}

/// Rank 2 is in the operation, but comes too late to say so itself.
TEST(InquestTest, WhoIsKnownToBeInTheOperationIsNotNamedForNotSayingSo) {
  const auto enter = [](Cluster& cluster) {
    if (cluster.rank() != 1) cluster.enter_operation("reduce", 7);
  };
  // A machine so busy that rank 2 is late, too, names it.
  constexpr int kTries = 5;
  const std::vector<std::vector<int>> expected{{1}, {}, {1}};
  std::vector<std::vector<int>> culprits;
  for (int i = 0; i < kTries && culprits != expected; ++i) {
    culprits = named_where_rank_1_is_missing(enter, /*comes_rank_2=*/true);
  }
  EXPECT_EQ(culprits, expected);
}

/// As in a reduction to one worker, where the others do not wait for the end.
TEST(InquestTest, WhoHasDoneItsPartIsNotNamedForHearingNothing) {
  for (const std::uint64_t last : {7U, 8U}) {
    const auto enter = [last](Cluster& cluster) {
      if (cluster.rank() == 1) return;
      cluster.enter_operation("reduce", cluster.rank() == 2 ? last : 7);
      if (cluster.rank() == 2) cluster.leave_operation();
    };
    constexpr int kTries = 5;  // as above
    const std::vector<std::vector<int>> expected{{1}, {}, {}};
    std::vector<std::vector<int>> culprits;
    for (int i = 0; i < kTries && culprits != expected; ++i) {
      culprits = named_where_rank_1_is_missing(enter, /*comes_rank_2=*/false);
    }
    EXPECT_EQ(culprits, expected) << last;
  }
}

/// As between two packs of one call.
TEST(InquestTest, WhoOwesAMessageIsNamedThoughItIsInNoOperation) {
  const auto enter = [](Cluster& cluster) {
    if (cluster.rank() == 1) return;
    cluster.enter_operation("reduce", 7);
    if (cluster.rank() == 2) cluster.leave_operation();
  };
  constexpr int kTries = 5;  // a machine so busy that rank 2's heartbeat is late excuses nobody
  const std::vector<std::vector<int>> expected{{1, 2}, {}, {}};
  std::vector<std::vector<int>> culprits;
  for (int i = 0; i < kTries && culprits != expected; ++i) {
    culprits = named_where_rank_1_is_missing(enter, /*comes_rank_2=*/false, /*awaited=*/{2});
  }
  EXPECT_EQ(culprits, expected);
}

TEST(InquestTest, WhereNobodyCameLateTheFirstSaysWhomItWaitedFor) {
  constexpr int kTries = 20;  // whom a busy machine holds up for some 20 ms has come late
  const std::vector<std::vector<int>> expected(3, std::vector<int>{2});
  Verdicts heard;
  for (int i = 0; i < kTries && heard.culprits != expected; ++i) heard = verdicts({});
  EXPECT_EQ(heard.culprits, expected);
  for (const std::string& text : heard.texts) {
    EXPECT_THAT(text, HasSubstr("reduce #7: timed out: waiting for rank 2"));
  }
}

/// What three members hear of which rank 2 has told the others that rank 0, the chief, is gone; and whom they name. Those in `missing` do not come to the
/// inquest, and those in `leaving` leave before it.
Verdicts verdicts_on_the_chief(const std::vector<int>& missing, const std::vector<int>& leaving) {
  Verdicts heard;
  const auto is_in = [](const std::vector<int>& ranks, int rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  };
  std::atomic<int> num_left{3};
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    Inquest inquest(cluster);
    const int rank = cluster->rank();
    inquest.begin(pack_operation({.kind = "reduce", .sequence = 7}),
                  Deadline::after(std::chrono::seconds(60)));
    cluster->barrier();
    if (is_in(leaving, rank)) {
      --num_left;
      return;
    }
    if (!is_in(missing, rank)) {
      const RankInfo chief = cluster->worker(0);
      const RankInfo teller = cluster->worker(2);
      try {
        inquest.hold("reduce #7",
                     ToldChiefLossError(
                         to_string(teller) + ": " + to_string(chief) + " is gone: no heartbeat",
                         {.operation = {}, .culprits = {chief}}, teller),
                     true);
      } catch (const UnavailableError& error) {
        heard.add(rank, error);
      }
    }
    --num_left;
    while (num_left.load() > 0) std::this_thread::yield();  // who is there longer is not gone
  };
  EXPECT_EQ(testing::run_clusters(3, work), testing::no_errors(3));
  return heard;
}

TEST(InquestTest, WhoSaysThatAChiefIsGoneThatAnswersIsNamedItself) {
  const auto says_why =
      AllOf(HasSubstr("reduce #7: rank 2 ("), HasSubstr("is gone: no heartbeat; but rank 0 ("),
            HasSubstr("answers: it is rank 2 ("), HasSubstr(") that does not hear it"));
  expect_verdicts([] { return verdicts_on_the_chief({2}, {}); }, Named{{2}, {2}, {}},
                  ElementsAre(says_why, says_why, _));
}

TEST(InquestTest, WhatTheChiefSaysOfWhoSaysThatItIsGoneCounts) {
  expect_verdicts([] { return verdicts_on_the_chief({}, {2}); }, Named{{2}, {2}, {}},
                  ElementsAre(_, HasSubstr("is gone: it has left"), _));
}

/// It does not come itself, and may have ended.
TEST(InquestTest, ThatAChiefIsGoneIsBelievedWhereItSaysNothing) {
  expect_verdicts(
      [] {
        return verdicts_on_the_chief({0, 2}, {});
      },
      Named{{}, {0}, {}}, ElementsAre(_, Not(HasSubstr("answers")), _));
}

GroupOperation call(std::uint64_t sequence, std::uint64_t fingerprint = 0) {
  return pack_operation({.kind = "reduce", .fingerprint = fingerprint, .sequence = sequence});
}

/// What each of three members hears when all have done what `enter` does with their inquests, and rank 0 has timed out waiting for rank 1.
Verdicts verdicts_after(const std::function<void(Cluster& cluster, Inquest& inquest)>& enter) {
  Verdicts heard;
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    Inquest inquest(cluster);
    const int rank = cluster->rank();
    enter(*cluster, inquest);
    cluster->barrier();
    try {
      const RankInfo named = cluster->worker(1);
      inquest.hold("reduce #?",
                   DeadlineExceededError("timed out: waiting for " + to_string(named),
                                         {.operation = {}, .culprits = {named}}),
                   true);
    } catch (const OpError& error) {
      heard.add(rank, error);
      std::string& text = heard.texts[static_cast<std::size_t>(rank)];
      if (error.code() == StatusCode::INTERNAL) text.insert(0, "internal: ");
    }
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(3, work), testing::no_errors(3));
  return heard;
}

TEST(InquestTest, WhoIsInAnEarlierOperationIsNamedWithIt) {
  const auto enter = [](Cluster& cluster, Inquest& inquest) {
    inquest.begin(call(11), Deadline::never());
    inquest.begin(call(12), Deadline::never());
    if (cluster.rank() != 2) inquest.begin(call(13), Deadline::never());
  };
  const Verdicts heard =
      expect_verdicts([&] { return verdicts_after(enter); }, Named{{2}, {2}, {2}},
                      ElementsAre(AllOf(HasSubstr("timed out: waiting for rank 2 ("),
                                        HasSubstr("), last seen in reduce #12")),
                                  _, HasSubstr("given up waiting for this worker, rank 2 (")));
  EXPECT_EQ(heard.texts[1], heard.texts[0]);
}

/// Ranks 1 and 2 are both behind; the one that the first one names is meant.
TEST(InquestTest, OfThoseInAnEarlierOperationThoseAreNamedThatWereWaitedFor) {
  const auto enter = [](Cluster& cluster, Inquest& inquest) {
    inquest.begin(call(12), Deadline::never());
    std::this_thread::sleep_for(std::chrono::milliseconds(2000));  // nobody is late by half of it
    if (cluster.rank() == 0) inquest.begin(call(13), Deadline::never());
  };
  expect_verdicts([&] { return verdicts_after(enter); }, Named{{1}, {1}, {1}},
                  ElementsAre(_, _, HasSubstr("), last seen in reduce #12")));
}

TEST(InquestTest, CallsThatDifferAreFoundAlsoWhereSomebodyIsAhead) {
  for (const int other : {0, 1, 2}) {
    const auto enter = [other](Cluster& cluster, Inquest& inquest) {
      const bool is_other = cluster.rank() == other;
      inquest.begin(call(12, is_other ? 5 : 6), Deadline::never());
      if (!is_other) inquest.begin(call(13), Deadline::never());
    };
    expect_verdicts(
        [&] { return verdicts_after(enter); }, Named(3, {other}),
        Each(AllOf(HasSubstr("internal: workers make different calls: rank 0 reduce #1"),
                   HasSubstr(" rank " + std::to_string(other) + " reduce #12 "))));
  }
}

/// Who finds the difference does not wait as briefly for the others as who waits for a message: without them nobody could say how calls differ.
TEST(InquestTest, WhereCallsDifferWhoIsBusyIsHeardToo) {
  std::vector<std::string> texts(3);
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    Inquest inquest(cluster);
    const int rank = cluster->rank();
    inquest.begin(call(11, rank == 1 ? 2 : 1), Deadline::after(std::chrono::seconds(60)));
    inquest.set_details({"root " + std::to_string(rank == 1 ? 1 : 0)});
    cluster->barrier();
    if (rank == 2) std::this_thread::sleep_for(2 * Inquest::kGrace);
    try {
      inquest.hold("reduce #11", InternalError("members make different calls"), true);
    } catch (const InternalError& error) {
      texts[static_cast<std::size_t>(rank)] = error.what();
    }
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(3, work), testing::no_errors(3));
  for (const std::string& each : texts) {
    EXPECT_THAT(each, HasSubstr("workers make different calls: rank 0"));
    EXPECT_THAT(each, HasSubstr("root 1"));
  }
}

/// Rank 2 comes late to the first pack of a batch and rank 1 some milliseconds after the others to the last one, in which the time is over.
TEST(InquestTest, WhoCameLateToABatchIsNamedAndNotWhoCameLastToItsLastPack) {
  const auto enter = [](Cluster& cluster, Inquest& inquest) {
    const auto begin = [&](std::uint64_t fingerprint, const Deadline& deadline) {
      inquest.begin(call(7, fingerprint), deadline);
    };
    const auto budget = [] { return Deadline::after(std::chrono::seconds(60)); };
    if (cluster.rank() != 2) {
      const Deadline deadline = budget();
      begin(1, deadline);
      cluster.barrier();  // the first pack is over
      if (cluster.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(60));
      begin(2, deadline);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    const Deadline deadline = budget();
    begin(1, deadline);
    cluster.barrier();
    begin(2, deadline);
  };
  expect_verdicts([&] { return verdicts_after(enter); }, Named{{2}, {2}, {2}},
                  ElementsAre(AllOf(HasSubstr("waiting for rank 2 ("), HasSubstr("), which came "),
                                    HasSubstr(" s after the others")),
                              _, _));
}

}  // namespace
}  // namespace crossdevice::detail
