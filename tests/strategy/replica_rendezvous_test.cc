// SPDX-License-Identifier: Apache-2.0
// The meeting place by itself: rounds under random delays, and every way in which a wait ends.
#include "strategy/detail/replica_rendezvous.h"

#include <functional>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/replicas.h"

namespace crossdevice::detail {
namespace {

using crossdevice::testing::CapturedLog;
using crossdevice::testing::thrown;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Adds up one number per replica.
class SumCall final : public ReplicaCall {
 public:
  explicit SumCall(std::int64_t number, const Deadline& deadline = Deadline::never(),
                   CallKind kind = CallKind::MERGE_CALL)
      : ReplicaCall({.kind = kind}, deadline), number_(number) {}
  void execute(std::span<ReplicaCall* const> calls) override {
    std::int64_t sum = 0;
    for (ReplicaCall* call : calls) sum += static_cast<SumCall*>(call)->number_;
    for (ReplicaCall* call : calls) static_cast<SumCall*>(call)->sum_ = sum;
    if (sum < 0) throw UnavailableError("negative");
  }
  [[nodiscard]] std::int64_t sum() const { return sum_; }

 private:
  std::int64_t number_;
  std::int64_t sum_ = -1;
};

/// One thread per replica; each leaves as its function ends.
void run(ReplicaRendezvous& rendezvous, std::size_t replicas,
         const std::function<void(std::size_t)>& body) {
  rendezvous.begin();
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < replicas; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (...) {
        rendezvous.leave(r, std::current_exception());
        return;
      }
      rendezvous.leave(r);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Does nothing, for a while that differs from call to call: sometimes long enough for the others to fall asleep.
void dawdle(std::mt19937& random) {
  const std::uint32_t choice = random() % 16;
  if (choice == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
  if (choice < 4) std::this_thread::yield();
}

class RendezvousOf : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Replicas, RendezvousOf, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(RendezvousOf, EveryRoundCombinesTheCallsOfThatRoundWhateverTheDelays) {
  const std::size_t replicas = GetParam();
  constexpr std::int64_t kRounds = 500;
  ReplicaRendezvous rendezvous({.num_replicas = replicas});
  std::vector<std::int64_t> wrong(replicas, 0);
  run(rendezvous, replicas, [&](std::size_t r) {
    std::mt19937 random(static_cast<unsigned>(r));
    for (std::int64_t round = 0; round < kRounds; ++round) {
      dawdle(random);
      SumCall call(round * 100 + static_cast<std::int64_t>(r));
      rendezvous.call(r, call);
      const auto n = static_cast<std::int64_t>(replicas);
      if (call.sum() != n * round * 100 + n * (n - 1) / 2) ++wrong[r];
      if (call.sequence() != static_cast<std::uint64_t>(round) + 1) ++wrong[r];
    }
  });
  EXPECT_EQ(wrong, std::vector<std::int64_t>(replicas, 0));
  EXPECT_EQ(rendezvous.take_first_error(), nullptr);
}

TEST_P(RendezvousOf, ErrorsOfARoundReachEveryReplicaAndTheNextRoundWorks) {
  const std::size_t replicas = GetParam();
  ReplicaRendezvous rendezvous({.num_replicas = replicas});
  std::vector<int> caught(replicas, 0);
  std::vector<std::int64_t> sums(replicas, 0);
  run(rendezvous, replicas, [&](std::size_t r) {
    std::mt19937 random(static_cast<unsigned>(r));
    for (int round = 0; round < 200; ++round) {
      dawdle(random);
      SumCall call(round % 3 == 0 ? -1 : 1);
      if (thrown<UnavailableError>([&] { rendezvous.call(r, call); }) == "negative") ++caught[r];
      sums[r] += call.sum();
    }
  });
  const auto n = static_cast<std::int64_t>(replicas);
  EXPECT_EQ(caught, std::vector<int>(replicas, 67));
  EXPECT_EQ(sums, std::vector<std::int64_t>(replicas, n * (133 - 67)));
}

TEST_P(RendezvousOf, AFailingReplicaReleasesTheOthersWhereverTheyAre) {
  const std::size_t replicas = GetParam();
  ReplicaRendezvous rendezvous({.num_replicas = replicas});
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::size_t failing = seed % replicas;
    std::vector<std::string> texts(replicas);
    run(rendezvous, replicas, [&](std::size_t r) {
      std::mt19937 random(seed * 8 + static_cast<unsigned>(r));
      texts[r] = thrown<AbortedError>([&] {
        for (int round = 0;; ++round) {
          dawdle(random);
          if (r == failing && round == 7) throw std::runtime_error("out of coffee");
          SumCall call(1);
          rendezvous.call(r, call);
        }
      });
    });
    const std::exception_ptr error = rendezvous.take_first_error();
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(thrown<std::runtime_error>([&] { std::rethrow_exception(error); }), "out of coffee");
    for (std::size_t r = 0; r < replicas; ++r) {
      if (r == failing) continue;
      EXPECT_THAT(texts[r], HasSubstr("merge_call #8 of replica " + std::to_string(r) +
                                      " was aborted: replica " + std::to_string(failing) +
                                      " failed: out of coffee"));
    }
  }
}

TEST(ReplicaRendezvousTest, ADeadlineNamesWhoDidNotComeAndWhatTheyDidLast) {
  ReplicaRendezvous rendezvous({.num_replicas = 3, .first_replica_id = 10});
  std::vector<std::string> late(3);
  std::string timed_out;
  std::vector<int> culprits;
  std::atomic<bool> may_come = false;
  run(rendezvous, 3, [&](std::size_t r) {
    SumCall first(1);
    rendezvous.call(r, first);
    if (r == 2) {
      may_come.wait(false);
      SumCall second(1);
      late[r] = thrown<AbortedError>([&] { rendezvous.call(r, second); });
      return;
    }
    // Replica 0's deadline ends replica 1's wait too, though that one had none.
    SumCall second(1, r == 0 ? Deadline::after(std::chrono::seconds(2)) : Deadline::never());
    try {
      rendezvous.call(r, second);
    } catch (const DeadlineExceededError& error) {
      late[r] = "deadline";
      if (r == 0) {
        timed_out = error.what();
        for (const RankInfo& info : error.culprits()) culprits.push_back(info.replica);
        may_come = true;
        may_come.notify_all();
      }
    }
    SumCall third(1);
    late[r] += thrown<AbortedError>([&] { rendezvous.call(r, third); });
  });
  EXPECT_THAT(timed_out, HasSubstr("merge_call #2 timed out"));
  EXPECT_THAT(timed_out, HasSubstr("waiting for replica 12, last seen in merge_call #1"));
  EXPECT_THAT(culprits, ElementsAre(12));
  EXPECT_THAT(late[2],
              HasSubstr("merge_call #2 of replica 12 comes too late: merge_call #2 timed out"));
  EXPECT_THAT(late[0], HasSubstr("merge_call #3 of replica 10 comes too late"));
}

TEST(ReplicaRendezvousTest, AReplicaThatHasReturnedCannotBeWaitedFor) {
  ReplicaRendezvous rendezvous({.num_replicas = 3});
  std::vector<std::string> texts(3);
  run(rendezvous, 3, [&](std::size_t r) {
    SumCall first(1);
    rendezvous.call(r, first);
    if (r == 1) return;
    for (int i = 0; i < 2; ++i) {
      SumCall second(1);
      texts[r] = thrown<ValueError>([&] { rendezvous.call(r, second); });
    }
  });
  EXPECT_EQ(texts[0],
            "the replicas made different calls: replica 0 called merge_call #3, replica 1 has "
            "returned after 1 call");
  EXPECT_EQ(texts[2],
            "the replicas made different calls: replica 2 called merge_call #3, replica 1 has "
            "returned after 1 call");
  EXPECT_EQ(rendezvous.take_first_error(), nullptr);
}

TEST(ReplicaRendezvousTest, DifferentCallsNameBothSidesOnEveryReplicaAndTheNextRoundWorks) {
  ReplicaRendezvous rendezvous({.num_replicas = 3});
  std::vector<std::string> texts(3);
  std::vector<std::int64_t> sums(3);
  run(rendezvous, 3, [&](std::size_t r) {
    SumCall first(1, Deadline::never(), r == 1 ? CallKind::ALL_GATHER : CallKind::ALL_REDUCE);
    texts[r] = thrown<ValueError>([&] { rendezvous.call(r, first); });
    SumCall second(1);
    rendezvous.call(r, second);
    sums[r] = second.sum();
  });
  EXPECT_EQ(texts, std::vector<std::string>(
                       3,
                       "the replicas made different calls: replica 0 called all_reduce #1 (SUM, 0 "
                       "values), replica 1 called all_gather #1 (axis 0, 0 values)"));
  EXPECT_EQ(sums, std::vector<std::int64_t>(3, 3));
}

TEST(ReplicaRendezvousTest, AReplicaThatWaitsLongWithoutADeadlineSaysForWhom) {
  const CapturedLog log;
  ReplicaRendezvous rendezvous({.num_replicas = 2, .stall_warning = std::chrono::milliseconds(5)});
  run(rendezvous, 2, [&](std::size_t r) {
    while (r == 1 && log.messages().size() < 2) std::this_thread::yield();
    SumCall call(1);
    rendezvous.call(r, call);
  });
  ASSERT_GE(log.messages().size(), 2U);
  EXPECT_EQ(log.messages()[0], "replica 0 has waited 0.005 s in merge_call #1 for replica 1");
  EXPECT_EQ(log.messages()[1], "replica 0 has waited 0.01 s in merge_call #1 for replica 1");
}

TEST(ReplicaRendezvousTest, ANewRunStartsAfresh) {
  ReplicaRendezvous rendezvous({.num_replicas = 2});
  run(rendezvous, 2, [](std::size_t r) {
    if (r == 0) throw 5;  // no std::exception
  });
  EXPECT_NE(rendezvous.take_first_error(), nullptr);
  std::vector<std::uint64_t> sequences(2);
  run(rendezvous, 2, [&](std::size_t r) {
    SumCall call(1);
    rendezvous.call(r, call);
    sequences[r] = call.sequence();
  });
  EXPECT_THAT(sequences, ElementsAre(1, 1));
  EXPECT_EQ(rendezvous.take_first_error(), nullptr);
}

TEST(ReplicaRendezvousTest, AnExceptionOfAnyTypeIsAnnounced) {
  ReplicaRendezvous rendezvous({.num_replicas = 2});
  std::string text;
  run(rendezvous, 2, [&](std::size_t r) {
    if (r == 0) throw 5;
    SumCall call(1);
    text = thrown<AbortedError>([&] { rendezvous.call(r, call); });
  });
  EXPECT_EQ(text,
            "merge_call #1 of replica 1 was aborted: replica 0 failed: an exception that is no "
            "std::exception");
}

}  // namespace
}  // namespace crossdevice::detail
