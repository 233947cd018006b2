// SPDX-License-Identifier: Apache-2.0
#include "chaos/tally.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdevice::chaos {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(TallyTest, EachRunIsInEachTable) {
  Tallies tallies;
  const Plan cut{.place = Place::NAMESPACES, .fault = Fault::LINK_CUT, .phase = Phase::JOIN};
  const Plan full{.algorithm = AllReduceAlgorithm::RING, .fault = Fault::MEMORY};
  tallies.add(cut, Effect::SEEN, false);
  tallies.add(cut, Effect::NOT_COME, true);
  tallies.add(cut, Effect::NONE, false);
  tallies.add(full, Effect::UNKNOWN, false);
  EXPECT_EQ(tallies.all().runs, 4U);
  EXPECT_EQ(tallies.all().faults(), 3U);
  EXPECT_EQ(tallies.all().violations, 1U);
  const std::string tables = tallies.tables();
  EXPECT_THAT(tables, HasSubstr("| fault | phase | runs | faults | effect seen | unknown | none | "
                                "violations |\n|---|---|---:|---:|---:|---:|---:|---:|\n"));
  EXPECT_THAT(tables, HasSubstr("| link-cut | join | 3 | 2 | 1 | 0 | 1 | 1 |\n"));
  EXPECT_THAT(tables, HasSubstr("| memory | call | 1 | 1 | 0 | 1 | 0 | 0 |\n"));
  EXPECT_THAT(tables, HasSubstr("| measured | namespaces | 3 | 2 | 1 | 0 | 1 | 1 |\n"));
  EXPECT_THAT(tables, HasSubstr("| transport | runs | faults | effect seen | unknown | none | "
                                "violations |\n|---|---:|---:|---:|---:|---:|---:|\n"));
  EXPECT_THAT(tables, HasSubstr("| shared memory | 1 | 1 | 0 | 1 | 0 | 0 |\n"));
  EXPECT_THAT(tallies.summary(),
              EndsWith("1 of 4 runs ended before their fault came\n"
                       "1 faults had an effect that was seen, 1 had none, of 1 it is unknown\n"));
}

TEST(TallyTest, TransportsHaveNames) {
  EXPECT_EQ(transport_of({.num_workers = 4, .place = Place::ONE_MACHINE}), "shared memory");
  EXPECT_EQ(transport_of({.num_workers = 4, .place = Place::ONE_EACH}), "TCP");
  EXPECT_EQ(transport_of({.place = Place::ONE_EACH, .is_encrypted = true}), "TCP in TLS");
  EXPECT_EQ(transport_of({.place = Place::ONE_EACH, .over_ucx = true}), "UCX");
  EXPECT_EQ(transport_of({.num_workers = 2, .place = Place::TWO_MACHINES}), "TCP");
  EXPECT_EQ(transport_of({.num_workers = 3, .place = Place::TWO_MACHINES}),
            "two levels: shared memory and TCP");
  EXPECT_EQ(transport_of({.num_workers = 3, .place = Place::NAMESPACES}), "TCP");
  EXPECT_EQ(transport_of({.num_workers = 3,
                          .place = Place::NAMESPACES,
                          .workers_per_host = 2,
                          .is_encrypted = true}),
            "two levels: shared memory and TCP in TLS");
}

}  // namespace
}  // namespace crossdevice::chaos
