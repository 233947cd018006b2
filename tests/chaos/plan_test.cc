// SPDX-License-Identifier: Apache-2.0
#include "chaos/plan.h"

#include <algorithm>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdevice::chaos {
namespace {

using ::testing::SizeIs;

TEST(PlanTest, OneSeedIsOnePlan) {
  const Abilities abilities{.has_namespaces = true, .has_ucx = true};
  for (std::uint64_t number = 0; number < 200; ++number) {
    EXPECT_EQ(draw_plan(7, number, abilities), draw_plan(7, number, abilities));
  }
}

/// As a campaign prints it, so that what it has found can be repeated: of an engine and a seed sequence that are the same on every machine.
TEST(PlanTest, ThePlanOfANumberStaysWhatItIs) {
  const auto text_of = [](std::uint64_t seed, std::uint64_t number) {
    return to_string(draw_plan(seed, number, {.has_namespaces = true, .has_ucx = true}));
  };
  for (int i = 0; i < 2; ++i) {  // whatever was drawn before
    EXPECT_EQ(text_of(1, 2),
              "link-cut (mute) of rank 5 of 6 in make after 8 us; communicator x 1 on namespaces, "
              "rechd, tls, deadline 1.9 s; -");
    EXPECT_EQ(text_of(1, 3),
              "skip of rank 0 of 2 in call 7 after 3186 us; strategy x 1 on namespaces, ring, "
              "deadline 4 s; reduce in place SUM of 1 x 51354 float32");
    EXPECT_EQ(text_of(2, 2),
              "link-loss 15 of rank 2 of 4 in call 3 after 1824 us for 4.7 s; communicator x 1 on "
              "namespaces, measured, deadline 20 s; reduce to root PROD of 1 x 3709 uint16");
  }
}

TEST(PlanTest, EveryFaultIsDrawnSomeTime) {
  std::set<Fault> faults;
  std::set<std::string> phases;
  std::set<Form> forms;
  std::set<DType> dtypes;
  std::set<int> numbers_of_workers;
  for (std::uint64_t number = 0; number < 3000; ++number) {
    const Plan plan = draw_plan(3, number, {.has_namespaces = true});
    faults.insert(plan.fault);
    phases.insert(std::string(to_string(plan.phase)));
    numbers_of_workers.insert(plan.num_workers);
    for (const Call& call : plan.calls) {
      forms.insert(call.form);
      dtypes.insert(call.dtype);
    }
  }
  EXPECT_EQ(faults.size(), kNumFaults - 1);  // all but none
  EXPECT_EQ(phases.size(), 6U);
  EXPECT_EQ(forms.size(), 12U);
  EXPECT_EQ(dtypes.size(), kNumDTypes);
  EXPECT_EQ(numbers_of_workers.size(), 7U);  // 2 to 8
}

TEST(PlanTest, PlansCanBeCarriedOut) {
  for (std::uint64_t number = 0; number < 2000; ++number) {
    const Plan plan = draw_plan(11, number, {.has_namespaces = number % 2 == 0, .max_workers = 5});
    SCOPED_TRACE(to_string(plan));
    EXPECT_GE(plan.num_workers, 2);
    EXPECT_LE(plan.num_workers, 5);
    EXPECT_LT(plan.victim, plan.num_workers);
    EXPECT_LT(plan.call, plan.calls.size());
    EXPECT_FALSE(is_of_link(plan.fault) && plan.place != Place::NAMESPACES);
    if (number % 2 != 0) {
      EXPECT_NE(plan.place, Place::NAMESPACES);
    }
    EXPECT_EQ(plan.lasting_us > 0, is_of_link(plan.fault) && plan.fault != Fault::LINK_CUT);
    if (plan.fault == Fault::LINK_PAUSE) {
      EXPECT_LT(static_cast<double>(plan.lasting_us) / 1e6, plan.times.heartbeat / 2);
    }
    if (plan.fault == Fault::LINK_PARTED) {
      EXPECT_LT(plan.amount, static_cast<std::uint64_t>(plan.num_workers));
      EXPECT_NE(plan.amount, static_cast<std::uint64_t>(plan.victim));
    }
    if (plan.fault == Fault::LINK_OUTAGE) {
      EXPECT_GT(static_cast<double>(plan.lasting_us) / 1e6, plan.times.heartbeat);
      EXPECT_LT(static_cast<double>(plan.lasting_us) / 1e6, plan.times.rebuild / 2);
    }
    EXPECT_EQ(plan.first_lost.has_value(), plan.phase == Phase::REBUILD);
    EXPECT_NE(plan.first_lost.value_or(-1), plan.victim);
    EXPECT_TRUE(can_go_on(plan) || plan.num_workers == 2);
    for (const Call& call : plan.calls) {
      EXPECT_TRUE(is_supported(call.op, call.dtype));
      EXPECT_GE(call.num_values, 1U);
    }
  }
}

TEST(PlanTest, CallsThatAreToDifferDo) {
  int checked = 0;
  for (std::uint64_t number = 0; number < 2000; ++number) {
    const Plan plan = draw_plan(5, number, {.faults = {Fault::SKIP, Fault::TWICE}});
    if (plan.call + 1 == plan.calls.size()) continue;
    EXPECT_NE(plan.calls[plan.call].count, plan.calls[plan.call + 1].count);
    EXPECT_GT(plan.calls[plan.call].count, 0U);
    ++checked;
  }
  EXPECT_GT(checked, 1000);
}

/// "kill | call | ring | one each", and so on.
std::string kind_of(const Plan& plan) {
  const std::string algorithm = plan.phase == Phase::CALL && plan.algorithm.has_value()
                                    ? std::string(to_string(*plan.algorithm))
                                    : "-";
  return std::string(to_string(plan.fault)) + " | " + std::string(to_string(plan.phase)) + " | " +
         algorithm + " | " + std::string(to_string(plan.place));
}

TEST(PlanTest, HalfOfTheNumbersGoThroughEveryKind) {
  std::set<std::string> kinds;
  for (std::uint64_t number = 1; number < 1600; number += 2) {
    const Plan plan = draw_plan(303, number, {.has_namespaces = true});
    kinds.insert(kind_of(plan));
    if (plan.phase == Phase::CALL && plan.algorithm.has_value()) {
      EXPECT_LE(plan.calls[plan.call].form, Form::BROADCAST) << to_string(plan);
    }
  }
  for (const char* fault : {"kill", "stop", "throw", "descriptors", "shared-memory", "skip"}) {
    for (const char* algorithm : {"-", "exchange", "doubling", "shuffle", "rechd", "ring"}) {
      for (const char* place : {"two machines", "one each", "namespaces"}) {
        const std::string kind =
            std::string(fault) + " | call | " + algorithm + " | " + std::string(place);
        EXPECT_TRUE(kinds.contains(kind)) << kind;
      }
    }
    EXPECT_TRUE(kinds.contains(std::string(fault) + " | call | - | one machine"));
  }
  for (const char* kind :
       {"memory | rebuild | - | one machine", "clock-jump | rebuild | - | one each",
        "throw | make | - | two machines", "link-cut | rebuild | - | namespaces"}) {
    EXPECT_TRUE(kinds.contains(kind)) << kind;
  }
}

/// All that a campaign's plans differ in.
std::set<std::string> variety_of(std::uint64_t seed, std::uint64_t count,
                                 const Abilities& abilities) {
  std::set<std::string> all;
  for (std::uint64_t number = 0; number < count; ++number) {
    const Plan plan = draw_plan(seed, number, abilities);
    all.insert(std::string(to_string(plan.fault)));
    all.insert(std::string(to_string(plan.phase)));
    all.insert(std::string(to_string(plan.engine)));
    if (!abilities.has_namespaces) all.insert(std::string(to_string(plan.place)));
    if (plan.workers_per_host == 2) all.insert("hosts of two");
    if (plan.is_encrypted) all.insert("encrypted");
    if (plan.over_ucx) all.insert("ucx");
    if (plan.num_workers == abilities.max_workers) all.insert("as many workers as may be");
    if (!can_go_on(plan)) all.insert("a half");
    if (plan.message != 0) all.insert("at a message");
    if (plan.fault == Fault::THROW && plan.amount == kInHook) all.insert("in a hook");
    if (plan.phase != Phase::CALL || plan.place == Place::ONE_MACHINE) continue;
    all.insert(plan.algorithm.has_value() ? std::string(to_string(*plan.algorithm)) : "measured");
  }
  return all;
}

/// The arguments are those of chaos.campaign, chaos.links and chaos.ucx in CMakeLists.txt.
TEST(PlanTest, TheShortCampaignsDrawEveryFaultPhasePlaceAndAlgorithm) {
  constexpr std::size_t kAlgorithmsAndMeasured = 6;
  constexpr std::size_t kPhasesAndEngines = 6 + 3;
  std::vector<Fault> links = {Fault::CLOCK};
  for (std::size_t i = static_cast<std::size_t>(Fault::LINK_CUT); i < kNumFaults; ++i) {
    links.push_back(static_cast<Fault>(i));
  }
  const std::size_t num_others = kNumFaults - 1 - links.size();  // none is no fault
  EXPECT_THAT(variety_of(19, 200, {}),
              SizeIs(num_others + kPhasesAndEngines + kAlgorithmsAndMeasured + 3 + 5));
  EXPECT_THAT(
      variety_of(59, 50,
                 {.has_namespaces = true, .max_workers = 6, .slowness = 1.5, .faults = links}),
      SizeIs(links.size() + kPhasesAndEngines + kAlgorithmsAndMeasured + 4));
  EXPECT_THAT(variety_of(195, 30,
                         {.has_ucx = true,
                          .faults = {Fault::KILL, Fault::STOP, Fault::THROW, Fault::OTHER_COUNT}}),
              ::testing::IsSupersetOf({"ucx", "as many workers as may be", "kill", "stop", "throw",
                                       "other-count", "call", "rebuild", "ops", "communicator",
                                       "strategy"}));
}

TEST(PlanTest, EncryptionAndHostsOfTwoAreDrawnWhereTheyCanBe) {
  int encrypted = 0;
  int of_two = 0;
  for (std::uint64_t number = 0; number < 1000; ++number) {
    const Plan plan = draw_plan(9, number, {.has_namespaces = true, .has_ucx = true});
    SCOPED_TRACE(to_string(plan));
    encrypted += plan.is_encrypted ? 1 : 0;
    of_two += plan.workers_per_host == 2 ? 1 : 0;
    EXPECT_FALSE(plan.is_encrypted && plan.over_ucx);
    if (plan.workers_per_host == 1) continue;
    EXPECT_EQ(plan.place, Place::NAMESPACES);
    EXPECT_GT(num_hosts(plan), 1);
    EXPECT_EQ(is_hit(plan, plan.victim ^ 1),
              is_of_link(plan.fault));  // who is on the same host, or would be
  }
  EXPECT_GT(encrypted, 50);
  EXPECT_GT(of_two, 50);
}

TEST(PlanTest, WhatIsLookedAtAfterALateWorkerIsMemoryThatItHasMapped) {
  for (std::uint64_t number = 0; number < 300; ++number) {
    const Call last = draw_plan(4, number, {}).more_calls.back();
    EXPECT_EQ(last.form, Form::REDUCE);
    EXPECT_FALSE(last.is_foreign);
    EXPECT_GT(last.count, 0U);
  }
}

TEST(PlanTest, LinksSufferInEveryPhase) {
  const std::vector<Fault> faults = {Fault::LINK_CUT,     Fault::LINK_PARTED,    Fault::LINK_OUTAGE,
                                     Fault::LINK_PAUSE,   Fault::LINK_LOSS,      Fault::LINK_DELAY,
                                     Fault::LINK_REORDER, Fault::LINK_DUPLICATE, Fault::LINK_RATE};
  for (const Fault fault : faults) {
    std::set<std::string> phases;
    std::set<bool> may_they_fail;
    for (std::uint64_t number = 0; number < 400; ++number) {
      const Plan plan = draw_plan(3, number, {.has_namespaces = true, .faults = {fault}});
      EXPECT_EQ(plan.fault, fault);
      phases.insert(std::string(to_string(plan.phase)));
      may_they_fail.insert(may_fail(plan));
    }
    EXPECT_EQ(phases.size(), 6U) << to_string(fault);
    EXPECT_EQ(may_they_fail.contains(false),
              fault >= Fault::LINK_PAUSE && fault != Fault::LINK_LOSS && fault != Fault::LINK_RATE)
        << to_string(fault);
  }
}

TEST(PlanTest, WhereALinkMayBeTooSlowForTheCallsItIsNotSoForEver) {
  int num_endless = 0;
  for (std::uint64_t number = 0; number < 400; ++number) {
    const Plan plan = draw_plan(5, number, {.has_namespaces = true, .faults = {Fault::LINK_DELAY}});
    const bool is_endless = plan.lasting_us > 15'000'000;
    num_endless += is_endless ? 1 : 0;
    EXPECT_FALSE(is_endless && plan.phase != Phase::REBUILD && may_fail(plan)) << number;
  }
  EXPECT_GT(num_endless, 20);
}

TEST(PlanTest, NoClockJumpsWhileUcxIsLoaded) {
  int num_over_ucx = 0;
  for (std::uint64_t number = 0; number < 400; ++number) {
    const Plan plan = draw_plan(6, number, {.has_ucx = true, .faults = {Fault::CLOCK_JUMP}});
    num_over_ucx += plan.over_ucx ? 1 : 0;
    EXPECT_FALSE(plan.over_ucx && (plan.phase == Phase::JOIN || plan.phase == Phase::MAKE))
        << number;
  }
  EXPECT_GT(num_over_ucx, 5);
}

TEST(PlanTest, OfPlansWithoutLinksNamespacesChangeNothing) {
  for (std::uint64_t number = 0; number < 100; ++number) {
    const Plan plan = draw_plan(20, number, {.max_workers = 4});
    EXPECT_FALSE(is_of_link(plan.fault) || plan.fault == Fault::CLOCK);
    EXPECT_EQ(plan.lasting_us, 0U);
  }
}

TEST(PlanTest, OnlyWhatIsAskedFor) {
  for (std::uint64_t number = 0; number < 100; ++number) {
    EXPECT_EQ(draw_plan(1, number, {.faults = {Fault::MEMORY}}).fault, Fault::MEMORY);
  }
}

TEST(PlanTest, WhoIsSilentMayBeOneOfTwo) {
  for (const Fault fault : {Fault::STOP, Fault::LINK_CUT}) {
    int of_two = 0;
    for (std::uint64_t number = 0; number < 200; ++number) {
      const Plan plan = draw_plan(6, number, {.has_namespaces = true, .faults = {fault}});
      if (plan.num_workers == 2) ++of_two;
      EXPECT_EQ(can_go_on(plan), plan.num_workers > 2) << to_string(plan);
    }
    EXPECT_GT(of_two, 10);
  }
  EXPECT_TRUE(can_go_on({.num_workers = 2, .fault = Fault::KILL}));
}

TEST(PlanTest, WhoGivesUpDoesSoInEveryWay) {
  std::set<std::uint64_t> ways;
  for (std::uint64_t number = 0; number < 200; ++number) {
    const Plan plan = draw_plan(6, number, {.faults = {Fault::THROW}});
    if (plan.phase == Phase::CALL) ways.insert(plan.amount);
    EXPECT_TRUE(plan.amount != kInHook || plan.engine == Engine::OPS);
    EXPECT_GT(plan.times.call, 4 * plan.times.death);  // so that at once is long before
  }
  EXPECT_EQ(ways, (std::set<std::uint64_t>{kInPlaceOfIt, kUnderWay, kInHook}));
}

TEST(PlanTest, SomeStrikeAtAMessage) {
  std::set<std::string> kinds;
  for (std::uint64_t number = 0; number < 1000; ++number) {
    const Plan plan = draw_plan(8, number, {.has_namespaces = true, .has_ucx = true});
    if (plan.message == 0) continue;
    SCOPED_TRACE(to_string(plan));
    EXPECT_FALSE(plan.over_ucx || plan.is_encrypted);  // whose messages are not counted
    EXPECT_NE(plan.place, Place::ONE_MACHINE);
    kinds.insert(std::string(to_string(plan.fault)) + ' ' + std::string(to_string(plan.phase)) +
                 (plan.is_received ? " received" : " sent"));
  }
  EXPECT_THAT(kinds,
              ::testing::ElementsAre("kill call received", "kill call sent", "kill make received",
                                     "kill make sent", "stop call received", "stop call sent",
                                     "stop make received", "stop make sent", "throw call received",
                                     "throw call sent"));
}

TEST(PlanTest, LostWorkersAreThoseThatDoNotComeBack) {
  Plan plan{.num_workers = 4, .fault = Fault::KILL, .victim = 2};
  EXPECT_EQ(lost_workers(plan), std::vector<int>{2});
  plan.first_lost = 0;
  EXPECT_EQ(lost_workers(plan), (std::vector<int>{0, 2}));
  plan = {.num_workers = 4, .fault = Fault::THROW, .victim = 2};
  EXPECT_TRUE(lost_workers(plan).empty());
}

}  // namespace
}  // namespace crossdevice::chaos
