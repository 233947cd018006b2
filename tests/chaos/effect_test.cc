// SPDX-License-Identifier: Apache-2.0
#include "chaos/effect.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossdevice::chaos {
namespace {

/// Of rank 1 of two, which has told this.
Effect of(Fault fault, std::vector<Event> told, RunResult result = {}) {
  const Plan plan{.num_workers = 2, .fault = fault, .victim = 1};
  result.reports = {WorkerReport{}, WorkerReport{.events = std::move(told)}};
  return effect_of(plan, result);
}

TEST(EffectTest, ASignalHasOneWhereverItCame) {
  for (const Fault fault : {Fault::KILL, Fault::STOP}) {
    EXPECT_EQ(of(fault, {}), Effect::NOT_COME);
    EXPECT_EQ(of(fault, {}, {.struck_in = ""}), Effect::SEEN);
    EXPECT_EQ(of(fault, {}, {.struck_in = "call 1 0"}), Effect::SEEN);
  }
}

TEST(EffectTest, WhatAWorkerDoesItselfHasOneWhereItIsTold) {
  for (const Fault fault : {Fault::THROW, Fault::SKIP, Fault::OTHER_COUNT, Fault::TWICE}) {
    EXPECT_EQ(of(fault, {}), Effect::NOT_COME);
    EXPECT_EQ(of(fault, {{.kind = EventKind::FAULT}}), Effect::SEEN);
  }
}

TEST(EffectTest, OfALinkTheCountsOfItsFaultCount) {
  const auto with = [](Fault fault, const LinkCounts& counts) {
    return of(fault, {}, {.in_trouble = counts});
  };
  using Counter = std::uint64_t LinkCounts::*;
  const std::vector<std::pair<Fault, Counter>> counters = {
      {Fault::LINK_CUT, &LinkCounts::lost},     {Fault::LINK_OUTAGE, &LinkCounts::lost},
      {Fault::LINK_PARTED, &LinkCounts::lost},  {Fault::LINK_PAUSE, &LinkCounts::lost},
      {Fault::LINK_LOSS, &LinkCounts::lost},    {Fault::LINK_DELAY, &LinkCounts::delayed},
      {Fault::LINK_REORDER, &LinkCounts::late}, {Fault::LINK_DUPLICATE, &LinkCounts::doubled},
      {Fault::LINK_RATE, &LinkCounts::delayed}, {Fault::LINK_RATE, &LinkCounts::lost}};
  for (const auto& [fault, counter] : counters) {
    SCOPED_TRACE(std::string(to_string(fault)));
    EXPECT_EQ(with(fault, {}), Effect::NOT_COME);
    EXPECT_EQ(with(fault, {.offered = 7}), Effect::NONE);
    LinkCounts counts{.offered = 7};
    counts.*counter = 1;
    EXPECT_EQ(with(fault, counts), Effect::SEEN);
  }
  EXPECT_EQ(with(Fault::LINK_LOSS, {.offered = 7, .late = 1, .doubled = 1, .delayed = 1}),
            Effect::NONE);
  EXPECT_EQ(of(Fault::LINK_CUT, {}), Effect::NOT_COME);
}

TEST(EffectTest, OfALimitOnlyAnErrorTells) {
  const Event set{.kind = EventKind::FAULT};
  const auto with = [&](const std::string& code, const std::string& text) {
    return of(Fault::DESCRIPTORS, {set, {.kind = EventKind::FAIL, .code = code, .text = text}});
  };
  EXPECT_EQ(of(Fault::MEMORY, {}), Effect::NOT_COME);
  EXPECT_EQ(of(Fault::MEMORY, {set}), Effect::UNKNOWN);
  EXPECT_EQ(with("RESOURCE_EXHAUSTED", "no memory"), Effect::SEEN);
  EXPECT_EQ(with("bad_alloc", "std::bad_alloc"), Effect::SEEN);
  EXPECT_EQ(with("ABORTED", "rank 1 aborted: Too many open files"), Effect::SEEN);
  EXPECT_EQ(with("DEADLINE_EXCEEDED", "rank 0 has not come"), Effect::UNKNOWN);
}

TEST(EffectTest, AClockIsAnotherOneWhereTheWorkerHasSeenThat) {
  const Event seen{.kind = EventKind::EFFECT};
  EXPECT_EQ(of(Fault::CLOCK, {}), Effect::UNKNOWN);
  EXPECT_EQ(of(Fault::CLOCK, {seen}), Effect::SEEN);
  EXPECT_EQ(of(Fault::CLOCK_JUMP, {}), Effect::NOT_COME);
  EXPECT_EQ(of(Fault::CLOCK_JUMP, {{.kind = EventKind::FAULT}}), Effect::NONE);
  EXPECT_EQ(of(Fault::CLOCK_JUMP, {{.kind = EventKind::FAULT}, seen}), Effect::SEEN);
}

}  // namespace
}  // namespace crossdevice::chaos
