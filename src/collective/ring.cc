// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/ring.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using Kind = ScheduleStep::Kind;

void require_permutation(std::span<const std::size_t> order, std::size_t num_participants) {
  std::vector<bool> seen(num_participants, false);
  for (const std::size_t participant : order) {
    if (participant >= num_participants || seen[participant]) {
      throw ValueError("a ring of " + std::to_string(num_participants) + " names each of 0 to " +
                       std::to_string(num_participants - 1) + " once, participant " +
                       std::to_string(participant) + " is another one or stands there twice");
    }
    seen[participant] = true;
  }
  if (order.size() != num_participants) {
    throw ValueError("a ring of " + std::to_string(num_participants) +
                     " has as many positions, not " + std::to_string(order.size()));
  }
}

/// Participant order[k] is at position k; in the middle of an all-reduce it alone has all of segments[k].
struct Ring {
  std::vector<std::size_t> order;
  std::vector<Interval> segments;
};

Ring in_order(std::span<const Interval> parts) {
  Ring ring{.order = std::vector<std::size_t>(parts.size()),
            .segments = {parts.begin(), parts.end()}};
  std::iota(ring.order.begin(), ring.order.end(), std::size_t{0});
  return ring;
}

/// Empty, for participants that each have one of `parts`.
Schedule make_ring_schedule(std::span<const Interval> parts) {
  if (parts.empty()) throw ValueError("a ring needs at least 1 participant, got 0");
  std::size_t end = 0;
  for (const Interval& part : parts) {
    if (part.begin != end) throw ValueError("the parts of a ring lie one after the other");
    end = part.end();
  }
  return {.num_participants = parts.size(), .num_elements = end, .steps = {}};
}

// Within a tick nobody reads what another step of the tick writes: position k writes segment k - shift - tick, its successor reads the
// segment before that one. So the steps of a tick may stand in any order; TF's "values of the previous tick" are what they read. Backwards
// everybody but the last position sends before it receives, so that who takes the steps strictly in turn does not wait once around
// the ring.
void add_ticks(Schedule& schedule, const std::vector<Ring>& rings, Kind kind, std::size_t shift) {
  const std::size_t n = schedule.num_participants;
  for (std::size_t tick = 0; tick + 1 < n; ++tick) {
    for (const Ring& ring : rings) {
      for (std::size_t k = n; k-- > 0;) {
        const std::size_t segment = (k + 2 * n - shift - tick) % n;
        const std::size_t own = ring.order[k];
        const std::size_t predecessor = ring.order[(k + n - 1) % n];
        std::vector<std::size_t> sources{predecessor};
        if (kind == Kind::REDUCE) sources.push_back(own);
        schedule.add(kind, ring.segments[segment], own, std::move(sources));
      }
    }
  }
}

void add_reduce_scatter(Schedule& schedule, const std::vector<Ring>& rings) {
  add_ticks(schedule, rings, Kind::REDUCE, 2);
}
void add_all_gather(Schedule& schedule, const std::vector<Ring>& rings) {
  add_ticks(schedule, rings, Kind::COPY, 1);
}

}  // namespace

std::vector<std::vector<std::size_t>> ring_orders(std::span<const std::vector<std::size_t>> workers,
                                                  std::size_t num_subchunks) {
  std::size_t num_participants = 0;
  for (const std::vector<std::size_t>& members : workers) num_participants += members.size();
  if (num_participants == 0) return {};
  if (num_subchunks == 0) throw ValueError("a ring has at least 1 sub-chunk, not 0");
  std::vector<std::vector<std::size_t>> orders(num_subchunks);
  for (std::size_t s = 0; s < num_subchunks; ++s) {
    orders[s].reserve(num_participants);
    for (const std::vector<std::size_t>& members : workers) {
      const std::size_t size = members.size();
      const std::size_t interval = std::max<std::size_t>(1, size / num_subchunks);
      for (std::size_t k = 0; k < size; ++k) {
        orders[s].push_back(members[(k + s * interval) % size]);
      }
    }
    require_permutation(orders[s], num_participants);
  }
  return orders;
}

Schedule ring_schedule(std::size_t num_elements, std::span<const std::vector<std::size_t>> orders) {
  if (orders.empty()) throw ValueError("a ring schedule needs at least 1 ring, got 0");
  const std::size_t n = orders[0].size();
  if (n == 0) throw ValueError("a ring needs at least 1 participant, got 0");
  for (const std::vector<std::size_t>& order : orders) require_permutation(order, n);

  const std::size_t num_rings = orders.size();
  Schedule schedule{.num_participants = n, .num_elements = num_elements, .steps = {}};
  const std::vector<Interval> chunks =
      padded_split({.begin = 0, .count = num_elements}, n * num_rings);
  schedule.steps.reserve(2 * (n - 1) * n * num_rings);
  std::vector<Ring> rings(num_rings);
  for (std::size_t s = 0; s < num_rings; ++s) {
    rings[s].order = orders[s];
    rings[s].segments.reserve(n);
    for (std::size_t k = 0; k < n; ++k) rings[s].segments.push_back(chunks[k * num_rings + s]);
  }
  add_reduce_scatter(schedule, rings);
  add_all_gather(schedule, rings);
  return schedule;
}

Schedule ring_reduce_scatter_schedule(std::span<const Interval> parts) {
  Schedule schedule = make_ring_schedule(parts);
  add_reduce_scatter(schedule, {in_order(parts)});
  return schedule;
}

Schedule ring_all_gather_schedule(std::span<const Interval> parts) {
  Schedule schedule = make_ring_schedule(parts);
  add_all_gather(schedule, {in_order(parts)});
  return schedule;
}

}  // namespace crossdevice
