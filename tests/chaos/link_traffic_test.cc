// SPDX-License-Identifier: Apache-2.0
#include "chaos/link_traffic.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdevice::chaos {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Time = LinkTraffic::Time;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Time kBegin = Time() + seconds(1000);

std::vector<std::byte> packet(std::uint32_t number, std::size_t size = 1000) {
  std::vector<std::byte> bytes(size);
  std::memcpy(bytes.data(), &number, std::min(size, sizeof(number)));
  return bytes;
}

struct Arrived {
  std::uint32_t number = 0;
  int to = 0;
  Time when{};
};

/// Everything that is under way, as it comes.
std::vector<Arrived> all_arrivals(LinkTraffic& traffic) {
  std::vector<Arrived> all;
  while (const std::optional<Time> next = traffic.next()) {
    while (const std::optional<LinkTraffic::Arrival> arrival = traffic.arrival(*next)) {
      Arrived arrived{.to = arrival->to, .when = *next};
      std::memcpy(&arrived.number, arrival->bytes.data(), sizeof(arrived.number));
      all.push_back(arrived);
    }
  }
  return all;
}

std::vector<std::uint32_t> numbers(const std::vector<Arrived>& arrived) {
  std::vector<std::uint32_t> found;
  found.reserve(arrived.size());
  for (const Arrived& each : arrived) found.push_back(each.number);
  return found;
}

/// So many packets from host 0 to host 1, one every 10 us.
std::vector<Arrived> send_many(LinkTraffic& traffic, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i)
    traffic.send(0, 1, packet(i), kBegin + i * microseconds(10));
  return all_arrivals(traffic);
}

TEST(LinkTrafficTest, APerfectLinkPassesEverythingOnAtOnceAndInOrder) {
  LinkTraffic traffic(3, 1);
  for (std::uint32_t i = 0; i < 100; ++i)
    traffic.send(0, 1 + static_cast<int>(i % 2), packet(i), kBegin);
  EXPECT_EQ(traffic.next(), kBegin);
  const std::vector<Arrived> arrived = all_arrivals(traffic);
  ASSERT_EQ(arrived.size(), 100U);
  for (std::uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(arrived[i].number, i);
    EXPECT_EQ(arrived[i].to, 1 + static_cast<int>(i % 2));
    EXPECT_EQ(arrived[i].when, kBegin);
  }
  EXPECT_EQ(traffic.counts(0).offered, 100U);
  EXPECT_EQ(traffic.counts(1).delivered, 50U);
  EXPECT_EQ(traffic.next(), std::nullopt);
}

TEST(LinkTrafficTest, BytesStayWhatTheyAre) {
  LinkTraffic traffic(2, 1);
  for (const std::size_t size : {0U, 1U, 20U, 1499U, 1500U, 65535U}) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + size);
    traffic.send(1, 0, bytes, kBegin);
    const std::optional<LinkTraffic::Arrival> arrival = traffic.arrival(kBegin);
    ASSERT_TRUE(arrival.has_value());
    EXPECT_EQ(arrival->bytes, bytes);
    EXPECT_EQ(arrival->to, 0);
  }
}

TEST(LinkTrafficTest, OneSeedIsOneFate) {
  const LinkPolicy policy{.lost = 0.1, .delay = milliseconds(1), .late = 0.2, .doubled = 0.1};
  const auto fate = [&](std::uint64_t seed) {
    LinkTraffic traffic(2, seed);
    traffic.set(0, policy);
    return numbers(send_many(traffic, 2000));
  };
  EXPECT_EQ(fate(5), fate(5));
  EXPECT_NE(fate(5), fate(6));
}

TEST(LinkTrafficTest, LosesAboutAsManyAsItIsTold) {
  for (const double part : {0.01, 0.05, 0.2}) {
    constexpr std::uint32_t kCount = 20'000;
    LinkTraffic traffic(2, 3);
    traffic.set(1, {.lost = part});
    const std::size_t num_arrived = send_many(traffic, kCount).size();
    EXPECT_NEAR(static_cast<double>(kCount - num_arrived), part * kCount, 0.1 * part * kCount + 30);
    EXPECT_EQ(traffic.counts(1).lost, kCount - num_arrived);
    EXPECT_EQ(traffic.counts(1).delivered, num_arrived);
  }
}

TEST(LinkTrafficTest, BothLinksOnTheWayCount) {
  LinkTraffic traffic(3, 3);
  traffic.set(0, {.delay = milliseconds(30)});
  traffic.set(1, {.delay = milliseconds(12)});
  traffic.send(0, 1, packet(1), kBegin);
  traffic.send(1, 2, packet(2), kBegin);
  traffic.send(2, 0, packet(3), kBegin);
  const std::vector<Arrived> arrived = all_arrivals(traffic);
  EXPECT_THAT(numbers(arrived), ElementsAre(2, 3, 1));
  EXPECT_EQ(arrived[0].when, kBegin + milliseconds(12));
  EXPECT_EQ(arrived[1].when, kBegin + milliseconds(30));
  EXPECT_EQ(arrived[2].when, kBegin + milliseconds(42));
}

TEST(LinkTrafficTest, ADelayKeepsTheOrder) {
  LinkTraffic traffic(2, 3);
  traffic.set(0, {.delay = milliseconds(200)});
  const std::vector<Arrived> arrived = send_many(traffic, 500);
  ASSERT_EQ(arrived.size(), 500U);
  for (std::uint32_t i = 0; i < arrived.size(); ++i) {
    EXPECT_EQ(arrived[i].number, i);
    EXPECT_EQ(arrived[i].when, kBegin + i * microseconds(10) + milliseconds(200));
  }
  EXPECT_EQ(traffic.counts(0).delayed, 500U);
  EXPECT_EQ(traffic.counts(1).delayed, 0U);
}

TEST(LinkTrafficTest, LatePacketsComeBehindOthers) {
  LinkTraffic traffic(2, 3);
  traffic.set(0, {.late = 0.1});
  std::vector<Arrived> arrived = send_many(traffic, 2000);
  ASSERT_EQ(arrived.size(), 2000U);
  std::size_t num_behind = 0;
  for (std::size_t i = 1; i < arrived.size(); ++i) {
    if (arrived[i].number < arrived[i - 1].number) ++num_behind;
    EXPECT_LE(arrived[i].when,
              kBegin + arrived[i].number * microseconds(10) + LinkTraffic::kMaxLateness);
  }
  EXPECT_GT(num_behind, 50U);
  EXPECT_NEAR(static_cast<double>(traffic.counts(0).late), 200, 60);
  std::vector<std::uint32_t> sorted = numbers(arrived);
  std::sort(sorted.begin(), sorted.end());
  for (std::uint32_t i = 0; i < sorted.size(); ++i) EXPECT_EQ(sorted[i], i);
}

TEST(LinkTrafficTest, SomeComeTwice) {
  for (const int host : {0, 1}) {
    LinkTraffic traffic(2, 3);
    traffic.set(host, {.doubled = 0.3});
    std::map<std::uint32_t, int> times;
    for (const Arrived& each : send_many(traffic, 2000)) ++times[each.number];
    EXPECT_EQ(times.size(), 2000U);
    std::uint64_t num_twice = 0;
    for (const auto& [number, count] : times) {
      EXPECT_LE(count, 2);
      if (count == 2) ++num_twice;
    }
    EXPECT_EQ(num_twice, traffic.counts(host).doubled);
    EXPECT_NEAR(static_cast<double>(num_twice), 600, 90);
  }
}

TEST(LinkTrafficTest, NothingPassesALinkThatIsDown) {
  LinkTraffic traffic(3, 3);
  traffic.set(1, {.sends = false, .receives = false});
  traffic.send(0, 1, packet(1), kBegin);
  traffic.send(1, 2, packet(2), kBegin);
  EXPECT_THAT(all_arrivals(traffic), IsEmpty());
  traffic.send(0, 2, packet(3), kBegin);  // not its own link
  traffic.set(1, {});
  traffic.send(0, 1, packet(4), kBegin);
  EXPECT_THAT(numbers(all_arrivals(traffic)), ElementsAre(3, 4));
  EXPECT_EQ(traffic.counts(1).lost, 2U);
}

TEST(LinkTrafficTest, ALinkMayBeDownOneWay) {
  LinkTraffic traffic(2, 3);
  traffic.set(1, {.sends = false});
  traffic.send(0, 1, packet(1), kBegin);
  traffic.send(1, 0, packet(2), kBegin);
  EXPECT_THAT(numbers(all_arrivals(traffic)), ElementsAre(1));
  traffic.set(1, {.receives = false});
  traffic.send(0, 1, packet(3), kBegin);
  traffic.send(1, 0, packet(4), kBegin);
  EXPECT_THAT(numbers(all_arrivals(traffic)), ElementsAre(4));
}

TEST(LinkTrafficTest, TwoHostsMayBeParted) {
  LinkTraffic traffic(3, 3);
  traffic.set(2, {.delay = milliseconds(1)});
  traffic.send(1, 2, packet(1), kBegin);  // under way
  traffic.set_between(2, 1, false);
  traffic.send(1, 2, packet(2), kBegin);
  traffic.send(2, 1, packet(3), kBegin);
  traffic.send(0, 2, packet(4), kBegin);
  traffic.send(1, 0, packet(5), kBegin);
  EXPECT_THAT(numbers(all_arrivals(traffic)), ElementsAre(5, 4));
  EXPECT_EQ(traffic.counts(1).lost, 1U);
  EXPECT_EQ(traffic.counts(2).lost, 2U);
  traffic.set_between(1, 2, true);
  traffic.send(1, 2, packet(6), kBegin);
  EXPECT_THAT(numbers(all_arrivals(traffic)), ElementsAre(6));
}

TEST(LinkTrafficTest, WhatIsUnderWayWhenALinkGoesDownIsLost) {
  for (const int host : {0, 1}) {
    LinkTraffic traffic(2, 3);
    traffic.set(0, {.delay = milliseconds(50)});
    traffic.send(0, 1, packet(1), kBegin);
    traffic.set(host, {.sends = false, .receives = false, .delay = milliseconds(50)});
    EXPECT_EQ(traffic.arrival(kBegin + seconds(1)), std::nullopt) << host;
    EXPECT_EQ(traffic.next(), std::nullopt);
  }
}

TEST(LinkTrafficTest, ARateIsKept) {
  constexpr std::uint64_t kRate = 1'000'000;  // bytes in a second
  LinkTraffic traffic(2, 3);
  traffic.set(0, {.bytes_per_second = kRate});
  // Twice as many as it carries.
  std::uint64_t num_bytes = 0;
  for (std::uint32_t i = 0; i < 4000; ++i)
    traffic.send(0, 1, packet(i), kBegin + i * microseconds(500));
  std::vector<Arrived> arrived = all_arrivals(traffic);
  for (const Arrived& each : arrived) {
    num_bytes += 1000;
    const auto time = std::chrono::duration<double>(each.when - kBegin);
    EXPECT_LE(static_cast<double>(num_bytes),
              time.count() * kRate + static_cast<double>(LinkTraffic::kBurstBytes) + 1);
    EXPECT_LE(each.when, kBegin + each.number * microseconds(500) + LinkTraffic::kMaxBacklog);
  }
  // 2 s of sending, and what the queue holds.
  EXPECT_NEAR(static_cast<double>(num_bytes), 2.2e6, 0.05e6);
  EXPECT_GT(traffic.counts(0).lost, 1500U);
  EXPECT_TRUE(
      std::is_sorted(arrived.begin(), arrived.end(),
                     [](const Arrived& a, const Arrived& b) { return a.number < b.number; }));
}

TEST(LinkTrafficTest, ALinkThatRestedCarriesABurstAtOnce) {
  LinkTraffic traffic(2, 3);
  traffic.set(0, {.bytes_per_second = 125'000});
  for (std::uint32_t i = 0; i < 16; ++i) traffic.send(0, 1, packet(i), kBegin);
  for (const Arrived& each : all_arrivals(traffic)) EXPECT_EQ(each.when, kBegin);
  EXPECT_EQ(traffic.counts(0).delayed, 0U);
  traffic.send(0, 1, packet(16), kBegin);
  EXPECT_GT(all_arrivals(traffic)[0].when, kBegin);
  EXPECT_EQ(traffic.counts(0).delayed, 1U);
}

TEST(LinkTrafficTest, ThereIsALimitToWhatIsUnderWay) {
  LinkTraffic traffic(2, 3);
  traffic.set(0, {.delay = seconds(10)});
  const std::size_t count = LinkTraffic::kMaxQueuedBytes / 65536 + 10;
  for (std::size_t i = 0; i < count; ++i) traffic.send(0, 1, packet(0, 65536), kBegin);
  EXPECT_EQ(all_arrivals(traffic).size(), count - 10);
  EXPECT_EQ(traffic.counts(1).lost, 10U);
}

}  // namespace
}  // namespace crossdevice::chaos
