// SPDX-License-Identifier: Apache-2.0
// What a worker takes from its chief. With other processes: control_plane_test.cc; whatever a chief says: fuzz/control_worker.cc.
#include "comm/detail/membership.h"

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr RoundId kRound{1, 2};

std::string members(const std::vector<int>& ranks) {
  Members all;
  for (const int rank : ranks) all.members.emplace_back().rank = rank;
  return all.encode();
}

/// Rank 1 of 2, whose chief answers in place.
class MembershipTest : public ::testing::Test {
 protected:
  void hear(ControlKind kind, const std::string& payload) { membership_.hear({kind, payload}); }
  std::vector<std::string> gather(const RoundListener& on_end = {}) {
    return membership_.exchange(kRound, {}, "gather", "mine", Deadline::never(), on_end);
  }

  std::function<void()> on_exchange_ = [] {};
  Membership membership_{{.rank = 1, .num_workers = 2, .stall_warning = std::chrono::hours(1)},
                         {.say =
                              [this](ControlKind kind, const std::string&) {
                                if (kind == ControlKind::EXCHANGE) on_exchange_();
                              },
                          .on_members = [] {},
                          .on_question = [](std::uint64_t) {}}};
};

TEST_F(MembershipTest, MembersAreByRank) {
  EXPECT_THROW(hear(ControlKind::MEMBERS, members({0})), WireError);
  EXPECT_THROW(hear(ControlKind::MEMBERS, members({1, 0})), WireError);
  EXPECT_THROW(hear(ControlKind::MEMBERS, members({0, 9})), WireError);
  EXPECT_TRUE(membership_.members().empty());
  hear(ControlKind::MEMBERS, members({0, 1}));
  EXPECT_EQ(membership_.members().size(), 2U);
  EXPECT_FALSE(membership_.meeting_failure().has_value());
}

TEST_F(MembershipTest, AnAnswerHasOnePartOfEachMember) {
  on_exchange_ = [this] {
    for (const auto& parts : {std::vector<std::string>{"a"}, {"a", "b", "c"}, {}}) {
      EXPECT_THROW(hear(ControlKind::EXCHANGED, Exchanged{kRound, parts}.encode()), WireError);
    }
    hear(ControlKind::EXCHANGED, Exchanged{kRound, {"a", "b"}}.encode());
  };
  EXPECT_THAT(gather(), ElementsAre("a", "b"));
}

TEST_F(MembershipTest, TheFirstAnswerCounts) {
  int num_completions = 0;
  int num_failures = 0;
  const RoundListener on_end{.on_failure = [&](const std::exception_ptr&) { ++num_failures; },
                             .on_completion = [&] { ++num_completions; }};
  const std::string parts = Exchanged{kRound, {"a", "b"}}.encode();
  const std::string others = Exchanged{kRound, {"c", "d"}}.encode();
  const std::string failure = ExchangeFailed{.id = kRound, .text = "no"}.encode();
  on_exchange_ = [&] {
    hear(ControlKind::EXCHANGED, parts);
    hear(ControlKind::EXCHANGED, others);
    hear(ControlKind::EXCHANGE_FAILED, failure);
  };
  EXPECT_THAT(gather(on_end), ElementsAre("a", "b"));
  EXPECT_EQ(num_completions, 1);
  EXPECT_EQ(num_failures, 0);
  on_exchange_ = [&] {
    hear(ControlKind::EXCHANGE_FAILED, failure);
    hear(ControlKind::EXCHANGE_FAILED, failure);
    hear(ControlKind::EXCHANGED, parts);
  };
  EXPECT_THROW((void)gather(on_end), AbortedError);
  EXPECT_EQ(num_completions, 1);
  EXPECT_EQ(num_failures, 1);
}

TEST_F(MembershipTest, WhoIsNamedIsAMember) {
  const std::vector<RankInfo> nobody{{.rank = 2}};
  const std::string text = "gone";
  EXPECT_THROW(hear(ControlKind::MEMBER_LOST, MemberLost{2, text}.encode()), WireError);
  EXPECT_THROW(hear(ControlKind::ABORT, Abort{-1, text}.encode()), WireError);
  EXPECT_THROW(hear(ControlKind::POST, Post{1, 2, {1}, text}.encode()), WireError);
  EXPECT_THROW(hear(ControlKind::MISSING, Missing{kRound, nobody}.encode()), WireError);
  EXPECT_THROW(hear(ControlKind::EXCHANGE_FAILED,
                    ExchangeFailed{.id = kRound, .text = text, .culprits = nobody}.encode()),
               WireError);
  EXPECT_THROW(hear(ControlKind::REFUSED, Refused{.text = text, .culprits = nobody}.encode()),
               WireError);
  EXPECT_FALSE(membership_.meeting_failure().has_value());
}

TEST_F(MembershipTest, ALostChiefEndsWhatWaitsAndWhatComesLater) {
  on_exchange_ = [this] { membership_.lose_chief("no heartbeat"); };
  for (int i = 0; i < 2; ++i) {
    try {
      (void)gather();
      ADD_FAILURE() << "there is nobody who answers";
    } catch (const UnavailableError& error) {
      EXPECT_THAT(error.what(), HasSubstr("no heartbeat"));
    }
  }
}

}  // namespace
}  // namespace crossdevice::detail
