// SPDX-License-Identifier: Apache-2.0
// Errors that blame the wrong ones, or are of the wrong kind, or are missing: each beside one that is as it should be.
#include "chaos/blame.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chaos/story.h"

namespace crossdevice::chaos {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Of rank 2 of four, in the second of three calls.
Plan of(Fault fault) {
  Plan plan{.num_workers = 4,
            .times = {.join = 10, .call = 1, .heartbeat = 2},
            .calls = {{}, {}, {}},
            .fault = fault,
            .victim = 2,
            .call = 1};
  if (is_of_link(fault)) plan.place = Place::NAMESPACES;
  return plan;
}

WorkerReport again(Story story, std::vector<int> members = {0, 1, 2, 3}) {
  return story.done("rebuild 1")
      .member(std::move(members))
      .done("make 2")
      .done("call 2 0")
      .done("barrier 2")
      .done("leave")
      .ended();
}
WorkerReport fails(const std::string& code, std::vector<int> culprits, const std::string& text) {
  return again(joined().failed("call 1 1", code, std::move(culprits), text));
}

/// `others` are ranks 0 and 1.
std::vector<std::string> judged(const Plan& plan, const WorkerReport& others,
                                const WorkerReport& of_victim, const WorkerReport& last) {
  return violations(plan, {others, others, of_victim, last}, {});
}

constexpr const char* kVersions =
    "workers make different calls: rank 0 a #2 x; rank 1 a #2 x; rank 2 b #2 y; rank 3 a #2 x";

TEST(BlameTest, NobodyCompletesACallThatDiffers) {
  const Plan plan = of(Fault::OTHER_DTYPE);
  const WorkerReport told = fails("INTERNAL", {2}, kVersions);
  EXPECT_THAT(judged(plan, told, told, told), IsEmpty());
  // Whoever is still in an earlier one need not come to it.
  const WorkerReport earlier =
      again(Story().done("join").done("make 1").failed("call 1 0", "INTERNAL", {2}, kVersions));
  EXPECT_THAT(judged(plan, told, told, earlier), IsEmpty());
  const WorkerReport later =
      again(joined().done("call 1 1").failed("call 1 2", "INTERNAL", {2}, kVersions));
  EXPECT_THAT(judged(plan, told, told, later),
              Contains(HasSubstr("rank 3: completes call 1 1, which differs")));
  EXPECT_THAT(judged(plan, told, later, told),
              Contains(HasSubstr("rank 2: completes call 1 1, which differs")));
  const WorkerReport well =
      joined().done("call 1 1").done("call 1 2").done("barrier 1").done("leave").ended();
  EXPECT_THAT(judged(plan, told, told, well),
              Contains("rank 3: call 1 1 differs, and it has not noticed"));
}

TEST(BlameTest, CallsThatDifferAreInternalErrors) {
  Plan plan = killing();
  plan.fault = Fault::OTHER_COUNT;
  const std::string versions =
      "workers make different calls: rank 0 a #3 , rank 1 a #3 , rank 2 b #3 ";
  std::vector<int> culprits{2};
  const auto told = [&](const std::string& code, bool is_intact = true,
                        const std::string& text = {}) {
    WorkerReport report = joined()
                              .failed("call 1 1", code, culprits, text.empty() ? versions : text)
                              .done("rebuild 1")
                              .member({0, 1, 2})
                              .done("barrier 2")
                              .done("leave")
                              .ended();
    for (Event& event : report.events) event.inputs_intact = is_intact;
    return report;
  };
  const WorkerReport well = told("INTERNAL");
  EXPECT_THAT(verdict(plan, well, well, well), IsEmpty());
  EXPECT_THAT(verdict(plan, well, told("UNAVAILABLE"), well),
              Contains(HasSubstr("a difference is a UNAVAILABLE")));
  EXPECT_THAT(verdict(plan, well, told("INTERNAL", false), well),
              Contains(HasSubstr("wrote before it was compared")));
  for (const std::vector<int>& others : {std::vector{0}, {0, 2}, {}}) {
    culprits = others;
    EXPECT_THAT(verdict(plan, well, told("INTERNAL"), well),
                Contains(HasSubstr("not rank 2 alone differs from most")));
  }
  culprits = {1, 2};
  // Who is not as far does not say who of the others is right.
  EXPECT_THAT(
      verdict(plan, well,
              told("INTERNAL", true,
                   "workers make different calls: rank 0 a #2 , rank 1 a #3 , rank 2 b #3 "),
              well),
      IsEmpty());
  culprits = {0};
  EXPECT_THAT(
      verdict(plan, well,
              told("INTERNAL", true,
                   "workers make different calls: rank 0 a #2 , rank 1 a #3 , rank 2 b #3 "),
              well),
      Contains(HasSubstr("not rank 2 alone differs from most")));
  culprits = {2};
  const auto found = [&](const std::string& text) {
    return verdict(plan, well, told("INTERNAL", true, text), well);
  };
  const auto is_short_of = [](const std::string& ranks) {
    return Contains(HasSubstr("rank 1: call 1 1: a difference without the versions of " + ranks));
  };
  for (const Place place : {Place::ONE_MACHINE, Place::TWO_MACHINES, Place::ONE_EACH}) {
    plan.place = place;
    EXPECT_THAT(found("workers make different calls"), is_short_of("0, 1, 2:"));
    EXPECT_THAT(found("workers make different calls: rank 0 a, rank 2 b"), is_short_of("1:"));
    EXPECT_THAT(found("workers make different calls: rank 1 a, rank 2 b"), is_short_of("0:"));
    // Of those that do not all say so in time.
    EXPECT_THAT(found("members make different calls: rank 1 #2 a, rank 2 #2 b"), IsEmpty());
    EXPECT_THAT(found("members make different calls: rank 0 #2 a, rank 2 #2 b"), is_short_of("1:"));
    EXPECT_THAT(found("rank 2 does something else"),
                Contains(HasSubstr("rank 1: call 1 1: a difference is a INTERNAL")));
  }
}

TEST(BlameTest, CallsThatDifferAreNoticed) {
  Plan plan = killing();
  const WorkerReport well = joined().done("call 1 1").done("barrier 1").done("leave").ended();
  for (const Fault fault : {Fault::OTHER_DTYPE, Fault::SKIP}) {
    plan.fault = fault;
    EXPECT_THAT(verdict(plan, well, well, well),
                Contains("rank 0: call 1 1 differs, and it has not noticed"));
  }
}

TEST(BlameTest, WhoLeavesACallOutDiffersInTheNextOne) {
  Plan plan = of(Fault::SKIP);
  const WorkerReport told = fails("INTERNAL", {2}, kVersions);
  const WorkerReport next = again(joined().failed("call 1 2", "INTERNAL", {2}, kVersions));
  EXPECT_THAT(judged(plan, told, next, told), IsEmpty());
  EXPECT_THAT(judged(plan, told, next, next),
              Contains(HasSubstr("rank 3: completes call 1 1, which differs")));
  plan.fault = Fault::TWICE;
  const WorkerReport twice =
      again(joined().done("call 1 1").failed("call 1 1 again", "INTERNAL", {2}, kVersions));
  EXPECT_THAT(judged(plan, told, twice, next), IsEmpty());
}

TEST(BlameTest, ADifferenceTellsEveryVersionAndNamesWhoDiffers) {
  for (const Place place : {Place::ONE_MACHINE, Place::TWO_MACHINES, Place::ONE_EACH}) {
    Plan plan = of(Fault::OTHER_DTYPE);
    plan.place = place;
    const WorkerReport told = fails("INTERNAL", {2}, kVersions);
    const auto found = [&](const WorkerReport& last) { return judged(plan, told, told, last); };
    EXPECT_THAT(found(fails("INTERNAL", {2}, "something is wrong with rank 2")),
                Contains(HasSubstr("rank 3: call 1 1: a difference is a INTERNAL")));
    EXPECT_THAT(found(fails("INTERNAL", {0, 1, 3}, kVersions)),
                Contains(HasSubstr("not rank 2 alone differs from most, it says, but 0, 1, 3")));
    EXPECT_THAT(found(fails("INTERNAL", {1},
                            "members make different calls: rank 3 #2 a, rank 1 #2 b, rank 2 c")),
                Contains(HasSubstr("not rank 2 alone differs from most, it says, but 1")));
    EXPECT_THAT(found(fails("INTERNAL", {1}, "members make different calls: rank 3 a, rank 1 b")),
                Contains(HasSubstr("without the versions of 2:")));
    EXPECT_THAT(found(fails("INTERNAL", {2}, "members make different calls: rank 3 a, rank 2 b")),
                IsEmpty());
    // Heard of the one that differs, which blames who is right.
    EXPECT_THAT(
        found(fails("INTERNAL", {3},
                    "rank 2 (host h, pid 3): members make different calls: rank 2 b, rank 3 a")),
        IsEmpty());
    // Of two of which it is none.
    EXPECT_THAT(
        found(fails("INTERNAL", {0},
                    "rank 2 (host h, pid 3): members make different calls: rank 2 b, rank 0 a")),
        IsEmpty());
    EXPECT_THAT(found(fails("INTERNAL", {2}, "members make different calls: rank 2 b, rank 0 a")),
                Contains(HasSubstr("without the versions of 3:")));
    EXPECT_THAT(
        found(fails("INTERNAL", {0},
                    "rank 0 (host h, pid 1): members make different calls: rank 1 b, rank 0 a")),
        Contains(HasSubstr("without the versions of 2:")));
  }
}

TEST(BlameTest, WhoDiffersIsToldAsTheOthersAre) {
  const Plan plan = of(Fault::OTHER_COUNT);
  const WorkerReport told = fails("INTERNAL", {2}, kVersions);
  const auto found = [&](const WorkerReport& of_victim) {
    return judged(plan, told, of_victim, told);
  };
  EXPECT_THAT(found(told), IsEmpty());
  EXPECT_THAT(found(fails("INTERNAL", {0}, "bang")),
              Contains(HasSubstr("rank 2: call 1 1: a difference is a INTERNAL: bang")));
  EXPECT_THAT(found(fails("INTERNAL", {0}, kVersions)), Contains(HasSubstr("but 0: workers make")));
  EXPECT_THAT(found(fails("exception", {}, "range check")),
              Contains("rank 2: call 1 1 failed with a exception: range check"));
  // Of a pair it does not know that it is the one.
  EXPECT_THAT(found(fails("INTERNAL", {3}, "members make different calls: rank 2 b, rank 3 a")),
              IsEmpty());
}

TEST(BlameTest, OfTwoThatDifferBothMayBeNamed) {
  Plan plan = of(Fault::OTHER_OP);
  plan.num_workers = 2;
  plan.victim = 1;
  const auto told = [](std::vector<int> culprits) {
    return again(joined().failed("call 1 1", "INTERNAL", std::move(culprits),
                                 "workers make different calls: rank 0 a #2 x; rank 1 b #2 y"),
                 {0, 1});
  };
  EXPECT_THAT(violations(plan, {told({0, 1}), told({0, 1})}, {}), IsEmpty());
  EXPECT_THAT(violations(plan, {told({0}), told({0, 1})}, {}),
              Contains(HasSubstr("rank 0: call 1 1: not rank 1 alone differs")));
}

TEST(BlameTest, ToACallAtTheEndThatNobodyElseMakesNobodyComes) {
  Plan plan = of(Fault::SKIP);
  plan.call = 2;
  const auto waits = [](const std::string& code, std::vector<int> culprits) {
    return again(joined().done("call 1 1").failed("call 1 2", code, std::move(culprits), "waits"));
  };
  const auto hears = [](std::vector<int> culprits, const std::string& text) {
    return again(
        joined().done("call 1 1").failed("barrier 1", "ABORTED", std::move(culprits), text));
  };
  const WorkerReport waiting = waits("DEADLINE_EXCEEDED", {2});
  const WorkerReport absent = hears({1}, "rank 1 (host b) aborted: it called rebuild");
  EXPECT_THAT(judged(plan, waiting, absent, waiting), IsEmpty());
  EXPECT_THAT(judged(plan, waiting, absent, waits("DEADLINE_EXCEEDED", {1})),
              Contains(HasSubstr("who does not come causes a DEADLINE_EXCEEDED of 1")));
  EXPECT_THAT(judged(plan, waiting, absent, waits("UNAVAILABLE", {2})),
              Contains(HasSubstr("who does not come causes a UNAVAILABLE of 2")));
  EXPECT_THAT(judged(plan, waiting, hears({1}, "rank 1 is a fool"), waiting),
              Contains(HasSubstr("rank 2: barrier 1: who does not come causes a ABORTED")));
}

TEST(BlameTest, InternalErrorsAreOfCallsThatDiffer) {
  for (const Fault fault : {Fault::KILL, Fault::STOP, Fault::THROW, Fault::MEMORY, Fault::LINK_LOSS,
                            Fault::LINK_DELAY, Fault::LINK_OUTAGE}) {
    const WorkerReport told = fails("INTERNAL", {2}, "rank 2 sends what cannot be");
    for (const int rank : {0, 1, 2, 3}) {
      EXPECT_THAT(
          judged(of(fault), told, told, told),
          Contains(AllOf(HasSubstr("rank " + std::to_string(rank) + ": call 1 1: a INTERNAL"),
                         HasSubstr("is not what "))));
    }
  }
}

TEST(BlameTest, WhatALinkDoesIsOfNoOtherKind) {
  for (const Fault fault : {Fault::LINK_LOSS, Fault::LINK_DELAY, Fault::LINK_OUTAGE}) {
    const Plan plan = of(fault);
    const WorkerReport apart = fails("UNAVAILABLE", {0}, "no heartbeat");
    const auto found = [&](const WorkerReport& told) { return judged(plan, told, apart, told); };
    for (const char* code : {"UNAVAILABLE", "DEADLINE_EXCEEDED"}) {
      EXPECT_THAT(found(fails(code, {2}, "rank 2 is silent")), IsEmpty());
    }
    EXPECT_THAT(found(fails("RESOURCE_EXHAUSTED", {2}, "rank 2")),
                Contains(HasSubstr("a RESOURCE_EXHAUSTED is not what link")));
    EXPECT_THAT(found(fails("UNAVAILABLE", {}, "rank 2")),
                Contains(HasSubstr("the error names nobody: UNAVAILABLE")));
    EXPECT_THAT(found(fails("UNAVAILABLE", {0, 1, 2, 3}, "rank 2")),
                Contains(HasSubstr("rank 3: call 1 1 blames rank 0")));
    EXPECT_THAT(found(fails("UNAVAILABLE", {0}, "rank 0 is gone")),
                Contains(HasSubstr("rank 3: call 1 1: the error names nobody who has failed")));
  }
}

TEST(BlameTest, ADeadlineOverABadLinkBlamesAnEndOfItOrOneThatWaitsForIt) {
  const std::string late = "timed out, and it has not come";
  const auto waits_for = [&](std::vector<int> ranks, const char* step = "call 1 1") {
    return again(joined().failed(step, "DEADLINE_EXCEEDED", std::move(ranks), late));
  };
  for (const Fault fault : {Fault::LINK_LOSS, Fault::LINK_DELAY, Fault::LINK_RATE,
                            Fault::LINK_REORDER, Fault::LINK_PARTED}) {
    const Plan plan = of(fault);  // parted from rank 0
    const WorkerReport of_victim = waits_for({3});
    const auto last = [&](const WorkerReport& told, const WorkerReport& other) {
      return wrong_blame(plan, {waits_for({2}), other, of_victim, told});
    };
    const auto chains = [&](const WorkerReport& told, const WorkerReport& other) {
      return let_pass(plan, {waits_for({2}), other, of_victim, told}).chains;
    };
    EXPECT_THAT(last(waits_for({2}), waits_for({2})), IsEmpty());
    EXPECT_THAT(last(waits_for({1, 2}), waits_for({2})), IsEmpty());
    EXPECT_EQ(chains(waits_for({1, 2}), waits_for({2})), 0);
    // It waits for rank 1, which waits for the victim.
    EXPECT_THAT(last(waits_for({1}), waits_for({2})), IsEmpty());
    EXPECT_EQ(chains(waits_for({1}), waits_for({2})), 1);
    // Rank 1 waits for nobody, or for whoever waits for it, or in another step.
    const auto is_told = Contains(
        HasSubstr("rank 3: call 1 1: the error blames nobody whose link is bad: DEADLINE_EXCEEDED "
                  "of 1: "));
    EXPECT_THAT(last(waits_for({1}), again(joined().done("call 1 1"))), is_told);
    EXPECT_THAT(last(waits_for({1}), waits_for({3})), is_told);
    EXPECT_THAT(last(waits_for({1}), waits_for({2}, "barrier 1")), is_told);
    // Whom it waits for in a measurement says nothing: the time has passed before.
    const std::string measuring = "while the links were measured: timed out after 0.04 s";
    EXPECT_THAT(last(again(joined().failed("call 1 1", "DEADLINE_EXCEEDED", {1}, measuring)),
                     waits_for({3})),
                Not(is_told));
  }
}

TEST(BlameTest, DeadlinesAndDifferencesAreCounted) {
  const WorkerReport late = fails("DEADLINE_EXCEEDED", {2}, "rank 2 has not come");
  const LetPass over_link = let_pass(of(Fault::LINK_LOSS), {late, late, late, late});
  EXPECT_EQ(over_link.deadlines, 3);  // the victim's own says nothing
  EXPECT_EQ(over_link.differences, 0);
  const WorkerReport all = fails("INTERNAL", {2}, kVersions);
  const WorkerReport two =
      fails("INTERNAL", {2}, "members make different calls: rank 2 b #2 y; rank 3 a #2 x");
  const LetPass of_calls = let_pass(of(Fault::OTHER_DTYPE), {all, all, all, two});
  EXPECT_EQ(of_calls.deadlines, 0);
  EXPECT_EQ(of_calls.differences, 4);
  EXPECT_EQ(of_calls.differences_of_two, 1);
}

TEST(BlameTest, WhatIsMadeWithoutACutLinkDoesNotFail) {
  const Plan plan = of(Fault::LINK_CUT);
  const auto goes_on = [](bool is_well) {
    Story story = joined().failed("call 1 1", "UNAVAILABLE", {2}, "rank 2 is silent");
    story.done("rebuild 1").member({0, 1, 3}).done("make 2");
    if (!is_well) {
      story.failed("call 2 0", "UNAVAILABLE", {0}, "rank 0").done("rebuild 2").member({0, 1, 3});
    }
    return story.done("barrier 2").done("leave").ended();
  };
  const WorkerReport apart = joined()
                                 .failed("call 1 1", "UNAVAILABLE", {0}, "no heartbeat")
                                 .failed("rebuild 1", "ABORTED", {}, "left out of epoch 2")
                                 .done("leave")
                                 .ended();
  EXPECT_THAT(judged(plan, goes_on(true), apart, goes_on(true)), IsEmpty());
  EXPECT_THAT(judged(plan, goes_on(false), apart, goes_on(true)),
              Contains(HasSubstr("call 2 0 fails, though nothing happens any more")));
}

TEST(BlameTest, WhoComesAgainOverABadLinkIsNotRefused) {
  Plan plan = of(Fault::LINK_OUTAGE);
  plan.phase = Phase::JOIN;
  plan.lasting_us = 3'000'000;
  const WorkerReport others = Story().done("join").done("leave").ended();
  const auto victim = [](const std::string& code) {
    return Story().failed("join", code, {0}, "its rank is taken").done("leave").ended();
  };
  EXPECT_THAT(judged(plan, others, victim("DEADLINE_EXCEEDED"), others),
              Not(Contains(HasSubstr("is not what"))));
  EXPECT_THAT(judged(plan, others, victim("FAILED_PRECONDITION"), others),
              Contains(HasSubstr("a FAILED_PRECONDITION is not what link-outage causes")));
}

TEST(BlameTest, TheDeafAreQuotedWhereTheySayThatTheChiefIsGone) {
  Plan plan = of(Fault::LINK_CUT);
  plan.amount = kIsDeaf;
  const auto told = [](const std::string& text, const char* step = "make 1") {
    Story story = joined().failed(step, "UNAVAILABLE", {0}, text);
    return story.done("rebuild 1").member({0, 1, 3}).done("make 2").done("leave").ended();
  };
  const WorkerReport deaf = joined()
                                .failed("make 1", "UNAVAILABLE", {0}, "no heartbeat")
                                .failed("rebuild 1", "ABORTED", {}, "left out of epoch 2")
                                .done("leave")
                                .ended();
  const std::string words = "rank 0 (host h, pid 1) is gone: no heartbeat for 2 s";
  const auto quoting = told("rank 2 (host h, pid 3): " + words);
  EXPECT_THAT(judged(plan, quoting, deaf, quoting), Not(Contains(HasSubstr("blames rank 0"))));
  const auto by_itself = told(words);
  EXPECT_THAT(judged(plan, by_itself, deaf, by_itself), Contains(HasSubstr("blames rank 0")));
  // In a call the chief is asked.
  const auto of_a_call = told("rank 2 (host h, pid 3): " + words, "call 1 1");
  EXPECT_THAT(judged(plan, of_a_call, deaf, of_a_call), Contains(HasSubstr("blames rank 0")));
}

TEST(BlameTest, AChiefBehindABadLinkTellsOfAConnectionThatEndedThere) {
  const auto found = [](int victim, const std::string& text, bool is_deaf = false) {
    Plan plan = of(is_deaf ? Fault::LINK_CUT : Fault::LINK_LOSS);
    if (is_deaf) plan.amount = kIsDeaf;
    plan.phase = Phase::JOIN;
    plan.victim = victim;
    const auto told = [&](int culprit) {
      return again(joined().failed("make 1", "UNAVAILABLE", {culprit}, text));
    };
    return wrong_blame(plan, {told(1), told(0), told(1), told(1)});
  };
  const std::string ended = "rank 1 (host h, pid 2) is gone: its connection ended: End of file";
  EXPECT_THAT(found(0, ended), IsEmpty());
  EXPECT_THAT(found(3, ended), Contains(HasSubstr("blames rank 1")));
  const std::string silent = "rank 1 (host h, pid 2) is gone: no heartbeat for 2 s";
  EXPECT_THAT(found(0, silent), Contains(HasSubstr("blames rank 1")));
  EXPECT_THAT(found(0, silent, /*is_deaf=*/true), Not(Contains(HasSubstr("blames rank 1"))));
  EXPECT_THAT(found(3, silent, /*is_deaf=*/true), Contains(HasSubstr("blames rank 1")));
}

TEST(BlameTest, WhatIsMadeAfterAnOutageDoesNotFail) {
  Plan plan = of(Fault::LINK_OUTAGE);
  plan.lasting_us = 3'000'000;
  const auto told = [](double rebuild, bool is_hit) {
    Story story = joined();
    if (is_hit) story.fault();
    return story.failed("call 1 1", "UNAVAILABLE", {is_hit ? 0 : 2}, "silent")
        .done("rebuild 1", rebuild)
        .member({0, 1, 2, 3})
        .done("make 2")
        .failed("call 2 0", "UNAVAILABLE", {is_hit ? 0 : 2}, "silent")
        .done("rebuild 2")
        .member({0, 1, 2, 3})
        .done("make 3")
        .done("barrier 3")
        .done("leave")
        .ended();
  };
  const auto found = [&](double rebuild) {
    return judged(plan, told(rebuild, false), told(rebuild, true), told(rebuild, false));
  };
  EXPECT_THAT(found(2), IsEmpty());
  EXPECT_THAT(found(4.1), Contains(HasSubstr("call 2 0 fails, though nothing happens any more")));
}

TEST(BlameTest, WhoFailsBecauseOfAnotherIsNotToBlame) {
  const Plan plan = of(Fault::STOP);
  const auto told = [](const std::string& code, int culprit, const std::string& text) {
    return again(joined().failed("call 1 1", code, {culprit}, text), {0, 1, 3});
  };
  const auto stopped = [](std::vector<int> culprits, const std::string& code,
                          const std::string& text = "late") {
    return joined()
        .stands_still(8.9)
        .failed("call 1 1", code, std::move(culprits), text, 9)
        .failed("rebuild 1", "ABORTED", {}, "left out of epoch 2")
        .done("leave")
        .ended();
  };
  const WorkerReport first = told("DEADLINE_EXCEEDED", 2, "rank 2 is late");
  const WorkerReport late = stopped({2}, "DEADLINE_EXCEEDED");
  EXPECT_THAT(judged(plan, first, late, first), IsEmpty());
  EXPECT_THAT(judged(plan, first, late, told("ABORTED", 0, "rank 0 (host b) aborted: rank 2 ...")),
              IsEmpty());
  for (const char* code : {"UNAVAILABLE", "DEADLINE_EXCEEDED"}) {
    EXPECT_THAT(judged(plan, first, late, told(code, 0, "rank 0 is gone")),
                Contains(HasSubstr("rank 3: call 1 1 blames rank 0")));
  }
  // Nor does who was stopped say that it was another one.
  EXPECT_THAT(judged(plan, first, stopped({}, "DEADLINE_EXCEEDED"), first), IsEmpty());
  EXPECT_THAT(judged(plan, first, stopped({1}, "DEADLINE_EXCEEDED"), first),
              Contains(HasSubstr("rank 2: call 1 1 blames rank 1")));
  EXPECT_THAT(
      judged(plan, first,
             stopped({1}, "DEADLINE_EXCEEDED", "reduce #2: rank 1 (host b) has given up"), first),
      IsEmpty());
}

TEST(BlameTest, WhatAWorkerLacksIsTheLibrarysError) {
  const WorkerReport told = fails("ABORTED", {2}, "rank 2 aborted: rank 2 does not go on");
  const auto found = [&](Fault fault, const Story& of_victim) {
    return judged(of(fault), told, again(of_victim), told);
  };
  const auto lacks = [](const std::string& step, const std::string& code) {
    Story story = Story().done("join").done("make 1").done("call 1 0").fault();
    return story.failed(step, code, {}, "lacks something");
  };
  for (const Fault fault : {Fault::MEMORY, Fault::DESCRIPTORS}) {
    EXPECT_THAT(found(fault, lacks("call 1 1", "RESOURCE_EXHAUSTED")), IsEmpty());
    for (const char* code : {"exception", "system_error", "bad_alloc"}) {
      EXPECT_THAT(found(fault, lacks("call 1 1", code)),
                  Contains(HasSubstr("rank 2: call 1 1 failed with a " + std::string(code))));
    }
  }
  // Its own tensors are the program's.
  EXPECT_THAT(found(Fault::MEMORY, lacks("memory", "bad_alloc")), IsEmpty());
  EXPECT_THAT(found(Fault::DESCRIPTORS, lacks("memory", "bad_alloc")),
              Contains(HasSubstr("memory failed with a bad_alloc")));
  EXPECT_THAT(found(Fault::STOP, lacks("call 1 1", "RESOURCE_EXHAUSTED")),
              Contains(HasSubstr("a RESOURCE_EXHAUSTED is not what stop causes")));
}

TEST(BlameTest, LeavingDoesNotFail) {
  Plan plan = of(Fault::KILL);
  plan.phase = Phase::LEAVE;
  const auto done = [] { return joined().done("call 1 1").done("call 1 2").done("barrier 1"); };
  const WorkerReport well = done().done("leave").ended();
  const WorkerReport dead = done().begin("leave").killed();
  EXPECT_THAT(judged(plan, well, dead, well), IsEmpty());
  EXPECT_THAT(
      judged(plan, well, dead, done().failed("leave", "UNAVAILABLE", {2}, "rank 2").ended()),
      Contains("rank 3: leave failed: rank 2"));
}

TEST(BlameTest, NobodyCompletesACallInWhosePlaceOneGivesUp) {
  Plan plan = of(Fault::THROW);
  plan.calls[1].count = 1;
  const WorkerReport told = fails("ABORTED", {2}, "rank 2 gave up: on purpose");
  const WorkerReport gives_up =
      again(joined().fault().failed("throw 1 1", "exception", {}, "on purpose"));
  const WorkerReport later = again(
      joined().done("call 1 1").failed("call 1 2", "ABORTED", {2}, "rank 2 gave up: on purpose"));
  EXPECT_THAT(judged(plan, told, gives_up, told), IsEmpty());
  EXPECT_THAT(judged(plan, told, gives_up, later),
              Contains("rank 3: completes call 1 1, in which rank 2 gave up"));
  plan.calls[1].form = Form::BROADCAST;  // which some complete alone
  EXPECT_THAT(judged(plan, told, gives_up, later), IsEmpty());
  plan.calls[1].form = Form::REDUCE;
  plan.calls[1].count = 0;  // so that nobody waits for anybody
  EXPECT_THAT(judged(plan, told, gives_up, later), IsEmpty());
  plan.calls[1].count = 1;
  plan.amount = kUnderWay;  // perhaps after its part
  EXPECT_THAT(judged(plan, told, gives_up, later), IsEmpty());
}

}  // namespace
}  // namespace crossdevice::chaos
