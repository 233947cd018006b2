// SPDX-License-Identifier: Apache-2.0
// What the verdict must find: every way in which a run may be wrong, one after the other.
#include "chaos/verdict.h"

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chaos/story.h"

namespace crossdevice::chaos {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Of a kill, where rank 1 tells something else.
std::vector<std::string> verdict_with(const WorkerReport& second) {
  return verdict(killing(), survivor(), second, victim());
}

TEST(VerdictTest, NothingIsWrongWithWhatShouldBe) {
  EXPECT_THAT(verdict_with(survivor()), IsEmpty());
}

TEST(VerdictTest, NothingMayFailWithoutAFault) {
  Plan plan = killing();
  plan.fault = Fault::NONE;
  const WorkerReport well = joined().done("barrier 1").done("leave").ended();
  EXPECT_THAT(verdict(plan, well, well, well), IsEmpty());
  EXPECT_THAT(verdict(plan, well, survivor(), well), Contains(HasSubstr("call 1 1 failed")));
}

TEST(VerdictTest, WhatHangsIsFound) {
  EXPECT_THAT(verdict_with(bereaved().begin("rebuild 1").hanging()),
              Contains("rank 1: did not end; its last step is rebuild 1"));
  EXPECT_THAT(verdict_with(Story().hanging()), Contains(HasSubstr("did not end")));
}

TEST(VerdictTest, WhatCrashesIsFound) {
  EXPECT_THAT(verdict_with(bereaved().begin("rebuild 1").ended(-SIGSEGV)),
              Contains(HasSubstr("ended with -11, not 0, after rebuild 1")));
  EXPECT_THAT(verdict(killing(), survivor(), survivor(), survivor()),
              Contains(HasSubstr("ended with 0, not -9")));
}

TEST(VerdictTest, ACallThatEndsLateIsFound) {
  const auto late = [](double seconds) {
    return recovered(joined().failed("call 1 1", "UNAVAILABLE", {2}, "gone", seconds))
        .done("leave")
        .ended();
  };
  const auto is_late = Contains(HasSubstr("call 1 1 took 2.010 s"));
  EXPECT_THAT(verdict_with(late(1.99)), Not(is_late));
  EXPECT_THAT(verdict_with(late(2.01)), is_late);
  EXPECT_THAT(violations(killing(), {survivor(), late(2.01), victim()}, {}, 2), Not(is_late));
}

TEST(VerdictTest, ADeathThatIsHeardOfLateIsFound) {
  const auto late = [](double seconds) {
    return recovered(joined().failed("call 1 1", "UNAVAILABLE", {2}, "rank 2 is gone", seconds))
        .done("leave")
        .ended();
  };
  Plan plan = killing();
  plan.times.call = 9;
  const auto found = [&](double seconds, double late_seconds) {
    return violations(plan, {survivor(), late(seconds), victim()}, {}, late_seconds);
  };
  const auto is_late = Contains(HasSubstr("rank 1: call 1 1 ended 1.010 s after a death"));
  EXPECT_THAT(found(0.99, 1), IsEmpty());
  EXPECT_THAT(found(1.01, 1), is_late);
  EXPECT_THAT(found(1.01, 0.1), is_late);
  EXPECT_THAT(found(0.99, 0.1), IsEmpty());
  EXPECT_THAT(found(1.01, 2), IsEmpty());  // on a machine that is so slow
  plan.place = Place::NAMESPACES;
  EXPECT_THAT(found(2.99, 1), IsEmpty());
  EXPECT_THAT(found(3.01, 1), Contains(HasSubstr("call 1 1 ended 3.010 s after a death")));
}

TEST(VerdictTest, WhoCallsAfterADeathHearsOfItFromThenOn) {
  const auto later = [](double seconds) {
    return recovered(joined().busy(5).failed("call 1 1", "UNAVAILABLE", {2}, "gone", seconds))
        .done("leave")
        .ended();
  };
  EXPECT_THAT(verdict_with(later(0.99)), IsEmpty());
  EXPECT_THAT(verdict_with(later(1.01)), Contains(HasSubstr("call 1 1 ended 1.010 s after a")));
  // What did not need the dead one any more takes its time.
  Story ignorant = joined().done("call 1 1", 1.5).failed("call 1 2", "UNAVAILABLE", {2}, "gone");
  EXPECT_THAT(verdict_with(recovered(ignorant).done("leave").ended()), IsEmpty());
}

TEST(VerdictTest, ADeathIsHeardOfByThoseWhoWereInACluster) {
  Plan plan = killing();
  plan.phase = Phase::REBUILD;
  plan.num_workers = 4;
  plan.first_lost = 3;
  const auto told = [](double seconds) {
    return joined()
        .failed("call 1 1", "UNAVAILABLE", {3}, "rank 3 is gone")
        .done("rebuild 1", 4)
        .member({0, 1, 2})
        .failed("make 2", "UNAVAILABLE", {2}, "rank 2 is gone", seconds)
        .done("rebuild 2")
        .member({0, 1})
        .done("barrier 3")
        .done("leave")
        .ended();
  };
  const WorkerReport first = joined().begin("call 1 1").killed();
  const WorkerReport second = joined()
                                  .failed("call 1 1", "UNAVAILABLE", {3}, "rank 3 is gone")
                                  .done("rebuild 1", 4)
                                  .member({0, 1, 2})
                                  .begin("make 2")
                                  .killed();
  EXPECT_THAT(violations(plan, {told(0.99), told(0.99), second, first}, {}), IsEmpty());
  EXPECT_THAT(violations(plan, {told(0.99), told(1.01), second, first}, {}),
              Contains(HasSubstr("rank 1: make 2 ended 1.010 s after a death")));
  const std::vector<News> news = news_of_deaths(plan, {told(0.5), told(0.5), second, first});
  ASSERT_EQ(news.size(), 4U);
  EXPECT_EQ(news[1].step, "make 2");
  EXPECT_NEAR(news[1].seconds, 0.5, 1e-3);
}

TEST(VerdictTest, ARebuildThatADeathHoldsUpIsFound) {
  Plan plan = killing();
  plan.times.patience = 3;
  const auto found = [&](double seconds) {
    const WorkerReport waits = bereaved()
                                   .done("rebuild 1", seconds)
                                   .member({0, 1})
                                   .done("barrier 2")
                                   .done("leave")
                                   .ended();
    return verdict(plan, survivor(), waits, victim());
  };
  EXPECT_THAT(found(3.99), IsEmpty());
  EXPECT_THAT(found(4.01), Contains(HasSubstr("rank 1: rebuild 1 ended 4.010 s after all was")));
}

TEST(VerdictTest, PatienceEndsForWhoeverIsSilent) {
  Plan plan = killing();
  plan.times.patience = 3;
  const auto found = [&](double seconds, double others_come_after = 0) {
    const auto waits = [&](double before, double waiting) {
      return bereaved()
          .busy(before)
          .done("rebuild 1", waiting)
          .member({0, 1})
          .done("barrier 2")
          .done("leave")
          .ended();
    };
    const WorkerReport late =
        joined()
            .stands_still(40)
            .failed("call 1 1", "ABORTED", {}, "epoch 2 has begun", 40.1)
            .failed("rebuild 1", "ABORTED", {}, "this worker was left out of epoch 2")
            .done("leave")
            .ended();
    return verdict(plan, waits(0, seconds), waits(others_come_after, seconds - others_come_after),
                   late);
  };
  const auto is_late = Contains(HasSubstr("rank 0: rebuild 1 ended 6.010 s after all was"));
  plan.fault = Fault::STOP;
  EXPECT_THAT(found(5.99), IsEmpty());  // patience and a heartbeat
  EXPECT_THAT(found(6.01), is_late);
  EXPECT_THAT(found(9, 4), IsEmpty());  // from when all had come
  plan.place = Place::NAMESPACES;
  plan.fault = Fault::LINK_LOSS;
  plan.lasting_us = 20'000'000;
  EXPECT_THAT(found(15), Not(Contains(HasSubstr("after all was"))));  // while it lasts
}

TEST(VerdictTest, ADeathIsAnUnavailableErrorThatNamesIt) {
  const auto told = [](const std::string& code, std::vector<int> culprits) {
    return recovered(joined().failed("call 1 1", code, std::move(culprits), "rank 2 is gone"))
        .done("leave")
        .ended();
  };
  EXPECT_THAT(verdict_with(told("UNAVAILABLE", {2})), IsEmpty());
  EXPECT_THAT(verdict_with(told("DEADLINE_EXCEEDED", {2})),
              Contains(HasSubstr("after the death of rank 2 comes a DEADLINE_EXCEEDED of 2")));
  EXPECT_THAT(verdict_with(told("UNAVAILABLE", {0})),
              Contains(HasSubstr("after the death of rank 2 comes a UNAVAILABLE of 0")));
}

TEST(VerdictTest, WhoGivesUpInARebuildMayBeHeardBeforeADeathIs) {
  Plan plan = killing();
  plan.fault = Fault::THROW;
  plan.phase = Phase::REBUILD;
  plan.victim = 0;
  plan.first_lost = 2;
  const auto told = [](const std::string& code) {
    return recovered(joined().failed("call 1 1", code, {0}, "rank 0 gives up"))
        .done("leave")
        .ended();
  };
  EXPECT_THAT(verdict(plan, survivor(), told("ABORTED"), victim()), IsEmpty());
  EXPECT_THAT(verdict(plan, survivor(), told("UNAVAILABLE"), victim()),
              Contains(HasSubstr("after the death of rank 2 comes a UNAVAILABLE of 0")));
}

TEST(VerdictTest, ADeathThatNobodySawIsFound) {
  WorkerReport dead = victim();
  dead.closed_us.reset();
  EXPECT_THAT(verdict(killing(), survivor(), survivor(), dead),
              Contains("rank 2: died, and nobody saw when"));
}

TEST(VerdictTest, AStepWithoutAnEndIsFound) {
  EXPECT_THAT(verdict_with(recovered(bereaved()).begin("leave").ended()),
              Contains("rank 1: leave has no end"));
}

TEST(VerdictTest, WrongValuesAreFound) {
  EXPECT_THAT(verdict_with(recovered(bereaved()).wrong("other elements").done("leave").ended()),
              Contains(HasSubstr("other elements")));
}

TEST(VerdictTest, AnErrorThatNamesNobodyIsFound) {
  const WorkerReport silent =
      recovered(joined().failed("call 1 1", "UNAVAILABLE", {}, "somebody is gone"))
          .done("leave")
          .ended();
  EXPECT_THAT(verdict(killing(), silent, silent, victim()),
              Contains(HasSubstr("the first error does not name rank 2")));
  EXPECT_THAT(verdict_with(silent), Contains(HasSubstr("names nobody who has failed")));
}

TEST(VerdictTest, AnErrorThatBlamesTheInnocentIsFound) {
  const WorkerReport unjust =
      recovered(joined().failed("call 1 1", "UNAVAILABLE", {1, 2})).done("leave").ended();
  EXPECT_THAT(verdict(killing(), unjust, survivor(), victim()),
              Contains(HasSubstr("call 1 1 blames rank 1")));
}

TEST(VerdictTest, WhoFailsBecauseOfAnotherMayNameThatOne) {
  Plan plan = killing();
  plan.fault = Fault::STOP;
  const WorkerReport later =
      recovered(joined().failed("call 1 1", "ABORTED", {0}, "rank 0 aborted", 0.5))
          .done("leave")
          .ended();
  const WorkerReport late =
      joined()
          .stands_still(8.9)
          .failed("call 1 1", "ABORTED", {}, "epoch 2 has begun", 9)
          .failed("rebuild 1", "ABORTED", {}, "this worker was left out of epoch 2")
          .done("leave")
          .ended();
  EXPECT_THAT(verdict(plan, survivor(), later, late), IsEmpty());
}

TEST(VerdictTest, AnotherKindOfExceptionIsFound) {
  const WorkerReport strange =
      recovered(joined().failed("call 1 1", "bad_alloc", {2}, "rank 2")).done("leave").ended();
  EXPECT_THAT(verdict_with(strange), Contains(HasSubstr("failed with a bad_alloc")));
}

TEST(VerdictTest, WhoDoesNotGoOnIsFound) {
  EXPECT_THAT(
      verdict_with(bereaved().failed("rebuild 1", "DEADLINE_EXCEEDED", {0}).done("leave").ended()),
      Contains(HasSubstr("does not go on: the last it did is rebuild 1")));
}

TEST(VerdictTest, OtherMembersAreFound) {
  const WorkerReport alone =
      bereaved().done("rebuild 1").member({1}).done("barrier 2").done("leave").ended();
  EXPECT_THAT(verdict_with(alone), Contains(HasSubstr("is in a cluster of 1, not of 0, 1")));
}

TEST(VerdictTest, ALossThatNobodyNoticesIsFound) {
  EXPECT_THAT(verdict_with(joined().done("barrier 1").done("leave").ended()),
              Contains(HasSubstr("has not noticed the loss")));
}

TEST(VerdictTest, WhatIsLeftBehindIsFound) {
  EXPECT_THAT(verdict_with(recovered(bereaved()).done("leave").ended(0, {1, 0, 0})),
              Contains(HasSubstr("leaves threads, descriptors, mappings: 1, 0, 0")));
  EXPECT_THAT(verdict_with(recovered(bereaved()).done("leave").ended(0, {0, 0, 1})),
              Contains(HasSubstr("leaves threads, descriptors, mappings: 0, 0, 1")));
  EXPECT_THAT(violations(killing(), {survivor(), survivor(), victim()}, {"file x"}),
              Contains("left behind: file x"));
}

TEST(VerdictTest, WhoIsLateMustFindOut) {
  Plan plan = killing();
  plan.fault = Fault::STOP;
  const auto late = [](Story story) { return story.done("leave").ended(); };
  const WorkerReport finds_out =
      late(joined()
               .stands_still(8.9)
               .failed("call 1 1", "ABORTED", {}, "epoch 2 has begun", 9)
               .failed("rebuild 1", "ABORTED", {}, "this worker was left out of epoch 2"));
  EXPECT_THAT(verdict(plan, survivor(), survivor(), finds_out), IsEmpty());
  EXPECT_THAT(
      verdict(plan, survivor(), survivor(), late(joined().done("call 1 1", 9).done("barrier 1"))),
      Contains(HasSubstr("has not found out")));
  // Where all had come to the last barrier before they gave it up, it may end for whoever was late.
  const auto gives_up_waiting = [] {
    return recovered(joined().failed("barrier 1", "UNAVAILABLE", {2}, "no heartbeat"))
        .done("leave")
        .ended();
  };
  EXPECT_THAT(verdict(plan, gives_up_waiting(), gives_up_waiting(),
                      late(joined().done("call 1 1").stands_still(8.9).done("barrier 1", 9))),
              IsEmpty());
  EXPECT_THAT(verdict(plan, gives_up_waiting(), survivor(),
                      late(joined().done("call 1 1").stands_still(8.9).done("barrier 1", 9))),
              Contains(HasSubstr("has not found out")));
  EXPECT_THAT(verdict(plan, survivor(), survivor(), late(recovered(bereaved()))),
              Contains(HasSubstr("is in a new cluster")));
  EXPECT_THAT(verdict(plan, survivor(), survivor(),
                      late(joined()
                               .failed("call 1 1", "ABORTED", {}, "", 9)
                               .failed("rebuild 1", "DEADLINE_EXCEEDED", {}))),
              Contains(HasSubstr("who was left out gets a DEADLINE_EXCEEDED")));
}

Plan of_link(Fault fault, Phase phase = Phase::CALL) {
  Plan plan = killing();
  plan.place = Place::NAMESPACES;
  plan.fault = fault;
  plan.phase = phase;
  return plan;
}

TEST(VerdictTest, WhoseLinkWasCutMustFindOut) {
  const Plan plan = of_link(Fault::LINK_CUT);
  const auto late = [](Story story) { return story.done("leave").ended(); };
  const Story alone = joined().failed("call 1 1", "UNAVAILABLE", {0}, "no heartbeat", 1);
  EXPECT_THAT(
      verdict(plan, survivor(), survivor(),
              late(Story(alone).failed("rebuild 1", "ABORTED", {}, "left out of epoch 2", 9))),
      IsEmpty());
  EXPECT_THAT(verdict(plan, survivor(), survivor(),
                      late(Story(alone).failed("rebuild 1", "DEADLINE_EXCEEDED", {}, "", 9))),
              Contains(HasSubstr("who was left out gets a DEADLINE_EXCEEDED")));
  EXPECT_THAT(verdict(plan, survivor(), survivor(), late(recovered(alone))),
              Contains(HasSubstr("is in a new cluster")));
  // Other than one that was stopped it can keep its deadlines.
  EXPECT_THAT(verdict(plan, survivor(), survivor(),
                      late(joined()
                               .failed("call 1 1", "UNAVAILABLE", {0}, "no heartbeat", 5)
                               .failed("rebuild 1", "ABORTED", {}, "left out of epoch 2"))),
              Contains(HasSubstr("rank 2: call 1 1 took 5.000 s")));
}

TEST(VerdictTest, AllOfAHostFindOutThatItsLinkWasCut) {
  Plan plan = of_link(Fault::LINK_CUT);
  plan.num_workers = 5;
  plan.workers_per_host = 2;
  const auto goes_on = [](int culprit) {
    return joined()
        .failed("call 1 1", "UNAVAILABLE", {culprit}, "no heartbeat")
        .done("rebuild 1")
        .member({0, 1, 4})
        .done("barrier 2")
        .done("leave")
        .ended();
  };
  const Story alone = joined().failed("call 1 1", "UNAVAILABLE", {0}, "no heartbeat", 1);
  const WorkerReport is_out = Story(alone)
                                  .failed("rebuild 1", "ABORTED", {}, "left out of epoch 2", 9)
                                  .done("leave")
                                  .ended();
  const WorkerReport stays = recovered(alone).done("leave").ended();
  EXPECT_THAT(violations(plan, {goes_on(2), goes_on(3), is_out, is_out, goes_on(3)}, {}),
              IsEmpty());
  EXPECT_THAT(violations(plan, {goes_on(2), goes_on(3), is_out, stays, goes_on(3)}, {}),
              Contains(HasSubstr("rank 3: is in a new cluster")));
  EXPECT_THAT(violations(plan, {goes_on(1), goes_on(3), is_out, is_out, goes_on(3)}, {}),
              Contains(HasSubstr("names nobody who has failed")));
}

TEST(VerdictTest, WhoseLinkIsDownIsNamed) {
  const WorkerReport silent =
      recovered(joined().failed("call 1 1", "UNAVAILABLE", {1}, "rank 1 is gone"))
          .done("leave")
          .ended();
  const WorkerReport late = joined()
                                .failed("call 1 1", "UNAVAILABLE", {0})
                                .failed("rebuild 1", "ABORTED", {}, "left out of epoch 2")
                                .done("leave")
                                .ended();
  for (const Fault fault : {Fault::LINK_CUT, Fault::LINK_OUTAGE}) {
    EXPECT_THAT(verdict(of_link(fault), silent, survivor(), late),
                Contains(HasSubstr("the first error does not name rank 2")));
  }
  // Over a link that is slow anybody may seem to be late, but not to be gone.
  const WorkerReport missing =
      recovered(joined().failed("call 1 1", "DEADLINE_EXCEEDED", {1}, "waiting for rank 1"))
          .done("leave")
          .ended();
  for (const Fault fault : {Fault::LINK_LOSS, Fault::LINK_RATE}) {
    EXPECT_THAT(verdict(of_link(fault), silent, survivor(), late),
                Contains(HasSubstr("does not name rank 2")));
    EXPECT_THAT(verdict(of_link(fault), missing, survivor(), late),
                Not(Contains(HasSubstr("does not name"))));
  }
  // Who hears nothing but is heard: until a heartbeat is missed it waits as the others do.
  Plan plan = of_link(Fault::LINK_OUTAGE);
  const WorkerReport waits =
      recovered(joined().failed("call 1 1", "DEADLINE_EXCEEDED", {1}, "rank 1"))
          .done("leave")
          .ended();
  EXPECT_THAT(verdict(plan, waits, survivor(), late), Contains(HasSubstr("does not name rank 2")));
  plan.amount = kIsDeaf;
  EXPECT_THAT(verdict(plan, waits, survivor(), late), Not(Contains(HasSubstr("does not name"))));
  EXPECT_THAT(verdict(plan, silent, survivor(), late), Contains(HasSubstr("does not name rank 2")));
}

TEST(VerdictTest, AfterAnOutageAllAreThereAgain) {
  const auto all_again = [](std::vector<int> ranks) {
    return bereaved()
        .done("rebuild 1")
        .member(std::move(ranks))
        .done("barrier 2")
        .done("leave")
        .ended();
  };
  const WorkerReport well = all_again({0, 1, 2});
  for (const Fault fault : {Fault::LINK_OUTAGE, Fault::LINK_LOSS, Fault::LINK_RATE}) {
    EXPECT_THAT(verdict(of_link(fault), well, well, well), IsEmpty());
    EXPECT_THAT(verdict(of_link(fault), well, all_again({0, 1}), well),
                Contains(HasSubstr("is in a cluster of 0, 1, not of 0, 1, 2")));
    const WorkerReport gives_up =
        bereaved().failed("rebuild 1", "DEADLINE_EXCEEDED", {2}).done("leave").ended();
    EXPECT_THAT(verdict(of_link(fault), well, gives_up, well),
                Contains(HasSubstr("does not go on")));
  }
}

TEST(VerdictTest, TheLastWordMayBeLost) {
  const WorkerReport well = joined().done("barrier 1").done("leave").ended();
  const WorkerReport deaf = joined()
                                .failed("barrier 1", "UNAVAILABLE", {0}, "no heartbeat")
                                .failed("rebuild 1", "UNAVAILABLE", {0, 1}, "gone")
                                .done("leave")
                                .ended();
  for (const Fault fault : {Fault::LINK_CUT, Fault::LINK_OUTAGE}) {
    EXPECT_THAT(verdict(of_link(fault), well, well, deaf), IsEmpty());
    EXPECT_THAT(verdict(of_link(fault), deaf, deaf, deaf),
                Contains(HasSubstr("rank 0: does not go on")));
  }
  EXPECT_THAT(verdict(killing(), deaf, well, victim()),
              Contains(HasSubstr("rank 0: does not go on")));
  const WorkerReport in_a_call = joined()
                                     .failed("call 1 1", "UNAVAILABLE", {2}, "no heartbeat")
                                     .failed("rebuild 1", "UNAVAILABLE", {2}, "gone")
                                     .done("leave")
                                     .ended();
  EXPECT_THAT(verdict(of_link(Fault::LINK_OUTAGE), in_a_call, well, well),
              Contains(HasSubstr("rank 0: does not go on")));
}

TEST(VerdictTest, WhatComesLateOrTwiceHarmsNobody) {
  const WorkerReport well = joined().done("barrier 1").done("leave").ended();
  for (const Fault fault : {Fault::LINK_PAUSE, Fault::LINK_DELAY, Fault::LINK_REORDER,
                            Fault::LINK_DUPLICATE, Fault::CLOCK, Fault::CLOCK_JUMP}) {
    Plan plan = of_link(fault);
    plan.times.call = 20;
    EXPECT_THAT(verdict(plan, well, well, well), IsEmpty());
    const WorkerReport failing =
        bereaved().done("rebuild 1").done("barrier 2").done("leave").ended();
    EXPECT_THAT(verdict(plan, well, failing, well), Contains(HasSubstr("call 1 1 failed")));
    if (is_of_clock(fault)) continue;
    plan.times.call = 2;  // for which there may be no time
    EXPECT_THAT(verdict(plan, well, failing, well), Not(Contains(HasSubstr("call 1 1 failed"))));
  }
}

TEST(VerdictTest, WhoseLinkIsBadDuringARebuildMayBeLeftOut) {
  Plan plan = of_link(Fault::LINK_DELAY, Phase::REBUILD);
  plan.num_workers = 4;
  plan.first_lost = 3;
  const auto told = [](std::vector<int> ranks) {
    return joined()
        .failed("call 1 1", "UNAVAILABLE", {3}, "rank 3 is gone")
        .done("rebuild 1")
        .member(std::move(ranks))
        .done("barrier 2")
        .done("leave")
        .ended();
  };
  const auto is_out = [](const std::string& code) {
    return joined()
        .failed("call 1 1", "UNAVAILABLE", {3}, "rank 3 is gone")
        .failed("rebuild 1", code, {}, "left out of epoch 2")
        .done("leave")
        .ended();
  };
  const WorkerReport dead = joined().begin("call 1 1").killed();
  const WorkerReport with = told({0, 1, 2});
  const WorkerReport without = told({0, 1});
  EXPECT_THAT(violations(plan, {with, with, with, dead}, {}), IsEmpty());
  EXPECT_THAT(violations(plan, {without, without, is_out("ABORTED"), dead}, {}), IsEmpty());
  EXPECT_THAT(violations(plan, {without, without, is_out("UNAVAILABLE"), dead}, {}), IsEmpty());
  EXPECT_THAT(violations(plan, {without, without, is_out("INTERNAL"), dead}, {}),
              Contains(HasSubstr("who was left out gets a INTERNAL")));
  EXPECT_THAT(violations(plan, {with, without, is_out("ABORTED"), dead}, {}),
              Contains(HasSubstr("is in a cluster of 0, 1, 2, not of 0, 1")));
  const auto first_with = [] {
    return joined()
        .failed("call 1 1", "UNAVAILABLE", {3}, "rank 3 is gone")
        .done("rebuild 1")
        .member({0, 1, 2})
        .failed("make 2", "UNAVAILABLE", {2}, "rank 2 is gone");
  };
  const WorkerReport then_without =
      first_with().done("rebuild 2").member({0, 1}).done("barrier 3").done("leave").ended();
  const WorkerReport then_out =
      first_with().failed("rebuild 2", "UNAVAILABLE", {0}, "gone").done("leave").ended();
  EXPECT_THAT(violations(plan, {then_without, then_without, then_out, dead}, {}), IsEmpty());
  EXPECT_THAT(violations(plan, {then_without, with, then_out, dead}, {}),
              Contains(HasSubstr("is in a cluster of 0, 1, 2, not of 0, 1")));
}

TEST(VerdictTest, ACulpritIsNamedToPrograms) {
  const WorkerReport in_text_alone =
      recovered(joined().failed("call 1 1", "UNAVAILABLE", {}, "rank 2 is gone"))
          .done("leave")
          .ended();
  EXPECT_THAT(verdict_with(in_text_alone),
              Contains(HasSubstr("rank 1: call 1 1: the error names nobody who has failed")));
}

TEST(VerdictTest, WhatHasHappenedOnceSpoilsNothingLater) {
  const auto failing = [](const std::string& step) {
    return bereaved()
        .done("rebuild 1")
        .member({0, 1})
        .failed(step, "UNAVAILABLE", {0}, "gone")
        .done("rebuild 2")
        .member({0, 1})
        .done("barrier 3")
        .done("leave")
        .ended();
  };
  for (const char* const step : {"make 2", "call 2 0", "barrier 2"}) {
    EXPECT_THAT(verdict_with(failing(step)),
                Contains(HasSubstr(step + std::string(" fails, though nothing happens any more"))));
  }
}

TEST(VerdictTest, WhoCannotRebuildForWantOfSomethingIsLeftOut) {
  Plan plan = killing();
  plan.fault = Fault::SHARED_MEMORY;
  plan.phase = Phase::REBUILD;
  plan.num_workers = 5;
  plan.first_lost = 4;
  const auto told = [](std::vector<int> ranks) {
    return joined()
        .failed("call 1 1", "UNAVAILABLE", {4}, "rank 4 is gone")
        .done("rebuild 1")
        .member(std::move(ranks))
        .done("barrier 2")
        .done("leave")
        .ended();
  };
  const WorkerReport is_out = joined()
                                  .failed("call 1 1", "UNAVAILABLE", {4}, "rank 4 is gone")
                                  .failed("rebuild 1", "RESOURCE_EXHAUSTED", {}, "no memory")
                                  .done("leave")
                                  .ended();
  const WorkerReport dead = joined().begin("call 1 1").killed();
  const WorkerReport with = told({0, 1, 2, 3});
  const WorkerReport without = told({0, 1, 3});
  EXPECT_THAT(violations(plan, {with, with, with, with, dead}, {}), IsEmpty());
  EXPECT_THAT(violations(plan, {without, without, is_out, without, dead}, {}), IsEmpty());
  EXPECT_THAT(violations(plan, {with, with, is_out, with, dead}, {}),
              Contains(HasSubstr("is in a cluster of 0, 1, 2, 3, not of 0, 1, 3")));
}

TEST(VerdictTest, WhoGivesUpAbortsTheOthers) {
  Plan plan = killing();
  plan.fault = Fault::THROW;
  const auto told = [](const std::string& code) {
    return joined()
        .failed("call 1 1", code, {2}, "rank 2 gives up on purpose")
        .done("rebuild 1")
        .member({0, 1, 2})
        .done("barrier 2")
        .done("leave")
        .ended();
  };
  EXPECT_THAT(verdict(plan, told("ABORTED"), told("ABORTED"), told("ABORTED")), IsEmpty());
  EXPECT_THAT(verdict(plan, told("ABORTED"), told("DEADLINE_EXCEEDED"), told("ABORTED")),
              Contains(HasSubstr("who gives up causes a DEADLINE_EXCEEDED")));
}

TEST(VerdictTest, WhatWasThrownIsHeardAtOnceWithItsText) {
  Plan plan = killing();
  plan.fault = Fault::THROW;
  plan.times.call = 9;
  const auto told = [](const std::string& text, double seconds) {
    return joined()
        .failed("call 1 1", "ABORTED", {2}, text, seconds)
        .done("rebuild 1")
        .member({0, 1, 2})
        .done("barrier 2")
        .done("leave")
        .ended();
  };
  const WorkerReport gives_up = joined()
                                    .begin("call 1 1")
                                    .busy(2)
                                    .fault()
                                    .fails("call 1 1", "exception", {}, "on purpose")
                                    .done("rebuild 1")
                                    .member({0, 1, 2})
                                    .done("barrier 2")
                                    .done("leave")
                                    .ended();
  const WorkerReport well = told("rank 2 gave up: on purpose", 2.1);
  const auto found = [&](const WorkerReport& second) {
    return verdict(plan, well, second, gives_up);
  };
  EXPECT_THAT(found(well), IsEmpty());
  EXPECT_THAT(found(told("rank 2 gave up", 2.1)),
              Contains(HasSubstr("rank 1: call 1 1: who gives up causes a ABORTED")));
  EXPECT_THAT(found(told("rank 2 gave up: on purpose", 3.01)),
              Contains(HasSubstr("rank 1: call 1 1 ended 1.010 s after rank 2 gave up")));
}

TEST(VerdictTest, WhoWasStoppedHasItsDeadlineFromThenOn) {
  Plan plan = killing();
  plan.fault = Fault::STOP;
  const auto stopped = [](double until, double seconds) {
    return joined()
        .stands_still(until)
        .failed("call 1 1", "ABORTED", {}, "epoch 2 has begun", seconds)
        .failed("rebuild 1", "ABORTED", {}, "this worker was left out of epoch 2")
        .done("leave")
        .ended();
  };
  EXPECT_THAT(verdict(plan, survivor(), survivor(), stopped(9, 10.9)), IsEmpty());
  EXPECT_THAT(verdict(plan, survivor(), survivor(), stopped(9, 11.1)),
              Contains(HasSubstr("rank 2: call 1 1 took 2.100 s")));
  // What ended before, or began afterwards, took its own time.
  EXPECT_THAT(verdict(plan, survivor(), survivor(), stopped(9, 8)),
              Contains(HasSubstr("rank 2: call 1 1 took 8.000 s")));
  EXPECT_THAT(verdict(plan, survivor(), survivor(), stopped(-0.5, 8)),
              Contains(HasSubstr("rank 2: call 1 1 took 8.000 s")));
}

TEST(VerdictTest, OfAPartedLinkOneEndIsNamed) {
  Plan plan = of_link(Fault::LINK_PARTED);
  plan.num_workers = 4;
  plan.amount = 3;
  const auto told = [](int culprit) {
    return joined()
        .failed("call 1 1", "DEADLINE_EXCEEDED", {culprit}, "waits")
        .done("rebuild 1")
        .member({0, 1, 2, 3})
        .done("barrier 2")
        .done("leave")
        .ended();
  };
  const auto is_unnamed = Contains(HasSubstr("no first error names a worker of the parted link"));
  EXPECT_THAT(violations(plan, {told(2), told(0), told(0), told(2)}, {}), IsEmpty());
  EXPECT_THAT(violations(plan, {told(3), told(0), told(0), told(0)}, {}), IsEmpty());
  EXPECT_THAT(violations(plan, {told(1), told(0), told(0), told(1)}, {}), is_unnamed);
  const WorkerReport well = joined().done("barrier 1").done("leave").ended();
  EXPECT_THAT(violations(plan, {well, well, well, well}, {}), IsEmpty());
  plan.fault = Fault::LINK_LOSS;
  EXPECT_THAT(violations(plan, {told(1), told(0), told(0), told(1)}, {}), Not(is_unnamed));
}

TEST(VerdictTest, AHalfDoesNotGoOn) {
  Plan plan = killing();
  plan.num_workers = 2;
  plan.fault = Fault::STOP;
  plan.victim = 1;
  const auto told = [](const std::string& code, std::vector<int> culprits) {
    return joined()
        .failed("call 1 1", "DEADLINE_EXCEEDED", {1}, "waits for rank 1")
        .failed("rebuild 1", code, std::move(culprits), "not enough")
        .done("leave")
        .ended();
  };
  const auto goes_on = [](int culprit, std::vector<int> ranks) {
    return joined()
        .failed("call 1 1", "DEADLINE_EXCEEDED", {culprit}, "waits")
        .done("rebuild 1")
        .member(std::move(ranks))
        .done("barrier 2")
        .done("leave")
        .ended();
  };
  const WorkerReport late = joined()
                                .stands_still(2)
                                .failed("call 1 1", "UNAVAILABLE", {0}, "rank 0 is gone", 2.1)
                                .failed("rebuild 1", "UNAVAILABLE", {0}, "rank 0 is gone")
                                .done("leave")
                                .ended();
  const auto found = [&](const WorkerReport& first, const WorkerReport& second) {
    return violations(plan, {first, second}, {});
  };
  EXPECT_THAT(found(told("DEADLINE_EXCEEDED", {1}), late), IsEmpty());
  EXPECT_THAT(found(told("UNAVAILABLE", {1}), late), IsEmpty());
  EXPECT_THAT(found(told("DEADLINE_EXCEEDED", {}), late),
              Contains(HasSubstr("who is but a half gets a DEADLINE_EXCEEDED")));
  EXPECT_THAT(found(told("INTERNAL", {1}), late), Contains(HasSubstr("gets a INTERNAL")));
  EXPECT_THAT(found(goes_on(1, {0}), late), Contains("rank 0: goes on, without more than half"));
  EXPECT_THAT(found(told("UNAVAILABLE", {1}), goes_on(0, {1})),
              Contains("rank 1: goes on, without more than half"));
}

}  // namespace
}  // namespace crossdevice::chaos
