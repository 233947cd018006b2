// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/chief.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A chief whose members are lists of what they were sent.
class ChiefTest : public ::testing::Test {
 protected:
  ChiefTest()
      : chief_({.num_workers = 3, .library_version = "v", .addresses_by_rank = {"a:1", "b:1", ""}},
               hello(0).member.rank_info(), sender()) {}

  Chief::Send sender() {
    return [this](int rank, const SharedFrame& frame) {
      sent_[rank].push_back(decode_frame_body(std::string_view(*frame).substr(kFrameHeadBytes)));
      frames_[rank] = frame;
    };
  }
  static Hello hello(int rank) {
    Hello message;
    message.library_version = "v";
    message.num_workers = 3;
    message.member = {.rank = rank, .host = "h", .host_id = "i", .pid = 100 + rank};
    return message;
  }
  void admit_all() {
    for (int rank = 0; rank < 3; ++rank) chief_.admit(hello(rank));
    sent_.clear();
  }
  void contribute(int rank, std::uint64_t sequence, const std::string& bytes,
                  const std::vector<int>& members = {}, const std::string& kind = "barrier",
                  std::uint64_t group = 1) {
    chief_.handle(
        rank, {ControlKind::EXCHANGE, Exchange{{group, sequence}, members, kind, bytes}.encode()});
  }
  /// The only frame that a rank got, which must be of that kind.
  std::string only(int rank, ControlKind kind) {
    const std::vector<Frame> frames = std::move(sent_[rank]);
    sent_[rank].clear();
    EXPECT_EQ(frames.size(), 1U) << "rank " << rank;
    if (frames.size() != 1) return "";
    EXPECT_EQ(frames[0].kind, kind) << "rank " << rank;
    return frames[0].payload;
  }
  ExchangeFailed failure(int rank) {
    return ExchangeFailed::decode(only(rank, ControlKind::EXCHANGE_FAILED));
  }

  std::map<int, std::vector<Frame>> sent_;
  std::map<int, SharedFrame> frames_;  // the last one
  Chief chief_;
};

TEST_F(ChiefTest, BeforeAllHaveComeARankMayChangeHands) {
  chief_.admit(hello(0));
  chief_.admit(hello(1));
  // The same process comes again before its end is known.
  EXPECT_FALSE(chief_.refuse(hello(1)).has_value());
  EXPECT_FALSE(chief_.is_contested(hello(1)));
  chief_.admit(hello(1));
  EXPECT_THAT(chief_.absent(), ElementsAre(2));
  // Another one does, while that is there.
  Hello another = hello(1);
  another.member.pid = 7;
  EXPECT_FALSE(chief_.refuse(another).has_value());
  EXPECT_TRUE(chief_.is_contested(another));
  EXPECT_EQ(chief_.held_by_another(another).text,
            "host h, pid 7 claims rank 1, which host h, pid 101 holds already");
  another.library_version = "w";  // what does not fit does not contest
  EXPECT_THAT(chief_.refuse(another)->text, HasSubstr("has crossdevice w, the chief has v"));
  another.library_version = "v";
  chief_.handle(1, {ControlKind::HEARTBEAT, Heartbeat{"what the first one did"}.encode()});
  chief_.await_anew(1);
  chief_.lost(1, "it does not answer");
  EXPECT_FALSE(chief_.is_contested(another));
  chief_.admit(another);
  EXPECT_FALSE(chief_.is_complete());
  EXPECT_TRUE(chief_.is_contested(hello(1)));  // the first one, if it lives after all
  chief_.admit(hello(2));
  EXPECT_TRUE(chief_.is_complete());
  for (int rank = 0; rank < 3; ++rank) {  // and no loss
    EXPECT_EQ(Members::decode(only(rank, ControlKind::MEMBERS)).members[1].pid, 7);
  }
  contribute(0, 1, "a");
  chief_.handle(0, {ControlKind::WHO_IS_MISSING, WhoIsMissing{{1, 1}}.encode()});
  EXPECT_EQ(Missing::decode(only(0, ControlKind::MISSING)).ranks.at(0).last_operation, "");
}

TEST_F(ChiefTest, WhoHasGoneBeforeAllHaveComeIsReplacedByWhoeverComes) {
  chief_.admit(hello(0));
  chief_.admit(hello(1));
  chief_.lost(1, "its connection ended");
  Hello another = hello(1);
  another.member.pid = 7;
  EXPECT_FALSE(chief_.refuse(another).has_value());
  EXPECT_FALSE(chief_.is_contested(another));
  chief_.admit(another);
  EXPECT_THAT(chief_.absent(), ElementsAre(2));
  chief_.admit(hello(2));
  EXPECT_TRUE(chief_.is_complete());
  for (int rank = 0; rank < 3; ++rank) only(rank, ControlKind::MEMBERS);  // and no loss
}

TEST_F(ChiefTest, WhoCameAndWentIsNamedWithTheAbsentAndMissedAsSoonAsAllHaveCome) {
  chief_.admit(hello(0));
  chief_.admit(hello(1));
  chief_.lost(1, "its connection ended");
  EXPECT_TRUE(sent_.empty());  // another process may take its place
  EXPECT_EQ(chief_.describe_absent(),
            "rank 2; came and went: rank 1 (host h, pid 101): its connection ended");
  EXPECT_THAT(chief_.absent(), ElementsAre(2));
  chief_.admit(hello(2));
  for (const int rank : {0, 2}) {
    ASSERT_EQ(sent_[rank].size(), 2U);
    EXPECT_EQ(sent_[rank][0].kind, ControlKind::MEMBERS);
    EXPECT_EQ(sent_[rank][1].kind, ControlKind::MEMBER_LOST);
    EXPECT_EQ(MemberLost::decode(sent_[rank][1].payload).rank, 1);
  }
}

TEST_F(ChiefTest, WhenAllHaveComeNoRankChangesHands) {
  admit_all();
  Hello another = hello(1);
  another.member.pid = 7;
  EXPECT_FALSE(chief_.is_contested(another));
  EXPECT_FALSE(chief_.comes_late(another));
  EXPECT_THAT(chief_.refuse(another)->text,
              HasSubstr("host h, pid 7 claims rank 1, which host h, pid 101 holds already"));
  chief_.lost(1, "no heartbeat");
  EXPECT_THAT(chief_.refuse(another)->text, HasSubstr("has held before"));
}

TEST_F(ChiefTest, WhoHasNotHeardThatAllHaveComeIsToldThatItWasGivenUp) {
  EXPECT_FALSE(chief_.comes_late(hello(1)));
  admit_all();
  const auto expect_told = [&](const std::string& why) {
    EXPECT_FALSE(chief_.refuse(hello(1)).has_value());
    EXPECT_TRUE(chief_.comes_late(hello(1)));
    const std::vector<SharedFrame> frames = chief_.past_of(1);
    ASSERT_EQ(frames.size(), 2U);
    const auto of = [](const SharedFrame& frame) {
      return decode_frame_body(std::string_view(*frame).substr(kFrameHeadBytes));
    };
    EXPECT_EQ(of(frames[0]).kind, ControlKind::MEMBERS);
    EXPECT_EQ(Members::decode(of(frames[0]).payload).members.size(), 3U);
    EXPECT_EQ(of(frames[1]).kind, ControlKind::ABORT);
    const Abort abort = Abort::decode(of(frames[1]).payload);
    EXPECT_EQ(abort.origin, 0);
    EXPECT_EQ(abort.text, "gave rank 1 up, which had not heard that all had come: " + why);
  };
  expect_told("it has come again");
  EXPECT_TRUE(sent_.empty());  // the others hear of its loss, when that is known
  chief_.lost(1, "no heartbeat");
  sent_.clear();
  expect_told("no heartbeat");
  EXPECT_TRUE(sent_.empty());
  EXPECT_FALSE(chief_.is_present(1));
  // Who has left has heard of all.
  chief_.handle(2, {ControlKind::GOODBYE, ""});
  EXPECT_FALSE(chief_.comes_late(hello(2)));
  EXPECT_THAT(chief_.refuse(hello(2))->text, HasSubstr("has held before"));
}

TEST_F(ChiefTest, WhoIsSilentBeforeAllHaveComeIsWaitedForAgain) {
  chief_.admit(hello(0));
  chief_.admit(hello(1));
  chief_.await_anew(1);
  chief_.lost(1, "no heartbeat");  // nobody has gone
  EXPECT_THAT(chief_.absent(), ElementsAre(1, 2));
  chief_.admit(hello(2));
  EXPECT_FALSE(chief_.is_complete());
  EXPECT_FALSE(chief_.refuse(hello(1)).has_value());
  chief_.admit(hello(1));
  EXPECT_TRUE(chief_.is_complete());
  for (int rank = 0; rank < 3; ++rank) only(rank, ControlKind::MEMBERS);
  chief_.await_anew(1);  // too late for that
  EXPECT_TRUE(chief_.is_present(1));
}

TEST_F(ChiefTest, TellsAllWhoIsThereWhenTheLastOneHasCome) {
  chief_.admit(hello(0));
  chief_.admit(hello(2));
  EXPECT_TRUE(sent_.empty());
  EXPECT_THAT(chief_.absent(), ElementsAre(1));
  chief_.admit(hello(1));
  EXPECT_TRUE(chief_.is_complete());
  for (int rank = 0; rank < 3; ++rank) {
    const Members members = Members::decode(only(rank, ControlKind::MEMBERS));
    ASSERT_EQ(members.members.size(), 3U);
    EXPECT_EQ(members.members[2].pid, 102);
  }
}

TEST_F(ChiefTest, RefusesWhoDoesNotFit) {
  chief_.admit(hello(1));
  Hello other = hello(2);
  other.library_version = "w";
  EXPECT_THAT(chief_.refuse(other)->text, HasSubstr("has crossdevice w, the chief has v"));
  other = hello(2);
  other.num_workers = 4;
  EXPECT_THAT(chief_.refuse(other)->text, HasSubstr("4 workers"));
  EXPECT_TRUE(chief_.refuse(hello(3)).has_value());
  EXPECT_TRUE(chief_.refuse(hello(-1)).has_value());
  EXPECT_FALSE(chief_.refuse(hello(2)).has_value());
}

TEST_F(ChiefTest, KnowsWhyARankIsAbsent) {
  chief_.admit(hello(0));
  Hello other = hello(2);
  other.library_version = "w";
  ASSERT_TRUE(chief_.refuse(other).has_value());
  EXPECT_FALSE(chief_.is_spoiled());  // rank 1 may still come
  EXPECT_EQ(chief_.describe_absent(),
            "rank 1 (at b:1), rank 2; refused: rank 2 (host h, pid 102) has crossdevice w, the "
            "chief has v");
  chief_.admit(hello(1));
  EXPECT_TRUE(chief_.is_spoiled());
  const Refused refused = chief_.cancel_meeting(StatusCode::FAILED_PRECONDITION, "unfit");
  ASSERT_EQ(refused.culprits.size(), 1U);
  EXPECT_EQ(refused.culprits[0].pid, 102);
  EXPECT_EQ(Refused::decode(only(1, ControlKind::REFUSED)).code, StatusCode::FAILED_PRECONDITION);
  // The right one comes after all, too late: the others have gone.
  EXPECT_EQ(chief_.refuse(hello(2))->text, "unfit");
  EXPECT_FALSE(chief_.is_complete());
}

TEST_F(ChiefTest, AMeetingThatIsCancelledNamesTheAbsent) {
  chief_.admit(hello(1));
  const Refused refused = chief_.cancel_meeting(StatusCode::DEADLINE_EXCEEDED, "late");
  ASSERT_EQ(refused.culprits.size(), 2U);
  EXPECT_EQ(refused.culprits[0].rank, 0);
  EXPECT_EQ(refused.culprits[1].rank, 2);
  EXPECT_EQ(Refused::decode(only(1, ControlKind::REFUSED)).text, "late");
}

TEST_F(ChiefTest, AMeetingThatWasCancelledTakesNobodyIn) {
  chief_.admit(hello(0));
  chief_.admit(hello(1));
  chief_.lost(1, "its connection ended");
  EXPECT_FALSE(chief_.is_anybody_in_doubt());  // it may come anew
  (void)chief_.cancel_meeting(StatusCode::DEADLINE_EXCEEDED, "late");
  EXPECT_TRUE(chief_.is_anybody_in_doubt());  // rank 1 does not know
  Hello another = hello(1);
  another.member.pid = 7;
  EXPECT_TRUE(chief_.refuse(another).has_value());
  EXPECT_TRUE(chief_.is_anybody_in_doubt());  // nor when another process has asked for its rank
  for (const int rank : {1, 2}) {
    const std::optional<Refused> refused = chief_.refuse(hello(rank));
    ASSERT_TRUE(refused.has_value()) << rank;
    EXPECT_EQ(refused->code, StatusCode::DEADLINE_EXCEEDED);
    EXPECT_EQ(refused->text, "late");
    ASSERT_EQ(refused->culprits.size(), 2U);
    EXPECT_EQ(refused->culprits[0].rank, 1);  // which was not there, either
    EXPECT_EQ(refused->culprits[1].rank, 2);
  }
  EXPECT_FALSE(chief_.is_anybody_in_doubt());
}

TEST_F(ChiefTest, ARoundGivesEverybodyEveryPart) {
  admit_all();
  contribute(2, 1, "c");
  contribute(0, 1, "a");
  contribute(0, 2, "next");  // one may run ahead
  EXPECT_TRUE(sent_.empty());
  contribute(1, 1, "b");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(Exchanged::decode(only(rank, ControlKind::EXCHANGED)).parts,
                ElementsAre("a", "b", "c"));
  }
}

TEST_F(ChiefTest, ThePartsOfARoundAreQueuedOnceForAll) {
  admit_all();
  for (int rank = 0; rank < 3; ++rank) contribute(rank, 1, "a");
  EXPECT_EQ(frames_.at(0), frames_.at(1));
  EXPECT_EQ(frames_.at(0), frames_.at(2));
}

TEST_F(ChiefTest, AChiefWithoutMemoryEndsAllForAll) {
  admit_all();
  contribute(0, 1, "x");
  contribute(2, 1, "z");
  chief_.end_for_want();
  for (int rank = 0; rank < 3; ++rank) {
    const Abort told = Abort::decode(only(rank, ControlKind::ABORT));
    EXPECT_EQ(told.origin, 0);
    EXPECT_EQ(told.text, "the chief has no memory for what it is told");
  }
  // Whoever comes later, in whatever round, is told too.
  contribute(1, 1, "y");
  const ExchangeFailed late = failure(1);
  EXPECT_EQ(late.code, StatusCode::ABORTED);
  EXPECT_THAT(late.text, HasSubstr("rank 0 (host h, pid 100) aborted: the chief has no memory"));
  chief_.end_for_want();
  EXPECT_TRUE(sent_[0].empty());
}

TEST_F(ChiefTest, BeforeAllHaveComeNothingIsEndedForWantOfMemory) {
  chief_.admit(hello(0));
  chief_.end_for_want();
  EXPECT_TRUE(sent_[0].empty());
  chief_.admit(hello(1));
  chief_.admit(hello(2));
  EXPECT_EQ(sent_[0].size(), 1U);  // who is there
}

TEST_F(ChiefTest, ARoundThatNoFrameCanCarryFailsOnAllAndNobodyIsBlamedForTheFrame) {
  constexpr int kMany = 65;
  std::map<int, std::vector<SharedFrame>> sent;
  Chief chief({.num_workers = kMany, .library_version = "v"}, hello(0).member.rank_info(),
              [&](int rank, const SharedFrame& frame) { sent[rank].push_back(frame); });
  for (int rank = 0; rank < kMany; ++rank) {
    Hello each = hello(rank);
    each.num_workers = kMany;
    chief.admit(each);
  }
  const auto give = [&](int rank, std::uint64_t group, std::size_t size) {
    chief.handle(rank, {ControlKind::EXCHANGE,
                        Exchange{{group, 1}, {}, "gather", std::string(size, 'x')}.encode()});
  };
  // As much as a frame takes: its kind, the round, the number of parts, and the parts after their lengths.
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  constexpr std::size_t kHead = 1 + 16 + 4 + 4 * kMany;
  sent.clear();
  for (int rank = 0; rank < 63; ++rank) give(rank, 1, kMiB);
  give(63, 1, kMiB - kHead);
  give(64, 1, 0);
  for (int rank = 0; rank < kMany; ++rank) {
    ASSERT_EQ(sent[rank].size(), 1U);
    EXPECT_EQ(sent[rank][0]->size(), kFrameHeadBytes + kMaxFrameBytes);
    EXPECT_EQ(sent[rank][0], sent[0][0]);
  }
  // And one byte more.
  sent.clear();
  for (int rank = 0; rank < 63; ++rank) give(rank, 2, kMiB);
  give(63, 2, kMiB - kHead + 1);
  give(64, 2, 0);
  for (int rank = 0; rank < kMany; ++rank) {
    ASSERT_EQ(sent[rank].size(), 1U);
    const Frame frame = decode_frame_body(std::string_view(*sent[rank][0]).substr(kFrameHeadBytes));
    ASSERT_EQ(frame.kind, ControlKind::EXCHANGE_FAILED);
    const ExchangeFailed failed = ExchangeFailed::decode(frame.payload);
    EXPECT_EQ(failed.code, StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(failed.text, HasSubstr("more than the 67108864 that one round may carry"));
    EXPECT_TRUE(chief.is_present(rank));
  }
}

TEST_F(ChiefTest, AGroupHasItsOwnOrder) {
  admit_all();
  contribute(0, 1, "a", {2, 0}, "barrier", 7);
  contribute(2, 1, "c", {2, 0}, "barrier", 7);
  EXPECT_THAT(Exchanged::decode(only(0, ControlKind::EXCHANGED)).parts, ElementsAre("c", "a"));
  EXPECT_TRUE(sent_[1].empty());
}

TEST_F(ChiefTest, AMemberThatGoesFailsTheRoundsThatMissIt) {
  admit_all();
  contribute(0, 1, "a");
  contribute(1, 1, "x", {1, 0}, "other", 7);
  chief_.lost(2, "its connection ended");
  const std::vector<Frame> frames = sent_[0];
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(frames[0].kind, ControlKind::MEMBER_LOST);
  const ExchangeFailed failed = ExchangeFailed::decode(frames[1].payload);
  EXPECT_EQ(failed.code, StatusCode::UNAVAILABLE);
  EXPECT_THAT(failed.text, HasSubstr("rank 2 (host h, pid 102) is gone: its connection ended"));
  ASSERT_EQ(failed.culprits.size(), 1U);
  EXPECT_EQ(failed.culprits[0].rank, 2);
  // The group without rank 2 goes on.
  sent_.clear();
  contribute(0, 1, "y", {1, 0}, "other", 7);
  EXPECT_THAT(Exchanged::decode(only(1, ControlKind::EXCHANGED)).parts, ElementsAre("x", "y"));
  // Whoever comes later hears it at once.
  sent_.clear();
  contribute(1, 1, "b");
  EXPECT_EQ(failure(1).code, StatusCode::UNAVAILABLE);
}

TEST_F(ChiefTest, AMemberThatWentAfterItsPartDoesNotFailTheRound) {
  admit_all();
  contribute(2, 1, "c");
  chief_.lost(2, "x");
  sent_.clear();
  contribute(0, 1, "a");
  contribute(1, 1, "b");
  EXPECT_THAT(Exchanged::decode(only(0, ControlKind::EXCHANGED)).parts, ElementsAre("a", "b", "c"));
  contribute(0, 2, "a");
  EXPECT_EQ(failure(0).code, StatusCode::UNAVAILABLE);
}

TEST_F(ChiefTest, WhoGivesUpEndsTheRoundForAllThatWait) {
  admit_all();
  chief_.handle(1, {ControlKind::HEARTBEAT, Heartbeat{"all_reduce #4"}.encode()});
  contribute(0, 1, "a");
  contribute(2, 1, "c");
  chief_.handle(0, {ControlKind::GIVE_UP, GiveUp{{1, 1}, "barrier timed out after 5 s"}.encode()});
  for (const int rank : {0, 2}) {
    const ExchangeFailed failed = failure(rank);
    EXPECT_EQ(failed.code, StatusCode::DEADLINE_EXCEEDED);
    EXPECT_EQ(failed.text,
              "barrier timed out after 5 s: waiting for rank 1 (host h, pid 101), last seen in "
              "all_reduce #4");
  }
  contribute(1, 1, "b");
  EXPECT_EQ(failure(1).code, StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(ChiefTest, DifferentCallsAreAnErrorThatNamesBoth) {
  admit_all();
  contribute(0, 1, "a", {}, "barrier");
  contribute(1, 1, "b", {}, "broadcast from 0");
  for (const int rank : {0, 1}) {
    const ExchangeFailed failed = failure(rank);
    EXPECT_EQ(failed.code, StatusCode::INTERNAL);
    EXPECT_THAT(failed.text, HasSubstr("rank 0 barrier, rank 1 broadcast from 0"));
  }
  contribute(2, 1, "c");
  EXPECT_EQ(failure(2).code, StatusCode::INTERNAL);
}

TEST_F(ChiefTest, AnAbortEndsEveryRoundAndEveryLaterOne) {
  admit_all();
  contribute(0, 1, "a");
  contribute(0, 1, "a", {0, 2}, "x", 5);
  chief_.handle(1, {ControlKind::ABORT, Abort{1, "boom"}.encode()});
  EXPECT_EQ(sent_[0].size(), 3U);  // the abort and two failures
  EXPECT_EQ(Abort::decode(only(2, ControlKind::ABORT)).text, "boom");
  contribute(2, 1, "c", {0, 2}, "x", 5);
  const ExchangeFailed failed = failure(2);
  EXPECT_EQ(failed.code, StatusCode::ABORTED);
  EXPECT_THAT(failed.text, HasSubstr("rank 1 (host h, pid 101) aborted: boom"));
}

TEST_F(ChiefTest, SaysWhoIsMissing) {
  admit_all();
  contribute(1, 1, "b");
  chief_.handle(1, {ControlKind::WHO_IS_MISSING, WhoIsMissing{{1, 1}}.encode()});
  const Missing missing = Missing::decode(only(1, ControlKind::MISSING));
  ASSERT_EQ(missing.ranks.size(), 2U);
  EXPECT_EQ(missing.ranks[0].rank, 0);
  EXPECT_EQ(missing.ranks[1].rank, 2);
}

TEST_F(ChiefTest, ThoseThatARoundMissesAreAskedWhatTheyDo) {
  admit_all();
  contribute(1, 1, "b");
  chief_.handle(1, {ControlKind::ASK, WhoIsMissing{{1, 1}}.encode()});
  EXPECT_EQ(Ask::decode(only(0, ControlKind::ASK)).nonce, 0U);
  EXPECT_EQ(Ask::decode(only(2, ControlKind::ASK)).nonce, 0U);
  chief_.handle(1, {ControlKind::ASK, WhoIsMissing{{1, 2}}.encode()});  // there is no such round
  chief_.handle(2, {ControlKind::HEARTBEAT, Heartbeat{"gather #9"}.encode()});
  chief_.handle(1, {ControlKind::GIVE_UP, GiveUp{{1, 1}, "barrier timed out"}.encode()});
  EXPECT_THAT(failure(1).text, HasSubstr("rank 2 (host h, pid 102), last seen in gather #9"));
}

TEST_F(ChiefTest, WhoAsksWhatOthersDoHearsWhatIsKnownAndWhatTheyAnswer) {
  admit_all();
  chief_.handle(2, {ControlKind::HEARTBEAT, Heartbeat{"gather #9"}.encode()});
  chief_.handle(0, {ControlKind::WHAT_THEY_DO, WhatTheyDo{5, {2}}.encode()});
  const Doing known = Doing::decode(only(0, ControlKind::DOING));
  EXPECT_EQ(known.number, 5U);
  EXPECT_EQ(known.rank, 2);
  EXPECT_EQ(known.operation, "gather #9");
  EXPECT_FALSE(known.is_final);
  EXPECT_EQ(Ask::decode(only(2, ControlKind::ASK)).nonce, 0U);
  chief_.handle(1, {ControlKind::HEARTBEAT, Heartbeat{"other"}.encode()});
  EXPECT_TRUE(sent_[0].empty());
  chief_.handle(2, {ControlKind::HEARTBEAT, Heartbeat{"reduce #10"}.encode()});
  const Doing answer = Doing::decode(only(0, ControlKind::DOING));
  EXPECT_EQ(answer.operation, "reduce #10");
  EXPECT_TRUE(answer.is_final);
  chief_.handle(2, {ControlKind::HEARTBEAT, Heartbeat{"reduce #11"}.encode()});
  EXPECT_TRUE(sent_[0].empty()) << "nobody has asked";
  chief_.handle(0, {ControlKind::WHAT_THEY_DO, WhatTheyDo{6, {2}}.encode()});
  sent_.clear();
  chief_.lost(2, "its connection ended");
  ASSERT_FALSE(sent_[0].empty());
  EXPECT_EQ(sent_[0][0].kind, ControlKind::DOING);
  EXPECT_TRUE(Doing::decode(sent_[0][0].payload).is_final);
  EXPECT_THROW(chief_.handle(0, {ControlKind::WHAT_THEY_DO, WhatTheyDo{7, {3}}.encode()}),
               WireError);
}

TEST_F(ChiefTest, APostReachesThoseThatItNames) {
  admit_all();
  chief_.handle(1, {ControlKind::POST, Post{7, 1, {1, 2}, "news"}.encode()});
  EXPECT_TRUE(sent_[0].empty());
  for (const int rank : {1, 2}) {
    const Post post = Post::decode(only(rank, ControlKind::POST));
    EXPECT_EQ(post.group, 7U);
    EXPECT_EQ(post.from, 1);
    EXPECT_EQ(post.bytes, "news");
  }
  chief_.handle(0, {ControlKind::POST, Post{7, 0, {}, "for nobody"}.encode()});
  EXPECT_TRUE(sent_[0].empty());
}

TEST_F(ChiefTest, BrokenProtocolIsAnError) {
  admit_all();
  for (const Post& post : {Post{7, 0, {2}, "in another's name"}, Post{7, 1, {3}, "no such rank"},
                           Post{7, 1, {-1}, "no such rank"}, Post{7, 1, {0, 0, 0, 0}, "often"}}) {
    EXPECT_THROW(chief_.handle(1, {ControlKind::POST, post.encode()}), WireError) << post.bytes;
  }
  EXPECT_THROW(contribute(1, 1, "b", {0, 2}), WireError);
  EXPECT_THROW(contribute(1, 1, "b", {1, 3}), WireError);
  EXPECT_THROW(contribute(1, 1, "b", {1, -1}), WireError);
  EXPECT_THROW(contribute(1, 1, "b", {1, 2, 1}), WireError);
  contribute(1, 1, "b");
  EXPECT_THROW(contribute(1, 1, "b"), WireError);
  EXPECT_THROW(chief_.handle(1, {ControlKind::MEMBERS, ""}), WireError);
  EXPECT_THROW(chief_.handle(1, {ControlKind::EXCHANGE, "x"}), WireError);
  EXPECT_THROW(chief_.handle(2, {ControlKind::GIVE_UP, GiveUp{{1, 1}, "t"}.encode()}), WireError);
}

}  // namespace
}  // namespace crossdevice::detail
