// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/link_measurement.h"

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/in_process_transport.h"

#include "support/threaded_cluster.h"

namespace crossdevice::detail {
namespace {

using ::testing::Each;

using Moment = Deadline::Clock::time_point;
/// What a rank's clock says; called by the rank alone.
using Now = std::function<Moment()>;
using Seconds = std::chrono::duration<double>;

/// Of a message that says what was found.
constexpr std::uint64_t kFindingsBytes = 3 * sizeof(double);

struct Outcome {
  LinkModel links;
  TransportCounters counters;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Moment moment_of(double seconds) {
  return Moment(std::chrono::duration_cast<Moment::duration>(Seconds(seconds)));
}

/// So much later each time.
Now clock_of(double step_seconds) {
  return [step_seconds, seconds = 1.0]() mutable { return moment_of(seconds += step_seconds); };
}

/// For how long it takes to send what has been sent, and a little more each time.
Now clock_of_bytes(const Transport& transport, double bytes_per_second) {
  return [&transport, bytes_per_second, seconds = 1.0]() mutable {
    seconds += 1e-6;
    return moment_of(seconds +
                     static_cast<double>(transport.counters().bytes_sent) / bytes_per_second);
  };
}

/// Messages of a barrier, and rounds.
std::uint64_t meeting_rounds(int num_ranks) {
  std::uint64_t rounds = 0;
  for (int distance = 1; distance < num_ranks; distance *= 2) ++rounds;
  return rounds;
}

/// By ranks that are threads, with a transport of their own for each of so many measurements.
class Measuring {
 public:
  using MakeClock = std::function<Now(const Transport& transport, std::size_t rank, int number)>;

  explicit Measuring(int num_ranks, bool is_mesh) : num_ranks_(num_ranks), is_mesh_(is_mesh) {}

  /// By rank, of each measurement.
  std::vector<std::vector<Outcome>> run(const MakeClock& make_clock, int num_times = 1) {
    const auto n = static_cast<std::size_t>(num_ranks_);
    std::vector<std::vector<std::unique_ptr<Transport>>> transports;
    for (int i = 0; i < num_times; ++i)
      transports.push_back(make_in_process_transports(num_ranks_));
    std::vector<std::vector<Outcome>> outcomes(static_cast<std::size_t>(num_times),
                                               std::vector<Outcome>(n));
    const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
      const auto rank = static_cast<std::size_t>(cluster->rank());
      const Deadline patience = Deadline::after(std::chrono::seconds(60));
      std::vector<int> peers;
      for (int each = 0; each < num_ranks_; ++each) {
        if (each != cluster->rank()) peers.push_back(each);
      }
      ScratchMemory scratch;
      for (int i = 0; i < num_times; ++i) {
        Transport& transport = *transports[static_cast<std::size_t>(i)][rank];
        transport.connect(peers, patience);
        Outcome& outcome = outcomes[static_cast<std::size_t>(i)][rank];
        outcome.links = measure_links(
            *cluster, transport, scratch,
            {.is_mesh = is_mesh_, .deadline = patience, .now = make_clock(transport, rank, i)});
        outcome.counters = transport.counters();
      }
    };
    EXPECT_EQ(testing::run_clusters(n, work), testing::no_errors(n));
    return outcomes;
  }

 private:
  int num_ranks_;
  bool is_mesh_;
};

/// What each rank sends where nothing takes long.
TransportCounters all_that_is_measured(int num_ranks, bool is_mesh) {
  constexpr std::uint64_t kProbes = kLinkProbes;
  const std::uint64_t meeting = meeting_rounds(num_ranks);
  const auto others = static_cast<std::uint64_t>(num_ranks) - 1;
  const bool has_mesh = is_mesh && num_ranks > 2;
  std::uint64_t tellings = 2 * meeting + kProbes * meeting;  // before, between and after looks
  tellings += kProbes * (kMaxShortRounds + 1) * meeting;     // the latency
  tellings += 2 * kProbes * (has_mesh ? 2 : 1) * meeting;    // between bytes of two sizes
  if (has_mesh) tellings += kProbes * (kMaxShortRounds * others + meeting);  // messages to each
  const std::uint64_t with_bytes = kProbes * (1 + 2 * (1 + (has_mesh ? others : 0)));
  const std::uint64_t parts = kProbeBytes / others * others + kLongProbeBytes / others * others;
  const std::uint64_t bytes =
      kProbes * (kLookBytes + kProbeBytes + kLongProbeBytes + (has_mesh ? parts : 0));
  TransportCounters counters;
  counters.messages_sent = counters.messages_received = tellings + with_bytes;
  counters.bytes_sent = counters.bytes_received = tellings * kFindingsBytes + bytes;
  return counters;
}

TEST(LinkMeasurement, FastLinksAreMeasuredInSoManyMessagesAndBytes) {
  for (const int n : {2, 3, 4, 5, 8, 17}) {
    const bool is_mesh = n <= 16;
    const auto outcomes = Measuring(n, is_mesh).run([](const Transport&, std::size_t, int) {
      return clock_of(1e-6);
    })[0];
    for (const Outcome& each : outcomes) {
      EXPECT_EQ(each.counters, all_that_is_measured(n, is_mesh)) << n;
      EXPECT_EQ(each.links, outcomes[0].links) << n;
    }
  }
}

TEST(LinkMeasurement, OneLookTellsThatALinkTakesTooLong) {
  for (const int n : {2, 3, 4, 5, 16, 17}) {
    for (const std::size_t slow : {std::size_t{0}, static_cast<std::size_t>(n) - 1}) {
      const auto make_clock = [&](const Transport&, std::size_t rank, int) {
        return clock_of(rank == slow ? 0.192 : 1e-6);
      };
      const auto outcomes = Measuring(n, n <= 16).run(make_clock)[0];
      const std::uint64_t tellings = 2 * meeting_rounds(n);
      for (const Outcome& each : outcomes) {
        EXPECT_EQ(each.counters.messages_sent, tellings + 1) << n;
        EXPECT_EQ(each.counters.bytes_sent, tellings * kFindingsBytes + kLookBytes) << n;
        EXPECT_EQ(each.links, outcomes[0].links) << n;
      }
      const LinkModel& links = outcomes[0].links;
      EXPECT_GT(links.latency_seconds, 0.05) << n;  // as the barrier took
      // Of a clock that stands still while a barrier of many rounds goes on.
      if (n <= 5) {
        EXPECT_EQ(links.ring_bytes_per_second, LinkModel().ring_bytes_per_second) << n;
      }
      EXPECT_EQ(links.mesh_bytes_per_second, links.ring_bytes_per_second) << n;
      EXPECT_EQ(links.message_seconds, 0) << n;
    }
  }
}

TEST(LinkMeasurement, WhatHeldUpOneLookAloneIsForgotten) {
  constexpr int kRanks = 4;
  constexpr int kTimes = 16;
  const auto make_clock = [](const Transport&, std::size_t rank, int number) -> Now {
    if (rank != 1) return clock_of(1e-6);
    return [number, count = 0, seconds = 1.0]() mutable {
      seconds += count++ == number ? 0.15 : 1e-6;
      return moment_of(seconds);
    };
  };
  const LinkModel links =
      Measuring(kRanks, true)
          .run([](const Transport&, std::size_t, int) { return clock_of(1e-6); })[0][0]
          .links;
  for (const auto& outcomes : Measuring(kRanks, true).run(make_clock, kTimes)) {
    EXPECT_THAT(outcomes, Each(outcomes[0]));
    EXPECT_GT(outcomes[0].links.ring_bytes_per_second, links.ring_bytes_per_second / 2);
    EXPECT_LT(outcomes[0].links.latency_seconds, links.latency_seconds * 2);
  }
}

TEST(LinkMeasurement, TheSlowerALinkTheFewerBytesAreSent) {
  constexpr int kRanks = 4;
  struct Case {
    double bytes_per_second;
    std::uint64_t num_looks, num_probes, num_long_probes;
  };
  const std::vector<Case> cases = {
      {1e4, 1, 0, 0}, {1e5, 2, 0, 0}, {2e6, 4, 3, 0}, {1.25e7, 4, 4, 0}, {4e8, 4, 4, 4}};
  for (const Case& each : cases) {
    const auto outcomes =
        Measuring(kRanks, true).run([&](const Transport& transport, std::size_t, int) {
          return clock_of_bytes(transport, each.bytes_per_second);
        })[0];
    for (const Outcome& outcome : outcomes) {
      const std::uint64_t parts = kRanks - 1;
      const std::uint64_t expected =
          each.num_looks * kLookBytes +
          each.num_probes * (kProbeBytes + kProbeBytes / parts * parts) +
          each.num_long_probes * (kLongProbeBytes + kLongProbeBytes / parts * parts);
      EXPECT_GE(outcome.counters.bytes_sent, expected) << each.bytes_per_second;
      EXPECT_LE(outcome.counters.bytes_sent, expected + kLookBytes + 2000 * kFindingsBytes)
          << each.bytes_per_second;
      EXPECT_LE(static_cast<double>(outcome.counters.bytes_sent),
                each.bytes_per_second * 1.0 + kProbeBytes);
      EXPECT_NEAR(outcome.links.ring_bytes_per_second, each.bytes_per_second,
                  0.15 * each.bytes_per_second);
    }
  }
}

/// Rank 1's clock jumps when it is looked at for the k-th time: of a full measurement's some 500 times the first ones all, and every 33rd of the others.
TEST(LinkMeasurement, WhenTheTimeIsOverARoundIsEndedAndNoneBegun) {
  constexpr int kRanks = 4;
  constexpr int kTimes = 45;
  constexpr int kAll = 30;
  constexpr int kStride = 33;
  std::vector<TransportCounters> before(kTimes);
  const auto make_clock = [&](const Transport& transport, std::size_t rank, int number) -> Now {
    if (rank != 1) return clock_of(1e-6);
    const int last = number <= kAll ? number : kAll + kStride * (number - kAll);
    return [&, number, last, count = 0, seconds = 1.0]() mutable {
      seconds += 1e-6;
      if (count++ == last) {
        seconds += 2;
        before[static_cast<std::size_t>(number)] = transport.counters();
      }
      return moment_of(seconds);
    };
  };
  const auto outcomes = Measuring(kRanks, true).run(make_clock, kTimes);
  const TransportCounters all = all_that_is_measured(kRanks, true);
  int num_early = 0;
  for (int i = 0; i < kTimes; ++i) {
    const auto number = static_cast<std::size_t>(i);
    for (const Outcome& each : outcomes[number]) {
      EXPECT_EQ(each, outcomes[number][0]);
      if (each.counters == all) continue;
      ++num_early;
      // The round under way, the barrier after it; and one more, of those that were under way when the clock jumped.
      EXPECT_LE(each.counters.messages_sent - before[number].messages_sent,
                kRanks - 1 + 2 * meeting_rounds(kRanks))
          << i;
      EXPECT_LE(each.counters.bytes_sent - before[number].bytes_sent,
                kLongProbeBytes + 16 * kFindingsBytes)
          << i;
    }
  }
  EXPECT_GT(num_early, kRanks * kTimes / 2);
}

TEST(LinkMeasurement, WhateverTheClocksSayAllMakeTheSameRoundsAndKnowTheSame) {
  constexpr int kTimes = 60;
  for (const int n : {2, 3, 5}) {
    const auto make_clock = [](const Transport&, std::size_t rank, int number) -> Now {
      return
          [random = std::mt19937_64(1000 * static_cast<std::size_t>(number) + rank),
           exponent = std::uniform_real_distribution<double>(-7, -0.5), seconds = 1.0]() mutable {
            return moment_of(seconds += std::pow(10, exponent(random)));
          };
    };
    for (const auto& outcomes : Measuring(n, true).run(make_clock, kTimes)) {
      EXPECT_THAT(outcomes, Each(outcomes[0]));
    }
  }
}

TEST(LinkMeasurement, BandwidthsThatNoisePartedAreOne) {
  const LinkModel parted{.latency_seconds = 1e-4,
                         .ring_bytes_per_second = 1e8,
                         .mesh_bytes_per_second = 1.2e8,
                         .message_seconds = 1e-5};
  LinkModel joined = parted;
  joined.ring_bytes_per_second = 1.2e8;
  EXPECT_EQ(without_noise(parted), joined);
  constexpr std::size_t kLarge = std::size_t{4} << 20;
  EXPECT_NE(choose_all_reduce(4, kLarge, true, {.links = parted}), AllReduceAlgorithm::RING);
  EXPECT_EQ(choose_all_reduce(4, kLarge, true, {.links = joined}), AllReduceAlgorithm::RING);
}

TEST(LinkMeasurement, WhereOneConnectionDoesNotFillALinkOrManyHinderEachOtherNothingIsNoise) {
  LinkModel links{
      .latency_seconds = 1e-4, .ring_bytes_per_second = 1e8, .mesh_bytes_per_second = 2e8};
  EXPECT_EQ(without_noise(links), links);
  links.mesh_bytes_per_second = 0.9e8;
  EXPECT_EQ(without_noise(links), links);
}

}  // namespace
}  // namespace crossdevice::detail
