// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/succession.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

using ::testing::ElementsAre;

TEST(SuccessionTest, AMajorityChoosesThoseWhoHaveCome) {
  std::vector<SuccessionVoter> voters(5);
  SuccessionCandidate candidate({1, {0, 1, 2, 3, 4}}, 1, 3, voters[1]);
  EXPECT_TRUE(candidate.hear_promise(4, voters[4].promise(candidate.ballot())));
  EXPECT_FALSE(candidate.has_quorum());
  EXPECT_TRUE(candidate.hear_promise(2, voters[2].promise(candidate.ballot())));
  EXPECT_TRUE(candidate.has_quorum());
  EXPECT_FALSE(candidate.is_bound());
  EXPECT_THAT(candidate.propose().members, ElementsAre(1, 2, 4));
  EXPECT_TRUE(candidate.hear_vote(2, voters[2].vote(candidate.proposal())));
  EXPECT_FALSE(candidate.is_chosen());
  EXPECT_TRUE(candidate.hear_vote(4, voters[4].vote(candidate.proposal())));
  EXPECT_TRUE(candidate.is_chosen());
}

TEST(SuccessionTest, WhoLeavesAfterItsPromiseIsNotProposed) {
  std::vector<SuccessionVoter> voters(3);
  SuccessionCandidate candidate({1, {0, 1, 2}}, 0, 2, voters[0]);
  EXPECT_TRUE(candidate.hear_promise(1, voters[1].promise(candidate.ballot())));
  EXPECT_TRUE(candidate.hear_promise(2, voters[2].promise(candidate.ballot())));
  candidate.leave(1);
  EXPECT_THAT(candidate.come(), ElementsAre(0, 2));
  EXPECT_THAT(candidate.propose().members, ElementsAre(0, 2));
}

TEST(SuccessionTest, ALaterCandidateProposesWhatMayHaveBeenChosen) {
  std::vector<SuccessionVoter> voters(3);
  SuccessionCandidate first({1, {0, 1, 2}}, 0, 2, voters[0]);
  EXPECT_TRUE(first.hear_promise(1, voters[1].promise(first.ballot())));
  (void)voters[1].vote(first.propose());  // and rank 0 dies before it hears of it
  SuccessionCandidate second({1, {0, 1, 2}}, 1, 2, voters[1]);
  EXPECT_GT(second.ballot(), first.ballot());
  EXPECT_TRUE(second.is_bound());
  EXPECT_TRUE(second.hear_promise(2, voters[2].promise(second.ballot())));
  EXPECT_THAT(second.propose().members, ElementsAre(0, 1));
}

TEST(SuccessionTest, AHigherPromiseMakesTheCandidateAskAgain) {
  std::vector<SuccessionVoter> voters(3);
  SuccessionCandidate low({1, {0, 1, 2}}, 0, 2, voters[0]);
  SuccessionCandidate high({1, {0, 1, 2}}, 1, 2, voters[1]);
  (void)voters[2].promise(high.ballot());
  const Ballot before = low.ballot();
  EXPECT_FALSE(low.hear_promise(2, voters[2].promise(low.ballot())));
  EXPECT_GT(low.ballot(), before);
  EXPECT_GT(low.ballot(), high.ballot());
  EXPECT_TRUE(low.hear_promise(2, voters[2].promise(low.ballot())));
  EXPECT_TRUE(low.has_quorum());
  // The other's proposal comes too late.
  EXPECT_FALSE(high.has_quorum());
  EXPECT_EQ(voters[2].vote({high.ballot(), {1, 2}}), low.ballot());
  EXPECT_FALSE(voters[2].state().vote.has_value());
}

TEST(SuccessionTest, WhatComesLateOrFromOutsideIsNotCounted) {
  std::vector<SuccessionVoter> voters(4);
  SuccessionCandidate candidate({1, {0, 1, 2}}, 0, 2, voters[0]);
  const Promise old = voters[1].promise(candidate.ballot());
  candidate.begin_again();
  EXPECT_TRUE(candidate.hear_promise(1, old));
  EXPECT_FALSE(candidate.has_quorum());
  EXPECT_TRUE(candidate.hear_promise(3, voters[3].promise(candidate.ballot())));  // no member
  EXPECT_FALSE(candidate.has_quorum());
  EXPECT_TRUE(candidate.hear_vote(1, candidate.ballot()));  // nothing is proposed yet
  EXPECT_FALSE(candidate.is_chosen());
}

/// Any number of candidates at once, messages lost, doubled and late, candidates that begin again and others that stop: whatever is chosen is one list.
class Chaos {
 public:
  explicit Chaos(unsigned seed, std::size_t size) : random_(seed), voters_(size) {
    for (std::size_t rank = 0; rank < size; ++rank)
      epoch_.members.push_back(static_cast<int>(rank));
    for (const int rank : epoch_.members) {
      candidates_.emplace_back(std::in_place, epoch_, rank, size / 2 + 1, voter(rank));
    }
  }
  std::set<std::vector<int>> run(int steps) {
    for (int i = 0; i < steps; ++i) step();
    return chosen_;
  }

 private:
  struct Message {
    enum class Kind { PREPARE, PROMISE, PROPOSE, ACCEPT } kind;
    int candidate;
    int member;
    Promise promise{};
    Vote vote{};
    Ballot ballot{};
  };
  SuccessionVoter& voter(int rank) { return voters_[static_cast<std::size_t>(rank)]; }
  std::optional<SuccessionCandidate>& candidate(int rank) {
    return candidates_[static_cast<std::size_t>(rank)];
  }
  int any_rank() {
    return std::uniform_int_distribution<int>(0, static_cast<int>(voters_.size()) - 1)(random_);
  }
  bool chance(int percent) { return std::uniform_int_distribution<int>(0, 99)(random_) < percent; }

  void step() {
    const int rank = any_rank();
    std::optional<SuccessionCandidate>& mine = candidate(rank);
    if (chance(30)) {
      const int to = any_rank();
      if (to != rank)
        messages_.push_back({Message::Kind::PREPARE, rank, to, {}, {}, mine->ballot()});
      if (mine->has_proposed() && to != rank) {
        messages_.push_back({Message::Kind::PROPOSE, rank, to, {}, mine->proposal(), {}});
      }
    }
    if (chance(2)) mine->begin_again();
    if (chance(1)) mine.emplace(epoch_, rank, voters_.size() / 2 + 1, voter(rank));
    if (chance(5)) mine->leave(any_rank());
    if (mine->has_quorum() && !mine->has_proposed() && chance(50)) (void)mine->propose();
    if (mine->is_chosen()) chosen_.insert(mine->proposal().members);
    if (messages_.empty()) return;
    const std::size_t which =
        std::uniform_int_distribution<std::size_t>(0, messages_.size() - 1)(random_);
    const Message message = messages_[which];
    if (!chance(10)) messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(which));
    if (chance(10)) return;  // lost
    deliver(message);
  }
  void deliver(const Message& message) {
    std::optional<SuccessionCandidate>& to = candidate(message.candidate);
    switch (message.kind) {
      case Message::Kind::PREPARE:
        messages_.push_back({Message::Kind::PROMISE,
                             message.candidate,
                             message.member,
                             voter(message.member).promise(message.ballot),
                             {},
                             {}});
        break;
      case Message::Kind::PROPOSE:
        messages_.push_back({Message::Kind::ACCEPT,
                             message.candidate,
                             message.member,
                             {},
                             {},
                             voter(message.member).vote(message.vote)});
        break;
      case Message::Kind::PROMISE:
        (void)to->hear_promise(message.member, message.promise);
        break;
      case Message::Kind::ACCEPT:
        (void)to->hear_vote(message.member, message.ballot);
        break;
    }
  }

  std::mt19937 random_;
  Epoch epoch_;
  std::vector<SuccessionVoter> voters_;
  std::vector<std::optional<SuccessionCandidate>> candidates_;
  std::vector<Message> messages_;
  std::set<std::vector<int>> chosen_;
};

TEST(SuccessionTest, AtMostOneListIsChosenWhateverHappens) {
  std::size_t num_decided = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    const std::set<std::vector<int>> chosen = Chaos(seed, 2 + seed % 4).run(3000);
    EXPECT_LE(chosen.size(), 1U) << "seed " << seed;
    num_decided += chosen.size();
  }
  EXPECT_GT(num_decided, 100U);  // it is not for want of choices
}

}  // namespace
}  // namespace crossdevice::detail
