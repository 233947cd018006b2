// SPDX-License-Identifier: Apache-2.0
// TensorFlow's tests of its broadcast tree (catalogue 8.10, RT-14), on ours: whom each rank sends to, that it delivers from every source, and in how many
// messages.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/rooted.h"
#include "crossdevice/collective/transport_collectives.h"
#include "crossdevice/comm/in_process_transport.h"

#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using testing::no_errors;
using testing::run_clusters;
/// To whom each rank sends, in order.
using Children = std::map<std::size_t, std::vector<std::size_t>>;

Children children_of(std::size_t num_ranks, std::size_t source) {
  Children children;
  for (const ScheduleStep& step : tree_broadcast_schedule(num_ranks, 1, source).steps) {
    EXPECT_EQ(step.sources.size(), 1U);
    children[step.sources[0]].push_back(step.target);
  }
  return children;
}

/// The children of who lies `distance` behind the source: those that lie a power of two farther, which is more than `distance`.
std::size_t num_children(std::size_t num_ranks, std::size_t distance) {
  std::size_t num = 0;
  for (std::size_t power = std::bit_ceil(distance + 1); distance + power < num_ranks; power *= 2) {
    ++num;
  }
  return num;
}

TEST(BroadcastTree, RT14_WhoSendsToWhom) {
  EXPECT_EQ(children_of(1, 0), Children());
  EXPECT_EQ(children_of(4, 1), (Children{{1, {2, 3}}, {2, {0}}}));
  EXPECT_EQ(children_of(8, 0), (Children{{0, {1, 2, 4}}, {1, {3, 5}}, {2, {6}}, {3, {7}}}));
  EXPECT_EQ(children_of(8, 7), (Children{{7, {0, 1, 3}}, {0, {2, 4}}, {1, {5}}, {2, {6}}}));
}

template <class T>
void expect_delivered(TransportCollectives& collectives, std::size_t rank, std::size_t source) {
  constexpr std::size_t kCount = 97;
  const auto value_of = [](std::size_t of) { return static_cast<T>(of + 1); };
  const auto buffer = std::make_unique<T[]>(kCount);  // a vector of bools has none
  const std::span<T> values(buffer.get(), kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    values[i] = rank == source && i % 2 == 0 ? value_of(source) : T();
  }
  collectives.broadcast({.kind = "broadcast", .deadline = Deadline::after_timeout_seconds(60)},
                        Tensor::view(values, "CPU:0"), static_cast<int>(source));
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(values[i], i % 2 == 0 ? value_of(source) : T()) << i;
  }
}

TEST(BroadcastTree, RT14_DeliversFromEverySource) {
  for (const std::size_t n : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 16U}) {
    std::vector<std::unique_ptr<Transport>> transports =
        make_in_process_transports(static_cast<int>(n));
    const auto num_agreeing = static_cast<std::size_t>(std::bit_width(n - 1));
    const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
      const auto rank = static_cast<std::size_t>(cluster->rank());
      TransportCollectives collectives(cluster, std::move(transports[rank]));
      for (std::size_t source = 0; source < n; ++source) {
        SCOPED_TRACE(fmt::format("rank {} of {}, source {}", rank, n, source));
        const std::size_t distance = (rank + n - source) % n;
        const TransportCounters before = collectives.counters();
        expect_delivered<bool>(collectives, rank, source);
        expect_delivered<std::int32_t>(collectives, rank, source);
        expect_delivered<float>(collectives, rank, source);
        expect_delivered<double>(collectives, rank, source);
        const TransportCounters after = collectives.counters();
        EXPECT_EQ(after.messages_sent - before.messages_sent,
                  4 * (num_agreeing + num_children(n, distance)));
        EXPECT_EQ(after.messages_received - before.messages_received,
                  4 * (num_agreeing + (distance == 0 ? 0 : 1)));
      }
      cluster->barrier();
    };
    EXPECT_EQ(run_clusters(n, work), no_errors(n));
  }
}

}  // namespace
}  // namespace crossdevice
