// SPDX-License-Identifier: Apache-2.0
// Lists that differ have fingerprints that differ: in a value, in the order, in the length.
#include "crossdevice/core/fingerprint.h"

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <set>

#include <gtest/gtest.h>

namespace crossdevice {
namespace {

std::uint64_t of(std::initializer_list<std::uint64_t> values) {
  Fingerprint fingerprint;
  for (const std::uint64_t value : values) fingerprint.add(value);
  return fingerprint.value();
}

TEST(FingerprintTest, EqualListsAreEqual) { EXPECT_EQ(of({1, 2, 3}), of({1, 2, 3})); }

TEST(FingerprintTest, OrderCounts) { EXPECT_NE(of({1, 2}), of({2, 1})); }

TEST(FingerprintTest, ZerosCount) {
  std::set<std::uint64_t> seen;
  Fingerprint zeros;
  for (int length = 0; length <= 1000; ++length) {
    EXPECT_TRUE(seen.insert(zeros.value()).second) << length << " zeros";
    zeros.add(0);
  }
}

TEST(FingerprintTest, NeighboursDiffer) {
  constexpr std::uint64_t kMany = 300;
  std::set<std::uint64_t> seen;
  for (std::uint64_t a = 0; a < kMany; ++a) {
    for (std::uint64_t b = 0; b < kMany; ++b) {
      EXPECT_TRUE(seen.insert(of({a, b})).second) << a << ", " << b;
      EXPECT_TRUE(seen.insert(of({a, 0, b << 32U})).second) << a << ", 0, " << b << " << 32";
    }
  }
}

/// In one step.
std::uint64_t of_three(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  Fingerprint fingerprint;
  fingerprint.add(a, b, c);
  return fingerprint.value();
}

TEST(FingerprintTest, NeighboursInOneStepDiffer) {
  constexpr std::uint64_t kMany = 60;
  std::set<std::uint64_t> seen;
  for (std::uint64_t a = 0; a < kMany; ++a) {
    for (std::uint64_t b = 0; b < kMany; ++b) {
      for (std::uint64_t c = 0; c < kMany; ++c) {
        EXPECT_TRUE(seen.insert(of_three(a, b, c)).second) << a << ", " << b << ", " << c;
        if (a == 0) continue;  // that is a neighbour where b is 0 too
        EXPECT_TRUE(seen.insert(of_three(a << 56U, b << 56U, c)).second) << "high " << a << b << c;
      }
    }
  }
}

TEST(FingerprintTest, EveryBitOfEveryValueInOneStepCounts) {
  const std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t base : {std::uint64_t{0}, all, std::uint64_t{0x0123456789abcdef}}) {
    std::set<std::uint64_t> seen{of_three(base, base, base)};
    for (unsigned bit = 0; bit < 64; ++bit) {
      const std::uint64_t other = base ^ (std::uint64_t{1} << bit);
      EXPECT_TRUE(seen.insert(of_three(other, base, base)).second) << "first, bit " << bit;
      EXPECT_TRUE(seen.insert(of_three(base, other, base)).second) << "second, bit " << bit;
      EXPECT_TRUE(seen.insert(of_three(base, base, other)).second) << "third, bit " << bit;
      EXPECT_TRUE(seen.insert(of_three(other, other, base)).second) << "two, bit " << bit;
      EXPECT_TRUE(seen.insert(of_three(other, base, other)).second) << "two others, bit " << bit;
    }
  }
}

TEST(FingerprintTest, EveryBitOfEveryValueCounts) {
  const std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t base : {std::uint64_t{0}, all, std::uint64_t{0x0123456789abcdef}}) {
    std::set<std::uint64_t> seen{of({base, base, base})};
    for (unsigned bit = 0; bit < 64; ++bit) {
      const std::uint64_t other = base ^ (std::uint64_t{1} << bit);
      EXPECT_TRUE(seen.insert(of({other, base, base})).second) << "first, bit " << bit;
      EXPECT_TRUE(seen.insert(of({base, other, base})).second) << "second, bit " << bit;
      EXPECT_TRUE(seen.insert(of({base, base, other})).second) << "third, bit " << bit;
    }
  }
}

}  // namespace
}  // namespace crossdevice
