// SPDX-License-Identifier: Apache-2.0
/// Tests of collective/bandwidth.h: the formulas against figures worked out by hand.
#include "collective/bandwidth.h"

#include <gtest/gtest.h>

namespace crossdevice::bench {
namespace {

TEST(BandwidthTest, AlgorithmBandwidthIsDecimalGigabytesPerSecond) {
  EXPECT_DOUBLE_EQ(algorithm_bandwidth_gbs(1000000000, 1e6), 1.0);
  EXPECT_DOUBLE_EQ(algorithm_bandwidth_gbs(64, 0.5), 0.128);
  EXPECT_DOUBLE_EQ(algorithm_bandwidth_gbs(0, 1.0), 0.0);
  EXPECT_DOUBLE_EQ(algorithm_bandwidth_gbs(64, 0.0), 0.0);  // below the clock's resolution
}

TEST(BandwidthTest, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::ALL_REDUCE, 1), 0.0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::ALL_REDUCE, 2), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::ALL_REDUCE, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::BATCH_REDUCE, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::GATHER, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::REDUCE, 8), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::BROADCAST, 8), 1.0);
}

TEST(BandwidthTest, AnAllReduceReadsAndWritesEveryBufferOnce) {
  for (const Placement placement : kBothPlacements) {
    EXPECT_EQ(memory_traffic_bytes(Collective::ALL_REDUCE, placement, 4, 100, 100), 800U);
    EXPECT_EQ(memory_traffic_bytes(Collective::BATCH_REDUCE, placement, 2, 100, 100), 400U);
  }
}

TEST(BandwidthTest, AMeanOfIntegersWritesAnotherElementSize) {
  EXPECT_EQ(memory_traffic_bytes(Collective::ALL_REDUCE, Placement::OUT_OF_PLACE, 3, 100, 400),
            1500U);
}

TEST(BandwidthTest, AReduceWritesTheRootOnly) {
  EXPECT_EQ(memory_traffic_bytes(Collective::REDUCE, Placement::OUT_OF_PLACE, 4, 100, 100), 500U);
}

TEST(BandwidthTest, ABroadcastInPlaceLeavesTheRootAlone) {
  EXPECT_EQ(memory_traffic_bytes(Collective::BROADCAST, Placement::OUT_OF_PLACE, 4, 100, 100),
            500U);
  EXPECT_EQ(memory_traffic_bytes(Collective::BROADCAST, Placement::IN_PLACE, 4, 100, 100), 400U);
}

TEST(BandwidthTest, AGatherReadsTheWholeResultOnceAndWritesItOnce) {
  EXPECT_EQ(memory_traffic_bytes(Collective::GATHER, Placement::OUT_OF_PLACE, 4, 100, 100), 200U);
}

}  // namespace
}  // namespace crossdevice::bench
