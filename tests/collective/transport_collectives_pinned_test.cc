// SPDX-License-Identifier: Apache-2.0
// What TransportCollectives sends by the algorithms that are no schedules, and by schedules in stages, to the message and to the byte. Rank 0's file pins them; the variable is read
// once, so this is a program of its own.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/collective/halving_doubling.h"
#include "crossdevice/collective/transport_collectives.h"
#include "crossdevice/comm/in_process_transport.h"

#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using testing::no_errors;
using testing::run_clusters;

constexpr std::size_t kMaxRanks = 16;
/// In a block a tensor begins at a multiple of this.
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMostFloats = kMaxExchangeBytes / sizeof(float);

const std::string& tuning_file() {
  static const std::string file =
      ::testing::TempDir() + "pinned_collectives_" + std::to_string(::getpid());
  return file;
}
// NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
const int kSet = ::setenv("CROSSDEVICE_TUNING_FILE", tuning_file().c_str(), 1);

/// What a rank sends of a value, and receives too.
struct Traffic {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};
using Predict = std::function<Traffic(std::size_t num_ranks, std::size_t rank, std::size_t bytes)>;

/// Everything to everybody, in one round.
Traffic of_exchange(std::size_t num_ranks, std::size_t /*rank*/, std::size_t bytes) {
  const std::size_t block = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return {.messages = num_ranks - 1, .bytes = (num_ranks - 1) * block};
}

/// A rank beyond the power of two gives everything away and gets the result; whom it gives it to does so too, beside what all of the core exchange.
Traffic of_doubling(std::size_t num_ranks, std::size_t rank, std::size_t bytes) {
  const std::size_t core = halving_doubling_core(num_ranks);
  Traffic traffic;
  if (rank >= core || rank + core < num_ranks) ++traffic.messages;
  if (rank < core) {
    for (std::size_t distance = 1; distance < core; distance *= 2) ++traffic.messages;
  }
  traffic.bytes = traffic.messages * bytes;
  return traffic;
}

Tensor tensor_of(std::size_t count, float value) {
  Tensor tensor = Tensor::empty(DType::FLOAT32, {count}, "CPU:0");
  std::fill_n(static_cast<float*>(tensor.data()), count, value);
  return tensor;
}

constexpr std::size_t kStagePart = std::size_t{64} << 10;

/// Messages without bytes, by which all know that all make this call before tensors of 1 MiB or more are written where they lie.
std::size_t num_agreeing(std::size_t num_ranks, std::size_t bytes) {
  return bytes < (std::size_t{1} << 20) ? 0
                                        : static_cast<std::size_t>(std::bit_width(num_ranks - 1));
}

/// A part to its owner and back from it, for each other rank and stage.
Traffic of_shuffle_in_stages(std::size_t num_ranks, std::size_t /*rank*/, std::size_t bytes) {
  const std::size_t num_stages = bytes / (num_ranks * kStagePart);
  return {.messages = num_stages * 2 * (num_ranks - 1) + num_agreeing(num_ranks, bytes),
          .bytes = 2 * (num_ranks - 1) * bytes / num_ranks};
}

/// Of a power of two; what is longer than a piece is cut.
Traffic of_halving_doubling_in_stages(std::size_t num_ranks, std::size_t /*rank*/,
                                      std::size_t bytes) {
  constexpr std::size_t kPiece = 4 * kStagePart;
  const std::size_t stage = num_ranks * kStagePart;
  Traffic traffic{.messages = num_agreeing(num_ranks, bytes),
                  .bytes = 2 * (num_ranks - 1) * bytes / num_ranks};
  for (std::size_t sent = stage / 2; sent >= kStagePart; sent /= 2) {
    traffic.messages += 2 * std::max<std::size_t>(1, sent / kPiece) * (bytes / stage);
  }
  return traffic;
}

std::string pinned_to_small(const std::string& algorithm) {
  return fmt::format(
      R"({{"all_reduce": [{{"up_to_bytes": {}, "algorithm": "{}"}}, {{"algorithm": "ring"}}]}})",
      kMaxExchangeBytes, algorithm);
}

void expect_traffic(const std::string& tuning, std::size_t num_ranks,
                    const std::vector<std::size_t>& counts, const Predict& predict) {
  std::ofstream(tuning_file()) << tuning;
  std::vector<std::unique_ptr<Transport>> transports =
      make_in_process_transports(static_cast<int>(num_ranks));
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    TransportCollectives collectives(cluster, std::move(transports[rank]));
    EXPECT_EQ(collectives.counters(), TransportCounters());
    std::uint64_t sequence = 0;
    for (const std::size_t count : counts) {
      const std::vector<Tensor> input{tensor_of(count, static_cast<float>(rank + 1))};
      const std::vector<Tensor> output{tensor_of(count, -1)};
      const std::vector<CollectiveValue> values{{input, output}};
      const TransportCounters before = collectives.counters();
      collectives.all_reduce({.kind = "test",
                              .sequence = ++sequence,
                              .op = ReduceOp::SUM,
                              .deadline = Deadline::after_timeout_seconds(60)},
                             values);
      const TransportCounters after = collectives.counters();
      const Traffic expected = predict(num_ranks, rank, count * sizeof(float));
      const std::string what = fmt::format("{} floats, rank {} of {}", count, rank, num_ranks);
      EXPECT_EQ(after.messages_sent - before.messages_sent, expected.messages) << what;
      EXPECT_EQ(after.messages_received - before.messages_received, expected.messages) << what;
      EXPECT_EQ(after.bytes_sent - before.bytes_sent, expected.bytes) << what;
      EXPECT_EQ(after.bytes_received - before.bytes_received, expected.bytes) << what;
      const std::size_t sum = num_ranks * (num_ranks + 1) / 2;
      const auto elements = output[0].span<const float>();
      EXPECT_EQ(std::count(elements.begin(), elements.end(), static_cast<float>(sum)),
                static_cast<std::ptrdiff_t>(count))
          << what;
    }
    cluster->barrier();
  };
  EXPECT_EQ(run_clusters(num_ranks, work), no_errors(num_ranks));
  ::unlink(tuning_file().c_str());
}

TEST(TransportCollectivesPinned, AnExchangeSendsEverythingToEverybody) {
  ASSERT_EQ(kSet, 0);
  for (std::size_t n = 2; n <= kMaxRanks; ++n) {
    expect_traffic(pinned_to_small("exchange"), n, {1, 97, kMostFloats}, of_exchange);
  }
}

TEST(TransportCollectivesPinned, DoublingSendsEverythingOncePerPowerOfTwo) {
  for (std::size_t n = 2; n <= kMaxRanks; ++n) {
    expect_traffic(pinned_to_small("doubling"), n, {1, 97, kMostFloats}, of_doubling);
  }
}

/// Bytes that each rank sends for a deterministic sum of `count` floats of each of `num_replicas`.
void expect_bytes_of_deterministic(std::size_t num_ranks, std::size_t num_replicas,
                                   std::size_t count, bool grouping_independent,
                                   std::size_t bytes) {
  std::ofstream(tuning_file()) << R"({"all_reduce": [{"algorithm": "ring"}]})";
  std::vector<std::unique_ptr<Transport>> transports =
      make_in_process_transports(static_cast<int>(num_ranks));
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    TransportCollectives collectives(cluster, std::move(transports[rank]));
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < num_replicas; ++i) tensors.push_back(tensor_of(count, 1));
    const std::vector<CollectiveValue> values{{tensors, tensors}};
    const TransportCounters before = collectives.counters();
    collectives.all_reduce({.kind = "test",
                            .sequence = 1,
                            .op = ReduceOp::SUM,
                            .deadline = Deadline::after_timeout_seconds(60),
                            .deterministic = true,
                            .grouping_independent = grouping_independent},
                           values);
    const TransportCounters after = collectives.counters();
    EXPECT_EQ(after.bytes_sent - before.bytes_sent, bytes) << num_ranks << ", " << num_replicas;
    EXPECT_EQ(after.bytes_received - before.bytes_received, bytes);
    const auto elements = tensors.back().span<const float>();
    EXPECT_EQ(
        std::count(elements.begin(), elements.end(), static_cast<float>(num_ranks * num_replicas)),
        static_cast<std::ptrdiff_t>(count));
    cluster->barrier();
  };
  EXPECT_EQ(run_clusters(num_ranks, work), no_errors(num_ranks));
  ::unlink(tuning_file().c_str());
}

/// No more than a ring; and the price of not depending on the grouping, with two workers of eight replicas 4.5 times what they have.
TEST(TransportCollectivesPinned, DeterministicMovesNoMoreThanARing) {
  constexpr std::size_t kPart = 6 * kStagePart / sizeof(float);
  for (std::size_t n = 2; n <= 8; ++n) {
    const std::size_t count = n * kPart;
    const std::size_t part_bytes = kPart * sizeof(float);
    for (const std::size_t replicas : {1U, 3U, 8U}) {
      expect_bytes_of_deterministic(n, replicas, count, false, 2 * (n - 1) * part_bytes);
      const std::size_t each = replicas == 1 ? 2 : replicas + 1;
      expect_bytes_of_deterministic(n, replicas, count, true, each * (n - 1) * part_bytes);
    }
  }
}

TEST(TransportCollectivesPinned, LongValuesMoveOnInStages) {
  const auto floats = [](std::size_t num_ranks, std::size_t num_stages) {
    return num_stages * num_ranks * kStagePart / sizeof(float);
  };
  for (const std::size_t n : {3U, 4U, 5U, 8U}) {
    expect_traffic(R"({"all_reduce": [{"algorithm": "shuffle"}]})", n,
                   {floats(n, 1), floats(n, 2), floats(n, 7)}, of_shuffle_in_stages);
  }
  for (const std::size_t n : {4U, 8U, 16U}) {
    expect_traffic(R"({"all_reduce": [{"algorithm": "rechd"}]})", n,
                   {floats(n, 1), floats(n, 2), floats(n, 5)}, of_halving_doubling_in_stages);
  }
}

/// Nothing was measured, so that no link says whether an exchange would be better: it is halved and doubled, whose messages are fewer than an exchange's.
TEST(TransportCollectivesPinned, WhatCannotBeDoubledAsksNoLinks) {
  constexpr std::size_t kRanks = 8;
  std::ofstream(tuning_file()) << fmt::format(
      R"({{"all_reduce": [{{"up_to_bytes": {}, "algorithm": "doubling"}}, {{"algorithm": "ring"}}]}})",
      kMaxExchangeBytes);
  std::vector<std::unique_ptr<Transport>> transports =
      make_in_process_transports(static_cast<int>(kRanks));
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    TransportCollectives collectives(
        cluster, std::move(transports[static_cast<std::size_t>(cluster->rank())]));
    EXPECT_FALSE(collectives.tuning().links.has_value());
    const std::vector<Tensor> half{Tensor::zeros(DType::FLOAT16, {kRanks}, "CPU:0")};
    const std::vector<CollectiveValue> values{{half, half}};
    collectives.all_reduce({.kind = "test",
                            .sequence = 1,
                            .op = ReduceOp::SUM,
                            .deadline = Deadline::after_timeout_seconds(60)},
                           values);
    EXPECT_EQ(collectives.counters().messages_sent, 2 * 3);  // 2 log2 n
    cluster->barrier();
  };
  EXPECT_EQ(run_clusters(kRanks, work), no_errors(kRanks));
  ::unlink(tuning_file().c_str());
}

}  // namespace
}  // namespace crossdevice
